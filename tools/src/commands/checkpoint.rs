//! `gdrcopy checkpoint` starts a program that `gdrcopy suspend` can suspend.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::libgdrapi::preload;

#[derive(Debug, Args)]
#[command(after_help = "\
The program takes the place of this process, and needs no changes. Linked or
opened by dlopen, libgdrapi.so and libgdrapi.so.2 are served, of any maker, also
in the processes that it starts.

Examples:
  gdrcopy checkpoint -- ./program arguments")]
pub(crate) struct Options {
    /// libgdrapi for the program [default: that of the loader]
    #[arg(long, value_name = "FILE")]
    lib: Option<PathBuf>,

    /// The program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Returns only if the program cannot be started.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let preloaded = preload::variable(["libgdrcopy_checkpoint.so", "libgdrcopy_checkpoint_alias.so"])?;
    let library = preload::library(options.lib.as_deref())?;
    let mut command = Command::new(&options.program[0]);
    command.args(&options.program[1..]).env("LD_PRELOAD", preloaded).env("GDRCHECKPOINT_LIBRARY", library);
    Err(command.exec()).context(options.program[0].display().to_string())
}
