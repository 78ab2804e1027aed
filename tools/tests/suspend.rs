//! `gdrcopy suspend` and `gdrcopy resume`, against listeners that this process plays.

mod common;

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use common::{Output, run};

fn gdrcopy(arguments: &[&str]) -> Output {
    run(Command::new(env!("CARGO_BIN_EXE_gdrcopy")).args(arguments))
}

fn fails_with(arguments: &[&str], text: &str) {
    let output = gdrcopy(arguments);
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.stderr.contains(text), "{output:?}");
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
    fails_with(&["suspend", &pid], "does not listen: start it with GDRCOPY_SUSPEND=1");
    assert_eq!(gdrcopy(&["suspend", "--tree", &pid]).status, Some(0));
    other.kill().unwrap();
    other.wait().unwrap();
    fails_with(&["suspend", &pid], &format!("there is no process {pid}"));
    assert_eq!(gdrcopy(&["resume", "--tree", &pid]).status, Some(0));
}

#[test]
fn processes_are_suspended_together_and_resumed_by_themselves() {
    let own = std::process::id().to_string();
    let first = listener(0, &["", "", ""]);
    let second = listener(1, &["busy", "lost 1 pin"]);
    fails_with(&["suspend", &own], &format!("process {own}: busy"));
    fails_with(&["resume", &own], &format!("process {own}: lost 1 pin"));
    assert_eq!(*second.lock().unwrap(), ["suspend", "resume"]);
    assert_eq!(*first.lock().unwrap(), ["suspend", "resume", "resume"]);
}
