//! The parts of doctor that use CUDA or a library. They run in a child process, because CUDA and libraries may crash or
//! hang.
//!
//! ```text
//! survey, versions, test  in doctor: start the child (doctor with ARGUMENT), wait, read the child's last line
//! answer                  in the child: does the work; before each stage, writes what it knows as a line of JSON
//! ```
#![forbid(unsafe_code)]

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use gdrcopy::Version;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::remedies::{Advice, Remedy};
use super::report::Finding;
use crate::cuda::survey::{self, Cuda};
use crate::cuda::{CudaError, DeviceBuffer, Gpu, Memory};
use crate::libgdrapi::search;
use crate::libgdrapi::{self, CallError, Library, Mapped, MappingType};
use crate::measure::verify::{difference, pattern};
use crate::system::gdrdrv::{self, Refusal, Versions};

/// The number of bytes that the self-test pins and copies.
pub(super) const SIZE: usize = 1 << 20;

/// The attribute of `gdr_get_attribute` that is 1 if the library maps dma-bufs.
const USING_DMA_BUF_MMAP: i32 = 3;

/// The errno that stands for a device node whose opening does not end. gdrdrv itself never returns this errno.
pub(super) const HANGS: Errno = Errno::ETIMEDOUT;

/// The errno that stands for a device node whose opening kills the process, for example because the module has a bug.
/// gdrdrv itself never returns this errno.
pub(super) const DIES: Errno = Errno::EOWNERDEAD;

/// The first argument of doctor's child process, in the place of a tool's name. No tool has this name.
pub(crate) const ARGUMENT: &str = "--doctors-child";

/// The name of the stage in which doctor's child process uses only CUDA.
const CUDA: &str = "CUDA";

/// The name of the stage in which CUDA, in doctor's child process, copies the memory that the library has mapped.
const CUDA_COPY: &str = "CUDA's copy";

/// The name of the stage in which doctor's child process ends.
const END: &str = "its end";

