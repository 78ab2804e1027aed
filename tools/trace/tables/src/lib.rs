//! The tracer's record of a process, in a file that both map or read. Its fixed tables of atomic numbers begin as zeros.
//! The tracer writes without a lock where it says so; readers may see a copy half counted.

mod clock;
mod histogram;

use std::fs::File;
use std::io::{self, Read};
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use clock::{ticks, ticks_after_loads};
pub use histogram::{BUCKETS, Class, SIZES, bucket_bounds, size_class, time_bucket};

macro_rules! functions {
    ($($function:ident $name:literal)*) => {
        /// The functions of libgdrapi, in the order of gdrapi.h.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "their names are in FUNCTIONS")]
        #[repr(u8)]
        pub enum Function {
            $($function,)*
        }

        /// Their names.
        pub const FUNCTIONS: [&str; 17] = [$($name),*];
    };
}

functions! {
    Open "gdr_open"
    Close "gdr_close"
    PinBuffer "gdr_pin_buffer"
    PinBufferV2 "gdr_pin_buffer_v2"
    UnpinBuffer "gdr_unpin_buffer"
    GetCallbackFlag "gdr_get_callback_flag"
    GetInfo "gdr_get_info"
    GetInfoV2 "gdr_get_info_v2"
    Map "gdr_map"
    MapV2 "gdr_map_v2"
    Unmap "gdr_unmap"
    CopyToMapping "gdr_copy_to_mapping"
    CopyFromMapping "gdr_copy_from_mapping"
    RuntimeGetVersion "gdr_runtime_get_version"
    DriverGetVersion "gdr_driver_get_version"
    GetAttribute "gdr_get_attribute"
    GetMappingTypeString "gdr_get_mapping_type_string"
}

/// Threads that count for themselves; the others share one more entry.
pub const THREADS: usize = 32;
/// Pins that are kept apart, those that exist and earlier ones with most copies.
pub const PINS: usize = 512;
/// Call sites of misuse.
pub const MISUSES: usize = 64;
/// Calls other than copies that are kept as events.
pub const STEPS: usize = 4096;
/// Copies that are kept as events.
pub const COPIES: usize = 65536;
/// Lists of objects of a process, which may load code where there was other code.
pub const LISTS: u64 = 64;

/// A number that starts with 0.
pub type Number = AtomicU64;

/// All that is recorded of a process.
#[derive(Debug)]
#[repr(C)]
pub struct Tables {
    /// The process.
    pub process: Process,
    /// Held while pins are changed; copies do not take it.
    pub lock: Number,
    /// By [`Function`]; copies are counted by threads.
    pub calls: [Call; FUNCTIONS.len()],
    /// Mappings by [`mapping type`](Pin::mapping_type).
    pub mapping_types: [Number; 4],
    /// The pins.
    pub pins: [Pin; PINS],
    /// Numbers of pins plus 1, by a hash of the handle.
    pub handles: [Number; HANDLES],
    /// Pins without a place, whose copies count in the sums only.
    pub pins_left_out: Number,
    /// Earlier pins whose place others have taken.
    pub pins_forgotten: Number,
    /// Misuse by call site.
    pub misuses: [Misuse; MISUSES],
    /// Wrong copies of other call sites.
    pub misuses_left_out: Number,
    /// The last one is shared.
    pub threads: [Thread; THREADS + 1],
    /// Calls other than copies.
    pub steps: Ring<STEPS>,
}

/// The file's second part, if events are wanted.
pub type Copies = Ring<COPIES>;

/// A process.
#[derive(Debug)]
#[repr(C)]
pub struct Process {
    /// Its number.
    pub pid: Number,
    /// Its parent's.
    pub parent: Number,
    /// When recording began.
    pub start: Number,
    /// When its exit handlers had run; 0 if it has not ended so.
    pub end: Number,
    /// Threads that called libgdrapi.
    pub threads: Number,
    /// Pins that it made.
    pub pins: Number,
    /// Lists of its objects that were begun.
    pub lists: Number,
    /// Objects that it had loaded when one was made.
    pub loaded: Number,
    /// Major and minor version of the library, 32 bits each; 0 if it has none.
    pub version: Number,
    /// 1: the library could not be loaded.
    pub unloadable: Number,
    /// The program's file.
    pub program: Text<64>,
}

