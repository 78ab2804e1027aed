//! Starts the program with the tracer, forwards signals to it, and waits for its end.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gdrcopy_trace_tables::FUNCTIONS;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use crate::libgdrapi::{has, search};
use crate::system::interrupt::not_ignored;

/// The tracer, and the empty object that makes the loader take it also for libgdrapi.so.
const OBJECTS: [&str; 2] = ["libgdrcopy_trace.so", "libgdrcopy_trace_alias.so"];

/// The tracer gets this.
pub(crate) struct Settings<'a> {
    /// Also record processes that the program starts.
    pub(crate) children: bool,
    /// Record copies as events, those from `min_ticks` on.
    pub(crate) events: bool,
    pub(crate) min_ticks: u64,
    pub(crate) directory: &'a Path,
    pub(crate) library: &'a Path,
}

/// The program, which runs.
pub(crate) struct Program {
    child: Child,
    signals: SignalsInfo<WithRawSiginfo>,
}

impl Program {
    pub(crate) fn start(command: &[OsString], settings: &Settings) -> Result<Program> {
        let preloaded = preloaded(&env::var_os("LD_PRELOAD").unwrap_or_default(), &objects(OBJECTS)?);
        let parent = if settings.children { 0 } else { std::process::id() };
        let (events, ticks) = (u8::from(settings.events), settings.min_ticks);
        let functions = functions(settings.library);
        let mut variable = OsString::from(format!("{parent}:{events}:{ticks}:{functions}:"));
        variable.push(settings.directory);
        // Registered before the child can end. Exec resets the handlers, so signals that nohup ignores have none.
        let forwarded = not_ignored(&[SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2]);
        let signals = SignalsInfo::new(forwarded.into_iter().chain([SIGCHLD]))?;
        let child = Command::new(&command[0])
            .args(&command[1..])
            .env("LD_PRELOAD", preloaded)
            .env("GDRTRACE_SETTINGS", variable)
            .env("GDRTRACE_LIBRARY", settings.library)
            .spawn()
            .with_context(|| command[0].display().to_string())?;
        Ok(Program { child, signals })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end, and calls `every_second` until then.
    pub(crate) fn wait(self, mut every_second: impl FnMut()) -> Result<ExitStatus> {
        let Program { mut child, mut signals } = self;
        let pid = Pid::from_raw(child.id().cast_signed());
        let (send, arrived) = channel();
        thread::spawn(move || signals.forever().try_for_each(|it| send.send((it.si_signo, it.si_code))));
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            match arrived.recv_timeout(Duration::from_secs(1)) {
                Ok((SIGCHLD, _)) => {}
                // The terminal also sends these to the program. Its code is positive, as of all that the kernel sends.
                Ok((SIGINT | SIGQUIT, 1..)) => {}
                Ok((signal, _)) => drop(kill(pid, Signal::try_from(signal)?)),
                Err(RecvTimeoutError::Timeout) => every_second(),
                Err(RecvTimeoutError::Disconnected) => bail!("no more signals arrive"),
            }
        }
    }
}

/// The functions of a libgdrapi, a bit each.
fn functions(library: &Path) -> u32 {
    let has = has(library, &FUNCTIONS).into_iter().zip(0..);
    has.fold(0, |bits, (has, bit)| bits | u32::from(has) << bit)
}

/// The files of LD_PRELOAD and an object, which gets the calls of all but a libgdrapi.
pub(crate) fn preloaded(others: &OsStr, object: &OsStr) -> OsString {
    let others = others.as_bytes().split(|byte| b": ".contains(byte)).filter(|file| !file.is_empty());
    let mut files: Vec<_> = others.map(OsStr::from_bytes).collect();
    let libgdrapi = files.iter().position(|file| search::of_preloaded(file.into()).is_some());
    files.insert(libgdrapi.unwrap_or(files.len()), object);
    files.join(OsStr::new(":"))
}

/// Both objects for LD_PRELOAD, beside this program or where they are installed.
pub(crate) fn objects(names: [&str; 2]) -> Result<OsString> {
    let program = env::current_exe()?.canonicalize()?;
    let beside = program.parent().context("this program has no directory")?;
    let directories = [beside.to_owned(), beside.join("../lib/gdrcopy")];
    let has_both = |directory: &&PathBuf| names.iter().all(|name| directory.join(name).exists());
    let Some(directory) = directories.iter().find(has_both) else {
        bail!("{} is missing: install it with this program, or run `make tools`", names.join(" or "));
    };
    let directory = directory.canonicalize()?;
    let separates = |byte: &u8| b": $".contains(byte);
    ensure!(
        !directory.as_os_str().as_bytes().iter().any(separates),
        "{}: LD_PRELOAD cannot name a path with a blank, colon or dollar sign; install elsewhere",
        directory.display()
    );
    let paths = names.map(|name| directory.join(name).into_os_string());
    Ok(paths.join(OsStr::new(":")))
}
