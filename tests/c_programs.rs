//! Runs the C programs of `c_tests`. There is one test for each combination of a program, a way to run it and a profile
//! of gdremu. The test's name is `WAY::PROFILE::PROGRAM`. The filter on the command line can be several filters with
//! commas between them. `c_tests/README.md` describes the ways and the programs.

mod logged;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// The profiles of gdremu on which most programs are tested in the way [`Way::Linked`]. [`Runner::applies`] selects the
/// profiles for the other ways.
const GENERAL: &[&str] = &[
    "default",
    "defects",
    "traditional",
    "cached",
    "device",
    "gdrdrv-2.5",
    "gdrdrv-2.4",
    "gdrdrv-2.3",
    "gdrdrv-2.0",
    "dmabuf",
    "dmabuf-3gpus",
    "dmabuf-coherent",
];
/// Further profiles of gdremu, for programs that test only systems of one kind, such as systems without gdrdrv.
const SPECIAL: &[&str] = &[
    "dmabuf-mixed",
    "dmabuf-none",
    "dmabuf-export",
    "dmabuf-no",
    "dmabuf-no-gpu",
    "nv-p2p-dummy",
    "nv-p2p-dummy-dmabuf",
];
/// The profiles in `GENERAL` and `SPECIAL` in which the CPU can map dma-bufs of every GPU.
const DMABUF: &[&str] = &["dmabuf", "dmabuf-3gpus", "dmabuf-coherent", "nv-p2p-dummy-dmabuf"];
/// Profiles for gdrcopy_sanity in addition to `GENERAL`.
const SANITY: &[&str] = &["cached-traditional", "no-force-pcie", "high-handles"];
/// The profiles whose driver gdremu can emulate on a real GPU.
const REAL_GPUS: &[&str] =
    &["default", "defects", "traditional", "gdrdrv-2.5", "gdrdrv-2.4", "gdrdrv-2.3", "gdrdrv-2.0"];

/// System calls that the library can do without. `c_tests/denied` denies them.
const DENIED: &[&str] = &["madvise", "mprotect", "access"];

/// Programs that fork after gdr_open or gdrx_attach. valgrind does not check them for leaks, because in the child, the
/// library has no pointer to the parent's objects.
const FORKING: &[&str] = &["abi_consumers", "faults", "fork", "gdrx", "gdrx_cxx", "libcuda_load", "open_fails"];

/// gdremu's exit status if a program ended with buffers still pinned, whatever its own status was.
const LEAK: i32 = 66;
/// The exit status of `watched` for a program that hung.
const HUNG: i32 = 124;
/// The exit status of a program that cannot test anything on this system.
const WAIVED: i32 = 4;

/// The method by which a program gets the library, and the tool under which it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The program finds the library by LD_LIBRARY_PATH.
    Linked,
    /// `libgdrapi-preload.so` is in LD_PRELOAD, and loads the library. LD_LIBRARY_PATH leads to a libgdrapi whose
    /// functions only abort (`c_tests/absent`), because the program must not use that one.
    Preloaded,
    /// As `Linked`, but the program is compiled with ASan and UBSan.
    Sanitized,
    /// As `Linked`, but the program runs under valgrind's memcheck.
    Valgrind,
    /// As `Linked`, but with all repetitions of calls. `Linked` itself makes all of them only on the profile `default`,
    /// and a hundredth of them on other profiles.
    Thorough,
    /// As `Linked`, but with another libgdrapi (`c_tests/another`), because libgdrx must work with any libgdrapi.
    Another,
    /// As `Linked`, but the system call in the first field fails with the errno in the second field, as in a sandbox.
    Denied(&'static str, &'static str),
}

impl Way {
    /// Returns the first word of the tests' names.
    fn name(self) -> String {
        match self {
            Way::Denied(call, error) => format!("denied-{call}-{error}").to_lowercase(),
            way => format!("{way:?}").to_lowercase(),
        }
    }
}

