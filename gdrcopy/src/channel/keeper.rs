//! The memory of what owns it.
#![forbid(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

/// Kept by the end of a ring or the writer of a counter until it is dropped. It is the owner of the memory, if that is
/// not borrowed. Its views of the memory then have the lifetime `'static`, and it must hand out none of them with that.
pub(crate) type Keeper = Option<Arc<dyn Any + Send + Sync>>;
