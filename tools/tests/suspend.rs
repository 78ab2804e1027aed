//! `gdrcopy suspend` and `gdrcopy resume`, against listeners that this process plays.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{Output, run};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

fn gdrcopy(arguments: &[&str]) -> Output {
    run(Command::new(env!("CARGO_BIN_EXE_gdrcopy")).args(arguments))
}

/// A listener that gives these answers, and no more. Returns the requests so far.
fn listener(number: usize, answers: &'static [&str]) -> Arc<Mutex<Vec<String>>> {
    let name = format!("gdrcopy-suspend-{}-{number}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let socket = UnixListener::bind_addr(&address).unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let all = requests.clone();
    thread::spawn(move || {
        let mut answers = answers.iter();
        loop {
            let (mut client, _) = socket.accept().unwrap();
            let mut word = [0; 100];
            let len = client.read(&mut word).unwrap();
            if len == 0 {
                continue; // It only looks who listens.
            }
            all.lock().unwrap().push(String::from_utf8(word[..len].to_vec()).unwrap());
            client.write_all(answers.next().unwrap_or(&"").as_bytes()).unwrap();
        }
    });
    requests
}

#[test]
fn processes_that_do_not_listen_are_refused() {
    let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = other.id().to_string();
    gdrcopy(&["suspend", &pid]).with_status(1).reports(&["does not listen: start it with GDRCOPY_SUSPEND=1"]);
    gdrcopy(&["suspend", "--tree", &pid]).with_status(0);
    other.kill().unwrap();
    other.wait().unwrap();
    gdrcopy(&["suspend", &pid]).with_status(1).reports(&[&format!("there is no process {pid}")]);
    gdrcopy(&["resume", "--tree", &pid]).with_status(1).reports(&[&format!("there is no process {pid}")]);
}

#[test]
fn processes_are_suspended_together_and_resumed_by_themselves() {
    let own = std::process::id().to_string();
    let endless: &str = "\u{1b}[2J".repeat(10000).leak();
    let first = listener(0, &["", "", "", "", "suspended already"]);
    let second = listener(1, vec!["busy", "lost 1 pin", endless, "busy"].leak());
    gdrcopy(&["suspend", &own]).with_status(1).reports(&[&format!("process {own}: busy")]);
    gdrcopy(&["resume", &own]).with_status(1).reports(&[&format!("process {own}: lost 1 pin")]);
    // A part of an endless answer, without what terminals take for commands.
    let output = gdrcopy(&["resume", &own]);
    assert!(!output.stderr.contains('\u{1b}') && output.stderr.len() < 2000, "{output:?}");
    assert_eq!(*second.lock().unwrap(), ["suspend", "resume", "resume"]);
    assert_eq!(*first.lock().unwrap(), ["suspend", "resume", "resume", "resume"]);
    // One that another command suspended stays so.
    gdrcopy(&["suspend", &own]).with_status(1).reports(&[&format!("process {own}: busy")]);
    assert_eq!(*first.lock().unwrap(), ["suspend", "resume", "resume", "resume", "suspend"]);
}

#[test]
#[ignore = "is a process of the tests below"]
fn listens() {
    let requests = listener(0, &[]);
    println!("listening");
    for seen in 0.. {
        while requests.lock().unwrap().len() <= seen {
            thread::sleep(Duration::from_millis(1));
        }
        println!("{}", requests.lock().unwrap()[seen]);
    }
}

/// An ignored test as a process of its own, which listens, and what it prints then.
fn process(test: &str) -> (Child, BufReader<ChildStdout>) {
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", test, "--ignored", "--nocapture"]).stdout(Stdio::piped());
    let mut other = other.spawn().unwrap();
    let mut printed = BufReader::new(other.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(printed.read_line(&mut line).unwrap() > 0);
    }
    (other, printed)
}

#[test]
#[ignore = "is the process of the test below"]
fn ends_without_an_answer() {
    let address = SocketAddr::from_abstract_name(format!("gdrcopy-suspend-{}-0", std::process::id())).unwrap();
    let socket = UnixListener::bind_addr(&address).unwrap();
    println!("listening");
    loop {
        let (mut client, _) = socket.accept().unwrap();
        if client.read(&mut [0; 100]).unwrap() > 0 {
            std::process::exit(0);
        }
    }
}

#[test]
fn a_process_that_ends_is_not_taken_for_suspended() {
    let (mut other, _printed) = process("ends_without_an_answer");
    let pid = other.id().to_string();
    gdrcopy(&["suspend", &pid]).with_status(1).reports(&[&format!("process {pid} has ended, or listens no more")]);
    other.wait().unwrap();
}

/// Waits until a process is in a state.
fn wait_for_state(pid: u32, letter: char) {
    let is_there = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains(&format!("State:\t{letter}"))
    };
    while !is_there() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn processes_of_a_tree_that_begin_to_listen_are_suspended_as_well() {
    let listens = "\"$0\" --exact listens --ignored --nocapture";
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{listens} & read line; {listens} & wait")]).arg(std::env::current_exe().unwrap());
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(shell.stdout.take().unwrap()).lines().map(Result::unwrap);
    printed.find(|line| line.contains("listening")).unwrap();
    let first = children(shell.id())[0];
    kill(Pid::from_raw(first as i32), Signal::SIGSTOP).unwrap();
    wait_for_state(first, 'T');
    let mut suspend = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    suspend.args(["suspend", "--tree", &shell.id().to_string()]).stderr(Stdio::piped());
    let mut suspend = suspend.spawn().unwrap();
    let mut lines = BufReader::new(suspend.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("it is stopped"));
    shell.stdin.take().unwrap().write_all(b"\n").unwrap();
    printed.find(|line| line.contains("listening")).unwrap();
    kill(Pid::from_raw(first as i32), Signal::SIGCONT).unwrap();
    assert_eq!(suspend.wait().unwrap().code(), Some(0));
    gdrcopy(&["resume", "--tree", &shell.id().to_string()]).with_status(0);
    let (mut resumed, mut suspended) = (0, 0);
    while resumed < 2 {
        let line = printed.next().unwrap();
        resumed += i32::from(line == "resume");
        suspended += i32::from(line == "suspend");
    }
    assert_eq!(suspended, 2);
    for pid in children(shell.id()) {
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    }
    shell.wait().unwrap();
}

/// Until its parent waits for it, a child that has ended belongs to root.
#[test]
fn ended_children_are_no_obstacle() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = directory.path().join("gdrcopy");
    std::fs::copy(env!("CARGO_BIN_EXE_gdrcopy"), &program).unwrap();
    let as_user = |command: &mut Command| {
        if nix::unistd::geteuid().is_root() {
            std::os::unix::process::CommandExt::uid(command, 65534);
        }
    };
    let mut parent = Command::new("sh");
    parent.args(["-c", "true & exec cat"]).stdin(Stdio::piped());
    as_user(&mut parent);
    let mut parent = parent.spawn().unwrap();
    while children(parent.id()).is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    wait_for_state(children(parent.id())[0], 'Z');
    for command in ["suspend", "resume"] {
        let mut gdrcopy = Command::new(&program);
        gdrcopy.args([command, "--tree", &parent.id().to_string()]);
        as_user(&mut gdrcopy);
        let output = run(&mut gdrcopy);
        assert_eq!((output.status, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    }
    drop(parent.stdin.take());
    parent.wait().unwrap();
}

#[test]
fn an_interrupted_suspension_resumes_what_it_took() {
    let ((mut first, mut printed), (mut second, _printed)) = (process("listens"), process("listens"));
    let pid = Pid::from_raw(second.id() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    let mut suspend = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    suspend.args(["suspend", &first.id().to_string(), &second.id().to_string()]).stderr(Stdio::piped());
    let mut suspend = suspend.spawn().unwrap();
    let mut lines = BufReader::new(suspend.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("it is stopped"));
    // Shells let programs in the background ignore SIGINT.
    kill(Pid::from_raw(suspend.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), format!("gdrcopy suspend: process {pid} does not answer: interrupted"));
    assert_eq!(suspend.wait().unwrap().code(), Some(1));
    let mut requests = String::new();
    for _ in 0..2 {
        printed.read_line(&mut requests).unwrap();
    }
    assert_eq!(requests, "suspend\nresume\n");
    for other in [&mut first, &mut second] {
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

#[test]
fn a_stopped_process_is_named_and_waited_for() {
    let (mut other, _printed) = process("listens");

    let pid = Pid::from_raw(other.id() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    let mut suspend = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    let mut suspend = suspend.args(["suspend", &pid.to_string()]).stderr(Stdio::piped()).spawn().unwrap();
    let mut hint = String::new();
    BufReader::new(suspend.stderr.take().unwrap()).read_line(&mut hint).unwrap();
    assert_eq!(
        hint,
        format!(
            "gdrcopy: waiting for process {pid}: it is stopped: let it continue (SIGCONT), or detach the debugger\n"
        )
    );
    kill(pid, Signal::SIGCONT).unwrap();
    assert!(suspend.wait().unwrap().success());
    other.kill().unwrap();
    other.wait().unwrap();
}
