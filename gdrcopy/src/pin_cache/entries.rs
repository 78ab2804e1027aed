//! The entries of a pin cache, with their ranges, the order in which they were used, and the bytes that they pin.
//!
//! No entry contains another. So entries in order of their starts are also in order of their ends, and those that
//! contain or overlap a range are neighbors. Finding one takes O(log n), and a step more for each that contains the
//! range but cannot serve it. Making room takes O(log n) for each entry that is removed, or passed because it is in
//! use.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use gdrcopy_core::error::{Error, Result};

/// Addresses of GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceRange {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl DeviceRange {
    pub(super) fn new(address: u64, len: usize) -> Result<DeviceRange> {
        if len == 0 {
            return Err(Error::EmptyRange);
        }
        let end = address.checked_add(len as u64);
        Ok(DeviceRange { start: address, end: end.ok_or(Error::RangeOverflow)? })
    }

    pub(super) fn last(self) -> u64 {
        self.end - 1
    }

    fn len(self) -> u64 {
        self.end - self.start
    }

    /// Bytes of the pages that it touches.
    pub(super) fn len_in_pages(self, page_size: u64) -> Result<u64> {
        let end = self.end.checked_next_multiple_of(page_size);
        let start = self.start / page_size * page_size;
        Ok(end.ok_or(Error::RangeOverflow)? - start)
    }

    fn contains(self, other: DeviceRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    fn contains_address(self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// CUDA's ids of the allocations that the first and the last byte of a range are in. CUDA never uses an id again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferIds {
    pub(super) first: u64,
    pub(super) last: u64,
}

/// The use of a cache. Made by [`PinCache::report`](crate::PinCache::report).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinCacheReport {
    /// Mappings in the cache.
    pub entries: usize,
    /// Their bytes, as passed to [`PinCache::get`](crate::PinCache::get).
    pub bytes: u64,
    /// Bytes that their pins take, in whole pages. Entries that share a page each count it, as BAR1 does.
    pub pinned_bytes: u64,
    /// Calls that were served from the cache.
    pub hits: u64,
    /// Calls that pinned.
    pub misses: u64,
    /// Entries that were unpinned to make room for others, in the capacity or in BAR1.
    pub evictions: u64,
}

/// Mappings that have left the cache. Dropping them unpins those that are not in use, so the lock must be free.
pub(super) type Removed<M> = Vec<Arc<M>>;

#[derive(Debug)]
struct Entry<M> {
    range: DeviceRange,
    ids: BufferIds,
    pinned: u64,
    mapping: Arc<M>,
    /// Its key in `Entries::by_use`.
    used: u64,
}

#[derive(Debug)]
pub(super) struct Entries<M> {
    /// Bytes that the pins of all entries may take.
    capacity: u64,
    /// True if a pin stays valid when part of its memory is freed.
    pins_outlive_memory: bool,
    by_start: BTreeMap<u64, Entry<M>>,
    /// Starts of the entries, by the time of their last use.
    by_use: BTreeMap<u64, u64>,
    /// Counts uses.
    now: u64,
    report: PinCacheReport,
}

impl<M> Entry<M> {
    /// Returns whether only the cache has the mapping.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.mapping) == 1
    }

    /// Returns whether it contains the range, and still pins the memory that is there now. Allocations never move. So
    /// a byte of one that is at an end of the entry is in the same memory as when it was pinned.
    fn serves(&self, range: DeviceRange, ids: BufferIds, pins_outlive_memory: bool) -> bool {
        let is_one = ids.first == ids.last;
        let is_at_an_end = ids.first == self.ids.first || ids.first == self.ids.last;
        // The caller keeps the memory of `range` only. Other memory that the entry pins may be freed at any time.
        let is_part = pins_outlive_memory && is_one && is_at_an_end;
        self.range.contains(range) && (ids == self.ids || is_part)
    }

    /// Returns whether it cannot stay beside an entry of this range, which it overlaps and does not serve. It contains
    /// the range, or one of its ends lies in the range and is of neither allocation.
    fn is_replaced_by(&self, range: DeviceRange, ids: BufferIds) -> bool {
        let is_other = |address, id| range.contains_address(address) && id != ids.first && id != ids.last;
        self.range.contains(range)
            || is_other(self.range.start, self.ids.first)
            || is_other(self.range.last(), self.ids.last)
    }
}

