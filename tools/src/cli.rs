//! The command line: `gdrcopy TOOL OPTIONS`, or `gdrcopy_TOOL OPTIONS` through a link of that name.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::doctor::probe;
use crate::commands::{apiperf, compare, copybw, copylat, doctor, pplat, ps, tune};
use crate::output;

/// Measures and examines CPU access to NVIDIA GPU memory, with any libgdrapi.
///
/// Each tool can also be started as gdrcopy_TOOL. Exit status: 0 for success, 1 for failure, 2 for
/// wrong options, 130 after Ctrl-C.
#[derive(Debug, Parser)]
#[command(
    name = "gdrcopy",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    args_override_self = true // As with getopt: the last value counts.
)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) tool: Tool,
}

/// The tools with their options.
#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    /// Bandwidth of copies to and from a mapped GPU buffer
    Copybw(copybw::Options),
    /// Latency of copies of all sizes
    Copylat(copylat::Options),
    /// Copies of many sizes and alignments through several libraries, side by side
    Compare(compare::Options),
    /// Time of the calls that pin and map
    Apiperf(apiperf::Options),
    /// Latency of a ping-pong between CPU and GPU
    Pplat(pplat::Options),
    /// Settings of UCX and NCCL that fit the measured mapping
    Tune(tune::Options),
    /// Diagnoses whether GDRCopy works on this system, and suggests fixes
    Doctor(doctor::Options),
    /// Lists the processes that use GDRCopy, with the size of their mappings
    Ps(ps::Options),
}

/// The prefix of the names of links.
pub const LINK_PREFIX: &str = "gdrcopy_";

/// Runs the tool that the command line names.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.collect();
    if let [_, first, work] = &arguments[..]
        && first == probe::ARGUMENT
    {
        let result = probe::answer(&work.to_string_lossy());
        return result.unwrap_or_else(|error| output::print_error("doctor", &error));
    }
    // Clap ends the process: with 0 for --help and --version, with 2 for wrong options.
    let cli = Cli::parse_from(with_tool(arguments));
    let (tool, result) = match &cli.tool {
        Tool::Copybw(options) => ("copybw", copybw::run(options)),
        Tool::Copylat(options) => ("copylat", copylat::run(options)),
        Tool::Compare(options) => ("compare", compare::run(options)),
        Tool::Apiperf(options) => ("apiperf", apiperf::run(options)),
        Tool::Pplat(options) => ("pplat", pplat::run(options)),
        Tool::Tune(options) => ("tune", tune::run(options)),
        Tool::Doctor(options) => ("doctor", doctor::run(options)),
        Tool::Ps(options) => ("ps", ps::run(options)),
    };
    result.unwrap_or_else(|error| output::print_error(tool, &error))
}

/// The command line with the tool that the program's own name contains.
fn with_tool(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().and_then(|path| Path::new(path).file_name());
    let tool = name.and_then(|name| name.to_str()?.strip_prefix(LINK_PREFIX));
    if let Some(tool) = tool.map(OsString::from) {
        arguments[0] = "gdrcopy".into();
        arguments.insert(1, tool);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn arguments(words: &str) -> Vec<OsString> {
        words.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn definitions_are_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn link_name_selects_the_tool() {
        let linked = with_tool(arguments("/usr/bin/gdrcopy_copybw -s 1"));
        assert_eq!(linked, arguments("gdrcopy copybw -s 1"));
        let plain = arguments("./gdrcopy copybw -s 1");
        assert_eq!(with_tool(plain.clone()), plain);
    }
}
