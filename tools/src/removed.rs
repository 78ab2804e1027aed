//! Options that older releases had, with what to use instead.
#![forbid(unsafe_code)]

use clap::error::{ContextKind, ErrorKind};

const MEASURING: &[&str] = &["copybw", "copylat", "compare", "apiperf", "pplat", "tune"];
const WITH_PLOTS: &[&str] = &["copylat", "compare", "apiperf"];
const WITH_RUNS: &[&str] = &["copybw", "copylat", "apiperf"];
const EXAMPLE: &str = "the crate's example `speed` times batches and gathers (docs/gdrx.md)";
const ROUTINES: &str = "run it with each GDRCOPY_ISA (docs/usage.md)";
const SWEEP: &str = "`gdrcopy copylat` measures all sizes";
const DRAW: &str = "--json FILE has the numbers, and tools/plot.py of the sources draws them";
const AGAIN: &str = "run the tool again, which pins and maps other memory";

/// The tools, the option, and what to use.
const REMOVED: [(&[&str], &str, &str); 30] = [
    (&["compare"], "--batch", EXAMPLE),
    (&["compare"], "--pattern", EXAMPLE),
    (&["compare"], "--kernel-matrix", ROUTINES),
    (&["compare"], "--all-routines", ROUTINES),
    (&["compare"], "--variant", "run it with the variable and without, and compare the results of --json"),
    (&["compare"], "--cold", "use sizes that no cache of the CPU holds, as --sizes 256M"),
    (&["copybw", "copylat"], "--cold", "use a size that no cache of the CPU holds, as --size 256M"),
    (&["compare"], "--direction", "both are measured; copybw -w 0 or -r 0 leaves one out"),
    (&["compare"], "--host-alignments", "host memory starts at a cache line; --alignment is for the GPU's side"),
    (&["compare"], "--alignments", "run it with each --alignment"),
    (&["copybw"], "-l", SWEEP),
    (&["copybw"], "--sweep", SWEEP),
    (&["copybw"], "--plot", SWEEP),
    (&["copybw"], "--svg", SWEEP),
    (MEASURING, "--alloc=pool", "use cuMemAlloc or cuMemCreate"),
    (MEASURING, "--alloc=auto", "use cuMemAlloc, or cuMemCreate if that cannot be pinned"),
    (MEASURING, "--verify", "every byte is checked"),
    (WITH_RUNS, "-R", AGAIN),
    (WITH_RUNS, "--runs", AGAIN),
    (MEASURING, "--format=csv", "use --format=json"),
    (&["ps"], "--format", "use --json"),
    (&["doctor"], "--pid", "use `gdrcopy ps`, which lists what processes have"),
    (WITH_PLOTS, "--svg", DRAW),
    (WITH_PLOTS, "--plot", DRAW),
    (&["tune"], "--svg", "--json FILE has the numbers"),
    (&["tune"], "--plot", "--json FILE has the numbers"),
    (&["trace"], "--live", "--json FILE has the numbers at the end"),
    (&["trace"], "--chrome", "perf trace shows single calls, with probes at the library's functions"),
    (&["trace"], "--min-time", "--json FILE has P50 and P99 of each size"),
    (&["trace"], "--plot", "--json FILE has the numbers"),
];

/// The line to print for an error that a removed option of this tool causes.
pub(crate) fn advice(tool: &str, error: &clap::Error) -> Option<String> {
    let named = error.get(ContextKind::InvalidArg)?.to_string();
    let named = match error.kind() {
        ErrorKind::UnknownArgument => named,
        // Without the placeholder of its value.
        ErrorKind::InvalidValue => {
            format!("{}={}", named.split(' ').next()?, error.get(ContextKind::InvalidValue)?)
        }
        _ => return None,
    };
    for (tools, option, instead) in REMOVED {
        if tools.contains(&tool) && option == named {
            return Some(format!("gdrcopy {tool}: {option} was removed: {instead}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_removed_option_is_answered_with_what_to_use() {
        for (tools, option, instead) in REMOVED {
            for &tool in tools {
                let error = Cli::try_parse_from(["gdrcopy", tool, option]).unwrap_err();
                let line = advice(tool, &error).unwrap_or_else(|| panic!("{tool} {option}: {error}"));
                assert!(line.ends_with(instead) && !line.contains('\n'), "{line}");
                // An option that is named exists.
                for word in instead.split([' ', '`']).filter(|word| word.starts_with("--")) {
                    let kind = Cli::try_parse_from(["gdrcopy", tool, word]).err().map(|error| error.kind());
                    let is_missing = matches!(kind, Some(ErrorKind::UnknownArgument));
                    assert!(!is_missing, "{tool} {word}");
                }
            }
        }
    }

    #[test]
    fn other_mistakes_are_left_to_clap() {
        for arguments in [["gdrcopy", "copybw", "--batch"], ["gdrcopy", "compare", "--format=xml"]] {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            assert_eq!(advice(arguments[1], &error), None);
        }
    }
}
