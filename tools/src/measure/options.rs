//! Options of all measuring tools for library, memory, GPU and CPU, and for the results.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap::Args;

use crate::cuda::Memory;
use crate::libgdrapi::MappingType;
use crate::output::Output;
use crate::system::cpu::CpuList;

#[derive(Debug, Args)]
pub(crate) struct SharedOptions {
    /// The GPU's number
    #[arg(short = 'd', long = "gpu", default_value_t = 0, value_name = "N")]
    pub(crate) gpu: i32,

    /// GPU memory by cuMemAlloc (default) or cuMemCreate
    #[arg(
        short = 'a',
        long = "alloc",
        value_enum,
        ignore_case = true,
        hide_possible_values = true,
        hide_default_value = true,
        default_value = "cuMemAlloc",
        value_name = "KIND"
    )]
    pub(crate) memory: Memory,

    /// Mapping: default, wc, cache or device
    #[arg(
        short = 'M',
        long = "mapping",
        value_enum,
        hide_possible_values = true,
        hide_default_value = true,
        default_value = "default",
        value_name = "TYPE"
    )]
    pub(crate) mapping: MappingType,

    /// A libgdrapi and its label; repeat it to compare
    ///
    /// By default the one that the loader finds. tune takes one, the others any number.
    #[arg(long = "lib", value_name = "[LABEL=]FILE", value_parser = named_file)]
    pub(crate) libraries: Vec<(String, PathBuf)>,

    /// CPU to run on, for tune two, as 4,6
    ///
    /// Of a list, all other tools use the first one.
    #[arg(long, value_name = "LIST")]
    pub(crate) cpu: Option<CpuList>,

    #[command(flatten)]
    pub(crate) output: Output,
}

fn named_file(text: &str) -> Result<(String, PathBuf), &'static str> {
    let own_name = text.rsplit('/').next().unwrap_or(text);
    let (label, file) = text.split_once('=').unwrap_or((own_name, text));
    if label.is_empty() || file.is_empty() {
        return Err("label and file must not be empty");
    }
    Ok((label.to_owned(), file.into()))
}
