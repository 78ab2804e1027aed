//! Reads the files that the preloaded tools/trace/trace.c leaves in a directory: for each process, one file with its
//! counts, and lists of the shared objects that the process had loaded.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{functions, sites};
use crate::system::files;

/// The file of a traced process has this many parts, in which threads count their copies. Each of the first 32 threads
/// has a part of its own, and all other threads share the last part.
pub(crate) const PARTS: usize = 33;
pub(crate) const SIZES: usize = 32;
pub(crate) const TIMES: usize = 160;

/// A kind of record in a process's file of counts: at which word the records start, how many 64-bit words each has, and
/// how many records there are.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    start: usize,
    words: usize,
    pub(crate) records: usize,
}

pub(crate) const PROCESS: Subject = Subject { start: 0, words: 64, records: 1 };
pub(crate) const THREADS: Subject = PROCESS.followed_by(8, PARTS);
pub(crate) const CALLS: Subject = THREADS.followed_by(4, functions::COUNT);
pub(crate) const SITES: Subject = CALLS.followed_by(6, 2 * 65);
pub(crate) const PINS: Subject = SITES.followed_by(8, 512);
pub(crate) const COPIES: Subject = PINS.followed_by(2 + TIMES, PARTS * 2 * SIZES);
const GUESSES: Subject = COPIES.followed_by(1, 2048);
const END: Subject = GUESSES.followed_by(0, 0);
/// The size of a process's file of counts in 64-bit words. The file consists of whole pages.
pub(crate) const WORDS: usize = END.start.next_multiple_of(512);

impl Subject {
    const fn followed_by(self, words: usize, records: usize) -> Subject {
        Subject { start: self.start + self.words * self.records, words, records }
    }
}

/// The file of counts of a process that called libgdrapi.
#[derive(Debug)]
pub(crate) struct Recorded {
    words: Vec<u64>,
    file: PathBuf,
}

impl Recorded {
    /// Returns the first `N` words of the record with this number, among the records of this kind.
    pub(crate) fn record<const N: usize>(&self, subject: Subject, number: usize) -> [u64; N] {
        let start = subject.start + number * subject.words;
        std::array::from_fn(|word| self.words[start + word])
    }

    /// Returns the process's number, its parent's, the start of recording, the number of threads, and the library's
    /// version.
    pub(crate) fn process(&self) -> [u64; 5] {
        self.record(PROCESS, 0)
    }

    /// Returns the name of the place in the code at this address. For each record of [`SITES`], trace has saved a list
    /// of the loaded objects. Searches the list of the record `site`, or all lists if `site` is `None`.
    pub(crate) fn name(&self, caller: u64, site: Option<usize>) -> String {
        let lists = match site {
            Some(number) => number + 2..number + 3,
            None => 1..SITES.records + 2,
        };
        for list in lists.rev() {
            let maps = files::lossy(&self.file.with_extension(list.to_string()));
            if let Some(name) = sites::name(&maps, caller) {
                return name;
            }
        }
        format!("{caller:#x}")
    }

    /// Returns whether the GPU is gdremu's.
    pub(crate) fn is_emulated(&self) -> bool {
        let words: [u64; 9] = self.record(PROCESS, 0);
        words[8] == 1
    }

    /// Returns the name of the program's file.
    pub(crate) fn program(&self) -> String {
        let words: [u64; 64] = self.record(PROCESS, 0);
        let mut name = Vec::new();
        for word in &words[9..] {
            name.extend(word.to_ne_bytes());
        }
        String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
    }
}

/// Returns, for each word of a record, the sum of this word over all processes and all records with these numbers.
pub(crate) fn sum<const N: usize>(all: &[Recorded], of: Subject, at: impl Iterator<Item = usize> + Clone) -> [u64; N] {
    let mut sums = [0u64; N];
    for process in all {
        for number in at.clone() {
            let record: [u64; N] = process.record(of, number);
            for word in 0..N {
                sums[word] = sums[word].wrapping_add(record[word]); // Sums of addresses can overflow, but are not used.
            }
        }
    }
    sums
}

/// Returns the processes that called libgdrapi, or only the process `only`, in the order of their first calls. Also
/// returns the number of processes that could not be recorded, because there was no room for their files.
pub(crate) fn read_all(directory: &Path, only: Option<u32>) -> io::Result<(Vec<Recorded>, usize)> {
    let prefix = only.map(|pid| format!("{pid}-")).unwrap_or_default();
    let mut recorded = Vec::new();
    let mut failed = 0;
    for file in files::matching(directory, &prefix) {
        let name = file.to_string_lossy();
        if !name.ends_with(".0") || name.ends_with("-0.0") {
            continue;
        }
        let mut words = Vec::new();
        for word in fs::read(&file)?.as_chunks().0 {
            words.push(u64::from_ne_bytes(*word));
        }
        if words.len() == WORDS {
            recorded.push(Recorded { words, file });
        } else {
            failed += 1;
        }
    }
    recorded.sort_by_key(|process| process.process()[2]);
    Ok((recorded, failed))
}
