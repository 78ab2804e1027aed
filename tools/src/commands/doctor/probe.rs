//! The part of doctor that uses a library, in a process of its own, as a library may crash or hang.
//!
//! ```text
//! ask     doctor      starts itself with ARGUMENT, waits, reads the answer
//! answer  its child   loads the library, tests it, writes the answer as JSON
//! ```
#![forbid(unsafe_code)]

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::cuda::{DeviceBuffer, Gpu, Memory};
use crate::libgdrapi::search::{self, SONAME};
use crate::libgdrapi::{CallError, Connection, Library, Loader, Mapped, MappingType, load_by_name};
use crate::measure::verify::{difference, pattern};

/// Bytes that the self-test pins and copies.
pub(super) const SIZE: usize = 1 << 20;

/// An attribute of `gdr_get_attribute`.
const USING_DMA_BUF_MMAP: i32 = 3;

/// The remedy if a probe cannot be started.
pub(super) const NOT_STARTED: &str = "doctor starts itself for this: allow one more process, more open files \
    (ulimit -n) and larger files (ulimit -f)";

/// Time limit of a probe; loading CUDA takes seconds with many GPUs.
const LIMIT: Duration = Duration::from_secs(120);

/// The library to load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Wanted {
    /// The library that linked programs get from the loader, or else the one beside this program.
    Default,
    /// The library that the loader finds by this name.
    Name(String),
    File(PathBuf),
}

/// The first argument of the child. No tool has this name.
pub(crate) const ARGUMENT: &str = "--doctors-child";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Loaded {
    pub(super) file: PathBuf,
    /// Its release.
    pub(super) version: Option<(i32, i32)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) library: Option<Loaded>,
    /// The type of the mapping.
    pub(super) mapping: Option<String>,
    /// Dma-bufs were used instead of gdrdrv.
    pub(super) dmabuf: bool,
    pub(super) failure: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) what: String,
    /// The errno of a failed call of the library.
    pub(super) errno: Option<i32>,
    /// The copied bytes were wrong.
    pub(super) corrupted: bool,
}

impl Failure {
    fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), errno: None, corrupted: false }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            errno: error.downcast_ref().map(|error: &CallError| error.errno as i32),
            ..Failure::new(format!("{error:#}"))
        }
    }
}

// ---- In doctor ----

/// Loads a library in a child process and, if a GPU is named, tests it there. Returns the answer, and the library's log. A
/// process that dies has failed.
pub(super) fn ask(library: &Wanted, gpu: Option<i32>) -> Result<(Answer, String)> {
    let file = match library {
        Wanted::Default => search::first(SONAME),
        Wanted::Name(name) => search::first(name),
        Wanted::File(file) => Some(file.clone()),
    };
    // The loader waits until something writes to it.
    let is_pipe = |file: &PathBuf| fs::metadata(file).is_ok_and(|data| data.file_type().is_fifo());
    if let Some(pipe) = file.filter(is_pipe) {
        let failure = Some(Failure::new(format!("{} is a pipe", pipe.display())));
        return Ok((Answer { failure, ..Answer::default() }, String::new()));
    }
    let (out, log) = (in_memory("answer")?, in_memory("log")?);
    let mut command = Command::new(env::current_exe()?);
    command.args([ARGUMENT, &serde_json::to_string(&(library, gpu))?]);
    command.env("GDRCOPY_ENABLE_LOGGING", "1");
    // Libraries print to stdout and stderr, as profilers that are preloaded do. None writes to stdin.
    command.stdin(out.try_clone()?);
    command.stdout(log.try_clone()?).stderr(log.try_clone()?);
    let end = wait(command.spawn()?)?;
    let log = read(log)?;
    let died = match end {
        None => format!("it did not end within {} seconds", LIMIT.as_secs()),
        Some(status) if status.signal() == Some(Signal::SIGXFSZ as i32) => {
            bail!("its process died: {status}: the limit of file sizes is too small")
        }
        Some(status) => match (status.success(), serde_json::from_str(&read(out)?)) {
            (true, Ok(answer)) => return Ok((answer, log)),
            _ => format!("its process died: {status}"),
        },
    };
    Ok((Answer { failure: Some(Failure::new(died)), ..Answer::default() }, log))
}

/// A file in memory, as there may be no directory for temporary files.
fn in_memory(name: &str) -> io::Result<File> {
    // Some kernels from 6.3 on demand it, if vm.memfd_noexec is 2; earlier ones refuse it.
    let noexec = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let cloexec = MFdFlags::MFD_CLOEXEC;
    Ok(memfd_create(name, cloexec | noexec).or_else(|_| memfd_create(name, cloexec))?.into())
}

/// Waits for the end; `None` if it had to be killed.
fn wait(mut child: Child) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(Duration::from_millis(5));
    }
}

fn read(mut file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

// ---- In its child ----

/// Tests what the argument names, and writes the answer to stdin, which is a file.
pub(crate) fn answer(argument: &str) -> Result<ExitCode> {
    let (wanted, gpu) = serde_json::from_str(argument)?;
    let mut answer = Answer::default();
    answer.failure = test(&mut answer, &wanted, gpu).err();
    serde_json::to_writer(File::from(io::stdin().as_fd().try_clone_to_owned()?), &answer)?;
    Ok(ExitCode::SUCCESS)
}

fn test(answer: &mut Answer, wanted: &Wanted, gpu: Option<i32>) -> Result<(), Failure> {
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
    let gpu = Gpu::open(number)?;
    let buffer = DeviceBuffer::alloc(gpu, Memory::Alloc, SIZE)?;
    if Connection::open(library).is_err() {
        return Err(Failure::new("gdr_open failed"));
    }
    let mapped = Mapped::new(library, &buffer, MappingType::Default, false)?;
    answer.mapping = Some(mapped.mapping_type().into());
    answer.dmabuf = mapped.connection().attribute(USING_DMA_BUF_MMAP) == Some(1);

    let sent = pattern(SIZE, 1);
    mapped.write(0, &sent).context("writing")?;
    expect(&from_gpu(&buffer)?, &sent, "of CUDA's view after gdr_copy_to_mapping, byte")?;

    let mut sent = pattern(SIZE, 2);
    buffer.write(&sent)?;
    let mut seen = vec![0; SIZE];
    mapped.read(0, &mut seen).context("reading")?;
    expect(&seen, &sent, "of what gdr_copy_from_mapping read, byte")?;

    // A small unaligned copy must not change its neighbors.
    let small = pattern(101, 3);
    sent[13..114].copy_from_slice(&small);
    mapped.write(13, &small).context("writing")?;
    expect(&from_gpu(&buffer)?, &sent, "of CUDA's view after a small write, byte")
}

fn from_gpu(buffer: &DeviceBuffer) -> Result<Vec<u8>> {
    let mut bytes = vec![0; SIZE];
    buffer.read(&mut bytes)?;
    Ok(bytes)
}

fn expect(seen: &[u8], sent: &[u8], what: &str) -> Result<(), Failure> {
    match difference(seen, sent, what) {
        None => Ok(()),
        Some(difference) => Err(Failure { corrupted: true, ..Failure::new(difference) }),
    }
}
