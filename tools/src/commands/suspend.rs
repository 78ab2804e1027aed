//! `gdrcopy suspend` and `gdrcopy resume` ask the objects that `gdrcopy checkpoint` preloads (tools/checkpoint), to take GPU
//! memory from the CPU side of processes, and to return it.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{self, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use nix::errno::Errno;

use crate::system::files;
use crate::system::interrupt::{Interrupt, SIGNALS, not_ignored};
use crate::system::signal;

#[derive(Debug, Args)]
#[command(after_help = "\
A process can be suspended if `gdrcopy checkpoint` has started it, once it has
called gdr_open. Needs the process's user, or root.

Examples:
  gdrcopy checkpoint -- ./program &
  gdrcopy suspend 1234
  gdrcopy resume 1234
  gdrcopy suspend --tree 1234")]
pub(crate) struct Options {
    /// With what they have started, without what cannot be suspended
    #[arg(long)]
    tree: bool,

    /// Processes that were started by `gdrcopy checkpoint`
    #[arg(required = true, value_name = "PID")]
    pids: Vec<u32>,
}

/// `gdrcopy suspend`: all of them, or none that was not suspended before.
pub(crate) fn suspend(options: &Options) -> Result<ExitCode> {
    // Signals that are ignored, as in the background of a script, stay so.
    let interrupt = Interrupt::at(&not_ignored(&SIGNALS))?;
    let mut taken = Vec::new();
    let Err(error) = suspend_all(options, &interrupt, &mut taken) else {
        return Ok(ExitCode::SUCCESS);
    };
    interrupt.reset();
    for helper in taken {
        if let Err(error) = helper.request(RESUME, Some(&interrupt)) {
            eprintln!("gdrcopy suspend: {error:#}");
        }
    }
    Err(error)
}

/// Suspends all, and adds those to the list that were not suspended before.
fn suspend_all(options: &Options, interrupt: &Interrupt, taken: &mut Vec<Helper>) -> Result<()> {
    let mut asked = BTreeSet::new();
    loop {
        let mut helpers = options.helpers()?;
        helpers.retain(|helper| asked.insert((helper.pid, helper.thread)));
        for helper in &helpers {
            if helper.request(SUSPEND, Some(interrupt))? {
                taken.push(*helper);
            }
        }
        if helpers.is_empty() || !options.tree {
            return Ok(());
        }
        // Others may have opened the library while these were waited for.
    }
}

