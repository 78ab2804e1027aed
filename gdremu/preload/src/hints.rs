//! Hints by which the hooks of libc functions recognize, without a lock, calls that do not concern the emulation.
#![forbid(unsafe_code)]

/// Descriptors that hooks have noted as emulated (devices, dma-bufs, files that show the number of pins). Only fstat
/// shows what a descriptor is now, because programs can also open and close descriptors by calls without a hook.
pub(crate) mod device_fds {
    use std::ffi::c_int;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Linux's default limit of descriptors per process (fs.nr_open). Higher numbers have no bit; each may be emulated.
    const MAX: usize = 1 << 20;

    static BITS: [AtomicU64; MAX / 64] = [const { AtomicU64::new(0) }; MAX / 64];

    fn bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((BITS.get(fd / 64)?, 1 << (fd % 64)))
    }

    pub(crate) fn add(fd: c_int) {
        if let Some((word, bit)) = bit(fd) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(fd: c_int) {
        if let Some((word, bit)) = bit(fd) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn may_be(fd: c_int) -> bool {
        match bit(fd) {
            Some((word, bit)) => word.load(Ordering::Relaxed) & bit != 0,
            None => fd >= 0,
        }
    }

    pub(crate) fn are_there() -> bool {
        BITS.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }
}

/// The lowest and the highest address at which pins or dma-bufs are mapped. Other memory may lie in between.
pub(crate) mod mapped_range {
    use std::sync::atomic::{AtomicUsize, Ordering};

    static LOW: AtomicUsize = AtomicUsize::new(usize::MAX);
    static HIGH: AtomicUsize = AtomicUsize::new(0);

    pub(crate) fn set(bounds: Option<(usize, usize)>) {
        let (low, high) = bounds.unwrap_or((usize::MAX, 0));
        LOW.store(low, Ordering::Relaxed);
        HIGH.store(high, Ordering::Relaxed);
    }

    pub(crate) fn may_touch(addr: usize, len: usize) -> bool {
        addr < HIGH.load(Ordering::Relaxed) && addr.saturating_add(len) > LOW.load(Ordering::Relaxed)
    }
}
