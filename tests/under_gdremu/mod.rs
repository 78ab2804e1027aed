//! Runs tests under gdremu, each in a process of its own. Their names are `WAY::OPTIONS::TEST`, for example
//! `crate::dmabuf::pool::…`.
//! A test program with this runner has `harness = false`, and starts itself again for each test.

#[path = "../logged/mod.rs"]
mod logged;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::built::built;

/// The environment variable with the name of the test that this process runs under gdremu.
const TEST: &str = "TEST_UNDER_GDREMU";
/// The environment variable with gdremu's options, as the test program lists them.
const OPTIONS: &str = "GIVEN_OPTIONS_OF_TEST";
/// The environment variable with gdremu's options, where a profile is replaced by the options that it stands for.
const EXPANDED_OPTIONS: &str = "GDREMU_OPTIONS_OF_TEST";

/// gdremu's exit status if a program ended with buffers still pinned, whatever its own status was.
const LEAK: i32 = 66;

#[derive(Clone, Copy)]
pub(crate) struct Test {
    /// The path of the test: the test program, modules, and the function.
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
}

impl Test {
    /// Returns the name without the test program.
    fn short_name(&self) -> &'static str {
        let (_program, name) = self.name.split_once("::").expect("a module path");
        name
    }
}

/// Makes the list of a module's tests from the names of its functions.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        &[$($crate::under_gdremu::Test { name: concat!(module_path!(), "::", stringify!($test)), run: $test }),+]
    };
}
pub(crate) use tests;

/// Returns the options that gdremu was started with, for tests that depend on them.
#[allow(dead_code, reason = "not every test program has such tests")]
pub(crate) fn options() -> String {
    env::var(OPTIONS).expect("set by this runner")
}

/// Returns the same as [`options`], but a profile is replaced by the options that it stands for.
#[allow(dead_code, reason = "not every test program has such tests")]
pub(crate) fn expanded_options() -> String {
    env::var(EXPANDED_OPTIONS).expect("set by this runner")
}

pub(crate) struct Runner {
    way: &'static str,
    tests: Vec<Test>,
    trials: Vec<Trial>,
    /// If true, a test that leaves pins behind fails.
    pub(crate) finds_leaks: bool,
}

impl Runner {
    /// Makes a runner without tests. `way` is the first word of the tests' names.
    pub(crate) fn new(way: &'static str) -> Runner {
        Runner { way, tests: Vec::new(), trials: Vec::new(), finds_leaks: true }
    }

    /// Adds tests, once with each of these options of gdremu.
    pub(crate) fn add(&mut self, tests: &[Test], options: &[&'static str]) {
        for &options in options {
            self.add_prepared(tests, options, || ());
        }
    }

    /// Adds tests, and calls `prepare` before each, outside gdremu.
    pub(crate) fn add_prepared(&mut self, tests: &[Test], options: &'static str, prepare: fn()) {
        self.tests.extend(tests);
        for &test in tests {
            let name = format!("{}::{}::{}", self.way, name_of(options), test.short_name());
            let finds_leaks = self.finds_leaks;
            let log = log_of(&name);
            self.trials.push(Trial::test(name, move || {
                prepare();
                let program = env::current_exe()?;
                run(under_gdremu(options, finds_leaks, &program).env(TEST, test.name), &log)
            }));
        }
    }

    /// Adds a program as a test, with the name `example::OPTIONS::NAME`.
    #[allow(dead_code, reason = "not every test program has examples")]
    pub(crate) fn add_example(&mut self, name: &'static str, options: &'static str, program: fn(&str) -> PathBuf) {
        let title = format!("example::{}::{name}", name_of(options));
        let log = log_of(&title);
        self.trials.push(Trial::test(title, move || run(&mut under_gdremu(options, true, &program(name)), &log)));
    }

    /// Runs the tests that the command line selects. A process that was started for one test runs only that test.
    pub(crate) fn run(self) {
        let Ok(wanted) = env::var(TEST) else {
            let mut arguments = Arguments::from_args();
            if arguments.test_threads.is_none() {
                // The tests sleep half of the time, so two threads per CPU keep the CPUs busy.
                arguments.test_threads = thread::available_parallelism().ok().map(|cores| 2 * cores.get());
            }
            libtest_mimic::run(&arguments, self.trials).exit();
        };
        let test = self.tests.iter().find(|test| test.name == wanted);
        let test = test.unwrap_or_else(|| panic!("{TEST}={wanted} is no test"));
        (test.run)();
    }
}

/// Returns the word for these options in the tests' names: the profile, or the options without their dashes.
fn name_of(options: &str) -> String {
    if options.is_empty() {
        return "default".to_owned();
    }
    options.trim_start_matches("--profile ").replace("--", "").replace(' ', "-")
}

/// Returns the file for the output of a test.
fn log_of(name: &str) -> PathBuf {
    let logs = env::var_os("GDRCOPY_TEST_LOGS").unwrap_or(env!("CARGO_TARGET_TMPDIR").into());
    Path::new(&logs).join(name.replace("::", "/")).with_extension("log")
}

fn under_gdremu(options: &str, finds_leaks: bool, program: &Path) -> Command {
    let gdremu = built("gdremu");
    let mut command = Command::new(&gdremu);
    command.args(options.split_whitespace());
    if finds_leaks {
        command.args(["--leak-exit", &LEAK.to_string()]);
    }
    command.arg("--").arg(program);
    let expanded = match options.strip_prefix("--profile ") {
        Some(profile) => options_of(profile, &gdremu),
        None => options.to_owned(),
    };
    command.env(OPTIONS, options).env(EXPANDED_OPTIONS, expanded);
    command
}

/// Returns the options that a profile stands for, according to the list that gdremu prints.
fn options_of(profile: &str, gdremu: &Path) -> String {
    static PROFILES: OnceLock<String> = OnceLock::new();
    let profiles = PROFILES.get_or_init(|| {
        let list = Command::new(gdremu).arg("--list-profiles").output().expect("gdremu starts");
        String::from_utf8(list.stdout).expect("text")
    });
    for line in profiles.lines() {
        let (name, options) = line.split_once(' ').unwrap_or((line, ""));
        if name == profile {
            return options.to_owned();
        }
    }
    panic!("gdremu has no profile {profile}")
}

fn run(command: &mut Command, log: &Path) -> Result<(), Failed> {
    let (status, output) = logged::run(command, log)?;
    let why = match status.code() {
        Some(0) => return Ok(()),
        Some(LEAK) => "pins were left behind".to_owned(),
        _ => status.to_string(),
    };
    Err(logged::failure(&why, &output, log).into())
}
