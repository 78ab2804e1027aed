//! The program `gdrcopy`, which measures and examines CPU access to GPU memory through any libgdrapi.
//!
//! ```text
//! main.rs → cli.rs          selects the tool and its options; says what to use in place of removed ones
//!   commands/               one module per tool: options, `run`, text
//!     measure/              copies: planned, made, verified, timed; results
//!       output/             text, JSON, progress, exit status
//!       libgdrapi/          libgdrapi files and their calls
//!         cuda/             the CUDA driver: GPUs, buffers, CUDA's own copies
//!     system/               CPUs, files of the kernel, devices, signals, environment
//! ```
//!
//! Imports point downwards. Libraries are called through the C ABI, so they are loaded from files, and never linked.
//! examples/generate.rs makes man pages and shell completions from `cli`.

pub mod cli;
mod commands;
mod cuda;
mod libgdrapi;
mod measure;
mod output;
mod system;
