//! Reads small files, most of them the kernel's in /proc and /sys.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Returns the text of a file, without whitespace at its end.
pub(crate) fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}

/// Opens a regular file. Other files, such as pipes, are refused, because reading them may never end.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(ErrorKind::InvalidInput.into()),
    }
}

/// Returns the bytes of a regular file.
pub(crate) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes).map(|_| bytes)
}

/// Returns the text of a regular file; no text if it cannot be read.
pub(crate) fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(&bytes(path).unwrap_or_default()).into_owned()
}

/// Returns the number that a file holds.
pub(crate) fn number<T: FromStr>(path: impl AsRef<Path>) -> Option<T> {
    text(path)?.parse().ok()
}

/// Returns the value of `key` in a text with lines `KEY: VALUE`.
pub(crate) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':')).map(str::trim)
}

/// Returns the entries of a directory whose names begin with `prefix`, sorted; none if it cannot be read.
pub(crate) fn matching(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    paths
}

/// Returns the directory at which the file system of a file is mounted; the root directory if that is unknown.
pub(crate) fn mount_of(file: &Path) -> String {
    let mounts = text("/proc/self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    points.filter(|point| file.starts_with(point)).max_by_key(|point| point.len()).unwrap_or("/").into()
}

/// Returns whether a directory, or one at most this many levels below, has a file with this name.
pub(crate) fn contains(directory: &Path, name: &str, levels: usize) -> bool {
    if directory.join(name).exists() {
        return true;
    }
    levels > 0 && matching(directory, "").iter().any(|path| path.is_dir() && contains(path, name, levels - 1))
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