/// `gdrcopy resume`: goes on after errors.
pub(crate) fn resume(options: &Options) -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    for helper in options.helpers()? {
        if let Err(error) = helper.request(RESUME, None) {
            eprintln!("gdrcopy resume: {error:#}");
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

impl Options {
    fn helpers(&self) -> Result<Vec<Helper>> {
        let mut pids = self.pids.clone();
        let mut next = 0;
        while self.tree && next < pids.len() {
            pids.extend(children(pids[next]));
            next += 1;
        }
        let mut helpers = Vec::new();
        for (number, &pid) in pids.iter().enumerate() {
            match Helper::of(pid) {
                Ok(Some(helper)) => helpers.push(helper),
                Ok(None) => ensure!(
                    self.tree,
                    "process {pid} cannot be suspended: start it by `gdrcopy checkpoint -- program`, and let it call gdr_open"
                ),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    ensure!(number >= self.pids.len(), "there is no process {pid}");
                }
                Err(error) => return Err(error).context(format!("process {pid} cannot be read")),
            }
        }
        Ok(helpers)
    }
}

/// The thread of a process that serves requests. Its name is `gdr`, its number, that of the last request, and the answer, a
/// letter and a number.
#[derive(Clone, Copy)]
struct Helper {
    pid: u32,
    thread: u32,
}

/// Letters of requests.
const SUSPEND: u8 = b's';
const RESUME: u8 = b'r';

/// Until a hint at why there is no answer.
const PATIENCE: Duration = Duration::from_secs(2);

impl Helper {
    fn of(pid: u32) -> io::Result<Option<Helper>> {
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let Some(thread) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let helper = Helper { pid, thread };
            if helper.answer().is_ok() {
                return Ok(Some(helper));
            }
        }
        Ok(None)
    }

    /// The number of the last request, and the answer.
    fn answer(&self) -> Result<(u32, String)> {
        let status = fs::read_to_string(format!("/proc/{}/task/{}/status", self.pid, self.thread))?;
        let name = files::field(&status, "Name").unwrap_or_default().strip_prefix("gdr").context("another thread")?;
        // Threads that it starts have its name. It has the number of the process's own PID namespace.
        let own = files::field(&status, "NSpid").unwrap_or_default().rsplit('\t').next().unwrap_or_default();
        let number = u32::from_str_radix(name.get(..6).unwrap_or_default(), 16)?;
        ensure!(number.to_string() == own, "another thread");
        let request = u32::from_str_radix(name.get(6..9).unwrap_or_default(), 16)?;
        Ok((request, name[9..].to_owned()))
    }

    /// Waits for the answer, which may take any time, as calls of the process may. Says so once. Returns false if the process
    /// was as requested before.
    fn request(&self, word: u8, interrupt: Option<&Interrupt>) -> Result<bool> {
        let pid = self.pid;
        let gone = format!("process {pid} has ended");
        let (before, _) = self.answer().context(gone.clone())?;
        let mut number = (process::id() ^ before) & 0xfff;
        if number == before {
            number ^= 1;
        }
        self.send(word, number)?;
        let start = Instant::now();
        let mut hinted = false;
        let answer = loop {
            match self.answer().context(gone.clone())? {
                (answered, answer) if answered == number => break answer,
                _ => sleep(Duration::from_millis(1)),
            }
            let state = state(pid);
            ensure!(!matches!(state, 'Z' | 'X'), gone);
            if interrupt.is_some_and(Interrupt::requested) {
                self.send(RESUME, number ^ 1)?; // Also later, if it is stopped now.
                bail!("process {pid} does not answer: interrupted");
            }
            if !hinted && start.elapsed() > PATIENCE {
                hinted = true;
                let why = match state {
                    'T' | 't' => "it is stopped: let it continue (SIGCONT), or detach the debugger",
                    _ => "one of its calls may take long",
                };
                eprintln!("gdrcopy: waiting for process {pid}: {why}");
            }
        };
        outcome(&answer).with_context(|| format!("process {pid}"))
    }

    fn send(&self, word: u8, number: u32) -> Result<()> {
        let value = (number << 8 | u32::from(word)).cast_signed();
        signal::queue(self.pid, self.thread, libc::SIGRTMAX() - 1, value)
            .with_context(|| format!("process {}: run it as its user, or as root", self.pid))
    }
}

/// The success of an answer, or an error with its remedy.
fn outcome(answer: &str) -> Result<bool> {
    let number = i32::from_str_radix(answer.get(1..).unwrap_or_default(), 16).unwrap_or(0);
    match answer.as_bytes().first() {
        Some(b'o') => return Ok(true),
        Some(b'a') => return Ok(false),
        Some(b'l') => bail!(
            "{number} pins could not be restored, and fail with EIO until they are unpinned. \
             GDRCOPY_ENABLE_LOGGING=1 in its environment logs the reasons"
        ),
        _ => {}
    }
    let errno = Errno::from_raw(number);
    let remedy = match errno {
        Errno::EACCES => "gdrdrv 2.0 serves only the thread that opened it: load a later one",
        Errno::EADDRINUSE => "the program has replaced a mapping by other memory: unmap it by gdr_unmap",
        Errno::ECANCELED => "it was withdrawn",
        _ => "repair that, and try again",
    };
    bail!("{errno}: {remedy}")
}

/// The letter of a process's state; X if there is none.
fn state(pid: u32) -> char {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    files::field(&status, "State").unwrap_or_default().chars().next().unwrap_or('X')
}

/// The processes that a process has started, and that have not ended.
fn children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for task in files::matching(Path::new(&format!("/proc/{pid}/task")), "") {
        let list = fs::read_to_string(task.join("children")).unwrap_or_default();
        children.extend(list.split_ascii_whitespace().flat_map(str::parse::<u32>));
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_answer_is_no_success() {
        assert_eq!(outcome("o00").ok(), Some(true));
        for answer in ["", "l02", "e62", "?"] {
            assert!(outcome(answer).is_err(), "{answer}");
        }
    }
}
