//! Loads libgdrapi files, and wraps their calls.

mod api;
mod connection;
mod loader;
pub(crate) mod preload;
pub(crate) mod search;

pub(crate) use connection::{CallError, Connection, Mapped, MappingType};
pub(crate) use loader::{Library, load, load_by_name, load_default};
