//! The parts of doctor that use CUDA or a library, in a process of their own, as these may crash or hang.
//!
//! ```text
//! survey, versions, test  doctor     start doctor with ARGUMENT, wait, read the last answer
//! answer                  its child  does the work, and writes what it knows, as a line of JSON, before each stage
//! ```
#![forbid(unsafe_code)]

use std::env;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use gdrcopy::Version;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::host;
use super::remedies::{Advice, Remedy};
use super::report::Finding;
use crate::cuda::survey::{self, Cuda};
use crate::cuda::{CudaError, DeviceBuffer, Gpu, Memory};
use crate::libgdrapi::search::{self, SONAME};
use crate::libgdrapi::{CallError, Connection, Library, Loader, Mapped, MappingType, load_by_name};
use crate::measure::verify::{difference, pattern};
use crate::system::gdrdrv::{self, Refusal, Versions};
use crate::system::nvml::{Bar1, Nvml};

/// Bytes that the self-test pins and copies.
pub(super) const SIZE: usize = 1 << 20;

/// An attribute of `gdr_get_attribute`.
const USING_DMA_BUF_MMAP: i32 = 3;

/// Errnos that gdrdrv has not.
pub(super) const HANGS: Errno = Errno::ETIMEDOUT;
pub(super) const NOT_ASKED: Errno = Errno::ECHILD;

/// The first argument of the child. No tool has this name.
pub(crate) const ARGUMENT: &str = "--doctors-child";

/// The stage in which only CUDA is used.
const CUDA: &str = "CUDA";

/// The stage behind all others.
const END: &str = "its end";

/// A stage of CUDA may last this many times longer; without the persistence daemon each GPU takes some seconds.
const CUDA_LIMITS: u64 = 6;

/// Seconds of a stage of the library.
static SECONDS: AtomicU64 = AtomicU64::new(10);

pub(super) fn limit_stages(seconds: u64) {
    SECONDS.store(seconds, Ordering::Relaxed);
}

/// The library to load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Wanted {
    /// The library that linked programs get from the loader, or else the one beside this program.
    Default,
    /// The library that the loader finds by this name.
    Name(String),
    File(PathBuf),
}

#[derive(Debug, Serialize, Deserialize)]
enum Work {
    Survey,
    /// Ask the module for its versions.
    Module,
    /// A GPU's number if it is to be tested.
    Library(Wanted, Option<i32>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Loaded {
    pub(super) file: PathBuf,
    /// Its release.
    pub(super) version: Option<(i32, i32)>,
}

impl Loaded {
    pub(super) fn release(&self) -> Option<Version> {
        let (major, minor) = self.version?;
        Some(Version::new(major as u32, minor as u32))
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The next stage of the child; empty before the first one.
    stage: String,
    pub(super) survey: Option<Survey>,
    /// Or whether the node was opened, and the errno.
    versions: Option<Result<[u32; 2], (bool, i32)>>,
    pub(super) library: Option<Loaded>,
    /// The type of the mapping.
    pub(super) mapping: Option<String>,
    /// Dma-bufs were used instead of gdrdrv.
    pub(super) dmabuf: bool,
    pub(super) failure: Option<Failure>,
    /// The log of the library.
    #[serde(skip)]
    pub(super) log: String,
}

/// The answers of CUDA and NVML.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Survey {
    pub(super) cuda: Cuda,
    pub(super) gpu_driver: Option<String>,
    /// One for each GPU.
    pub(super) bar1: Vec<Option<Bar1>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// A call of the library, with its errno.
    Call(i32),
    /// CUDA, before the library was used, or its own copies. With its result.
    Cuda(i32),
    /// The copied bytes were wrong.
    Corrupted,
    /// The process ended without a result, by this signal, or itself (0).
    Died(i32),
    /// A stage did not end.
    Hung,
    /// doctor's child did not work, which says nothing about what it was to examine. With the remedy.
    #[serde(skip)]
    NotAsked(Advice),
    Other,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) kind: Kind,
    /// The library had been used.
    pub(super) in_library: bool,
}

impl Failure {
    pub(super) fn new(kind: Kind, text: impl Into<String>) -> Failure {
        Failure { text: text.into(), kind, in_library: false }
    }

