//! `gdrcopy pplat`: latency of a ping-pong between CPU and GPU.
//!
//! ```text
//! options → Session → run.rs: rounds of all libraries, in turn → report.rs: text, JSON
//!     gpu_kernel.rs  the GPU's side, kernel.ptx
//!     buffers.rs     the flags and the data, each in GPU or in host memory
//! ```
mod buffers;
mod gpu_kernel;
mod options;
mod report;
mod run;

use std::process::ExitCode;

use anyhow::Result;

use crate::measure::session::{Extra, Session};
use crate::output::{self, Usage};

pub(crate) use options::Options;
use run::Rounds;

/// The most data, because the GPU kernel counts words in 32 bits.
const MAX_DATA: usize = 4 << 30;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let size = options.size.0;
    if size > MAX_DATA {
        return Err(Usage("--size: maximum is 4G".into()).into());
    }
    output::ensure_writable(&[&options.output.json])?;
    let len = buffers::gpu_bytes(size);
    let session = Session::open("pplat", &options.target, len, &Extra::default())?;
    let all = run::run(&session, options)?;
    report::write(&session, &all, options)?;
    let mut status = output::exit_status("pplat", session.interrupt.requested());
    for (method, Rounds { wrong, .. }) in session.methods.iter().zip(&all) {
        if *wrong > 0 {
            eprintln!("gdrcopy pplat: {}: {wrong} words of the data were wrong", method.label);
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}
