//! A word that says that something has happened.
#![forbid(unsafe_code)]

use std::time::Instant;

use crate::access::Word;
use gdrcopy_core::error::Result;

/// A 32-bit flag in GPU memory, between this process and GPU kernels. `gdrcopy::flag_*` in
/// [`DEVICE_HEADER`](crate::channel::DEVICE_HEADER) is the kernel's side.
///
/// 0 is clear. The side that waits may clear it; programs that signal often use a new value each time instead.
/// Many flags are polled at once by [`Words`](crate::Words) of [`Flag::word`].
///
/// All functions panic in a forked child of the process that made the mapping.
///
/// ```
/// # mod gpu { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs")); }
/// # gpu::run(|gpu| {
/// # let mapping = gpu.mapping()?;
/// use gdrcopy::Mapped;
/// use gdrcopy::channel::Flag;
/// let (request, answer) = (Flag::new(mapping.word(0)?), Flag::new(mapping.word(64)?));
/// mapping.write(128, b"what to do")?;
/// request.set(1);
/// # mapping.word::<u32>(64)?.store(1); // As a GPU kernel does.
/// answer.wait(1, None)?;
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Flag<'m>(Word<'m, u32>);

impl<'m> Flag<'m> {
    /// The flag in that word, as it is.
    #[inline]
    pub fn new(word: Word<'m, u32>) -> Flag<'m> {
        Flag(word)
    }

    /// The word that it is.
    #[inline]
    pub fn word(self) -> Word<'m, u32> {
        self.0
    }

    /// Its device address, for GPU kernels.
    #[inline]
    pub fn device_address(self) -> u64 {
        self.0.device_address()
    }

    /// Sets it to `value`. A release, and pushed out on return.
    #[inline]
    pub fn set(self, value: u32) {
        self.0.store(value);
    }

    /// Sets it to 0. A release, and pushed out on return.
    #[inline]
    pub fn clear(self) {
        self.0.store(0);
    }

    /// Its value. An acquire. Takes a PCIe round trip.
    #[inline]
    pub fn get(self) -> u32 {
        self.0.load()
    }

    /// Waits until it is `value`. An acquire. `None` as deadline waits for ever.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut) once the deadline has passed. The flag is read at least once.
    pub fn wait(self, value: u32, deadline: impl Into<Option<Instant>>) -> Result<()> {
        self.0.spin_until(|found| found == value, deadline)?;
        Ok(())
    }
}
