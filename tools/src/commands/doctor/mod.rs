//! `gdrcopy doctor`: diagnoses whether GDRCopy works on this system, and suggests fixes.
//!
//! ```text
//! run → examine       one module per section of the report:
//!   driver, gdrdrv, gpu, pins, host, libraries, engines, settings
//!   probe             a child process for CUDA and the self_test, which may crash or hang
//! run → look_at       --pid: process
//! remedies            what each finding may advise
//! report              prints the sections as they are known, and the steps, as text or JSON
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
mod remedies;
mod report;
mod self_test;
mod settings;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use gdrcopy_core::variables;
use signal_hook::consts::SIGCHLD;
use signal_hook::flag;

use crate::libgdrapi::search::SONAME;
use crate::system;
use backends::Backends;
use engines::{ENGINES, Engine};
use libraries::Environment;
use probe::Wanted;
use report::{Report, Verdict};
use self_test::SelfTest;
use settings::Settings;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy doctor
  gdrcopy doctor --for nccl
  gdrcopy doctor --pid 4242
  gdrcopy doctor --gpu 0 --lib ./libgdrapi.so.2
  gdrcopy doctor --json

Exit status: 1 if a problem keeps gdrcopy, or the named engine or process, from working; 0 if none was found, also \
where the self-test could not run (in JSON, tested is false); 2 for wrong options.")]
pub(crate) struct Options {
    /// The GPU to test, by CUDA's number; may be repeated [default: all]
    #[arg(short = 'd', long = "gpu", value_name = "N")]
    gpus: Vec<i32>,

    /// The libgdrapi file to test [default: the one that the loader finds]
    #[arg(long = "lib", value_name = "FILE")]
    library: Option<PathBuf>,

    /// Report only what keeps this engine from using GDRCopy
    #[arg(long = "for", value_name = "ENGINE", conflicts_with = "library",
        value_parser = PossibleValuesParser::new(ENGINES.iter().map(|engine| engine.id)))]
    engine: Option<String>,

    /// Report what a running process has of GDRCopy
    #[arg(long, conflicts_with_all = ["library", "gpus"])]
    pid: Option<u32>,

    /// Print the report as JSON, with usable, tested, problems, warnings, sections of findings
    /// (subject, verdict, value, remedy), and steps (remedy, text, commands, or)
    #[arg(long)]
    json: bool,

    /// Seconds that a call of the library may last
    #[arg(long, hide = true, default_value_t = 10)]
    limit: u64,
}

/// Examines the system or a process, and prints the report.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    probe::limit_stages(options.limit);
    // Where the parent process ignores it, doctor could not wait for its own children.
    flag::register(SIGCHLD, Arc::default())?;
    let engine = options.engine.as_deref().and_then(Engine::find);
    match options.pid {
        Some(pid) => look_at(pid, engine, Report::new(options.json)),
        None => examine(options, engine, Report::new(options.json)),
    }
}

fn look_at(pid: u32, engine: Option<&Engine>, mut report: Report) -> Result<ExitCode> {
    let (process, environment) = process::examine(pid)?;
    let settings = Settings::with_files(environment, Some(pid));
    let title = format!("process {} ({})", process.pid, process.command);
    report.add(title, process::findings(&process))?;
    let mut variables = settings.findings(engine.map(|engine| engine.id));
    variables.extend(libraries::settings(&settings.environment));
    report.add("environment that it was started with", variables)?;
    report.passed();
    let (works, fails) = match engine {
        // Another engine in the process may.
        Some(Engine { name, .. }) => {
            let would = format!("{name} in process {pid} would");
            (format!("{would} use GDRCopy"), format!("{would} not use GDRCopy"))
        }
        None => (format!("process {pid} uses GDRCopy"), format!("process {pid} does not use GDRCopy")),
    };
    Ok(report.end(&works, "", &fails)?)
}

fn examine(options: &Options, engine: Option<&Engine>, mut report: Report) -> Result<ExitCode> {
    let module = system::gdrdrv::query(probe::versions());
    let survey = probe::survey();
    let survey = survey.as_ref();
    let backends = Backends {
        gdrdrv: gdrdrv::works(&module),
        dmabuf: survey.is_ok_and(|survey| driver::maps_dmabufs(&survey.cuda)),
        dmabuf_forced: variables::USE_DMABUF_MMAP.is_one(),
        module_only: engine.is_some_and(|engine| engine.module_only),
    };
    let container = host::container();
    let pins = system::pins::query();
    let settings = Settings::with_files(environment(), None);

    let mut sections = vec![("GPU driver and CUDA".to_owned(), driver::findings(survey, backends, container))];
    sections.push(("gdrdrv".to_owned(), gdrdrv::findings(&module, backends, container)));
    if let Ok(survey) = survey {
        let pinned = pins.as_ref().and_then(|pins| pins.as_ref().ok()).map(pins::sum);
        sections.extend(gpu::sections(survey, backends, pinned));
    }
    for (title, mut findings) in sections {
        if engine.is_some() {
            findings.retain(|finding| finding.verdict == Verdict::Problem);
        }
        report.add(title, findings)?;
    }
    let Some(engine) = engine else {
        if let Some(pins) = pins {
            report.add("pins", pins::findings(&pins))?;
        }
        report.add("machine", host::findings(backends, container))?;
        report.add("libgdrapi", libraries::findings(options.library.as_deref(), &settings.environment))?;
        report.add("distributed engines", settings.findings(None))?;
        let library = options.library.clone().map_or(Wanted::Default, Wanted::File);
        let names: &[&str] = if options.library.is_some() { &[] } else { &[SONAME] };
        let others = report.has_problems();
        SelfTest { library, survey: survey.ok(), backends, others, names }.report(&options.gpus, &mut report)?;
        let untested = "nothing keeps gdrcopy from working here, but it was not tested";
        return Ok(report.end("gdrcopy works here", untested, "gdrcopy does not work here")?);
    };
    let version = module.versions.as_ref().ok().map(|versions| versions.module);
    let version = version.filter(|_| backends.gdrdrv && !backends.dmabuf_forced);
    let (library, mut findings) = engine.needs(&settings.environment, version);
    findings.extend(settings.findings(Some(engine.id)));
    findings.extend(libraries::preloaded(&settings.environment));
    report.add(engine.name, findings)?;
    if let Some(library) = library {
        let library = Wanted::File(library.file);
        let names = engine.names(&settings.environment);
        let others = report.has_problems();
        SelfTest { library, survey: survey.ok(), backends, others, names }.report(&options.gpus, &mut report)?;
    }
    let condition = if engine.has_plugin { " if it has its plugin" } else { "" };
    let works = format!("{} would use GDRCopy here{condition}", engine.name);
    let fails = format!("{} would not use GDRCopy here", engine.name);
    Ok(report.end(&works, &format!("{works}; this was not tested"), &fails)?)
}

fn environment() -> Environment {
    let mut environment = Environment::new();
    for (name, value) in std::env::vars_os() {
        environment.insert(name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned());
    }
    environment
}
