//! Predicts from a program's file whether it will load the preload library.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Set-user-id and set-group-id.
const PRIVILEGED: u32 = 0o6000;

/// The reason why gdremu cannot affect the program, if there is one.
pub(crate) fn unreachable(program: &OsStr) -> Option<String> {
    let path = find(program)?;
    let metadata = fs::metadata(&path).ok()?;
    let why = if metadata.permissions().mode() & PRIVILEGED != 0 {
        "is set-user-ID or set-group-ID, so the dynamic loader ignores LD_PRELOAD"
    } else {
        elf(&path)?
    };
    let name = path.file_name().unwrap_or(program).display();
    Some(format!("{name} {why}: gdremu has no effect on it"))
}

/// The file that will run.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    match fs::metadata(file) {
        Ok(metadata) => metadata.is_file() && metadata.permissions().mode() & 0o111 != 0,
        Err(_) => false,
    }
}

/// The number that bytes are, the lowest first.
fn number(bytes: &[u8]) -> u64 {
    let mut number = 0;
    for byte in bytes.iter().rev() {
        number = number << 8 | u64::from(*byte);
    }
    number
}

/// The reason why an ELF file cannot be preloaded into.
fn elf(path: &Path) -> Option<&'static str> {
    const PT_INTERP: u64 = 3;
    const CLASS_64: u8 = 2;
    let mut file = File::open(path).ok()?;
    let mut header = [0; 64];
    file.read_exact(&mut header).ok()?;
    if !header.starts_with(b"\x7fELF") {
        return None; // A script's interpreter loads the preload library.
    }
    if header[4] != CLASS_64 {
        return Some("is not a 64-bit program");
    }
    let start = number(&header[32..40]);
    let size = number(&header[54..56]);
    let count = number(&header[56..58]);
    for index in 0..count {
        let mut segment = [0; 56];
        file.read_exact_at(&mut segment, start + index * size).ok()?;
        if number(&segment[..4]) != PT_INTERP {
            continue;
        }
        let mut interpreter = vec![0; usize::try_from(number(&segment[32..40])).ok()?.min(4096)];
        file.read_exact_at(&mut interpreter, number(&segment[8..16])).ok()?;
        let musl = interpreter.windows(4).any(|part| part == b"musl");
        return musl.then_some("is linked with musl, but the preload library needs glibc");
    }
    Some("is linked statically")
}
