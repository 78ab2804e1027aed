//! The options of `gdrcopy pplat`.
#![forbid(unsafe_code)]

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum, value_parser};
use serde::Serialize;

use crate::measure::target::Target;
use crate::output::Output;
use crate::system::bytes::Bytes;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy pplat --cpu 4 --size 4096")]
pub(crate) struct Options {
    /// Number of timed rounds
    #[arg(short = 't', long, default_value_t = 1000, value_name = "N", value_parser = value_parser!(u32).range(1..=1 << 30))]
    pub(super) iterations: u32,

    /// Seconds to wait; 0 is no limit
    #[arg(short = 'u', long, default_value_t = 10, value_name = "SECONDS")]
    pub(super) timeout: u64,

    /// Bytes of data in each round
    #[arg(short, long, default_value = "0", value_name = "BYTES")]
    pub(super) size: Bytes,

    /// Blocks of the GPU kernel
    ///
    /// All must fit on the GPU at the same time.
    #[arg(short = 'B', long, default_value_t = 8, value_name = "N", value_parser = value_parser!(u32).range(1..=65535))]
    pub(super) blocks: u32,

    /// Threads per block
    #[arg(short = 'T', long, default_value_t = 1024, value_name = "N", value_parser = value_parser!(u32).range(1..=1024))]
    pub(super) threads: u32,

    /// GPU's flag in gpumem or hostmem
    ///
    /// gpumem is GPU memory, which the CPU accesses through the mapping; hostmem is host memory, which the GPU accesses
    /// over PCIe.
    #[arg(short = 'G', long, value_enum, hide_possible_values = true, default_value = "gpumem", value_name = "PLACE")]
    pub(super) gpu_flag: Place,

    /// CPU's flag in gpumem or hostmem
    #[arg(short = 'C', long, value_enum, hide_possible_values = true, default_value = "hostmem", value_name = "PLACE")]
    pub(super) cpu_flag: Place,

    /// Data in gpumem or hostmem
    #[arg(
        short = 'D',
        long = "data",
        value_enum,
        hide_possible_values = true,
        default_value = "gpumem",
        value_name = "PLACE"
    )]
    pub(super) data: Place,

    /// Producer: 0 the CPU, 1 the GPU
    #[arg(
        short = 'm',
        long = "mode",
        action = ArgAction::Set,
        default_value = "0",
        hide_possible_values = true,
        value_parser = PossibleValuesParser::new(["0", "1"]).map(|mode| mode == "1"),
        value_name = "MODE"
    )]
    pub(super) gpu_produces: bool,

    #[command(flatten)]
    pub(super) target: Target,

    #[command(flatten)]
    pub(super) output: Output,
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    /// GPU memory, which the CPU accesses through the mapping
    #[value(name = "gpumem")]
    GpuMem,
    /// Host memory, which the GPU accesses over PCIe
    #[value(name = "hostmem")]
    HostMem,
}
