//! Small files of the kernel in /proc and /sys.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::str::FromStr;

/// The text of a file, without trailing whitespace.
pub(crate) fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}

/// The number that a file holds.
pub(crate) fn number<T: FromStr>(path: impl AsRef<Path>) -> Option<T> {
    text(path)?.parse().ok()
}

/// The value after `key` and a colon in a text of such lines.
pub(crate) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'))
        .map(str::trim)
}

/// Whether the kernel has loaded a module, or has it built in; `None` if unknown.
pub(crate) fn module_loaded(name: &str) -> Option<bool> {
    let modules = text("/proc/modules")?;
    let listed = modules.lines().any(|line| line.split(' ').next() == Some(name));
    Some(listed || Path::new("/sys/module").join(name).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_matches_only_the_whole_key() {
        let text = "Version: 2.6\nUse persistent mapping : yes\n";
        assert_eq!(field(text, "Version"), Some("2.6"));
        assert_eq!(field(text, "Use persistent mapping"), Some("yes"));
        assert_eq!(field(text, "Use"), None);
    }
}
