//! `gdrcopy TOOL`, or a link to it with the name `gdrcopy_TOOL`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gdrcopy_tools::cli::run(std::env::args_os())
}
