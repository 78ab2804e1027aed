//! libgdrapi: `include/gdrapi.h` on one side, the crate `gdrcopy-core` on the other.
//!
//! A call goes down through these modules and then into that crate:
//!
//! ```text
//! exports   the functions of the C API, in the header's order: they convert arguments and return an errno value
//! types     the header's types; bindgen: the names that Rust programs know them by
//! guard     the boundary: panics, errno and log lines, thread cancellation
//! calls     what each function does with the objects of its handles
//! handles   gdr_t and gdr_mh_t: checked without a lock, resolved to objects
//! objects   what a handle stands for
//! slots     the readable memory that handles point into
//! origin    which file the library was loaded from
//! error     what can go wrong
//! ```

mod bindgen;
mod calls;
mod error;
pub mod exports;
mod guard;
mod handles;
mod objects;
mod origin;
mod slots;
pub mod types;

// The crate gdrapi-sys, which Rust programs use, is built from these sources too.
pub use bindgen::*;
pub use exports::*;
pub use types::*;
