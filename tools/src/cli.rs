//! The command line, `gdrcopy TOOL OPTIONS`, or `gdrcopy_TOOL OPTIONS` through a link of that name.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{ArgAction, Parser, Subcommand};

use crate::commands::doctor::probe;
use crate::commands::{apiperf, compare, copies, doctor, pplat, ps, trace, tune};
use crate::output;

/// Measures and examines CPU access to NVIDIA GPU memory, with any libgdrapi.
///
/// copies, apiperf and pplat can also be started as gdrcopy_copybw and so on, as NVIDIA's programs.
#[derive(Debug, Parser)]
#[command(
    name = "gdrcopy",
    version,
    disable_help_flag = true,
    disable_help_subcommand = true,
    args_override_self = true, // If an option is given twice, the last value counts, as with getopt.
    after_help = "`gdrcopy TOOL --help` lists its options, `man gdrcopy-TOOL` describes them.",
    after_long_help = format!("{EXAMPLES}\n\n{EXIT_STATUS}")
)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) tool: Tool,

    /// Print help
    // This prints the short help, which fits on one screen. The long texts are for the man pages.
    #[arg(short, long, global = true, action = ArgAction::HelpShort, display_order = 99)]
    help: Option<bool>,
}

const EXAMPLES: &str = "\
Examples:
  gdrcopy doctor
  gdrcopy copylat --json copylat.json
  gdremu -- gdrcopy copylat";

/// The text on the exit status in the help of all tools whose help has no such text of its own.
pub const EXIT_STATUS: &str =
    "Exit status: 0 for success, 1 if a call failed or a byte was copied wrong, 2 for wrong options, 130 after Ctrl-C.";

#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    /// Diagnoses whether GDRCopy works on this system, and suggests fixes
    ///
    /// Examines gdrdrv, the GPU driver, CUDA, each GPU, limits and libraries, and copies 1 MiB to and from each GPU in a
    /// child process. Needs no privileges; root also sees who has pinned GPU memory.
    Doctor(doctor::Options),
    /// Lists the processes that use GDRCopy, and their mappings
    ///
    /// They have /dev/gdrdrv open or mapped, or a file named libgdrapi*.so* loaded.
    Ps(ps::Options),
    /// Runs a program, and reports how it used libgdrapi
    ///
    /// Counts pins, maps and copies with their times, names the code that pinned, and finds misuse.
    Trace(trace::Options),
    /// Settings of UCX and NCCL that fit the measured mapping
    ///
    /// Copies 8 bytes and 64 KiB both ways, and prints a shell fragment. It has the environment variables of UCX and
    /// NCCL, and as comments the measurements that they follow from.
    Tune(tune::Options),
    /// Bandwidth of copies to and from a mapped GPU buffer
    ///
    /// Copies the buffer or a part of it, and reports bandwidth and times. MiB are called MB as by NVIDIA's copybw, whose
    /// options it accepts. Ctrl-C prints the results so far. Sizes are bytes, or end in K, M or G.
    Copybw(copies::Copybw),
    /// Latency of copies of all sizes
    ///
    /// Copies 1, 2, 4, 8, … bytes, and reports the times of a call. Accepts the options of NVIDIA's copylat. Ctrl-C prints
    /// the results so far. Sizes are bytes, or end in K, M or G.
    Copylat(copies::Copylat),
    /// Copies through several libraries, side by side
    ///
    /// Copies many sizes. Loads all libraries into one process, which take turns. Every byte is checked through CUDA. All
    /// methods are compared with the first library.
    Compare(compare::Options),
    /// Time of the calls that pin and map
    ///
    /// Pins, maps, queries, unmaps and unpins buffers of 64 KiB, 128 KiB, … many times. Accepts the options of NVIDIA's
    /// apiperf.
    Apiperf(apiperf::Options),
    /// Latency of a ping-pong between CPU and GPU
    ///
    /// A GPU kernel and the CPU answer each other's writes. Accepts the options of NVIDIA's pplat.
    Pplat(pplat::Options),
}

/// The tools that NVIDIA has as programs of their own, named `gdrcopy_TOOL`.
pub const LINKS: [&str; 4] = ["copybw", "copylat", "apiperf", "pplat"];

