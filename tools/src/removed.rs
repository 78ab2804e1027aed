//! Options that release 2.6.0 had, with what to use instead.
#![forbid(unsafe_code)]

use clap::error::{ContextKind, ErrorKind};

const SWEEP: &str = "`gdrcopy copylat` measures all sizes";

/// Options of the tools that NVIDIA has too, and what to use.
const REMOVED: [(&str, &str); 7] = [
    ("-l", SWEEP),
    ("--sweep", SWEEP),
    ("--plot", "--json FILE has the numbers, and tools/plot.py of the sources draws them"),
    ("--verify", "every byte is checked"),
    ("--alloc=pool", "use cuMemAlloc or cuMemCreate"),
    ("--alloc=auto", "use cuMemAlloc, or cuMemCreate if that cannot be pinned"),
    ("--format=csv", "use --format=json"),
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
    let (option, instead) = REMOVED.iter().find(|(option, _)| *option == named)?;
    Some(format!("gdrcopy {tool}: {option} was removed: {instead}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_removed_option_is_answered_with_what_to_use() {
        for (option, instead) in REMOVED {
            let error = Cli::try_parse_from(["gdrcopy", "copybw", option]).unwrap_err();
            assert_eq!(
                advice("copybw", &error).as_deref(),
                Some(&*format!("gdrcopy copybw: {option} was removed: {instead}"))
            );
        }
    }

    #[test]
    fn other_mistakes_are_left_to_clap() {
        for option in ["--batch", "--format=xml"] {
            let error = Cli::try_parse_from(["gdrcopy", "copybw", option]).unwrap_err();
            assert_eq!(advice("copybw", &error), None);
        }
    }
}