impl<M> Entries<M> {
    pub(super) fn new(capacity: u64, pins_outlive_memory: bool) -> Entries<M> {
        Entries {
            capacity,
            pins_outlive_memory,
            by_start: BTreeMap::new(),
            by_use: BTreeMap::new(),
            now: 0,
            report: PinCacheReport::default(),
        }
    }

    pub(super) fn report(&self) -> PinCacheReport {
        PinCacheReport { entries: self.by_start.len(), ..self.report }
    }

    /// A mapping with this range of these allocations, and where in the mapping the range starts.
    pub(super) fn get(&mut self, range: DeviceRange, ids: BufferIds) -> Option<(Arc<M>, usize)> {
        let before = self.by_start.range(..=range.start).rev();
        let (&start, entry) = before
            .take_while(|(_, entry)| range.end <= entry.range.end)
            .find(|(_, entry)| entry.serves(range, ids, self.pins_outlive_memory))?;
        let mapping = Arc::clone(&entry.mapping);
        self.mark_used(start);
        self.report.hits += 1;
        Some((mapping, (range.start - start) as usize))
    }

    /// Makes room for a pin of `pinned` bytes with this range of these allocations, for which `get` has found nothing.
    /// Removes the entries that cannot stay beside it. Then, if it can fit at all, removes the idle entries that it
    /// contains, and the least recently used until it fits.
    pub(super) fn make_room(&mut self, range: DeviceRange, ids: BufferIds, pinned: u64) -> Removed<M> {
        let mut removed = self.remove_overlapping(range, |entry| entry.is_replaced_by(range, ids));
        let Some(room) = self.capacity.checked_sub(pinned) else {
            return removed;
        };
        removed.extend(self.remove_overlapping(range, |entry| range.contains(entry.range) && entry.is_idle()));
        while self.report.pinned_bytes > room
            && let Some(mapping) = self.evict_one()
        {
            removed.push(mapping);
        }
        removed
    }

    /// Adds a new mapping if there is room for it beside the entries that are in use and that it does not contain.
    pub(super) fn insert(&mut self, range: DeviceRange, ids: BufferIds, pinned: u64, mapping: Arc<M>) -> Removed<M> {
        self.report.misses += 1;
        let mut removed = self.make_room(range, ids, pinned);
        let contained = |entry: &Entry<M>| range.contains(entry.range);
        let inside = self.overlapping(range).filter(|entry| contained(entry));
        let replaced: u64 = inside.map(|entry| entry.pinned).sum();
        if self.report.pinned_bytes - replaced + pinned > self.capacity {
            return removed;
        }
        removed.extend(self.remove_overlapping(range, contained));
        let entry = Entry { range, ids, pinned, mapping, used: 0 };
        self.by_start.insert(range.start, entry);
        self.mark_used(range.start);
        self.report.bytes += range.len();
        self.report.pinned_bytes += pinned;
        removed
    }

    /// Removes the least recently used idle entries, `count` at most.
    pub(super) fn evict(&mut self, count: usize) -> Removed<M> {
        std::iter::from_fn(|| self.evict_one()).take(count).collect()
    }

    /// Removes all entries with bytes of this range.
    pub(super) fn invalidate(&mut self, range: DeviceRange) -> Removed<M> {
        self.remove_overlapping(range, |_| true)
    }

    /// Removes the least recently used idle entry. Those in use that it passes count as used now, so that the next
    /// call does not pass them again.
    fn evict_one(&mut self) -> Option<Arc<M>> {
        let latest = self.now;
        while let Some((&used, &start)) = self.by_use.first_key_value()
            && used <= latest
        {
            if self.by_start.get(&start)?.is_idle() {
                self.report.evictions += 1;
                return self.remove(start);
            }
            self.mark_used(start);
        }
        None
    }

