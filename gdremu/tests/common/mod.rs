//! Builds the preload libraries and the C programs, and runs programs under gdremu, for every end-to-end test.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};
use std::{env, fs};

pub(crate) const GDREMU: &str = env!("CARGO_BIN_EXE_gdremu");

/// Builds a preload library, gdremu-cuda or gdremu-nvidia, in the directory of the gdremu command. Returns its path.
pub(crate) fn built(name: &str) -> PathBuf {
    let library = format!("lib{}.so", name.replace('-', "_"));
    let directory = Path::new(GDREMU).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", name, "--target-dir"]);
    build.arg(directory.parent().unwrap());
    if directory.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    directory.join(library)
}

/// Returns the names of the functions that a library exports, without the versions of symbols.
pub(crate) fn exports(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only", "--just-symbols"]).arg(library).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let symbols = String::from_utf8(output.stdout).unwrap();
    symbols.lines().map(|symbol| symbol.split('@').next().unwrap().to_owned()).collect()
}

/// Returns the library that gdremu preloads for emulated GPUs. It also takes the place of libcuda.
pub(crate) fn runtime() -> &'static Path {
    static RUNTIME: OnceLock<PathBuf> = OnceLock::new();
    RUNTIME.get_or_init(|| built("gdremu-cuda"))
}

/// Builds the helpers of the C tests (the kit) once per process, and returns their library.
pub(crate) fn kit() -> &'static Path {
    static KIT: OnceLock<PathBuf> = OnceLock::new();
    KIT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kit.{}", std::process::id()));
        let mut make = Command::new("make");
        make.args(["-C", concat!(env!("CARGO_MANIFEST_DIR"), "/.."), "-s", "-f", "c_tests/programs.mk", "kit"]);
        make.arg(format!("out={}", out.display()));
        assert!(make.status().unwrap().success(), "{make:?}");
        out.join("kit/plain/libkit.a")
    })
}

/// Compiles `tests/{source}.c` with these compiler arguments, and returns the program. Compiles it only once for all
/// calls with the same `name`.
pub(crate) fn compile<A: AsRef<OsStr>>(source: &str, name: &str, arguments: impl IntoIterator<Item = A>) -> PathBuf {
    static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let gdremu = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source).join(name);
    let mut compiled = COMPILED.lock().unwrap();
    if compiled.insert(output.clone()) {
        fs::create_dir_all(output.parent().unwrap()).unwrap();
        let mut compile = Command::new(env::var_os("CC").unwrap_or("cc".into()));
        compile.args(["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror"]);
        compile.arg("-pthread").arg("-I").arg(gdremu.join("../c_tests"));
        compile.arg(gdremu.join(format!("tests/{source}.c"))).arg(kit());
        compile.args(arguments).arg("-ldl").arg("-o").arg(&output);
        assert!(compile.status().unwrap().success(), "{compile:?}");
    }
    output
}

/// A build of the C programs: its name and the compiler's flags.
pub(crate) struct Build {
    pub(crate) name: &'static str,
    pub(crate) flags: &'static [&'static str],
}

pub(crate) const PLAIN: Build = Build { name: "plain", flags: &["-O2"] };

pub(crate) const SANITIZED: Build =
    Build { name: "sanitized", flags: &["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"] };

impl Build {
    /// Returns the program of `tests/{source}.c`, linked with the stand-in libcuda.
    pub(crate) fn program(&self, source: &str) -> PathBuf {
        let flags = self.flags.iter().map(OsStr::new);
        compile(source, self.name, flags.chain([runtime().as_os_str()]))
    }

    /// Returns the command `gdremu OPTIONS -- PROGRAM ARGUMENTS` for the line `OPTIONS -- SOURCE ARGUMENTS`, where
    /// PROGRAM is compiled from `tests/SOURCE.c`.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = Command::new(GDREMU);
        command.args(words.by_ref().take_while(|word| *word != "--"));
        command.arg("--").arg(self.program(words.next().unwrap())).args(words);
        command
    }

    pub(crate) fn assert_passes(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let passed = output.status.success() && said.contains("ok ");
        assert!(passed, "{}: {line}: {output:?}", self.name);
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// Runs gdremu with these options on a program with these arguments.
pub(crate) fn gdremu(options: &[&str], program: impl AsRef<OsStr>, arguments: &[&str]) -> Output {
    let mut command = Command::new(GDREMU);
    command.args(options).arg("--").arg(program).args(arguments);
    command.output().unwrap()
}
