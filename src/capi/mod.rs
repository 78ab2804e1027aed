//! The C door: `include/gdrapi.h` on one side, the safe core on the other.
//!
//! ```text
//! exports   the 17 functions, in the header's order: arguments in, errno out
//! types     the header's types
//! guard     no panic passes; results become errno and a log line
//! objects   what stands behind a handle, and C's oddities about it
//! handles   gdr_t and gdr_mh_t: checked without a lock, turned into objects
//! slots     the readable memory that handles point into
//! ```

pub mod exports;
mod guard;
mod handles;
mod objects;
mod slots;
mod types;
