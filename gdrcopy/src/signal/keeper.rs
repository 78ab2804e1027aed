//! The memory of what owns it.
#![forbid(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

/// What the end of a ring or the writer of a counter keeps until it is dropped: the owner of its memory, if that is not
/// borrowed. Its views of the memory then have the lifetime `'static`, and it must hand out none of them with that.
pub(crate) type Keeper = Option<Arc<dyn Any + Send + Sync>>;
