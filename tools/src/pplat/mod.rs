//! `gdrcopy pplat`: latency of a ping-pong between CPU and GPU.
//!
//! ```text
//! options → Session → game.rs: rounds of all libraries, in turn → report.rs → text, JSON, CSV
//!     board.rs     the flags and the data, each in GPU or in host memory
//!     kernel.rs    the GPU's side, kernel.ptx
//! ```
mod board;
mod game;
mod kernel;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;

use crate::bytes::Bytes;
use crate::ending;
use crate::failure::Usage;
use crate::options::{Format, Output, Target};
use crate::session::Session;

/// The options of `gdrcopy pplat`.
#[derive(Debug, Args)]
pub struct Options {
    /// How many rounds are timed
    #[arg(
        short = 't',
        long,
        default_value_t = 1000,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..=1 << 30)
    )]
    pub iterations: u32,

    /// Seconds to wait for the GPU's answer; 0: for ever
    #[arg(short = 'u', long, default_value_t = 10, value_name = "SECONDS")]
    pub timeout: u64,

    /// Bytes of data in each round; 0: flags alone
    #[arg(short, long, default_value = "0", value_name = "BYTES")]
    pub size: Bytes,

    /// Blocks of the kernel; all must fit on the GPU side by side
    #[arg(
        short = 'B',
        long,
        default_value_t = 8,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..=65535)
    )]
    pub blocks: u32,

    /// Threads of a block
    #[arg(
        short = 'T',
        long,
        default_value_t = 1024,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..=1024)
    )]
    pub threads: u32,

    /// Where the flag is that the GPU waits for
    #[arg(
        short = 'G',
        long,
        value_enum,
        default_value = "gpumem",
        value_name = "PLACE"
    )]
    pub gpu_flag: Place,

    /// Where the flag is that the CPU waits for
    #[arg(
        short = 'C',
        long,
        value_enum,
        default_value = "hostmem",
        value_name = "PLACE"
    )]
    pub cpu_flag: Place,

    /// Where the data is
    #[arg(
        short = 'D',
        long = "data",
        value_enum,
        default_value = "gpumem",
        value_name = "PLACE"
    )]
    pub data: Place,

    /// Who produces the data: 0: the CPU, and the GPU consumes it; 1: the reverse
    #[arg(short, long, default_value = "0", value_parser = PossibleValuesParser::new(["0", "1"]))]
    pub mode: String,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    output: Output,
}

/// Which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The GPU's, which the CPU reaches through the mapping
    #[value(name = "gpumem")]
    GpuMem,
    /// The host's, which the GPU reaches through PCIe
    #[value(name = "hostmem")]
    HostMem,
}

/// The most data: the kernel counts words in 32 bits.
const MAX_DATA: usize = 4 << 30;

/// Runs it.
///
/// # Errors
/// Something fails; the message says what to do.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.size.0 > MAX_DATA {
        return Err(Usage("-s: 4G of data at most".into()).into());
    }
    let session = Session::open("pplat", &options.target, board::gpu_bytes(options.size.0))?;
    let rules = game::Rules {
        iterations: options.iterations,
        timeout: (options.timeout > 0).then(|| Duration::from_secs(options.timeout)),
        blocks: options.blocks,
        threads: options.threads,
        gpu_produces: options.mode == "1",
        verify: options.target.verify,
        layout: board::Layout {
            gpu_flag: options.gpu_flag,
            cpu_flag: options.cpu_flag,
            data: options.data,
            size: options.size.0,
        },
    };
    let results = game::play(&session, rules)?;
    ending::tell(&match options.output.format {
        Format::Text => report::text(&results),
        Format::Json => report::json(&results)?,
        Format::Csv => report::csv(&results)?,
    })?;
    let mut is_wrong = false;
    for player in results.players.iter().filter(|player| player.wrong > 0) {
        let (label, wrong) = (&player.label, player.wrong);
        eprintln!("gdrcopy pplat: {label}: {wrong} words of the data were wrong");
        is_wrong = true;
    }
    if is_wrong {
        return Ok(ExitCode::FAILURE);
    }
    Ok(ending::of_run("pplat", results.interrupted))
}