    /// The problem, with this remedy if the child worked.
    pub(super) fn finding(&self, subject: &'static str, remedy: impl FnOnce() -> Advice) -> Finding {
        match &self.kind {
            Kind::NotAsked(advice) => Finding::warning(subject, format!("not tested: {}", self.text), advice.clone()),
            _ => Finding::problem(subject, &*self.text, remedy()),
        }
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

// ---- In doctor ----

/// Asks CUDA and NVML.
pub(super) fn survey() -> Result<Survey, Failure> {
    let answer = ask(&Work::Survey);
    let failure = answer.failure.unwrap_or(Failure::new(Kind::Other, "no answer"));
    answer.survey.ok_or(failure)
}

/// Asks the module for its versions. The errno is `HANGS` where opening its node does not end, `NOT_ASKED` where the
/// question could not be asked.
pub(super) fn versions() -> Result<Versions, Refusal> {
    let answer = ask(&Work::Module);
    let errno = match (answer.versions, answer.failure) {
        (Some(Ok(versions)), _) => return Ok(Versions::new(versions)),
        (Some(Err((opened, errno))), _) => return Err(Refusal { errno: Errno::from_raw(errno), opened }),
        (None, Some(Failure { kind: Kind::Hung, .. })) => HANGS,
        (None, _) => NOT_ASKED,
    };
    Err(Refusal { errno, opened: false })
}

/// The files that hung when they were loaded, which are not loaded again.
static HUNG: Mutex<Vec<(PathBuf, Failure)>> = Mutex::new(Vec::new());

/// Loads a library and, if a GPU is named, tests it there.
pub(super) fn test(library: &Wanted, gpu: Option<i32>) -> Answer {
    let file = match library {
        Wanted::Default => search::first(SONAME),
        Wanted::Name(name) => search::first(name),
        Wanted::File(file) => Some(file.clone()),
    };
    let file = search::real(&file.unwrap_or_default());
    // The loader waits until something writes to it.
    if fs::metadata(&file).is_ok_and(|data| data.file_type().is_fifo()) {
        return Failure::new(Kind::Other, format!("{} is a pipe", file.display())).into();
    }
    let mut hung = HUNG.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, failure)) = hung.iter().find(|(other, _)| *other == file) {
        return failure.clone().into();
    }
    let answer = ask(&Work::Library(library.clone(), gpu));
    if let (None, Some(failure @ Failure { kind: Kind::Hung, .. })) = (&answer.library, &answer.failure) {
        hung.push((file, failure.clone()));
    }
    answer
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Answer {
        Answer { failure: Some(failure), ..Answer::default() }
    }
}

/// Has a child do this. One that dies or hangs has failed.
fn ask(work: &Work) -> Answer {
    start(work).unwrap_or_else(|error| {
        let code = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        let advice = match Errno::from_raw(code.unwrap_or_default()) {
            _ if !Path::new("/proc/self").exists() => Remedy::ProcMount.into(),
            errno @ (Errno::EMFILE | Errno::ENFILE) => host::more_files(errno),
            Errno::EAGAIN => Remedy::DoctorProcesses.into(),
            Errno::ENOMEM => Remedy::DoctorMemory.into(),
            Errno::EPERM | Errno::EACCES | Errno::ENOSYS => Remedy::DoctorSandbox.into(),
            _ => Remedy::DoctorLimits.into(),
        };
        Failure::new(Kind::NotAsked(advice), format!("{error:#}")).into()
    })
}

/// Returns an error where the child cannot be started, or something outside has ended it.
fn start(work: &Work) -> Result<Answer> {
    let (out, log) = (in_memory("answer").context("memfd_create")?, in_memory("log").context("memfd_create")?);
    let mut command = Command::new(env::current_exe().context("reading /proc/self/exe")?);
    command.args([ARGUMENT, &serde_json::to_string(work)?]);
    command.env("GDRCOPY_ENABLE_LOGGING", "1");
    // Libraries print to stdout and stderr, as profilers do that are preloaded. None writes to stdin.
    command.stdin(out.try_clone()?).stdout(log.try_clone()?).stderr(log.try_clone()?);
    let end = wait(command.spawn().context("starting a process")?, &out)?;
    let mut answer = last_answer(&out)?;
    answer.log = read(&log)?;
    let stage = match &*answer.stage {
        "" => "it was started",
        stage => stage,
    };
    let (kind, text) = match end {
        Some(status) if status.success() && stage == END => return Ok(answer),
        Some(status) if status.success() => (Kind::Died(0), format!("its process ended without a result, in {stage}")),
        Some(status) => {
            let signal = status.signal().unwrap_or_default();
            let text = format!("its process died in {stage}: {status}");
            match Signal::try_from(signal) {
                Ok(Signal::SIGXFSZ) => return Err(Error::from(io::Error::from(Errno::EFBIG)).context(text)),
                Ok(Signal::SIGKILL) => return Err(Error::from(io::Error::from(Errno::ENOMEM)).context(text)),
                _ => (Kind::Died(signal), text),
            }
        }
        None => (Kind::Hung, format!("it did not end: {stage} hangs")),
    };
    answer.failure = Some(Failure { in_library: stage != CUDA, ..Failure::new(kind, text) });
    Ok(answer)
}

/// A file in memory, as there may be no directory for temporary files.
fn in_memory(name: &str) -> io::Result<File> {
    // Some kernels from 6.3 on demand it, if vm.memfd_noexec is 2; earlier ones refuse it.
    let noexec = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let cloexec = MFdFlags::MFD_CLOEXEC;
    Ok(memfd_create(name, cloexec | noexec).or_else(|_| memfd_create(name, cloexec))?.into())
}

/// Waits for the end; `None` if a stage lasts too long. Then the child is killed, which does not end what hangs in the
/// kernel.
fn wait(mut child: Child, out: &File) -> io::Result<Option<ExitStatus>> {
    let (mut start, mut written) = (Instant::now(), 0);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let len = out.metadata()?.len();
        if len != written {
            (start, written) = (Instant::now(), len);
        }
        let seconds = SECONDS.load(Ordering::Relaxed);
        let is_late = |seconds| start.elapsed() > Duration::from_secs(seconds);
        let is_cuda = || last_answer(out).is_ok_and(|answer| [CUDA, ""].contains(&&*answer.stage));
        if is_late(seconds) && (is_late(CUDA_LIMITS * seconds) || !is_cuda()) {
            child.kill()?;
            return Ok(None);
        }
        sleep(Duration::from_millis(5));
    }
}

