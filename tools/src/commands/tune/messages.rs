//! Runs pairs of processes of UCX's `ucx_perftest`, which send messages to each other and time them.
#![forbid(unsafe_code)]

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::children::{Limit, Running};
use super::settings::Setting;
use super::threshold::{Messages, Mode};
use super::ucx::{self, Ucx};
use crate::measure::session::Setup;
use crate::output::Progress;
use crate::system::cpu;

/// The sizes of messages in bytes. The last one is no candidate for the threshold from which UCX uses rendezvous. It
/// only shows how long large messages take.
const SIZES: [usize; 10] = [256, 1024, 2048, 4096, 8192, 16384, 24576, 32768, 65536, 1 << 20];
const MESSAGES: usize = 500;
const ROUNDS: usize = 3;

/// The name of the [`Route`] on which messages go from host memory to host memory.
pub(super) const HOST: &str = "host";

/// Sizes of messages, and their times in nanoseconds.
type Times = Vec<(usize, f64)>;

/// Two processes that exchange messages, and the kind of memory that the messages are in.
struct Route {
    name: String,
    memory: &'static str,
    /// The value of CUDA_VISIBLE_DEVICES for each of the two processes.
    gpus: Option<[String; 2]>,
}

pub(super) struct Pairs<'a> {
    pub(super) ucx: &'a Ucx,
    /// The CPU on which each process of a pair runs.
    pub(super) cpus: Option<[usize; 2]>,
    /// The CPUs that tune may run on.
    pub(super) allowed: &'a [usize],
    pub(super) limit: Limit<'a>,
    /// A pair of processes that takes longer than this counts as one that hangs.
    pub(super) longest: Duration,
}

#[derive(Default)]
pub(super) struct Measured {
    pub(super) messages: Vec<Messages>,
    pub(super) notes: Vec<String>,
}

impl Measured {
    /// Returns a result without times, and with the reason as a note.
    pub(super) fn nothing(note: String) -> Measured {
        Measured { messages: Vec::new(), notes: vec![note] }
    }

    /// Adds `times`, which a pair of processes has measured, to the messages of `route`.
    fn add(&mut self, route: &str, mode: Mode, times: &Times) {
        for row in &mut self.messages {
            for &(size, ns) in times {
                if row.route == route && row.size_bytes == size {
                    row.runs_ns[mode as usize].push(ns);
                }
            }
        }
    }
}

impl Pairs<'_> {
    /// In each of `ROUNDS` rounds, or until the deadline, runs a pair of processes for each route and mode that has not
    /// failed. `model` has the settings that give UCX the measured latency and bandwidth of copies.
    pub(super) fn measure(&self, setup: &Setup, model: &[Setting]) -> Result<Measured> {
        let routes = routes(setup);
        let mut measured = Measured::default();
        let mut working = Vec::new();
        for (number, route) in routes.iter().enumerate() {
            for size_bytes in SIZES {
                let route = route.name.clone();
                measured.messages.push(Messages { route, size_bytes, runs_ns: Default::default() });
            }
            for mode in Mode::ALL {
                if mode != Mode::Model || route.name != HOST {
                    working.push((number, mode));
                }
            }
        }
        let mut progress = Progress::new(ROUNDS * working.len());
        for round in 0..ROUNDS {
            let begin = Instant::now();
            for (number, mode) in std::mem::take(&mut working) {
                let route = &routes[number];
                let settings = settings(mode, model);
                let name = format!("{}, {mode:?}", route.name);
                progress.begin(format!("UCX, {name}"));
                let (times, failure) = self.pair(route, &settings)?;
                progress.end();
                measured.add(&route.name, mode, &times);
                if Instant::now() >= self.limit.deadline {
                    if round == 0 {
                        // Without times of all modes, nothing can be compared.
                        let note = "UCX's messages are not measured: --budget is too short for them";
                        return Ok(Measured::nothing(note.into()));
                    }
                    return Ok(measured);
                }
                match failure {
                    Some(failure) => measured.notes.push(format!("{name}: {failure}")),
                    None => working.push((number, mode)),
                }
            }
            if Instant::now() + begin.elapsed() >= self.limit.deadline {
                break;
            }
        }
        Ok(measured)
    }

    /// Runs a pair of processes. Returns the times that it measured and, if sizes are missing, the reason. Only errors
    /// of tune itself, and Ctrl-C, are returned as `Err`.
    fn pair(&self, route: &Route, settings: &[Setting]) -> Result<(Times, Option<String>)> {
        let mut list = tempfile::NamedTempFile::new()?;
        let mut tests = String::new();
        for size in SIZES {
            let count = if size > 65536 { MESSAGES / 10 } else { MESSAGES };
            let _ = writeln!(tests, "{size} -t tag_lat -m {} -s {size} -n {count} -w {}", route.memory, count / 10);
        }
        list.write_all(tests.as_bytes())?;
        let limit = Limit { deadline: self.limit.deadline.min(Instant::now() + self.longest), ..self.limit };
        let mut output = String::new();
        let result = self.run(route, settings, list.path(), &limit, &mut output);
        if self.cpus.is_some() {
            cpu::restrict_to(self.allowed)?;
        }
        let times: Times = output.lines().filter_map(time).collect();
        let mut missing = SIZES.to_vec();
        missing.retain(|&size| times.iter().all(|&(measured, _)| measured != size));
        let failure = match result {
            Err(error) if self.limit.interrupt.requested() => return Err(error),
            Err(error) => Some(format!("{error:#}")),
            Ok(()) if !missing.is_empty() => {
                let missing: Vec<_> = missing.iter().map(usize::to_string).collect();
                Some(format!("no time of {} bytes: {}", missing.join(", "), ucx::last_words(&output)))
            }
            Ok(()) => None,
        };
        Ok((times, failure))
    }

    /// Runs a server process and a client process, and appends the client's output to `output`.
    fn run(&self, route: &Route, settings: &[Setting], tests: &Path, limit: &Limit, output: &mut String) -> Result<()> {
        let (mut server, port) = self.server(route, settings, tests, limit)?;
        let mut client = self.start(1, route, settings, tests, port)?;
        let waited = client.wait(limit);
        output.push_str(&client.output());
        let status = waited?;
        ensure!(status.success(), "ucx_perftest: {status}: {}", ucx::last_words(output));
        // The server ends by itself when its client ends.
        let status = server.wait(limit)?;
        ensure!(status.success(), "server of ucx_perftest: {status}: {}", ucx::last_words(&server.output()));
        Ok(())
    }

    /// Starts a server, and returns it and its port once it listens.
    fn server(&self, route: &Route, settings: &[Setting], tests: &Path, limit: &Limit) -> Result<(Running, u16)> {
        let port = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port();
        let mut server = self.start(0, route, settings, tests, port)?;
        while !listens(port) {
            if server.status()?.is_some() {
                bail!("ucx_perftest does not listen: {}", ucx::last_words(&server.output()));
            }
            limit.pause()?;
        }
        Ok((server, port))
    }

    /// Starts the server (side 0) or its client (side 1).
    fn start(&self, side: usize, route: &Route, settings: &[Setting], tests: &Path, port: u16) -> Result<Running> {
        let mut command = self.ucx.program("ucx_perftest").context("ucx_perftest is gone")?;
        command.arg("-b").arg(tests).args(["-f", "-v", "-p", &port.to_string()]);
        if side == 1 {
            command.arg(Ipv4Addr::LOCALHOST.to_string());
        }
        if let Some(gpus) = &route.gpus {
            command.env("CUDA_VISIBLE_DEVICES", &gpus[side]);
        }
        for setting in settings {
            command.env(setting.name, &setting.value);
        }
        // The child inherits from this thread the CPUs on which it may run.
        if let Some(cpus) = self.cpus {
            cpu::restrict_to(&[cpus[side]])?;
        }
        Running::start(&mut command)
    }
}

