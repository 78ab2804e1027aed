//! `gdrcopy checkpoint`, `gdrcopy suspend` and `gdrcopy resume`. c_tests/checkpoint.c tests what the object does.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use common::{OTHER, Output, compile, gcc, gdrcopy, lib, library, preloaded, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn tool(arguments: &[&str]) -> Output {
    run(Command::new(env!("CARGO_BIN_EXE_gdrcopy")).args(arguments))
}

/// Makes the objects beside the tool, and the program.
fn opens() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        preloaded("checkpoint");
        let program = Path::new(env!("CARGO_BIN_EXE_gdrcopy")).with_file_name("opens");
        gcc("tools/tests/opens.c", &[library().to_str().unwrap()], &program);
        program
    })
}

/// A process that has opened the library.
struct Opened {
    launcher: Child,
    pid: u32,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Opened {
    fn start(arguments: &[&str]) -> Opened {
        let program = opens();
        let mut command = gdrcopy(&[], &["checkpoint", &lib(), "--"]);
        command.arg(program).args(arguments);
        Opened::run(command)
    }

    fn run(mut command: Command) -> Opened {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut launcher = command.spawn().unwrap();
        let (input, output) = (launcher.stdin.take().unwrap(), launcher.stdout.take().unwrap());
        let mut opened = Opened { launcher, pid: 0, input, output: BufReader::new(output) };
        opened.pid = opened.line().parse().unwrap();
        opened
    }

    fn pid(&self) -> String {
        self.pid.to_string()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns whether it is suspended, and its child if it has one.
    fn state(&mut self) -> String {
        self.input.write_all(b"\n").unwrap();
        self.line()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid.cast_signed()), signal).unwrap();
    }

    fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        while !fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap().contains(") T ") {
            sleep(Duration::from_millis(1));
        }
    }

    fn end(self) {
        drop(self.input);
        let Opened { mut launcher, .. } = self;
        assert!(launcher.wait().unwrap().success());
    }
}

/// `gdrcopy suspend` or `resume` that waits for the last of these processes, which is stopped.
fn waiting(word: &str, pids: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut requester = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    let mut requester = requester.arg(word).args(pids).stderr(Stdio::piped()).spawn().unwrap();
    let (mut hint, mut errors) = (String::new(), BufReader::new(requester.stderr.take().unwrap()));
    errors.read_line(&mut hint).unwrap();
    let last = pids.last().unwrap();
    assert!(hint.starts_with(&format!("gdrcopy: waiting for process {last}: it is stopped: ")), "{hint}");
    (requester, errors)
}

#[test]
fn processes_that_cannot_be_suspended_are_refused() {
    let mut other = Command::new("sh").args(["-c", "true & exec cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = other.id().to_string();
    tool(&["suspend", &pid]).with_status(1).reports(&["start it by `gdrcopy checkpoint -- program`"]);
    tool(&["suspend", "--tree", &pid]).with_status(0); // With a child that has ended.
    other.kill().unwrap();
    other.wait().unwrap();
    tool(&["resume", "--tree", &pid]).with_status(1).reports(&[&format!("there is no process {pid}")]);
}

#[test]
fn trees_are_suspended_and_resumed() {
    let mut tree = Opened::start(&["child"]);
    for _ in 0..2 {
        tool(&["suspend", "--tree", &tree.pid()]).with_status(0);
        assert_eq!(tree.state(), "suspended suspended");
    }
    tool(&["resume", &tree.pid()]).with_status(0);
    assert_eq!(tree.state(), "open suspended");
    tool(&["resume", "--tree", &tree.pid()]).with_status(0);
    assert_eq!(tree.state(), "open open");
    tree.end();
}

#[test]
fn an_interrupted_suspension_resumes_what_it_took() {
    let (mut before, mut first, mut second) = (Opened::start(&[]), Opened::start(&[]), Opened::start(&[]));
    tool(&["suspend", &before.pid()]).with_status(0);
    second.stop();
    let (mut suspend, _errors) = waiting("suspend", &[&before.pid(), &first.pid(), &second.pid()]);
    assert_eq!(first.state().trim(), "suspended");
    // Shells let programs in the background ignore SIGINT.
    kill(Pid::from_raw(suspend.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(suspend.wait().unwrap().code(), Some(1));
    second.signal(Signal::SIGCONT);
    tool(&["resume", &second.pid()]).with_status(0); // After the requests that were waiting.
    for (process, state) in [(&mut before, "suspended"), (&mut first, "open"), (&mut second, "open")] {
        assert_eq!(process.state().trim(), state);
    }
    tool(&["resume", &before.pid()]).with_status(0);
    for process in [before, first, second] {
        process.end();
    }
}

#[test]
fn what_a_killed_requester_left_can_be_repeated() {
    let (mut first, mut second) = (Opened::start(&[]), Opened::start(&[]));
    let pids = [first.pid(), second.pid()];
    for (word, state) in [("suspend", "suspended"), ("resume", "open")] {
        second.stop();
        let (mut requester, _errors) = waiting(word, &[&pids[0], &pids[1]]);
        requester.kill().unwrap();
        requester.wait().unwrap();
        second.signal(Signal::SIGCONT);
        tool(&[word, &pids[0], &pids[1]]).with_status(0);
        assert_eq!((first.state().trim(), second.state().trim()), (state, state));
    }
    for process in [first, second] {
        process.end();
    }
}

/// In any call of the next library, or while it is stopped.
#[test]
fn a_killed_process_is_reported() {
    let other = compile(OTHER, opens().with_file_name("other.so"));
    let mut deaths = Vec::new();
    for call in 6.. {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
        command.args(["checkpoint", "--lib"]).arg(&other).arg("--").arg(opens()).env("DIES_AT", call.to_string());
        let mut process = Opened::run(command);
        let words = ["suspend", "resume"];
        let Some(word) = words.iter().find(|word| tool(&[word, &process.pid()]).status != Some(0)) else {
            process.end();
            break;
        };
        let status = process.launcher.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{word}");
        deaths.push(*word);
    }
    assert_eq!(deaths.concat(), "suspend".repeat(4) + &"resume".repeat(5));

    let mut process = Opened::start(&[]);
    process.stop();
    let (mut requester, mut errors) = waiting("suspend", &[&process.pid()]);
    process.signal(Signal::SIGKILL);
    assert_eq!(requester.wait().unwrap().code(), Some(1));
    let mut report = String::new();
    errors.read_line(&mut report).unwrap();
    assert!(report.contains("has ended"), "{report}");
    process.launcher.wait().unwrap();
}

#[test]
fn other_users_are_refused() {
    let mut process = Opened::start(&[]);
    if nix::unistd::geteuid().is_root() {
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let program = directory.path().join("gdrcopy");
        // By a process of its own, as children of other tests could inherit a descriptor that keeps it from being run.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_gdrcopy")).arg(&program).status();
        assert!(copied.unwrap().success());
        let mut suspend = Command::new(&program);
        std::os::unix::process::CommandExt::uid(&mut suspend, 65534);
        run(suspend.args(["suspend", &process.pid()])).with_status(1).reports(&["run it as its user, or as root"]);
    }
    assert_eq!(process.state().trim(), "open");
    process.end();
}