/// The number of seconds that the child may spend in a stage of its work, such as a call of the library.
pub(super) static SECONDS: AtomicU64 = AtomicU64::new(10);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Work {
    Survey,
    /// Query CUDA for all GPUs, without CUDA_VISIBLE_DEVICES.
    AllGpus,
    /// Ask gdrdrv for its versions.
    Module,
    /// Load a library and, if the number of a GPU is given, test the library on that GPU.
    Library(PathBuf, Option<i32>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Loaded {
    pub(super) file: PathBuf,
    /// The library's release.
    pub(super) version: Option<(i32, i32)>,
}

impl Loaded {
    pub(super) fn release(&self) -> Option<Version> {
        self.version.map(|(major, minor)| Version::new(major as u32, minor as u32))
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The stage that the child begins after it has written this answer. Empty if it has not begun any.
    stage: String,
    cuda: Option<Cuda>,
    versions: Option<Result<[u32; 2], Refusal>>,
    pub(super) library: Option<Loaded>,
    /// The kind of mapping that was tested.
    pub(super) mapping: String,
    pub(super) failure: Option<Failure>,
    /// The text that the child printed, including the library's log. doctor fills in this field, not the child.
    #[serde(skip)]
    pub(super) log: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// A call of the library failed with this errno.
    Call(i32),
    /// CUDA failed with this result, before the library mapped memory or in a copy that CUDA made.
    Cuda(i32),
    /// The copied bytes were wrong.
    Corrupted,
    /// The child ended without a result. The number is the signal that killed it, or 0 if it exited by itself.
    Died(i32),
    /// A stage of the child's work did not end in time.
    Hung,
    /// doctor could not start its child.
    NotStarted,
    #[default]
    Other,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) kind: Kind,
    /// True unless the failure was in the stage [`CUDA`], which does not use the library.
    pub(super) in_library: bool,
}

impl Failure {
    pub(super) fn new(kind: Kind, text: impl Into<String>) -> Failure {
        Failure { text: text.into(), kind, in_library: false }
    }

    /// Returns a problem with this remedy, or with `DoctorStart` if doctor's child process could not be started.
    pub(super) fn finding(&self, subject: &'static str, remedy: impl Into<Advice>) -> Finding {
        let advice = if self.kind == Kind::NotStarted { Remedy::DoctorStart.into() } else { remedy.into() };
        Finding::problem(subject, &*self.text, advice)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let mut kind = Kind::Other;
        if let Some(error) = error.downcast_ref::<CallError>() {
            kind = Kind::Call(error.errno as i32);
        } else if let Some(error) = error.downcast_ref::<CudaError>() {
            kind = Kind::Cuda(error.code);
        }
        Failure::new(kind, format!("{error:#}"))
    }
}

// ---- Code that runs in doctor itself ----

/// Queries CUDA in a child process. The outer error: the child did not start, or was killed by SIGKILL or SIGXFSZ.
pub(super) fn survey() -> Result<Result<Cuda, Failure>> {
    let answer = start(&Work::Survey)?;
    match (answer.cuda, answer.failure) {
        (_, Some(Failure { kind: Kind::Died(libc::SIGXFSZ | libc::SIGKILL), text, .. })) => bail!(text),
        (_, Some(failure)) => Ok(Err(failure)),
        (cuda, None) => Ok(Ok(cuda.context("no answer")?)),
    }
}

/// Returns all GPUs that CUDA finds if CUDA_VISIBLE_DEVICES is unset, with their numbers for this variable. Returns
/// none if CUDA does not work.
pub(super) fn all_gpus() -> Vec<survey::Gpu> {
    match start(&Work::AllGpus).unwrap_or_default().cuda {
        Some(Cuda { gpus: Ok(gpus), .. }) => gpus,
        _ => Vec::new(),
    }
}

/// Queries the versions of the module in a child process. Returns an error if the child cannot be started.
pub(super) fn versions() -> Result<Result<Versions, Refusal>> {
    let answer = start(&Work::Module)?;
    let is_hung = answer.failure.is_some_and(|failure| failure.kind == Kind::Hung);
    let errno = if is_hung { HANGS } else { DIES };
    let without_answer = Err(Refusal { errno: errno as i32, opened: false });
    Ok(answer.versions.unwrap_or(without_answer).map(Versions::new))
}

/// The libraries that hung when they were loaded, with the failure of each.
static HANGING: Mutex<Vec<(PathBuf, Failure)>> = Mutex::new(Vec::new());

/// Loads a library by name or path and, if the number of a GPU is given, tests the library on that GPU. A library whose
/// loading has hung is not loaded again.
pub(super) fn test(library: &Path, gpu: Option<i32>) -> Answer {
    let file = match library.to_str() {
        Some(name) if !name.contains('/') => search::first(name).unwrap_or(library.to_owned()),
        _ => library.to_owned(),
    };
    let file = search::real(&file);
    let mut hanging = HANGING.lock().unwrap_or_else(PoisonError::into_inner);
    for (other, failure) in &*hanging {
        if *other == file {
            return Answer { failure: Some(failure.clone()), ..Answer::default() };
        }
    }
    let answer = match start(&Work::Library(library.into(), gpu)) {
        Ok(answer) => answer,
        Err(error) => {
            let failure = Failure::new(Kind::NotStarted, format!("not tested: {error:#}"));
            return Answer { failure: Some(failure), ..Answer::default() };
        }
    };
    if let Some(failure) = &answer.failure
        && failure.kind == Kind::Hung
        && answer.library.is_none()
    {
        hanging.push((file, failure.clone()));
    }
    answer
}

/// Starts a child that does this work, and returns its answer. If the child dies or hangs, the answer has a failure.
/// Returns an error if the child cannot be started.
fn start(work: &Work) -> Result<Answer> {
    let out = in_memory("answer")?;
    let log = in_memory("log")?;
    let mut command = Command::new(env::current_exe().context("reading /proc/self/exe")?);
    command.args([ARGUMENT, &serde_json::to_string(work)?]);
    command.env("GDRCOPY_ENABLE_LOGGING", "1");
    if *work == Work::AllGpus {
        command.env_remove("CUDA_VISIBLE_DEVICES");
    }
    // Libraries and preloaded profilers print to stdout and stderr. Nothing else writes to stdin, so the child
    // writes its answers there.
    command.stdin(out.try_clone()?).stdout(log.try_clone()?).stderr(log.try_clone()?);
    let end = wait(command.spawn().context("starting a process")?, &out)?;
    let mut answer = last_answer(&out)?;
    answer.log = read(&log)?;
    let stage = if answer.stage.is_empty() { "it was started" } else { &answer.stage };
    let (kind, text) = match end {
        None => (Kind::Hung, format!("it did not end: {stage} hangs")),
        Some(status) if status.success() && stage == END => return Ok(answer),
        Some(status) => {
            let text = format!("its process ended without a result, in {stage}: {status}");
            (Kind::Died(status.signal().unwrap_or_default()), text)
        }
    };
    answer.failure = Some(Failure { in_library: stage != CUDA, ..Failure::new(kind, text) });
    Ok(answer)
}

/// Makes a file in memory, because there may be no directory for temporary files.
fn in_memory(name: &str) -> Result<File> {
    Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC).context("memfd_create")?.into())
}

/// The time after which doctor says that it is waiting.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for the end of the child. If a stage lasts too long, kills the child and returns `None` at once, because a
/// child that hangs inside the kernel does not end even if it is killed.
fn wait(mut child: Child, out: &File) -> io::Result<Option<ExitStatus>> {
    let mut start = Instant::now();
    let mut written = 0;
    let mut is_said = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let len = out.metadata()?.len();
        if len != written {
            start = Instant::now();
            written = len;
            is_said = false;
        }
        let mut limit = Duration::from_secs(SECONDS.load(Ordering::Relaxed));
        if start.elapsed() > PATIENCE.min(limit) {
            let stage = last_answer(out)?.stage;
            if [CUDA, ""].contains(&&*stage) {
                limit *= 6; // Without NVIDIA's persistence daemon, CUDA needs some seconds for each GPU.
            }
            if !is_said {
                eprintln!("gdrcopy doctor: waiting for {stage}, up to {} s", limit.as_secs());
                is_said = true;
            }
        }
        if start.elapsed() > limit {
            child.kill()?;
            return Ok(None);
        }
        sleep(Duration::from_millis(5));
    }
}

