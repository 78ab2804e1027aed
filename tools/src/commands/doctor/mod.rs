//! `gdrcopy doctor`: diagnoses whether GDRCopy works on this system, and suggests fixes.
//!
//! ```text
//! run         one module per section of the report:
//!   driver, gdrdrv, environment, libraries, engines, settings
//!   probe     a child process for CUDA and the self_test, which may crash or hang
//! remedies    what each finding may advise
//! report      prints each section as soon as it is known, and then the steps; or all at the end, as JSON
//! ```
#![forbid(unsafe_code)]

mod driver;
mod engines;
mod environment;
mod gdrdrv;
mod libraries;
pub(crate) mod probe;
mod remedies;
mod report;
mod self_test;
mod settings;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use gdrcopy_core::variables;
use signal_hook::consts::SIGCHLD;
use signal_hook::flag;

use crate::cuda::survey::Cuda;
use crate::libgdrapi::search::SONAME;
use engines::{ENGINES, Engine};
use environment::Backends;
use gdrdrv::Module;
use probe::Failure;
use remedies::Remedy;
use report::{Finding, Report, Verdict};
use self_test::SelfTest;
use settings::Settings;

#[derive(Debug, Args)]
#[command(after_help = "\
Engines: nccl, ucx, nvshmem, libfabric, aws-ofi-nccl, mscclpp, nixl, dpdk,
tensorrt-llm

Examples:
  gdrcopy doctor
  gdrcopy doctor --for nccl
  gdrcopy doctor --gpu 0 --lib ./libgdrapi.so.2

Exit status: 1 if a problem keeps gdrcopy, or the engine, from working; 0 if
there is none, also where the self-test could not run; 2 for wrong options.")]
pub(crate) struct Options {
    /// CUDA's number of a GPU; may be repeated [default: all]
    #[arg(short = 'd', long = "gpu", value_name = "N")]
    gpus: Vec<i32>,

    /// libgdrapi to test [default: the one that the loader finds]
    #[arg(long = "lib", value_name = "FILE")]
    library: Option<PathBuf>,

    /// Report only what keeps this engine from using GDRCopy
    #[arg(long = "for", value_name = "ENGINE", conflicts_with = "library", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(ENGINES.iter().map(|engine| engine.id)))]
    engine: Option<String>,

    /// Print the report as JSON, as docs/doctor.md describes it
    #[arg(long)]
    json: bool,

    /// Seconds that a call of the library may last
    #[arg(long, hide = true, default_value_t = 10)]
    limit: u64,
}

/// Queries CUDA and the module in child processes. Returns an error if doctor cannot start a child.
fn ask() -> Result<(Result<Cuda, Failure>, Module)> {
    Ok((probe::survey()?, Module::query()?))
}

/// Examines the system, and prints the report.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    probe::SECONDS.store(options.limit, Ordering::Relaxed);
    // If SIGCHLD stayed ignored, as a parent process may have set it, doctor could not wait for its own children.
    flag::register(SIGCHLD, Arc::default())?;
    let engine = ENGINES.iter().find(|engine| Some(engine.id) == options.engine.as_deref());
    let mut report = Report::new(options.json);
    let (survey, module) = match ask() {
        Ok(answers) => answers,
        Err(error) => {
            let has_proc = Path::new("/proc/self/exe").exists();
            let remedy = if has_proc { Remedy::DoctorStart } else { Remedy::ProcMount };
            report.add("doctor", vec![Finding::warning("not tested", format!("{error:#}"), remedy)])?;
            return Ok(report.end("", "nothing was tested", "")?);
        }
    };
    let cuda = survey.as_ref();
    let backends = Backends {
        gdrdrv: module.works(),
        dmabuf: cuda.is_ok_and(driver::maps_dmabufs),
        dmabuf_forced: variables::USE_DMABUF_MMAP.is_one(),
        module_only: engine.is_some_and(|engine| engine.module_only),
    };
    let container = environment::container();
    let settings = Settings::read();

    let mut sections = vec![("GPU driver and CUDA".to_owned(), driver::findings(cuda, backends, container))];
    sections.push(("gdrdrv".to_owned(), module.findings(backends, container)));
    if let Ok(cuda) = cuda {
        sections.extend(driver::each_gpu(cuda, backends, container));
    }
    for (title, mut findings) in sections {
        if engine.is_some() {
            findings.retain(|finding| finding.verdict == Verdict::Problem);
        }
        report.add(title, findings)?;
    }
    let mut condition = "";
    let library = if let Some(engine) = engine {
        let version = if backends.gdrdrv && !backends.dmabuf_forced { module.version() } else { None };
        let (library, mut findings) = engine.needs(version, &settings);
        if findings.iter().any(|finding| finding.subject == engines::PLUGIN_SUBJECT && finding.verdict != Verdict::Ok) {
            condition = " if it has its plugin";
        }
        findings.extend(settings.findings(Some(engine.id)));
        findings.extend(libraries::preloaded());
        report.add(engine.name, findings)?;
        library.map(|library| library.file)
    } else {
        report.add("machine", environment::findings(backends, container))?;
        report.add("libgdrapi", libraries::findings(options.library.as_deref(), &settings.environment))?;
        report.add("distributed engines", settings.findings(None))?;
        Some(match &options.library {
            // The path gets a directory, so that the loader does not search for the file.
            Some(file) => Path::new(".").join(file),
            None => SONAME.into(),
        })
    };
    if let Some(library) = library {
        let others = !report.all(Verdict::Problem).is_empty();
        SelfTest { library, cuda: cuda.ok(), backends, others }.report(&options.gpus, &mut report)?;
    }
    let Some(Engine { name, .. }) = engine else {
        let untested = "nothing keeps gdrcopy from working here, but it was not tested";
        return Ok(report.end("gdrcopy works here", untested, "gdrcopy does not work here")?);
    };
    let works = format!("{name} would use GDRCopy here{condition}");
    Ok(report.end(&works, &format!("{works}; this was not tested"), &format!("{name} would not use GDRCopy here"))?)
}