/// The calls of a function.
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    /// All calls.
    pub count: Number,
    /// Those that failed, and the last error.
    pub failed: Number,
    /// The errno.
    pub error: Number,
    /// Ticks in all.
    pub ticks: Number,
    /// Bytes of those that succeeded, in all.
    pub bytes: Number,
    /// The most bytes of a call.
    pub largest: Number,
    /// The complement of the fewest bytes of a call.
    pub smallest: Number,
    /// Where the last call came from, if it is known.
    pub caller: Number,
}

/// Pins of the same range by the same code, one after the other.
#[derive(Debug)]
#[repr(C)]
pub struct Pin {
    /// The handle; 0 if this place was never used.
    pub handle: Number,
    /// 1 until it is unpinned or closed; 2 while that is tried.
    pub live: Number,
    /// The `gdr_t`.
    pub gdr: Number,
    /// The device address and bytes that were passed.
    pub address: Number,
    /// The bytes.
    pub size: Number,
    /// Where the call came from.
    pub caller: Number,
    /// The number of a list of objects, 1 for the first, that has the caller.
    pub list: Number,
    /// Which pin of the process it is now, 1 for the first.
    pub serial: Number,
    /// How often it was pinned.
    pub pins: Number,
    /// How often it was mapped.
    pub maps: Number,
    /// Where it is mapped.
    pub va: Number,
    /// Mapped bytes, in whole pages; 0 if not mapped.
    pub mapped: Number,
    /// Type of the last mapping.
    pub mapping_type: Number,
}

/// Why a copy was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Wrong {
    /// It reaches past an end of the mapping.
    Outside = 1,
    /// The pin is not mapped.
    Unmapped,
    /// The pin was unpinned, or its connection closed.
    Closed,
    /// No pin of this process ever had the handle.
    Unknown,
}

impl Wrong {
    /// All of them.
    pub const ALL: [Wrong; 4] = [Wrong::Outside, Wrong::Unmapped, Wrong::Closed, Wrong::Unknown];
}

/// Wrong copies of one call site.
#[derive(Debug)]
#[repr(C)]
pub struct Misuse {
    /// The caller, times 8, plus the [`Wrong`].
    pub key: Number,
    /// The number of a list of objects that has the caller.
    pub list: Number,
    /// How often.
    pub count: Number,
    /// 0 to the mapping, 1 from it; of the first copy, as what follows.
    pub direction: Number,
    /// Where it began, relative to the mapping's start if it has one.
    pub offset: Number,
    /// Its bytes.
    pub size: Number,
    /// Bytes of the mapping.
    pub mapped: Number,
}

/// Copies of a thread, or of several after one another.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Thread {
    /// Its `pthread_t`.
    pub owner: Number,
    /// 1 while it counts and signal handlers count elsewhere.
    pub busy: Number,
    /// The end of the last small write.
    pub row_end: Number,
    /// When its last call ended.
    pub last: Number,
    /// Copies that failed, by direction.
    pub failed: [Number; 2],
    /// By direction and [`size_class`].
    pub copies: [[Class; SIZES]; 2],
    /// By pin.
    pub pins: [PinCopies; PINS],
}

/// Copies through a pin's mappings.
#[derive(Debug)]
#[repr(C)]
pub struct PinCopies {
    /// How many, by direction.
    pub count: [Number; 2],
    /// Their bytes.
    pub bytes: [Number; 2],
    /// Small writes to where the write before them ended.
    pub in_rows: Number,
}

/// The latest of many events.
#[derive(Debug)]
#[repr(C)]
pub struct Ring<const N: usize> {
    /// Events so far.
    pub next: Number,
    /// The event of number n is at n modulo N.
    pub events: [Event; N],
}

/// A call.
#[derive(Debug)]
#[repr(C)]
pub struct Event {
    /// When it began; written last, 0 until then.
    pub start: Number,
    /// How long it took.
    pub ticks: Number,
    /// [`Function`]; above 8 bits the thread, above 32 the [`serial`](Pin::serial) of the pin, 0 for none.
    pub what: Number,
    /// Bytes.
    pub size: Number,
}

/// Bytes of a text, with zeros at its end; longer ones are cut.
#[derive(Debug)]
#[repr(C)]
pub struct Text<const WORDS: usize>([Number; WORDS]);

