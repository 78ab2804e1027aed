//! `gdrcopy doctor`: diagnoses whether GDRCopy works on this system, and suggests fixes.
//!
//! ```text
//! run → examine       one module per section of the report:
//!   driver, gdrdrv, gpu, pins, host, libraries, engines
//!   self_test         a child process (probe), which a library may crash or hang
//! run → look_at       --pid: process
//! report              the findings and steps, as text or JSON
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
pub(crate) mod probe;
mod process;
mod report;
mod self_test;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use gdrcopy_core::variables;

use crate::cuda::survey;
use crate::libgdrapi::search::SONAME;
use crate::system;
use backends::Backends;
use engines::Engine;
use libraries::Environment;
use probe::Wanted;
use report::{Report, Section, Verdict};
use self_test::Blame;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy doctor
  gdrcopy doctor --for nccl
  gdrcopy doctor --pid 4242
  gdrcopy doctor --gpu 0 --lib ./libgdrapi.so.2
  gdrcopy doctor --json

Exit status: 0 if gdrcopy is usable, by the engine or process if one is named; 1 if not, 2 for wrong options.")]
pub(crate) struct Options {
    /// The GPU to test, by CUDA's number; may be repeated [default: all]
    #[arg(short = 'd', long = "gpu", value_name = "N")]
    gpus: Vec<i32>,

    /// The libgdrapi file to test [default: the one that the loader finds]
    #[arg(long = "lib", value_name = "FILE")]
    library: Option<PathBuf>,

    /// Report only what keeps this engine from using GDRCopy
    #[arg(long = "for", value_name = "ENGINE", conflicts_with = "library")]
    engine: Option<Engine>,

    /// Report what a running process has of GDRCopy
    #[arg(long, conflicts_with_all = ["library", "gpus"])]
    pid: Option<u32>,

    /// Print the report as JSON: usable, problems, warnings, sections of findings (subject, verdict,
    /// value, remedy, step), and steps
    #[arg(long)]
    json: bool,
}

/// Examines the system or a process, and prints the report.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let report = match options.pid {
        Some(pid) => look_at(pid, options.engine)?,
        None => examine(options),
    };
    match options.json {
        true => report::print_json(&report)?,
        false => report::print_text(&report)?,
    }
    Ok(match report.usable {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn look_at(pid: u32, engine: Option<Engine>) -> Result<Report> {
    let (process, mut environment) = process::examine(pid)?;
    let unread = engines::add_files_of_nccl(&mut environment, Some(pid));
    let mut variables = engines::settings(engine, &environment, unread.as_deref());
    variables.extend(libraries::settings(&environment));
    let sections = vec![process::section(&process), Section::new("environment that it was started with", variables)];
    let summary = ["uses", "does not use"].map(|uses| format!("process {pid} {uses} GDRCopy"));
    Ok(Report::new(sections, summary))
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
        dmabuf_forced: variables::USE_DMABUF_MMAP.is_one(),
    };
    let container = host::container();
    let container = container.as_deref();
    let gpus = cuda.gpus.as_deref().unwrap_or_default();
    let environment = std::env::vars_os();
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let mut environment: Environment = environment.map(|(name, value)| (text(name), text(value))).collect();
    // NCCL may read no more of them than doctor.
    let _ = engines::add_files_of_nccl(&mut environment, None);

    let mut sections = vec![
        Section::new("GPU driver and CUDA", driver::findings(&cuda, nvml.as_ref(), backends)),
        Section::new("gdrdrv", gdrdrv::findings(&module, backends, container)),
    ];
    let of_gpu = |gpu| gpu::section(gpu, nvml.as_ref(), backends, pinned);
    sections.extend(gpus.iter().map(of_gpu));
    let self_test = |sections: &[Section], library, instead: &dyn Fn() -> Option<String>| {
        let mut above = sections.iter().flat_map(|section| &section.findings);
        let blame = Blame { others: above.any(|finding| finding.verdict == Verdict::Problem), instead };
        Section::new("self-test", self_test::findings(&options.gpus, &library, gpus, backends, &blame))
    };
    if let Some(engine) = options.engine {
        for section in &mut sections {
            section.findings.retain(|finding| finding.verdict == Verdict::Problem);
        }
        sections.retain(|section| !section.findings.is_empty());
        let version = module.versions.as_ref().ok().map(|versions| versions.module);
        let version = version.filter(|_| backends.gdrdrv && !backends.dmabuf_forced);
        let (library, findings) = engines::needs(engine, &environment, version);
        sections.push(Section::new(engine.name(), findings));
        let instead = || engines::instead(engine, &environment);
        let tested = library.map(|library| self_test(&sections, Wanted::File(library.file), &instead));
        sections.extend(tested);
        let summary = ["would use", "would not use"];
        let summary = summary.map(|uses| format!("{} {uses} GDRCopy here", engine.name()));
        return Report::new(sections, summary);
    }
    sections.extend(pins.map(|pins| Section::new("pins", pins::findings(&pins))));
    let library = options.library.clone();
    sections.extend([
        Section::new("machine", host::findings(backends, container)),
        Section::new("libgdrapi", libraries::findings(library.as_deref(), &environment)),
        Section::new("distributed engines", engines::settings(None, &environment, None)),
    ]);
    let instead = || options.library.is_none().then(|| libraries::instead(&[SONAME]))?;
    let tested = self_test(&sections, library.map_or(Wanted::Default, Wanted::File), &instead);
    sections.push(tested);
    let summary = ["works", "does not work"].map(|works| format!("gdrcopy {works} here"));
    Report::new(sections, summary)
}