/// Returns UCX's settings for a mode. `model` has the settings that describe the measured mapping to UCX.
fn settings(mode: Mode, model: &[Setting]) -> Vec<Setting> {
    match mode {
        Mode::Default => Vec::new(),
        Mode::Model => model.to_vec(),
        Mode::Eager => [model, &[Setting::threshold("inf")]].concat(),
        Mode::Rendezvous => [model, &[Setting::threshold(0)]].concat(),
    }
}

/// Returns the routes of messages: within host memory, within the memory of one GPU and, if there is a second GPU,
/// between the two GPUs.
fn routes(setup: &Setup) -> Vec<Route> {
    let count = setup.gpus.len();
    let gpu = usize::try_from(setup.gpu).unwrap_or(0);
    let host = Route { name: HOST.into(), memory: "host", gpus: None };
    let mut cuda = Route { name: "cuda".into(), memory: "cuda,cuda", gpus: None };
    if count < 2 {
        return vec![host, cuda];
    }
    let own = visible_from(gpu, count);
    let second = usize::from(gpu == 0);
    cuda.gpus = Some([own.clone(), own.clone()]);
    let between = Route {
        name: format!("cuda {gpu}-{second}"),
        memory: "cuda,cuda",
        gpus: Some([own, visible_from(second, count)]),
    };
    vec![host, cuda, between]
}

/// Returns CUDA_VISIBLE_DEVICES for a process that uses the GPU with the number `first`. The variable names all GPUs,
/// because UCX's cuda_ipc needs the GPUs of both processes.
fn visible_from(first: usize, count: usize) -> String {
    let visible = env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let mut names: Vec<_> = visible.split(',').map(str::to_owned).collect();
    names.retain(|name| !name.is_empty());
    for gpu in names.len()..count {
        names.push(gpu.to_string());
    }
    names.truncate(count);
    names.rotate_left(first);
    names.join(",")
}

/// Returns whether a process listens on this port, at any address.
fn listens(port: u16) -> bool {
    // Each line has a number, the local address, the remote address, and the state, which is 0A for LISTEN.
    let port = format!(":{port:04X}");
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(file).unwrap_or_default().lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            if words.len() > 3 && words[1].ends_with(&port) && words[3] == "0A" {
                return true;
            }
        }
    }
    false
}

/// Returns the size and the nanoseconds in a line of ucx_perftest's output, SIZE,MESSAGES,MICROSECONDS,…
fn time(line: &str) -> Option<(usize, f64)> {
    let words: Vec<_> = line.split(',').collect();
    let [size, _, microseconds, ..] = words[..] else {
        return None;
    };
    let ns = microseconds.parse::<f64>().ok()? * 1000.0;
    if ns.is_finite() && ns > 0.0 { Some((size.parse().ok()?, ns)) } else { None }
}
