//! Copies between the host and a mapped GPU buffer: made, checked, and timed in turn.
//!
//! ```text
//! Copy       one kind of copy: direction, size, offset
//! Method     method.rs: a library's functions, or CUDA's own
//! check      check.rs: is every byte of it right?
//! Bench      time.rs: samples of each method in turn
//! Sweep      sweep.rs: many kinds of copies; Results
//! json, csv, plot   report.rs
//! ```

mod check;
mod method;
pub mod report;
mod sweep;
mod time;

pub use method::Method;
pub use sweep::{MethodResult, Results, Row, Sweep, mib_per_second, powers_of_two};
pub use time::{Bench, Outcome};

use serde::Serialize;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the mapping.
    Write,
    /// From the mapping.
    Read,
}

impl Direction {
    /// Both.
    pub const BOTH: [Direction; 2] = [Direction::Write, Direction::Read];

    /// What results call it.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Write => "write",
            Direction::Read => "read",
        }
    }
}

/// One kind of copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Copy {
    /// Which way.
    pub direction: Direction,
    /// Bytes.
    pub size: usize,
    /// Where in the GPU buffer it begins.
    pub offset: usize,
}
