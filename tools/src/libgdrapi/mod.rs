//! libgdrapi files, and what they do with a GPU buffer.

mod api;
mod connection;
mod loader;
pub(crate) mod search;

pub(crate) use connection::{CallError, Connection, Mapped, MappingType};
pub(crate) use loader::{Library, Loader};