    fn mark_used(&mut self, start: u64) {
        if let Some(entry) = self.by_start.get_mut(&start) {
            self.now += 1;
            self.by_use.remove(&entry.used);
            self.by_use.insert(self.now, start);
            entry.used = self.now;
        }
    }

    fn overlapping(&self, range: DeviceRange) -> impl Iterator<Item = &Entry<M>> {
        let before_end = self.by_start.range(..range.end).rev();
        before_end.map(|(_, entry)| entry).take_while(move |entry| range.start < entry.range.end)
    }

    fn remove_overlapping(&mut self, range: DeviceRange, which: impl Fn(&Entry<M>) -> bool) -> Removed<M> {
        let found = self.overlapping(range).filter(|entry| which(entry));
        let starts: Vec<u64> = found.map(|entry| entry.range.start).collect();
        let removed = starts.into_iter().filter_map(|start| self.remove(start));
        removed.collect()
    }

    fn remove(&mut self, start: u64) -> Option<Arc<M>> {
        let entry = self.by_start.remove(&start)?;
        self.by_use.remove(&entry.used);
        self.report.bytes -= entry.range.len();
        self.report.pinned_bytes -= entry.pinned;
        Some(entry.mapping)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::cases;

    const PAGE: u64 = 4;
    const ADDRESSES: u64 = 48;
    const CAPACITY: u64 = 6 * PAGE;

    /// The memory that a mapping pins, as the id of the allocation of each address of its range.
    type Pinned = Vec<u64>;

    #[derive(Clone, Debug)]
    enum Step {
        /// Frees what is at these addresses, and allocates exactly them. Other freed memory also gets other ids.
        Allocate(DeviceRange),
        /// Asks for the range, and keeps what it gets.
        Get(DeviceRange),
        /// Drops one of the mappings that are kept.
        Drop(usize),
        Evict(usize),
        Invalidate(DeviceRange),
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = |longest: u64| {
            (0..ADDRESSES, 1..=longest).prop_map(|(start, len)| DeviceRange { start, end: ADDRESSES.min(start + len) })
        };
        prop_oneof![
            2 => range(12).prop_map(Step::Allocate),
            5 => range(6).prop_map(Step::Get),
            4 => range(30).prop_map(Step::Get),
            6 => any::<usize>().prop_map(Step::Drop),
            1 => (0..3_usize).prop_map(Step::Evict),
            1 => range(12).prop_map(Step::Invalidate),
        ]
    }

    /// An entry as the model has it. It knows all ids, and compares two of them.
    #[derive(Clone, Debug)]
    struct Kept {
        range: DeviceRange,
        pinned: u64,
        ids: Pinned,
        mapping: Weak<Pinned>,
    }

    /// The whole cache in order of use. Each question is answered by looking at each entry.
    #[derive(Debug)]
    struct Model {
        entries: Vec<Kept>,
        /// By address.
        ids: [u64; ADDRESSES as usize],
        pins_outlive_memory: bool,
        hits: u64,
        misses: u64,
        evictions: u64,
    }

    fn ends(ids: &[u64]) -> BufferIds {
        BufferIds { first: ids[0], last: ids[ids.len() - 1] }
    }

    fn overlap(a: DeviceRange, b: DeviceRange) -> bool {
        (a.start..a.end).any(|address| (b.start..b.end).contains(&address))
    }

    fn is_inside(a: DeviceRange, b: DeviceRange) -> bool {
        (a.start..a.end).all(|address| (b.start..b.end).contains(&address))
    }

    impl Model {
        fn allocate(&mut self, range: DeviceRange) {
            let freed: Vec<u64> = self.now(range).to_vec();
            let next = 1 + self.ids.iter().max().expect("there are some");
            for address in 0..ADDRESSES {
                let id = &mut self.ids[address as usize];
                if freed.contains(id) {
                    // Allocations before, in and after the range.
                    let which = u64::from(address >= range.start) + u64::from(address >= range.end);
                    *id = next + which;
                }
            }
        }

        /// The allocations at these addresses.
        fn now(&self, range: DeviceRange) -> &[u64] {
            &self.ids[range.start as usize..range.end as usize]
        }

        fn pinned_bytes(&self) -> u64 {
            self.entries.iter().map(|kept| kept.pinned).sum()
        }

        fn is_idle(kept: &Kept) -> bool {
            kept.mapping.strong_count() == 1
        }

        fn serves(&self, kept: &Kept, range: DeviceRange) -> bool {
            let (then, now) = (ends(&kept.ids), self.now(range));
            let is_whole = then == ends(now);
            let one = now.iter().all(|id| *id == now[0]);
            let part = self.pins_outlive_memory && one && [then.first, then.last].contains(&now[0]);
            is_inside(range, kept.range) && (is_whole || part)
        }

        fn get(&mut self, range: DeviceRange) -> Option<Weak<Pinned>> {
            let serving = (0..self.entries.len()).filter(|&i| self.serves(&self.entries[i], range));
            let found = serving.max_by_key(|&i| self.entries[i].range.start)?;
            let kept = self.entries.remove(found);
            let mapping = Weak::clone(&kept.mapping);
            self.entries.push(kept);
            self.hits += 1;
            Some(mapping)
        }

        fn make_room(&mut self, range: DeviceRange, pinned: u64) {
            let ids = ends(self.now(range));
            self.entries.retain(|kept| {
                let at_end = |address: u64, id| {
                    let is_inside = (range.start..range.end).contains(&address);
                    !is_inside || id == ids.first || id == ids.last
                };
                let then = ends(&kept.ids);
                let ends_match = at_end(kept.range.start, then.first) && at_end(kept.range.last(), then.last);
                ends_match && !is_inside(range, kept.range)
            });
            if pinned > CAPACITY {
                return;
            }
            let replaced = |kept: &Kept| is_inside(kept.range, range) && Model::is_idle(kept);
            self.entries.retain(|kept| !replaced(kept));
            while self.pinned_bytes() + pinned > CAPACITY && self.evict() {}
        }

        fn evict(&mut self) -> bool {
            match self.entries.iter().position(Model::is_idle) {
                Some(oldest) => {
                    self.entries.remove(oldest);
                    self.entries.rotate_left(oldest);
                    self.evictions += 1;
                    true
                }
                None => false,
            }
        }

        fn insert(&mut self, kept: Kept) {
            self.misses += 1;
            self.make_room(kept.range, kept.pinned);
            let others = self.entries.iter().filter(|other| !is_inside(other.range, kept.range));
            let others: Vec<Kept> = others.cloned().collect();
            if others.iter().map(|other| other.pinned).sum::<u64>() + kept.pinned <= CAPACITY {
                self.entries = others;
                self.entries.push(kept);
            }
        }
    }

    proptest! {
        #![proptest_config(cases(512, 8))]

        #[test]
        fn entries_are_those_of_the_model(
            pins_outlive_memory: bool,
            steps in prop::collection::vec(step(), 1..120),
        ) {
            let mut entries: Entries<Pinned> = Entries::new(CAPACITY, pins_outlive_memory);
            let mut model = Model {
                entries: Vec::new(),
                ids: [0; ADDRESSES as usize],
                pins_outlive_memory,
                hits: 0,
                misses: 0,
                evictions: 0,
            };
            let mut in_use: Vec<Arc<Pinned>> = Vec::new();
            let mut all: Vec<Weak<Pinned>> = Vec::new();
            for step in steps {
                match step {
                    Step::Allocate(range) => model.allocate(range),
                    Step::Get(range) => {
                        let now = model.now(range).to_vec();
                        let found = entries.get(range, ends(&now));
                        let expected = model.get(range);
                        prop_assert_eq!(found.is_some(), expected.is_some(), "{:?} in {:?}", range, model);
                        in_use.push(if let Some((mapping, offset)) = found {
                            prop_assert_eq!(Some(Arc::as_ptr(&mapping)), expected.map(|weak| weak.as_ptr()));
                            let pinned = &mapping[offset..offset + now.len()];
                            let mut allocations = now.clone();
                            allocations.dedup();
                            let is_recognized = allocations.len() <= 2;
                            prop_assert!(ends(pinned) == ends(&now) && (!is_recognized || *pinned == now));
                            mapping
                        } else {
                            let pinned = range.len_in_pages(PAGE).expect("small addresses");
                            model.make_room(range, pinned);
                            drop(entries.make_room(range, ends(&now), pinned));
                            let mapping = Arc::new(now.clone());
                            let weak = Arc::downgrade(&mapping);
                            all.push(Weak::clone(&weak));
                            model.insert(Kept { range, pinned, ids: now.clone(), mapping: weak });
                            drop(entries.insert(range, ends(&now), pinned, Arc::clone(&mapping)));
                            mapping
                        });
                    }
                    Step::Drop(_) if in_use.is_empty() => {}
                    Step::Drop(which) => drop(in_use.swap_remove(which % in_use.len())),
                    Step::Evict(count) => {
                        let before = model.evictions;
                        while model.evictions < before + count as u64 && model.evict() {}
                        let removed = entries.evict(count);
                        prop_assert_eq!(removed.len() as u64, model.evictions - before);
                    }
                    Step::Invalidate(range) => {
                        drop(entries.invalidate(range));
                        model.entries.retain(|kept| !overlap(kept.range, range));
                    }
                }
                let expected = PinCacheReport {
                    entries: model.entries.len(),
                    bytes: model.entries.iter().map(|kept| kept.range.len()).sum(),
                    pinned_bytes: model.pinned_bytes(),
                    hits: model.hits,
                    misses: model.misses,
                    evictions: model.evictions,
                };
                prop_assert_eq!(entries.report(), expected);
                prop_assert!(expected.pinned_bytes <= CAPACITY);
                let order = entries.by_use.values().map(|start| entries.by_start[start].range);
                let expected = model.entries.iter().map(|kept| kept.range);
                prop_assert_eq!(order.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
                let in_order: Vec<DeviceRange> = entries.by_start.values().map(|entry| entry.range).collect();
                prop_assert!(in_order.is_sorted_by(|a, b| a.start < b.start && a.end < b.end), "{:?}", in_order);
                for mapping in &all {
                    let is_kept = model.entries.iter().any(|kept| kept.mapping.ptr_eq(mapping));
                    let is_used = in_use.iter().any(|used| Arc::as_ptr(used) == mapping.as_ptr());
                    prop_assert_eq!(mapping.strong_count() > 0, is_kept || is_used);
                }
            }
        }
    }

    #[test]
    fn range_in_two_entries_is_served_by_the_one_that_can() {
        const CAPACITY: u64 = 1 << 20;
        let range = |start, len| DeviceRange::new(start, len).expect("not empty");
        let ids = |first, last| BufferIds { first, last };
        let mut entries = Entries::new(CAPACITY, false);
        entries.insert(range(0, 50), ids(1, 1), 64, Arc::new("of one allocation"));
        // The driver ends this pin when the second allocation is freed.
        entries.insert(range(20, 50), ids(1, 2), 64, Arc::new("of two"));
        let (mapping, offset) = entries.get(range(30, 5), ids(1, 1)).expect("inside");
        assert_eq!((*mapping, offset), ("of one allocation", 30));
        let (mapping, offset) = entries.get(range(30, 30), ids(1, 2)).expect("inside");
        assert_eq!((*mapping, offset), ("of two", 10));
        assert_eq!(entries.report().entries, 2);
    }

    #[test]
    fn range_takes_the_pages_that_it_touches() {
        let pages = |address, len| DeviceRange::new(address, len)?.len_in_pages(0x1000);
        assert_eq!(pages(0x1fff, 1), Ok(0x1000));
        assert_eq!(pages(0x1fff, 2), Ok(0x2000));
        assert_eq!(pages(0x2000, 0x1000), Ok(0x1000));
        assert_eq!(pages(0x2000, 0), Err(Error::EmptyRange));
        assert_eq!(pages(u64::MAX - 1, 2), Err(Error::RangeOverflow));
        assert_eq!(pages(u64::MAX - 1, 1), Err(Error::RangeOverflow));
    }
}
