//! libgdrapi: implements the functions of `include/gdrapi.h` by the crate `gdrcopy-core`.
//!
//! A call goes down through these modules and then into that crate:
//!
//! ```text
//! exports   the functions of the C API, in the header's order: they convert arguments and return an errno value
//! types     the header's types; bindgen: the names that bindgen gives them, for Rust programs
//! guard     turns errors and panics into errno and log lines, and defers thread cancellation
//! calls     the effect of each function on the objects of its handles
//! handles   checks gdr_t and gdr_mh_t without a lock, and finds their objects
//! objects   the objects that handles stand for
//! slots     the readable memory that handles point into
//! origin    finds the file that the library was loaded from
//! error     the errors of the functions
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

// Rust programs use these names through the crate gdrapi-sys, which is built from these sources too.
pub use bindgen::*;
pub use exports::*;
pub use types::*;
