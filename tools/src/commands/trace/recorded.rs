//! The files that tools/trace/trace.c leaves in the directory of a run, one for each process, and lists of its objects.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::Path;

use super::sites::Sites;
use crate::system::files;

/// The functions of libgdrapi, in the order of the file.
const FUNCTIONS: &str = "open close pin_buffer pin_buffer_v2 unpin_buffer get_callback_flag get_info get_info_v2 map map_v2 \
    unmap copy_to_mapping copy_from_mapping runtime_get_version driver_get_version get_attribute get_mapping_type_string";

pub(crate) fn function(number: u64) -> String {
    format!("gdr_{}", FUNCTIONS.split(' ').nth(number as usize).unwrap_or("?"))
}

/// Parts of the counters, for a thread each, or the last for several.
pub(crate) const PARTS: usize = 33;
pub(crate) const SIZES: usize = 32;
pub(crate) const TIMES: usize = 160;

/// Words of a page, on which each subject begins.
const PAGE: usize = 512;

/// A subject, with the words of a record, and how many records there are.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    page: usize,
    words: usize,
    pub(crate) records: usize,
}

pub(crate) const PROCESS: Subject = Subject { page: 0, words: 64, records: 1 };
pub(crate) const CALLS: Subject = PROCESS.then(4, 17);
pub(crate) const MISUSES: Subject = CALLS.then(6, 64);
pub(crate) const PINS: Subject = MISUSES.then(12, 512);
pub(crate) const THREADS: Subject = PINS.then(8, PARTS);
pub(crate) const COPIES: Subject = THREADS.then(2 + TIMES, PARTS * 2 * SIZES);
pub(crate) const USES: Subject = COPIES.then(4, PARTS * PINS.records);
const GUESSES: Subject = USES.then(1, 2048);
const END: Subject = GUESSES.then(0, 0);

impl Subject {
    const fn then(self, words: usize, records: usize) -> Subject {
        Subject { page: self.page + (self.words * self.records).div_ceil(PAGE), words, records }
    }
}

/// A process that called libgdrapi.
#[derive(Debug)]
pub(crate) struct Recorded {
    words: Vec<u64>,
    pub(crate) sites: Sites,
}

impl Recorded {
    /// None if the file is too short, as there was no room for it.
    fn read(file: &Path) -> io::Result<Option<Recorded>> {
        let mut words = Vec::new();
        for word in fs::read(file)?.as_chunks().0 {
            words.push(u64::from_ne_bytes(*word));
        }
        if words.len() != END.page * PAGE {
            return Ok(None);
        }
        let mut lists = Vec::new();
        while let Ok(list) = fs::read(file.with_extension((lists.len() + 1).to_string())) {
            lists.push(String::from_utf8_lossy(&list).into_owned());
        }
        Ok(Some(Recorded { words, sites: Sites(lists) }))
    }

    /// The first words of a record.
    pub(crate) fn record<const N: usize>(&self, subject: Subject, number: usize) -> [u64; N] {
        let start = subject.page * PAGE + number * subject.words;
        std::array::from_fn(|word| self.words[start + word])
    }

    pub(crate) fn start(&self) -> u64 {
        let [_pid, _parent, start] = self.record(PROCESS, 0);
        start
    }

    /// The program's file.
    pub(crate) fn program(&self) -> String {
        let words: [u64; 64] = self.record(PROCESS, 0);
        let mut name = Vec::new();
        for word in &words[11..] {
            name.extend(word.to_ne_bytes());
        }
        String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
    }
}

/// These records of all processes, in sum.
pub(crate) fn sum<const N: usize>(
    processes: &[Recorded],
    subject: Subject,
    records: impl Iterator<Item = usize> + Clone,
) -> [u64; N] {
    let mut sums = [0u64; N];
    for process in processes {
        for number in records.clone() {
            for (sum, word) in sums.iter_mut().zip(process.record::<N>(subject, number)) {
                *sum = sum.wrapping_add(word); // Addresses and versions may overflow.
            }
        }
    }
    sums
}

/// The processes that called libgdrapi, in the order in which they did, all or only this one, and how many could not be
/// recorded.
pub(crate) fn read_all(directory: &Path, only: Option<u32>) -> io::Result<(Vec<Recorded>, usize)> {
    let prefix = only.map(|pid| format!("{pid}-")).unwrap_or_default();
    let mut recorded = Vec::new();
    let mut failed = 0;
    for path in files::matching(directory, &prefix) {
        let name = path.to_string_lossy();
        if !name.ends_with(".0") || name.ends_with("-0.0") {
            continue;
        }
        match Recorded::read(&path)? {
            Some(process) => recorded.push(process),
            None => failed += 1,
        }
    }
    recorded.sort_by_key(Recorded::start);
    Ok((recorded, failed))
}
