//! The command line.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use gdrcopy_tools::bytes::Bytes;
use gdrcopy_tools::cpu::CpuList;
use gdrcopy_tools::options::NamedFile;
use serde::Serialize;

use crate::environment::Environment;

/// Times copies to and from mapped GPU memory through several libgdrapi files, side by side.
///
/// The first library is the one that the others are compared with. Exit status 1 if a byte was
/// copied wrong.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Options {
    /// A libgdrapi file, and what to call it; give it again for each further one
    #[arg(long = "lib", value_name = "[LABEL=]FILE", required = true)]
    pub(crate) libraries: Vec<NamedFile>,

    /// The first library once more, loaded with these environment variables
    #[arg(long = "variant", value_name = "NAME=VALUE[,…]")]
    pub(crate) variants: Vec<Environment>,

    /// The first library once more for each copy kernel that this CPU runs (GDRCOPY_ISA)
    #[arg(long)]
    pub(crate) kernel_matrix: bool,

    /// Other ways to copy, beside the libraries
    #[arg(long = "with", value_enum, value_delimiter = ',', value_name = "LIST")]
    pub(crate) others: Vec<Other>,

    /// Directions, seen from the CPU
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "to,from",
        value_name = "LIST"
    )]
    pub(crate) direction: Vec<Direction>,

    /// Bytes, with K, M or G
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "1,2,3,4,5,7,8,12,15,16,24,32,33,48,63,64,65,100,128,200,256,512,1000,1K,2K,4K,5000,8K,16K,\
                         32K,64K,128K,256K,512K,1M,4M,16M"
    )]
    pub(crate) sizes: Vec<Bytes>,

    /// Bytes past a cache line on the device side
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "0,1,4,8,20,32,63"
    )]
    pub(crate) alignments: Vec<Bytes>,

    /// Bytes past a cache line on the host side
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "0")]
    pub(crate) host_alignments: Vec<Bytes>,

    /// CPUs to run on, as 4 or 4-11: the first one measures, threads of the libraries may use all
    #[arg(long, value_name = "LIST")]
    pub(crate) cpu: Option<CpuList>,

    /// The GPU's number
    #[arg(long, default_value_t = 0)]
    pub(crate) gpu: i32,

    /// Throw the host side out of the CPU's caches before each call that is timed (x86-64)
    #[arg(long)]
    pub(crate) cold: bool,

    /// Seconds that the measurements may take; there are never fewer than 21 repetitions
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) budget: u64,

    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Draw time over size to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// A way to copy that is not a libgdrapi.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Other {
    /// The C library's memcpy on the mapping
    Memcpy,
    /// cuMemcpyHtoD and cuMemcpyDtoH, from and to pinned memory
    #[value(name = "cumemcpy")]
    CuMemcpy,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// Writes: to the mapping
    To,
    /// Reads: from the mapping
    From,
}

impl Direction {
    /// What reports call it.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Direction::To => "write",
            Direction::From => "read",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_sweep_is_the_documented_one() {
        let options = Options::try_parse_from(["compare", "--lib", "a.so"]).unwrap();
        assert_eq!(options.sizes.first(), Some(&Bytes(1)));
        assert_eq!(options.sizes.last(), Some(&Bytes(16 << 20)));
        assert!(options.sizes.is_sorted_by(|a, b| a.0 < b.0));
        let alignments: Vec<_> = options.alignments.iter().map(|bytes| bytes.0).collect();
        assert_eq!(alignments, [0, 1, 4, 8, 20, 32, 63]);
        assert_eq!(options.direction, [Direction::To, Direction::From]);
    }
}
