//! The command `gdrcopy`, which measures and examines CPU access to GPU memory through any libgdrapi.
//!
//! ```text
//! main.rs → cli.rs        which tool, and its options; options.rs has those that tools share
//!   copybw/ copylat/ apiperf/ pplat/ doctor/     one folder a tool: its options, and `run`
//!     session.rs          the GPU, the libraries, a description of both
//!       subject.rs        a library, and a buffer that it has pinned and mapped
//!         library/        libgdrapi files and their calls
//!         cuda/           the CUDA driver: GPUs, buffers, CUDA's own copies
//!     copying/            copies: made, checked, timed in turn, reported
//!       clock, stats, floor, verify    how long things take, and at least; is every byte right?
//!     table, records, chart, progress, ending   what users see
//!     cpu, numa, interrupt, failure    where it runs, and how it ends
//! ```
//!
//! Man pages and shell completions come out of the same definitions: examples/generate.rs.
//!
//! Everything goes through the C ABI: libraries are loaded from files, and never linked.

pub mod apiperf;
pub mod bytes;
pub mod chart;
pub mod cli;
pub mod clock;
pub mod copybw;
pub mod copying;
pub mod copylat;
pub mod cpu;
pub mod cuda;
pub mod doctor;
pub mod ending;
pub mod failure;
pub mod floor;
pub mod interrupt;
pub mod library;
pub mod numa;
pub mod options;
pub mod pplat;
pub mod progress;
pub mod records;
pub mod session;
pub mod stats;
pub mod subject;
pub mod table;
pub mod verify;
