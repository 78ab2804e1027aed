//! The files that the tracer leaves in the directory of a run.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gdrcopy_trace_tables::{Copies, LISTS, Number, Tables, ticks};

use super::sites::Sites;
use crate::measure::clock::ns_per_tick;

#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) tables: Box<Tables>,
    pub(crate) copies: Option<Box<Copies>>,
    pub(crate) sites: Sites,
}

/// All processes that looked up a function of libgdrapi, in the order in which they did.
pub(crate) fn read_all(directory: &Path) -> io::Result<Vec<Recorded>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("tables")) {
            // It is short until it has its memory.
            let Ok((tables, copies)) = Tables::read(&mut File::open(&path)?) else {
                continue;
            };
            let lists = 1..=get(&tables.process.lists).min(LISTS);
            let sites = Sites::of_maps(lists.map(|number| {
                let maps = fs::read(path.with_extension(format!("{number}.maps")));
                String::from_utf8_lossy(&maps.unwrap_or_default()).into_owned()
            }));
            all.push(Recorded { tables, copies, sites });
        }
    }
    // A process that is about to write its number is no process yet.
    all.retain(|recorded| get(&recorded.tables.process.start) != 0);
    all.sort_by_key(|recorded| get(&recorded.tables.process.start));
    Ok(all)
}

/// Returns whether a process loaded the tracer.
pub(crate) fn was_loaded(directory: &Path, pid: u32) -> bool {
    directory.join(format!("{pid}.loaded")).exists()
}

/// The number of processes that could not record.
pub(crate) fn failed(directory: &Path) -> io::Result<usize> {
    let files = fs::read_dir(directory)?.flatten();
    Ok(files.filter(|file| file.path().extension() == Some(OsStr::new("failed"))).count())
}

/// A recorded number.
pub(crate) fn get(number: &Number) -> u64 {
    number.load(Relaxed)
}

/// How long a tick of the counter is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) ns_per_tick: f64,
}

impl Rate {
    pub(crate) fn measure() -> Rate {
        Rate { ns_per_tick: ns_per_tick(ticks, Duration::from_millis(20)) }
    }

    pub(crate) fn ns(self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    pub(crate) fn ticks(self, ns: u64) -> u64 {
        (ns as f64 / self.ns_per_tick) as u64
    }
}