/// The driver and the GPU that the programs use.
#[derive(Clone, Copy, PartialEq)]
enum Hardware {
    Emulated,
    /// This computer's GPU with gdremu's driver.
    Nvidia,
    Real,
}

struct Runner {
    root: PathBuf,
    target: PathBuf,
    hardware: Hardware,
    /// The directory of the programs.
    plain: PathBuf,
    /// The directory of `gdrcopy_sanity`, `watched` and `denied`.
    beside: PathBuf,
    gdremu: PathBuf,
    /// The directory of the libgdrapi under test.
    lib: PathBuf,
    /// The directory of libgdrx.
    gdrx: PathBuf,
    logs: PathBuf,
    sanitized: OnceLock<Result<(), String>>,
}

fn main() {
    let mut arguments = Arguments::from_args();
    let runner = Arc::new(Runner::prepare().unwrap_or_else(|why| panic!("{why}")));
    if runner.hardware != Hardware::Emulated {
        arguments.test_threads = Some(1); // All tests use one GPU, and some count its pins.
    } else if arguments.test_threads.is_none() {
        // The programs sleep half of the time, so two threads per CPU keep the CPUs busy.
        arguments.test_threads = thread::available_parallelism().ok().map(|cores| 2 * cores.get());
    }
    eprintln!("testing {}", runner.loaded_library().unwrap_or_else(|why| panic!("{why}")));
    let mut trials = runner.trials();
    if let Some(filters) = arguments.filter.take() {
        trials.retain(|trial| selects(&filters, arguments.exact, trial.name()));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Returns whether one of the filters, which have commas between them, selects a test.
fn selects(filters: &str, exact: bool, name: &str) -> bool {
    let mut filters = filters.split(',');
    if exact { filters.any(|filter| filter == name) } else { filters.any(|filter| name.contains(filter)) }
}

impl Runner {
    /// Builds everything, unless a bundle of `make gpu-bundle` is used, or `GDRCOPY_TEST_BUILT` says that all is built.
    fn prepare() -> Result<Runner, String> {
        let root = match env::var_os("GDRCOPY_TEST_BUNDLE") {
            // The variable is read at run time, because this program may have been built in another tree and copied.
            None => PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into())),
            // A bundle may be copied to another computer, so its root is the working directory.
            Some(_) => env::current_dir().map_err(|error| error.to_string())?,
        };
        if env::var_os("GDRCOPY_ORIGINAL_DIR").is_some() {
            return Err("GDRCOPY_ORIGINAL_DIR is gone: run NVIDIA's programs as c_tests/README.md says".into());
        }
        let directory = |name| env::var_os(name).map(|path| root.join(path));
        let bundle = directory("GDRCOPY_TEST_BUNDLE");
        let lib = directory("GDRAPI_LIB");
        let hardware = match env::var("GDRCOPY_TEST_PROVIDER").as_deref() {
            _ if env::var_os("GDRCOPY_TEST_REAL").is_some() => Hardware::Real,
            Err(_) | Ok("host") => Hardware::Emulated,
            Ok("nvidia") => Hardware::Nvidia,
            Ok(other) => {
                return Err(format!("GDRCOPY_TEST_PROVIDER is host or nvidia, not {other}"));
            }
        };
        // This program is TARGET/PROFILE/deps/TEST, or TARGET/TRIPLE/PROFILE/deps/TEST.
        let test = env::current_exe().map_err(|error| error.to_string())?;
        let ancestor = |n| test.ancestors().nth(n).map_or_else(PathBuf::new, Path::to_owned);
        let release = ancestor(3).join("release");
        let target = ancestor(if env::var_os("CARGO_BUILD_TARGET").is_some() { 4 } else { 3 });
        let out = root.join("build/c_tests");
        let built = bundle.is_none() && env::var_os("GDRCOPY_TEST_BUILT").is_none();
        let runner = Runner {
            hardware,
            plain: bundle.as_ref().map_or(out.join("plain"), |bundle| bundle.join("c_tests")),
            beside: bundle.clone().unwrap_or(out),
            gdremu: bundle.as_ref().unwrap_or(&release).join("gdremu"),
            gdrx: match &lib {
                Some(lib) if lib.join("libgdrx.so.1").exists() => lib.clone(),
                _ => bundle.clone().unwrap_or(root.join("build/lib")),
            },
            lib: lib.clone().or(bundle).unwrap_or(root.join("build/lib")),
            logs: directory("GDRCOPY_TEST_LOGS").unwrap_or(root.join("build/c_tests/logs")),
            sanitized: OnceLock::new(),
            root,
            target,
        };
        if built {
            runner.make(match lib {
                None => &["lib", "emulator"],
                Some(_) => &["emulator"],
            })?;
            runner.make(&["-f", "c_tests/programs.mk", "plain"])?;
        }
        Ok(runner)
    }

    /// Returns the file of the libgdrapi that programs load, or an error if it is not the one under test. Another one
    /// may be installed or preloaded.
    fn loaded_library(&self) -> Result<String, String> {
        let mut program = Command::new(self.plain.join("copy"));
        program.env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_LIBRARY_PATH", &self.lib);
        let output = program.output().map_err(|error| format!("{program:?}: {error}"))?;
        let objects = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = objects.lines().filter_map(|line| line.trim_start().strip_prefix("libgdrapi.so.2 => "));
        let file = lines.next().and_then(|line| line.split(" (").next()).unwrap_or("no library");
        let tested = self.lib.join("libgdrapi.so.2");
        match (fs::canonicalize(file), fs::canonicalize(&tested)) {
            (Ok(loaded), Ok(tested)) if loaded == tested => Ok(loaded.display().to_string()),
            _ => Err(format!("programs load {file} in place of {}: unset LD_PRELOAD", tested.display())),
        }
    }

    fn make(&self, arguments: &[&str]) -> Result<(), String> {
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        make.args(["--no-print-directory", "--silent", &format!("-j{jobs}")]);
        make.args(arguments).current_dir(&self.root);
        make.env("CARGO_TARGET_DIR", &self.target);
        make.env("LIBGDRAPI", self.lib.join("libgdrapi.so.2"));
        match make.status() {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("{make:?}: {other:?}")),
        }
    }

    fn trials(self: &Arc<Runner>) -> Vec<Trial> {
        let mut trials = Vec::new();
        let mut ways = vec![Way::Linked, Way::Another, Way::Preloaded, Way::Sanitized, Way::Valgrind, Way::Thorough];
        for call in DENIED {
            ways.extend([Way::Denied(call, "EPERM"), Way::Denied(call, "ENOSYS")]);
        }
        for program in self.programs() {
            for profile in self.profiles(&[GENERAL, SPECIAL]) {
                for &way in &ways {
                    if self.applies(&program, way, profile) {
                        let runner = Arc::clone(self);
                        let program = program.clone();
                        let name = format!("{}::{profile}::{program}", way.name());
                        trials.push(Trial::ignorable_test(name, move || runner.run_program(&program, way, profile)));
                    }
                }
            }
        }
        let tests = self.sanity_tests();
        for profile in self.profiles(&[GENERAL, SANITY]) {
            for test in &tests {
                let runner = Arc::clone(self);
                let test = test.clone();
                let name = format!("sanity::{profile}::{test}");
                trials.push(Trial::ignorable_test(name, move || runner.run_sanity(&test, profile)));
            }
        }
        trials
    }

    /// Returns the names of the C programs.
    fn programs(&self) -> BTreeSet<String> {
        let files = fs::read_dir(&self.plain).unwrap_or_else(|error| panic!("{}: {error}", self.plain.display()));
        let names = files.map(|file| file.expect("a readable directory").file_name());
        names.map(|name| name.into_string().expect("an ASCII name")).collect()
    }

    /// Returns the names of gdrcopy_sanity's tests, including the extended ones, as it lists them.
    fn sanity_tests(&self) -> Vec<String> {
        let mut list = self.command("default", false, &self.beside.join("gdrcopy_sanity"));
        let list = list.args(["-l", "-e"]).output();
        let list = list.expect("gdrcopy_sanity starts");
        assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
        let names = String::from_utf8(list.stdout).expect("ASCII names");
        names.lines().map(str::to_owned).collect()
    }

    /// Returns the profiles in `lists` that this hardware supports.
    fn profiles(&self, lists: &[&'static [&'static str]]) -> Vec<&'static str> {
        let all = lists.concat();
        match self.hardware {
            Hardware::Emulated => all,
            Hardware::Nvidia => all.into_iter().filter(|profile| REAL_GPUS.contains(profile)).collect(),
            Hardware::Real => vec!["real"],
        }
    }

    /// Returns whether the program is to run in this way on this profile.
    fn applies(&self, program: &str, way: Way, profile: &str) -> bool {
        if matches!(way, Way::Denied(..)) && self.hardware != Hardware::Emulated {
            return false; // NVIDIA's libcuda also makes the denied system calls, and may fail without them.
        }
        if program == "nv_p2p_dummy" {
            return way == Way::Linked && profile.starts_with("nv-p2p-dummy");
        }
        // The library of `c_tests/another` needs a kernel module, because it cannot map dma-bufs.
        let has_module = profile == "real" || GENERAL.contains(&profile) && !profile.starts_with("dmabuf");
        match way {
            Way::Another => return ["gdrx", "gdrx_cxx"].contains(&program) && has_module,
            _ => {}
        }
        if self.hardware == Hardware::Real {
            return way != Way::Thorough && (program, way) != ("dlopen", Way::Preloaded);
        }
        match (program, way) {
            ("dmabuf", Way::Thorough) => profile == "dmabuf",
            (_, Way::Thorough) => false,
            ("dmabuf_mixed", Way::Linked) => profile == "dmabuf-mixed",
            ("dmabuf_open", Way::Linked) => profile.starts_with("dmabuf"),
            ("dmabuf_functions" | "dmabuf_gaps", Way::Linked) => DMABUF.contains(&profile),
            ("dmabuf_mixed" | "dmabuf_open" | "dmabuf_functions" | "dmabuf_gaps", _) => false,
            ("dlopen", Way::Preloaded) => false, // The program must load the library itself.
            ("address_space", Way::Valgrind) => false, // It limits its address space, and valgrind needs more.
            ("open_fails" | "libcuda_load" | "header_c99" | "header_config" | "header_cxx17", _) => {
                profile == "default"
            } // These programs need no driver, so one profile is enough.
            (_, Way::Linked) => GENERAL.contains(&profile),
            (_, Way::Denied(..)) => ["default", "dmabuf"].contains(&profile),
            _ => profile == "default",
        }
    }

    /// Returns the command that runs a program on a profile. With `leaks`, the program fails if it leaves pins behind.
    fn command(&self, profile: &str, leaks: bool, program: &Path) -> Command {
        let mut command = self.launcher(profile, leaks);
        command.arg(program).env("LD_LIBRARY_PATH", &self.lib);
        command
    }

    fn launcher(&self, profile: &str, leaks: bool) -> Command {
        let mut command = Command::new(self.beside.join("watched"));
        command.stdin(Stdio::null());
        let provider = match self.hardware {
            Hardware::Real => return command,
            Hardware::Emulated => "host",
            Hardware::Nvidia => "nvidia",
        };
        command.arg(&self.gdremu).args(["--provider", provider, "--profile", profile]);
        if leaks {
            command.args(["--leak-exit", &LEAK.to_string()]);
        }
        command.arg("--");
        command
    }

    fn run_program(&self, program: &str, way: Way, profile: &str) -> Result<Completion, Failed> {
        let mut binary = self.plain.join(program);
        let mut command = match program {
            // These programs run without gdremu, as on a computer without any driver.
            "open_fails" | "libcuda_load" => Command::new(self.beside.join("watched")),
            _ => self.launcher(profile, program != "never_closed"),
        };
        let library = match way {
            Way::Preloaded => self.root.join("build/c_tests/absent"),
            Way::Another => self.root.join("build/c_tests/another"),
            _ => self.lib.clone(),
        };
        let mut path = library.clone().into_os_string();
        path.push(":");
        path.push(&self.gdrx);
        if program == "libcuda_load" {
            path.push(":");
            path.push(self.root.join("build/c_tests/fake_cuda"));
        }
        command.env("LD_LIBRARY_PATH", path);
        // The program makes fewer repetitions in runs that are slow, or that test much of what other runs also test.
        let is_slow = matches!(way, Way::Valgrind | Way::Denied(..)) || self.hardware == Hardware::Nvidia;
        if is_slow || way == Way::Linked && !["default", "real"].contains(&profile) {
            command.env("CHECK_SLOWNESS", "100");
        }
        match way {
            Way::Another => {
                command.env("CHECK_ANOTHER", "1");
            }
            Way::Linked | Way::Thorough => {}
            Way::Preloaded => {
                command.env("LD_PRELOAD", self.lib.join("libgdrapi-preload.so"));
            }
            Way::Sanitized => {
                self.sanitized.get_or_init(|| self.make(&["-f", "c_tests/programs.mk", "sanitized"])).clone()?;
                binary = self.root.join("build/c_tests/sanitized").join(program);
                // A program that was built without the sanitizer would pass for the wrong reason.
                if !contains(&binary, b"__asan_init") {
                    return Err(format!("{} has no AddressSanitizer in it", binary.display()).into());
                }
                command.env("UBSAN_OPTIONS", "print_stacktrace=1");
            }
            Way::Denied(call, error) => {
                command.arg(self.beside.join("denied")).args([call, error]);
                command.env("CHECK_DENIED", call);
            }
            Way::Valgrind => {
                if Command::new("valgrind").arg("--version").output().is_err() {
                    return Ok(Completion::ignored_with("valgrind is not installed"));
                }
                command.args(["valgrind", "--quiet", "--fair-sched=yes", "--error-exitcode=99"]);
                let leaks = if FORKING.contains(&program) { "no" } else { "full" };
                command.arg(format!("--leak-check={leaks}"));
                command.args(["--errors-for-leak-kinds=definite", "--keep-debuginfo=yes"]);
                command.arg(format!("--suppressions={}", self.root.join("c_tests/valgrind.supp").display()));
            }
        }
        self.judge(command.arg(binary), &format!("{}/{profile}/{program}", way.name()))
    }

    fn run_sanity(&self, test: &str, profile: &str) -> Result<Completion, Failed> {
        // The tests of leakage end processes that have pins, and leave these behind on purpose.
        let leaks = !test.starts_with("leakage_");
        let mut command = self.command(profile, leaks, &self.beside.join("gdrcopy_sanity"));
        self.judge(command.args(["-t", test]), &format!("sanity/{profile}/{test}"))
    }

    /// Runs a command with its output in a file of the directory of logs, and returns the test's result.
    fn judge(&self, command: &mut Command, log: &str) -> Result<Completion, Failed> {
        let path = self.logs.join(format!("{log}.log"));
        let (status, output) = logged::run(command, &path)?;
        let waived = output.lines().find_map(|line| line.strip_prefix("waived "));
        let why = match (status.code(), waived) {
            (Some(0), None) => return Ok(Completion::Completed),
            (Some(0 | WAIVED), Some(reason)) => {
                let reason = reason.split_once(": ").map_or(reason, |(_, reason)| reason);
                return Ok(Completion::ignored_with(reason));
            }
            // Either the program does not unpin, or a check failed before the unpin.
            (Some(LEAK), _) => "pins were left behind".into(),
            (Some(HUNG), _) => "it hung".into(),
            _ => status.to_string(),
        };
        Err(logged::failure(&why, &output, &path).into())
    }
}

/// Returns whether the bytes are in the file.
fn contains(file: &Path, bytes: &[u8]) -> bool {
    let content = fs::read(file).unwrap_or_default();
    content.windows(bytes.len()).any(|window| window == bytes)
}
