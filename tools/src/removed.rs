//! Options that older releases had, with what to use instead.
#![forbid(unsafe_code)]

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The tools, the option, and what to use.
const REMOVED: &[(&[&str], &str, &str)] = &[
    (&["compare"], "--batch", "the crate's example `speed` times batches and gathers (docs/gdrx.md)"),
    (&["compare"], "--pattern", "the crate's example `speed` times batches and gathers (docs/gdrx.md)"),
    (&["compare"], "--kernel-matrix", "use --all-routines"),
    (&["copybw", "copylat", "compare", "apiperf", "tune"], "--svg", "use --plot"),
];

/// The line to print for an error that a removed option of this tool causes.
pub(crate) fn advice(tool: &str, error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    for (tools, option, instead) in REMOVED {
        if tools.contains(&tool) && option == unknown {
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
            for &tool in *tools {
                let error = Cli::try_parse_from(["gdrcopy", tool, option]).unwrap_err();
                let line = advice(tool, &error).unwrap_or_else(|| panic!("{tool} {option}: {error}"));
                assert!(line.ends_with(instead) && !line.contains('\n'), "{line}");
                // Advice that names an option names one that exists.
                for word in instead.split([' ', ',', ';']).filter(|word| word.starts_with("--")) {
                    let error = Cli::try_parse_from(["gdrcopy", tool, word]).err();
                    assert!(error.is_none_or(|error| error.kind() != ErrorKind::UnknownArgument), "{tool} {word}");
                }
            }
        }
    }

    #[test]
    fn other_mistakes_are_left_to_clap() {
        for arguments in [["gdrcopy", "copybw", "--batch"], ["gdrcopy", "compare", "--sizes=x"]] {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            assert_eq!(advice(arguments[1], &error), None);
        }
    }
}
