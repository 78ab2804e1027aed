//! Views of GPU memory that keep the memory, for structs, threads and tasks.
//!
//! A [`Word`](crate::Word) borrows its memory, which costs nothing, but ties it to a scope. Those here are `'static`,
//! `Send` and `Sync`, and give their memory back when the last clone is dropped. [`Pool::word`](crate::Pool::word) and
//! [`Pool::array`](crate::Pool::array) make them of a pool, [`Owned::new`] of any memory. Rust never drops a `static`, so a
//! plugin that has one in a `static` leaves its memory pinned when it is unloaded.
//!
//! A flag that threads of the program share, and that a GPU kernel knows by its address:
//!
//! ```
//! # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
//! use gdrcopy::memory::CudaAllocator;
//! use gdrcopy::owned::OwnedWord;
//! use gdrcopy::{Gdr, Pool, Result};
//!
//! #[derive(Clone)]
//! struct GdrFlag(OwnedWord<u8>);
//!
//! impl GdrFlag {
//!     fn new(pool: &Pool) -> Result<GdrFlag> { Ok(GdrFlag(pool.word(0)?)) }
//!     fn set(&self, value: bool) { self.0.view().store(value.into()) }
//!     fn get(&self) -> bool { self.0.view().load() != 0 }
//!     fn device_address(&self) -> u64 { self.0.view().device_address() }
//! }
//!
//! let flag = GdrFlag::new(&Pool::new(&Gdr::open()?, CudaAllocator::new(0)?))?;
//! println!("a GPU kernel polls the flag at {:#x}", flag.device_address());
//! let same = flag.clone();
//! std::thread::spawn(move || same.set(true)).join().expect("no panic");
//! assert!(flag.get());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod handle;
mod pooled;
#[cfg(test)]
mod tests;
mod view;

pub use handle::{Owned, OwnedArray, OwnedSlice, OwnedWord, OwnedWords};
pub use view::View;
