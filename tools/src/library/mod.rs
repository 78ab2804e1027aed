//! libgdrapi files, and what they do with a GPU buffer.

mod api;
mod connection;
mod loader;

pub use api::{CopyFrom, CopyTo, Handle, Info};
pub use connection::{CallError, Connection, Mapped, MappingType};
pub use loader::{Library, Loader, beside_this_program};
