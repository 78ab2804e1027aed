//! `gdrcopy pplat`: latency of a ping-pong between CPU and GPU.
//!
//! ```text
//! options → Session → run.rs: rounds of all libraries, in turn → records: text, JSON
//!     gpu_kernel.rs  the GPU's side, kernel.ptx
//!     buffers.rs     the flags and the data, each in GPU or in host memory
//! ```
mod buffers;
mod gpu_kernel;
mod options;
mod run;

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::measure::results::{Document, RATIO, TIMES, table};
use crate::measure::stats::Times;
use crate::output::{self, Usage, name};

pub(crate) use options::Options;
use options::{Exchange, Producer};

/// The largest size of the data in bytes. Up to it, the GPU kernel's 32-bit indexes of words cannot overflow.
const MAX_DATA: usize = 4 << 30;

/// The results of one library.
#[derive(Serialize)]
struct Record<'a> {
    library: &'a str,
    #[serde(flatten)]
    exchange: Exchange,
    /// `None` if Ctrl-C came before the library's first round.
    #[serde(flatten)]
    times: Option<Times>,
    /// The number of words of data that did not arrive as sent.
    wrong_words: u64,
    /// The median divided by the first library's median. For the first library, it is `None`.
    ratio: Option<f64>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let size = options.exchange.size.0;
    if size > MAX_DATA {
        return Err(Usage("--size: maximum is 4G".into()).into());
    }
    let len = buffers::gpu_bytes(size);
    let session = options.shared.open("pplat", len, &[])?;
    let mut records: Vec<Record> = Vec::new();
    for (method, rounds) in session.methods.iter().zip(run::run(&session, options)?) {
        let mut times = None;
        let mut ratio = None;
        if !rounds.samples.is_empty() {
            let measured = Times::new(rounds.samples);
            ratio = measured.ratio(records.first().and_then(|first| first.times));
            times = Some(measured);
        }
        let Options { exchange, .. } = *options;
        records.push(Record { library: &method.label, exchange, times, wrong_words: rounds.wrong, ratio });
    }
    let interrupted = session.interrupt.requested();
    if records[0].times.is_none() && interrupted {
        return Ok(output::interrupted_early("pplat"));
    }
    let document = Document { setup: &session.setup, interrupted, records };
    options.shared.output.write(|| text(&document, options), &document)?;
    let mut status = output::exit_status("pplat", interrupted);
    for Record { library, wrong_words, .. } in &document.records {
        if *wrong_words > 0 {
            eprintln!("gdrcopy pplat: {library}: {wrong_words} words of the data were wrong");
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// Returns a table of the latencies of whole rounds.
fn text(document: &Document<Record>, options: &Options) -> String {
    let Exchange { size, blocks, threads, mode, gpu_flag, cpu_flag, data } = options.exchange;
    let [data, gpu_flag, cpu_flag] = [data, gpu_flag, cpu_flag].map(name);
    let (producer, consumer) = match mode {
        Producer::Cpu => ("CPU", "GPU"),
        Producer::Gpu => ("GPU", "CPU"),
    };
    let mut columns = vec![("Round trip", "library")];
    columns.extend(TIMES);
    columns.push(RATIO);
    format!(
        "{}the {producer} produces {} bytes in {data}, the {consumer} consumes them; {blocks} blocks of {threads} threads\n\
         GPU flag in {gpu_flag}, CPU flag in {cpu_flag}; {} iterations\n\n{}",
        document.setup,
        size.0,
        options.iterations,
        table(&document.records, &columns)
    )
}