/// Returns the last answer that the child has written completely.
fn last_answer(out: &File) -> io::Result<Answer> {
    let text = read(out)?;
    let mut answers = text.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
    Ok(answers.next().unwrap_or_default())
}

/// Returns the content of a file. Does not move the file's position, because the child writes at this position.
fn read(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    let len = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

// ---- Code that runs in doctor's child process ----

impl Answer {
    /// Writes the answer, with the stage that begins now, to stdin, which is a file that doctor reads.
    fn next(&mut self, stage: &str) -> Result<()> {
        self.stage = stage.into();
        let line = format!("{}\n", serde_json::to_string(self)?);
        File::from(io::stdin().as_fd().try_clone_to_owned()?).write_all(line.as_bytes())?;
        Ok(())
    }
}

/// Does the [`Work`] that the argument describes as JSON.
pub(crate) fn answer(argument: &str) -> Result<ExitCode> {
    let mut answer = Answer::default();
    match serde_json::from_str(argument)? {
        Work::Survey | Work::AllGpus => {
            answer.next(CUDA)?;
            answer.cuda = Some(survey::query());
        }
        Work::Module => {
            answer.next("opening the device node")?;
            answer.versions = Some(gdrdrv::versions());
        }
        Work::Library(library, gpu) => {
            let failure = try_library(&mut answer, &library, gpu).err();
            answer.failure = failure.map(|failure| Failure { in_library: answer.stage != CUDA, ..failure });
        }
    }
    answer.next(END)?;
    Ok(ExitCode::SUCCESS)
}

fn try_library(answer: &mut Answer, library: &Path, gpu: Option<i32>) -> Result<(), Failure> {
    answer.next("loading the library")?;
    let library = match library.to_str() {
        // The loader searches for a name without a directory.
        Some(name) if !name.contains('/') => libgdrapi::load_by_name(name),
        _ => libgdrapi::load(library),
    }?;
    answer.next("gdr_runtime_get_version")?;
    answer.library = Some(Loaded { file: library.file.clone(), version: library.version() });
    match gpu {
        Some(number) => use_gpu(answer, library, number),
        None => Ok(()),
    }
}

fn use_gpu(answer: &mut Answer, library: &'static Library, number: i32) -> Result<(), Failure> {
    answer.next(CUDA)?;
    let gpu = Gpu::open(number)?;
    let buffer = DeviceBuffer::alloc(gpu, Memory::Alloc, SIZE)?;
    let mapped = Mapped::step_by_step(library, &buffer, MappingType::Default, |call| answer.next(call));
    let mapped = match mapped {
        Err(_) if answer.stage == "gdr_open" => return Err(Failure::new(Kind::Other, "gdr_open failed")),
        // After an error below, the connection stays open. Else gdr_close could hang, and the report would then name
        // gdr_close instead of the call that failed.
        other => ManuallyDrop::new(other?),
    };
    answer.next("gdr_get_attribute")?;
    let uses_dmabuf = mapped.connection().attribute(USING_DMA_BUF_MMAP) == Some(1);
    let backend = if uses_dmabuf { "a dma-buf" } else { "gdrdrv" };
    answer.mapping = format!("{} mapping of {backend}", mapped.mapping_type());

    answer.next("gdr_copy_to_mapping")?;
    let mut sent = pattern(SIZE, 1);
    let mut seen = vec![0; SIZE];
    mapped.write(0, &sent).context("writing")?;
    answer.next(CUDA_COPY)?;
    buffer.read(&mut seen)?;
    expect(&seen, &sent, "of CUDA's view after gdr_copy_to_mapping, byte")?;

    sent = pattern(SIZE, 2);
    buffer.write(&sent)?;
    answer.next("gdr_copy_from_mapping")?;
    mapped.read(0, &mut seen).context("reading")?;
    expect(&seen, &sent, "of what gdr_copy_from_mapping read, byte")?;

    // A small unaligned copy must not change the bytes around it.
    answer.next("a small gdr_copy_to_mapping")?;
    let small = pattern(102, 3);
    sent[13..114].copy_from_slice(&small[..101]);
    mapped.write(13, &small[..101]).context("writing")?;
    answer.next(CUDA_COPY)?;
    buffer.read(&mut seen)?;
    expect(&seen, &sent, "of CUDA's view after a small write, byte")?;
    Ok(ManuallyDrop::into_inner(mapped).close(|call| answer.next(call)).context("at the end")?)
}

fn expect(seen: &[u8], sent: &[u8], place: &str) -> Result<(), Failure> {
    match difference(seen, sent, place) {
        None => Ok(()),
        Some(difference) => Err(Failure::new(Kind::Corrupted, difference)),
    }
}
