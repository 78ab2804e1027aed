//! The C API layer: `include/gdrapi.h` on one side, the safe core on the other.
//!
//! ```text
//! exports   the 17 functions, in the header's order: arguments in, errno out
//! types     the header's types
//! guard     the boundary: panics, errno and log lines, thread cancellation
//! calls     what each function does with the objects behind its handles
//! handles   gdr_t and gdr_mh_t: checked without a lock, resolved to objects
//! objects   what stands behind a handle
//! slots     the readable memory that handles point into
//! origin    which file the library was loaded from
//! unload    what happens at dlclose
//! ```

mod calls;
pub mod exports;
mod guard;
mod handles;
mod objects;
mod origin;
mod slots;
mod types;
mod unload;
