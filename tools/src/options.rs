//! Options that several tools have.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};

use crate::cpu::CpuList;
use crate::cuda::Memory;
use crate::library::MappingType;

/// Which library copies, to what memory of which GPU, from which CPU.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// The GPU's number
    #[arg(short = 'd', long = "gpu", default_value_t = 0, value_name = "N")]
    pub gpu: i32,

    /// Where the GPU memory comes from
    #[arg(
        short = 'a',
        long = "alloc",
        value_enum,
        ignore_case = true,
        default_value = "cuMemAlloc",
        value_name = "KIND"
    )]
    pub memory: MemoryChoice,

    /// What kind of mapping to ask for
    #[arg(
        short = 'M',
        long = "mapping",
        value_enum,
        default_value = "default",
        value_name = "TYPE"
    )]
    pub mapping: MappingType,

    /// A libgdrapi file, and what to call it; give it twice to compare two, side by side. Without it,
    /// the one that the loader finds
    #[arg(long = "lib", value_name = "[LABEL=]FILE")]
    pub libraries: Vec<NamedFile>,

    /// CPUs to run on, as 4 or 4-11: the first one measures
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<CpuList>,

    /// Check every byte that was copied, with CUDA's own copies
    #[arg(
        long,
        action = ArgAction::Set,
        value_parser = PossibleValuesParser::new(["yes", "no"]).map(|answer| answer == "yes"),
        num_args = 0..=1,
        require_equals = true,
        default_value = "yes",
        default_missing_value = "yes",
        value_name = "ANSWER"
    )]
    pub verify: bool,
}

/// Where GPU memory comes from, and what to do where it cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MemoryChoice {
    /// cuMemAlloc
    #[value(name = "cuMemAlloc")]
    Alloc,
    /// cuMemCreate
    #[value(name = "cuMemCreate")]
    Create,
    /// The GPU's memory pool; cuMemAlloc where it has none
    #[value(name = "pool")]
    Pool,
    /// cuMemAlloc; cuMemCreate where that cannot be pinned
    #[value(name = "auto")]
    Auto,
}

impl MemoryChoice {
    /// What to try, in this order.
    pub fn candidates(self) -> &'static [Memory] {
        match self {
            MemoryChoice::Alloc => &[Memory::Alloc],
            MemoryChoice::Create => &[Memory::Create],
            MemoryChoice::Pool => &[Memory::Pool],
            MemoryChoice::Auto => &[Memory::Alloc, Memory::Create],
        }
    }
}

/// The form of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// One JSON document
    Json,
    /// One line a measurement, below a line of names
    Csv,
}

/// How to tell results.
#[derive(Clone, Debug, Args)]
pub struct Output {
    /// The form of the results on stdout
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// A file and the name it goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedFile {
    /// The name.
    pub label: String,
    /// The file.
    pub file: PathBuf,
}

impl FromStr for NamedFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (label, file) = match text.split_once('=') {
            Some((label, file)) => (label, file),
            None => (text.rsplit('/').next().unwrap_or(text), text),
        };
        if label.is_empty() || file.is_empty() {
            return Err("neither the label nor the file may be empty".into());
        }
        Ok(NamedFile {
            label: label.to_owned(),
            file: file.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_take_a_label_or_their_own_name() {
        let named = |text: &str| text.parse::<NamedFile>().map(|named| named.label);
        assert_eq!(named("ours=/x/libgdrapi.so").as_deref(), Ok("ours"));
        assert_eq!(named("/x/libgdrapi.so.2").as_deref(), Ok("libgdrapi.so.2"));
        assert!(named("=x").is_err());
        assert!(named("x=").is_err());
    }
}
