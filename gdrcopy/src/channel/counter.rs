//! A number that only grows.
#![forbid(unsafe_code)]

use std::time::Instant;

use crate::access::Word;
use crate::channel::keeper::Keeper;
use gdrcopy_core::error::Result;

/// A 64-bit number in GPU memory that only grows. One side writes it, either this process by its [`CounterWriter`] or
/// a GPU kernel. `gdrcopy::counter_*` in [`DEVICE_HEADER`](crate::channel::DEVICE_HEADER) is the kernel's side.
///
/// All functions panic in a forked child of the process that made the mapping.
///
/// ```
/// # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
/// # gpu::run(|gpu| {
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::Mapped;
/// use gdrcopy::channel::Counter;
/// let mut begun = Counter::new(mapping.word(0)?).writer();
/// let done = Counter::new(mapping.word(64)?);
/// let jobs = begun.add(3);
/// # mapping.word::<u64>(64)?.store(jobs); // As a GPU kernel does.
/// done.wait_for(jobs, None)?;
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Counter<'m>(Word<'m, u64>);

impl<'m> Counter<'m> {
    /// The counter in that word, as it is.
    #[inline]
    pub fn new(word: Word<'m, u64>) -> Counter<'m> {
        Counter(word)
    }

    /// The word that it is.
    #[inline]
    pub fn word(self) -> Word<'m, u64> {
        self.0
    }

    /// Its device address, for GPU kernels.
    #[inline]
    pub fn device_address(self) -> u64 {
        self.0.device_address()
    }

    /// Makes this process the one that writes it, from its present value on. Takes a PCIe round trip.
    pub fn writer(self) -> CounterWriter<'m> {
        CounterWriter { value: self.0.load(), counter: self, keeper: None }
    }

    /// Its value. An acquire. Takes a PCIe round trip.
    #[inline]
    pub fn get(self) -> u64 {
        self.0.load()
    }

    /// Waits until it is at least `value`, and returns what it is. An acquire. `None` as deadline waits for ever.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut) once the deadline has passed. The counter is read at least
    /// once.
    pub fn wait_for(self, value: u64, deadline: impl Into<Option<Instant>>) -> Result<u64> {
        self.0.spin_until(|found| found >= value, deadline)
    }
}

/// The one writer of a [`Counter`]. It remembers the value, so it never reads GPU memory.
#[derive(Debug)]
pub struct CounterWriter<'m> {
    counter: Counter<'m>,
    value: u64,
    keeper: Keeper,
}

impl CounterWriter<'_> {
    /// Also keeps this.
    pub(crate) fn keep(&mut self, keeper: Keeper) {
        self.keeper = keeper;
    }

    /// The number that was published last.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// The counter, for reading.
    pub fn counter(&self) -> Counter<'_> {
        self.counter
    }

    /// Sets the counter to `value`. A release, and pushed out on return.
    ///
    /// # Panics
    /// If `value` is less than what was published last.
    #[inline]
    pub fn publish(&mut self, value: u64) {
        let last = self.value;
        assert!(value >= last, "a counter only grows: {value} comes after {last}");
        self.counter.0.store(value);
        self.value = value;
    }

    /// Adds `count`, and returns the new value. A release, and pushed out on return.
    ///
    /// # Panics
    /// If the sum has more than 64 bits.
    #[inline]
    pub fn add(&mut self, count: u64) -> u64 {
        let sum = self.value.checked_add(count);
        self.publish(sum.expect("a counter has 64 bits"));
        self.value
    }
}