/// The last whole line of the child.
fn last_answer(out: &File) -> io::Result<Answer> {
    let text = read(out)?;
    let mut answers = text.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
    Ok(answers.next().unwrap_or_default())
}

/// The content of a file, in which the child's position stays.
fn read(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error),
        _ => {}
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

// ---- In its child ----

impl Answer {
    /// Says what comes next. Writes to stdin, which is a file.
    fn next(&mut self, stage: &str) -> Result<()> {
        self.stage = stage.into();
        let line = format!("{}\n", serde_json::to_string(self)?);
        File::from(io::stdin().as_fd().try_clone_to_owned()?).write_all(line.as_bytes())?;
        Ok(())
    }
}

/// Does what the argument names.
pub(crate) fn answer(argument: &str) -> Result<ExitCode> {
    let mut answer = Answer::default();
    match serde_json::from_str(argument)? {
        Work::Survey => {
            answer.next(CUDA)?;
            let cuda = survey::query();
            let nvml = Nvml::load();
            let gpus = cuda.gpus.as_deref().unwrap_or_default().iter();
            let bar1 = gpus.map(|gpu| nvml.as_ref()?.bar1(&gpu.device.pci_address)).collect();
            answer.survey = Some(Survey { gpu_driver: nvml.as_ref().and_then(Nvml::driver_version), bar1, cuda });
        }
        Work::Module => {
            answer.next("opening the device node")?;
            answer.versions = Some(gdrdrv::versions().map_err(|why| (why.opened, why.errno as i32)));
        }
        Work::Library(wanted, gpu) => {
            let failure = try_library(&mut answer, &wanted, gpu).err();
            answer.failure = failure.map(|failure| Failure { in_library: answer.stage != CUDA, ..failure });
        }
    }
    answer.next(END)?;
    Ok(ExitCode::SUCCESS)
}

fn try_library(answer: &mut Answer, wanted: &Wanted, gpu: Option<i32>) -> Result<(), Failure> {
    answer.next("loading the library")?;
    let mut loader = Loader::default();
    let library = match wanted {
        Wanted::Default => loader.load_default(),
        Wanted::Name(name) => load_by_name(name),
        Wanted::File(file) => loader.load(file),
    }?;
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
    answer.next("gdr_open")?;
    if Connection::open(library).is_err() {
        return Err(Failure::new(Kind::Other, "gdr_open failed"));
    }
    answer.next("pinning and mapping")?;
    let mapped = Mapped::new(library, &buffer, MappingType::Default, false)?;
    answer.mapping = Some(mapped.mapping_type().into());
    answer.dmabuf = mapped.connection().attribute(USING_DMA_BUF_MMAP) == Some(1);

    answer.next("gdr_copy_to_mapping")?;
    let sent = pattern(SIZE, 1);
    mapped.write(0, &sent).context("writing")?;
    expect_on_gpu(&buffer, &sent, "of CUDA's view after gdr_copy_to_mapping, byte")?;

    answer.next("gdr_copy_from_mapping")?;
    let mut sent = pattern(SIZE, 2);
    buffer.write(&sent)?;
    let mut seen = vec![0; SIZE];
    mapped.read(0, &mut seen).context("reading")?;
    expect(&seen, &sent, "of what gdr_copy_from_mapping read, byte")?;

    // A small unaligned copy must not change its neighbors.
    answer.next("a small gdr_copy_to_mapping")?;
    let small = pattern(101, 3);
    sent[13..114].copy_from_slice(&small);
    mapped.write(13, &small).context("writing")?;
    expect_on_gpu(&buffer, &sent, "of CUDA's view after a small write, byte")?;
    answer.next("unmapping and unpinning")?;
    mapped.close().context("at the end")?;
    Ok(())
}

fn expect_on_gpu(buffer: &DeviceBuffer, sent: &[u8], place: &str) -> Result<(), Failure> {
    let mut bytes = vec![0; SIZE];
    buffer.read(&mut bytes)?;
    expect(&bytes, sent, place)
}

fn expect(seen: &[u8], sent: &[u8], place: &str) -> Result<(), Failure> {
    match difference(seen, sent, place) {
        None => Ok(()),
        Some(difference) => Err(Failure::new(Kind::Corrupted, difference)),
    }
}
