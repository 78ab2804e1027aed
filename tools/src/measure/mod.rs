//! Measuring: what to measure, how long it takes, and whether every byte is right.
//!
//! ```text
//! session       opens what the options name (options: which library, memory, GPU, CPU); describes it in every result
//! plan          points: direction, size, offsets
//! method        a library's copy functions, memcpy, or CUDA's own copies
//! sampler       verifies (verify), then times the methods in turn (clock, stats)
//! results       records of times, ratios; tables
//! ```

pub(crate) mod clock;
pub(crate) mod method;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod results;
pub(crate) mod sampler;
pub(crate) mod session;
pub(crate) mod stats;
pub(crate) mod verify;