/// Places for handles, four per pin, so that few share the beginning of their search.
pub const HANDLES: usize = 2048;
/// Places where a handle can be.
const SEARCHED: usize = 16;

/// Length of a file without events.
pub const LEN: usize = size_of::<Tables>();
/// Length of a file with events.
pub const LEN_WITH_COPIES: usize = LEN + size_of::<Copies>();

impl Tables {
    /// Reads a file; none of the copies if it has no second part.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter than the tables.
    pub fn read(file: &mut File) -> io::Result<(Box<Tables>, Option<Box<Copies>>)> {
        let tables = zeroed(|bytes| file.read_exact(bytes))?;
        Ok((tables, zeroed(|bytes| file.read_exact(bytes)).ok()))
    }

    /// The number of the pin with this handle, of those that exist or of the last one that had it.
    #[inline]
    pub fn find(&self, handle: u64) -> Option<usize> {
        places(handle).find_map(|place| {
            let pin = self.handles[place].load(Relaxed).checked_sub(1)? as usize;
            (self.pins.get(pin)?.handle.load(Relaxed) == handle).then_some(pin)
        })
    }

    /// Makes a pin's handle known, after those of pins that no longer exist are forgotten where it needs a place.
    /// False if there is none.
    pub fn insert(&self, handle: u64, pin: usize) -> bool {
        let free = places(handle).find(|&place| {
            let there = self.handles[place].load(Relaxed).checked_sub(1);
            there.is_none_or(|there| {
                let there = &self.pins[there as usize];
                there.live.load(Relaxed) == 0 || there.handle.load(Relaxed) == handle
            })
        });
        free.inspect(|&place| self.handles[place].store(pin as u64 + 1, Relaxed)).is_some()
    }

    /// Forgets a pin's handle.
    pub fn remove(&self, handle: u64, pin: usize) {
        for place in places(handle) {
            if self.handles[place].load(Relaxed) == pin as u64 + 1 {
                self.handles[place].store(0, Relaxed);
            }
        }
    }
}

#[inline]
fn places(handle: u64) -> impl Iterator<Item = usize> {
    let first = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
    (0..SEARCHED).map(move |i| (first + i) % HANDLES)
}

/// Types of atomic numbers, for which any bytes are valid.
trait Numbers {}
impl Numbers for Tables {}
impl Numbers for Copies {}

/// A value of the bytes that `fill` writes.
fn zeroed<T: Numbers>(fill: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Box<T>> {
    let layout = std::alloc::Layout::new::<T>();
    // SAFETY: the layout is not empty; the memory is that of a `Box<T>` for which its zeros are a valid value.
    let mut value = unsafe {
        let memory = std::alloc::alloc_zeroed(layout).cast::<T>();
        if memory.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        Box::from_raw(memory)
    };
    // SAFETY: these are the bytes of the value, which only this function has; any bytes are valid.
    fill(unsafe { std::slice::from_raw_parts_mut((&raw mut *value).cast::<u8>(), size_of::<T>()) })?;
    Ok(value)
}

impl<const WORDS: usize> Text<WORDS> {
    /// Stores a text.
    pub fn set(&self, text: &[u8]) {
        for (word, bytes) in self.0.iter().zip(text.chunks(8)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(all), Relaxed);
        }
    }

    /// The text.
    pub fn get(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_found_until_their_pins_are_replaced() {
        let tables = zeroed::<Tables>(|_| Ok(())).unwrap();
        for pin in 0..PINS {
            let handle = 0x7f00_0000_0000 + 64 * pin as u64;
            tables.pins[pin].handle.store(handle, Relaxed);
            tables.pins[pin].live.store(1, Relaxed);
            assert!(tables.insert(handle, pin), "{pin}");
        }
        let handle = |pin: usize| tables.pins[pin].handle.load(Relaxed);
        assert!((0..PINS).all(|pin| tables.find(handle(pin)) == Some(pin)));
        assert_eq!(tables.find(1), None);
        tables.remove(handle(7), 7);
        assert_eq!(tables.find(handle(7)), None);
    }

    #[test]
    fn texts_are_cut() {
        let text = Text::<1>(Default::default());
        text.set(b"abc");
        assert_eq!(text.get(), "abc");
        text.set(b"0123456789");
        assert_eq!(text.get(), "01234567");
    }
}