/// Runs the tool that the command line names.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.collect();
    if let [_, first, work] = &arguments[..]
        && first == probe::ARGUMENT
    {
        let result = probe::answer(&work.to_string_lossy());
        return result.unwrap_or_else(|error| output::print_error("doctor", &error));
    }
    let arguments = with_tool(arguments);
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let tool = arguments.get(1).map(|tool| tool.to_string_lossy()).unwrap_or_default();
            if let Some(line) = advice(&tool, &error) {
                eprintln!("{line}");
                return ExitCode::from(2);
            }
            // Clap ends the process, with 0 for --help and --version, with 2 for wrong options.
            error.exit();
        }
    };
    let (tool, result) = match &cli.tool {
        Tool::Copybw(options) => ("copybw", copies::copybw(options)),
        Tool::Copylat(options) => ("copylat", copies::copylat(options)),
        Tool::Compare(options) => ("compare", compare::run(options)),
        Tool::Apiperf(options) => ("apiperf", apiperf::run(options)),
        Tool::Pplat(options) => ("pplat", pplat::run(options)),
        Tool::Tune(options) => ("tune", tune::run(options)),
        Tool::Doctor(options) => ("doctor", doctor::run(options)),
        Tool::Ps(options) => ("ps", ps::run(options)),
        Tool::Trace(options) => ("trace", trace::run(options)),
    };
    result.unwrap_or_else(|error| output::print_error(tool, &error))
}

/// Turns the command line `gdrcopy_TOOL OPTIONS` into `gdrcopy TOOL OPTIONS`. Other command lines stay as they are.
fn with_tool(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(program) = arguments.first() else { return arguments };
    let name = Path::new(program).file_name().unwrap_or_default().to_owned();
    for tool in LINKS {
        if *name == *format!("gdrcopy_{tool}") {
            arguments[0] = "gdrcopy".into();
            arguments.insert(1, tool.into());
            break;
        }
    }
    arguments
}

const SWEEP: &str = "`gdrcopy copylat` measures all sizes";
const PLOT: &str = "--json FILE has the numbers, and tools/plot.py of the sources draws them";

/// Options that the measuring tools once had, and what to use instead.
const REMOVED: [(&str, &str); 8] = [
    ("-l", SWEEP),
    ("--sweep", SWEEP),
    ("--plot", PLOT),
    ("--svg", PLOT),
    ("--verify", "every byte is checked"),
    ("--alloc=pool", "use cuMemAlloc or cuMemCreate"),
    ("--alloc=auto", "use cuMemAlloc, or cuMemCreate if that cannot be pinned"),
    ("--format=csv", "use --format=json"),
];

/// Tools that were removed.
const REMOVED_TOOLS: [&str; 3] = ["checkpoint", "suspend", "resume"];
/// The advice for users of the removed tools, which prepared programs for CRIU. docs/troubleshooting.md has it, too.
const WITHOUT_CHECKPOINTS: &str = "call gdr_unpin_buffer and gdr_close before CRIU's dump, or run that job with the engine's \
    switch for GDRCopy off; `gdrcopy ps` lists the processes that hold pins";

/// Returns the line to print if a removed tool, or a removed option of this tool, has caused the error.
fn advice(tool: &str, error: &clap::Error) -> Option<String> {
    if error.kind() == ErrorKind::InvalidSubcommand && REMOVED_TOOLS.contains(&tool) {
        return Some(format!("gdrcopy: {tool} was removed: {WITHOUT_CHECKPOINTS}"));
    }
    if !LINKS.contains(&tool) && tool != "compare" {
        return None;
    }
    let named = error.get(ContextKind::InvalidArg)?.to_string();
    let named = match error.kind() {
        ErrorKind::UnknownArgument => named,
        // `named` has the option's name, a blank, and the placeholder of its value. Only the name is needed.
        ErrorKind::InvalidValue => {
            format!("{}={}", named.split(' ').next()?, error.get(ContextKind::InvalidValue)?)
        }
        _ => return None,
    };
    let (option, instead) = REMOVED.iter().find(|(option, _)| *option == named)?;
    Some(format!("gdrcopy {tool}: {option} was removed: {instead}"))
}
