//! `gdrcopy pplat`: latency of a ping-pong between CPU and GPU.
//!
//! ```text
//! options → Session → run.rs: rounds of all libraries, in turn → report.rs: text, JSON, CSV
//!     gpu_kernel.rs  the GPU's side, kernel.ptx
//!     buffers.rs     the flags and the data, each in GPU or in host memory
//! ```
mod buffers;
mod gpu_kernel;
mod report;
mod run;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Args, value_parser};

use crate::measure::session::{Extra, Session};
use crate::measure::target::Target;
use crate::output::{self, Output, Usage};
use crate::system::bytes::Bytes;
use buffers::{Layout, Place};

/// The options of `gdrcopy pplat`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy pplat --cpu 4 --size 4096")]
pub(crate) struct Options {
    /// Number of timed rounds
    #[arg(
        short = 't',
        long,
        default_value_t = 1000,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..=1 << 30)
    )]
    iterations: u32,

    /// Seconds to wait for the GPU's answer; 0 is forever
    #[arg(short = 'u', long, default_value_t = 10, value_name = "SECONDS")]
    timeout: u64,

    /// Bytes of data in each round; 0 is only flags
    #[arg(short, long, default_value = "0", value_name = "BYTES")]
    size: Bytes,

    /// Blocks of the GPU kernel; all must fit on the GPU at the same time
    #[arg(
        short = 'B',
        long,
        default_value_t = 8,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..=65535)
    )]
    blocks: u32,

    /// Threads per block
    #[arg(
        short = 'T',
        long,
        default_value_t = 1024,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..=1024)
    )]
    threads: u32,

    /// Location of the flag that the GPU waits for
    #[arg(short = 'G', long, value_enum, default_value = "gpumem", value_name = "PLACE")]
    gpu_flag: Place,

    /// Location of the flag that the CPU waits for
    #[arg(short = 'C', long, value_enum, default_value = "hostmem", value_name = "PLACE")]
    cpu_flag: Place,

    /// Location of the data
    #[arg(short = 'D', long = "data", value_enum, default_value = "gpumem", value_name = "PLACE")]
    data: Place,

    /// Producer of the data, 0 for the CPU, and the GPU consumes it, 1 for the reverse
    #[arg(short, long, default_value = "0", value_parser = PossibleValuesParser::new(["0", "1"]))]
    mode: String,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    output: Output,
}

/// The most data, because the GPU kernel counts words in 32 bits.
const MAX_DATA: usize = 4 << 30;

/// Runs the tool.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let size = options.size.0;
    if size > MAX_DATA {
        return Err(Usage("--size: maximum is 4G".into()).into());
    }
    let len = buffers::gpu_bytes(size);
    let session = Session::open("pplat", &options.target, len, &Extra::default())?;
    let config = run::Config {
        iterations: options.iterations,
        timeout: (options.timeout > 0).then(|| Duration::from_secs(options.timeout)),
        blocks: options.blocks,
        threads: options.threads,
        gpu_produces: options.mode == "1",
        verify: options.target.verify,
        layout: Layout { gpu_flag: options.gpu_flag, cpu_flag: options.cpu_flag, data: options.data, size },
    };
    let results = run::run(&session, config)?;
    report::write(&results, &options.output)?;
    let mut status = output::exit_status("pplat", results.interrupted);
    for library in results.libraries.iter().filter(|library| library.wrong > 0) {
        let (label, wrong) = (&library.label, library.wrong);
        eprintln!("gdrcopy pplat: {label}: {wrong} words of the data were wrong");
        status = ExitCode::FAILURE;
    }
    Ok(status)
}
