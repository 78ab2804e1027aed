//! The options of `gdrcopy pplat`.
#![forbid(unsafe_code)]

use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;

use crate::measure::options::SharedOptions;
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

    #[command(flatten)]
    pub(super) exchange: Exchange,

    #[command(flatten)]
    pub(super) shared: SharedOptions,
}

/// A round of the ping-pong.
#[derive(Clone, Copy, Debug, Args, Serialize)]
pub(super) struct Exchange {
    /// Bytes of data in each round
    #[arg(short, long, default_value = "0", value_name = "BYTES")]
    #[serde(rename = "size_bytes")]
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
    #[arg(short = 'D', long, value_enum, hide_possible_values = true, default_value = "gpumem", value_name = "PLACE")]
    pub(super) data: Place,

    /// Producer, 0 (the CPU) or 1 (the GPU)
    #[arg(short, long, value_enum, hide_possible_values = true, default_value = "0", value_name = "MODE")]
    #[serde(rename = "producer")]
    pub(super) mode: Producer,
}

/// The side that writes the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Producer {
    #[value(name = "0")]
    Cpu,
    #[value(name = "1")]
    Gpu,
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[value(rename_all = "lower")]
#[serde(rename_all = "lowercase")]
pub(super) enum Place {
    GpuMem,
    HostMem,
}
