//! A queue of messages of fixed size in GPU memory, with one producer and one consumer.
//!
//! `positions` is the arithmetic, without memory; `layout` says where everything is, for both sides; `queue` is the
//! memory, `sender` and `receiver` are the CPU's ends.
#![forbid(unsafe_code)]

mod layout;
#[cfg(all(test, gdrapi_loom))]
mod loom_tests;
mod positions;
mod queue;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use queue::Ring;
pub use receiver::RingReceiver;
pub use sender::RingSender;
