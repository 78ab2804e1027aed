//! Records whether mappings of several types are live.
//!
//! Accesses through mappings of different types pass each other in the CPU. A program that writes through one and reads
//! the same GPU memory through another would read old data. While mappings of several types are live, each copy
//! therefore ends with a full fence. Almost every process has mappings of one type only, so copies test one flag that
//! rarely changes.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::hot::HOT;
use crate::routines;
use crate::sys::fork::{self, Owner};
use crate::types::MappingType;

/// Counts a mapping as live as long as it exists.
#[derive(Debug)]
pub struct Live {
    kind: MappingType,
    owner: Owner,
}

impl Live {
    pub fn new(kind: MappingType) -> Live {
        count(kind, |live| *live += 1);
        Live { kind, owner: Owner::current() }
    }

    /// The mapping's type.
    #[inline]
    pub fn kind(&self) -> MappingType {
        self.kind
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // A forked child has counted none of the mappings that it has inherited.
        if self.owner.is_current() {
            count(self.kind, |live| *live -= 1);
        }
    }
}

fn count(kind: MappingType, change: impl FnOnce(&mut usize)) {
    // `HOT.mixed` is stored while they are locked, or by `attach`; no library does both.
    let mut live = fork::process().mappings.lock();
    change(&mut live[kind as usize - 1]);
    let types = live.map(|live| usize::from(live != 0)).iter().sum::<usize>();
    HOT.mixed.store(types > 1, Ordering::SeqCst);
}

/// For mappings that another library has made and copies go through. Counts this type as live from now on. Returns
/// where the fence after every copy is asked for.
pub fn attach(kind: MappingType) -> &'static AtomicBool {
    static ATTACHED: AtomicU8 = AtomicU8::new(0);
    let of_kind = 1 << kind as u8;
    if ATTACHED.fetch_or(of_kind, Ordering::SeqCst) & !of_kind != 0 {
        HOT.mixed.store(true, Ordering::SeqCst);
    }
    &HOT.mixed
}

/// The fence after every copy.
#[inline(always)]
pub(super) fn fence_if_mixed() {
    if HOT.mixed.load(Ordering::Relaxed) {
        routines::full_fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_mixed_while_two_types_are_live() {
        crate::sys::fork::enter().expect("memory for a page");
        fn is_mixed() -> bool {
            HOT.mixed.load(Ordering::SeqCst)
        }
        let threads: Vec<_> = [MappingType::WriteCombining, MappingType::Caching]
            .into_iter()
            .cycle()
            .take(8)
            .map(|kind| {
                std::thread::spawn(move || (0..if cfg!(miri) { 20 } else { 2000 }).for_each(|_| drop(Live::new(kind))))
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert!(!is_mixed());
        let first = Live::new(MappingType::Device);
        let second = Live::new(MappingType::Device);
        assert!(!is_mixed());
        let third = Live::new(MappingType::Caching);
        drop(first);
        assert!(is_mixed());
        drop(second);
        assert!(!is_mixed());
        drop(third);
    }
}
