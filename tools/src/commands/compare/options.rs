//! The options of `gdrcopy compare`.
#![forbid(unsafe_code)]

use clap::Args;

use crate::commands::CopyOptions;
use crate::measure::method::Kind;
use crate::measure::plan::Direction;
use crate::system::bytes::Bytes;
use crate::system::environment::Environment;

/// The options of `gdrcopy compare`.
///
/// All methods are compared with the first library.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy compare --cpu 4 --with memcpy,cumemcpy --json results.json --plot compare.svg
  gdrcopy compare --cpu 4-11 --variant GDRCOPY_USE_DMABUF_MMAP=1 --sizes 4,64,1K")]
pub(crate) struct Options {
    /// The first library again, loaded with these environment variables; may be repeated
    #[arg(long = "variant", value_name = "NAME=VALUE[,…]")]
    pub(super) variants: Vec<Environment>,

    /// The first library again for each copy routine that this CPU supports (GDRCOPY_ISA)
    #[arg(long)]
    pub(super) all_routines: bool,

    /// Other methods, besides the libraries
    #[arg(long = "with", value_enum, value_delimiter = ',', value_name = "LIST")]
    pub(super) others: Vec<Kind>,

    /// Directions, seen from the CPU
    #[arg(long, value_enum, value_delimiter = ',', default_value = "write,read", value_name = "LIST")]
    pub(super) direction: Vec<Direction>,

    /// Bytes, with K, M or G
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "1,2,3,4,5,7,8,12,15,16,24,32,33,48,63,64,65,100,128,200,256,512,1000,1K,2K,4K,5000,8K,16K,\
                         32K,64K,128K,256K,512K,1M,4M,16M"
    )]
    pub(super) sizes: Vec<Bytes>,

    /// Bytes past a cache line on the device side
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "0,1,4,8,20,32,63")]
    pub(super) alignments: Vec<Bytes>,

    /// Bytes past a cache line on the host side
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "0")]
    pub(super) host_alignments: Vec<Bytes>,

    /// Time for more than the minimum of 21 samples per point
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(super) budget: u64,

    #[command(flatten)]
    pub(super) copies: CopyOptions,
}
