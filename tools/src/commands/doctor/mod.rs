//! `gdrcopy doctor`: diagnoses whether GDRCopy works on this system, and suggests fixes.
//!
//! ```text
//! run → examine       one module per section of the report:
//!   gdrdrv, driver, gpu, pins, host, libraries, engines
//!   self_test         a child process (probe), which a library may crash or hang
//! report              the findings, as text or JSON
//! ```
#![forbid(unsafe_code)]

mod backends;
mod driver;
mod engines;
mod gdrdrv;
mod gpu;
mod host;
mod libraries;
mod pins;
mod probe;
mod report;
mod self_test;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cuda::survey;
use crate::system;
use backends::Backends;
use probe::Probe;
use report::{Report, Section};

/// The options of `gdrcopy doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy doctor
  gdrcopy doctor --gpu 0 --lib ./libgdrapi.so.2
  gdrcopy doctor --json

Exit status: 0 if GDRCopy is usable, 1 if not, 2 for wrong options.")]
pub(crate) struct Options {
    /// The GPU to test, by CUDA's number; may be repeated [default: all]
    #[arg(short = 'd', long = "gpu", value_name = "N")]
    gpus: Vec<i32>,

    /// The libgdrapi file to test [default: the one that the loader finds]
    #[arg(long = "lib", value_name = "FILE")]
    library: Option<PathBuf>,

    /// Print the report as JSON: usable, problems, warnings, and sections of findings (subject,
    /// verdict, value, remedy)
    #[arg(long)]
    json: bool,

    /// Internal: probe to run in a child process
    #[arg(long, value_name = "WHAT", hide = true)]
    probe: Option<Probe>,
}

/// Examines the system and prints the report.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(probe) = options.probe {
        return probe::answer(probe, options.library.as_deref());
    }
    let report = examine(options);
    match options.json {
        true => report::print_json(&report)?,
        false => report::print_text(&report)?,
    }
    Ok(match report.usable {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn examine(options: &Options) -> Report {
    let module = system::gdrdrv::query();
    let cuda = survey::query();
    let nvml = system::nvml::Nvml::load();
    let pins = system::pins::query();
    let pinned = pins.as_ref().and_then(|pins| Some(pins::sum(pins.as_ref().ok()?)));
    let backends = Backends {
        gdrdrv: gdrdrv::works(&module),
        dmabuf: driver::maps_dmabufs(&cuda),
        dmabuf_forced: std::env::var_os("GDRCOPY_USE_DMABUF_MMAP").is_some_and(|set| set == "1"),
    };
    let container = host::container();
    let container = container.as_deref();
    let library = options.library.as_deref();
    let gpus = cuda.gpus.as_deref().unwrap_or_default();

    let mut sections = vec![
        Section::new("gdrdrv", gdrdrv::findings(&module, backends, container)),
        Section::new("GPU driver and CUDA", driver::findings(&cuda, nvml.as_ref(), backends)),
    ];
    let of_gpu = |gpu| gpu::section(gpu, nvml.as_ref(), backends, pinned);
    sections.extend(gpus.iter().map(of_gpu));
    sections.extend(pins.map(|pins| Section::new("pins", pins::findings(&pins))));
    sections.extend([
        Section::new("machine", host::findings(backends, container)),
        Section::new("libgdrapi", libraries::findings(library)),
        Section::new("distributed engines", engines::findings()),
        Section::new("self-test", self_test::findings(&options.gpus, library, gpus)),
    ]);
    Report::new(sections)
}
