//! Child processes. At a deadline or Ctrl-C, a child is killed, together with all processes that it started.
#![forbid(unsafe_code)]

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::system::interrupt::Interrupt;

/// The time between two checks of the child and of Ctrl-C.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// At most this many bytes of a child's output are read. A working program prints less.
const MAX_OUTPUT: u64 = 1 << 20;

/// The events at which children must end.
#[derive(Clone, Copy)]
pub(super) struct Limit<'a> {
    pub(super) interrupt: &'a Interrupt,
    pub(super) deadline: Instant,
}

impl Limit<'_> {
    /// Sleeps a moment. Fails if Ctrl-C was pressed or the time is over.
    pub(super) fn pause(&self) -> Result<()> {
        thread::sleep(PAUSE);
        if self.interrupt.requested() {
            bail!("interrupted");
        }
        if Instant::now() >= self.deadline {
            bail!("it did not end in time");
        }
        Ok(())
    }
}

/// A child, which is the leader of a process group.
pub(super) struct Running {
    child: Child,
    /// The thread that takes the child's output, so that the child does not wait for a reader.
    reader: Option<JoinHandle<String>>,
}

impl Running {
    pub(super) fn start(command: &mut Command) -> Result<Running> {
        let (output, input) = std::io::pipe()?;
        command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).process_group(0);
        let name = command.get_program().display().to_string();
        let child = command.spawn().context(name)?;
        // This closes the write end that `command` has. Otherwise the reader would never see the end of the output.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = output.take(MAX_OUTPUT).read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Running { child, reader: Some(reader) })
    }

    pub(super) fn status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub(super) fn wait(&mut self, limit: &Limit) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            limit.pause()?;
        }
    }

    /// Ends the child, and returns its output.
    pub(super) fn output(mut self) -> String {
        self.end();
        match self.reader.take() {
            Some(reader) => reader.join().unwrap_or_default(),
            None => String::new(),
        }
    }

    fn end(&mut self) {
        let group = Pid::from_raw(self.child.id().cast_signed());
        // killpg fails if all processes of the group have ended.
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
