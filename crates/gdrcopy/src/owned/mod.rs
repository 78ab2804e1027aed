//! Views that keep their GPU memory alive, for structs, threads and tasks.
//!
//! A [`Word`](crate::Word) borrows its memory. This costs nothing, but ties the word to a scope. The types of this
//! module are `'static`, `Send` and `Sync`, and give their memory back when the last clone is dropped.
//! [`Pool::word`](crate::Pool::word) and [`Pool::array`](crate::Pool::array) make them from a pool, and [`Owned::new`]
//! makes them from any memory. Rust never drops a `static`, so a plugin that keeps an `Owned` in a `static` leaves the
//! memory pinned when the plugin is unloaded.
//!
//! Threads of the program share the flag of this example, and a GPU kernel knows it by its address:
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
