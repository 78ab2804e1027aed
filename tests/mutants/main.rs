//! Puts each defect that `mutants.toml` lists into a copy of the library. The tests that are listed with it must fail.
//! `make mutants-shard` runs only `tests_pass_over_the_changed_libraries`, for defects that cargo-mutants makes.

mod list;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use libtest_mimic::{Arguments, Failed, Trial};

use list::{Mutant, mutants, root};

/// The exit status of `watched` for a test that hung.
const HUNG: i32 = 124;

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1); // All mutants share one copy of the tree.
    let mut trials = vec![Trial::test("tests_pass_over_the_changed_libraries", || {
        tests_pass_over_the_changed_libraries();
        Ok(())
    })];
    for mutant in chosen() {
        trials.push(Trial::test(format!("caught::{}", mutant.name), move || is_caught(&mutant)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Returns the mutants to test. The variable `MUTANTS` has their names with commas between them, or a number. With a
/// number, this many are tested, and each day others are chosen. Without the variable, all are tested.
fn chosen() -> Vec<Mutant> {
    let mut all = mutants();
    let Ok(wanted) = env::var("MUTANTS") else {
        return all;
    };
    if let Ok(count) = wanted.parse::<usize>() {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let day = (since.as_secs() / 86400) as usize;
        let first = day * count % all.len();
        all.rotate_left(first);
        all.truncate(count);
        return all;
    }
    let names: BTreeSet<_> = wanted.split(',').collect();
    all.retain(|mutant| names.contains(mutant.name.as_str()));
    assert_eq!(all.len(), names.len(), "unknown names in MUTANTS={wanted}");
    all
}

/// Puts the mutant into the copy of the tree, and runs the tests that must fail.
fn is_caught(mutant: &Mutant) -> Result<(), Failed> {
    let work = root().join("build/mutants");
    let tree = work.join("tree");
    update_tree(&tree);
    let file = tree.join(&mutant.file);
    let source = fs::read_to_string(&file)?;
    fs::write(&file, source.replace(&mutant.text, &mutant.with))?;
    build_library(&tree, &work.join("target"), &work.join("lib"));
    for test in &mutant.caught_by {
        let output = run(test, &work);
        if output.status.success() {
            return Err(format!("missed by {test}").into());
        }
        let hung = output.status.code() == Some(HUNG);
        if !hung && !String::from_utf8_lossy(&output.stdout).contains("FAILED") {
            return Err(format!("{test} did not run: {output:?}").into());
        }
    }
    Ok(())
}

/// Builds the libraries of a copy of the tree in which cargo-mutants has changed one place, and runs the tests.
/// `ci/scripts/mutants-shard.sh` has built the C programs and gdremu before, in the tree that was copied.
fn tests_pass_over_the_changed_libraries() {
    let bundle = env::var_os("GDRCOPY_TEST_BUNDLE").expect("`make mutants-shard` sets it");
    let bundle = Path::new(&bundle);
    let lib = root().join("build/lib");
    build_library(root(), &root().join("target"), &lib);
    let gdrdrv = ["default", "traditional", "gdrdrv-2.5", "gdrdrv-2.4", "gdrdrv-2.0", "device", "nv-p2p-dummy"];
    let dma_bufs = ["dmabuf", "dmabuf-coherent", "dmabuf-mixed"];
    for profile in gdrdrv.iter().chain(&dma_bufs) {
        let mut programs = Command::new(bundle.join("c_programs"));
        programs.current_dir(bundle.ancestors().nth(3).expect("TREE/build/mutants/bundle"));
        let filters = format!("linked::{profile}::,denied-madvise-enosys::{profile}::fork");
        programs.arg(filters).env("GDRAPI_LIB", &lib).env("CHECK_SLOWNESS", "100");
        let mut programs = programs.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(programs.stdout.take().expect("a pipe"));
        for line in lines.lines() {
            let line = line.expect("text");
            if line.ends_with("FAILED") {
                programs.kill().expect("it is a child"); // One failure is enough.
            }
            println!("{line}");
        }
        assert!(programs.wait().expect("it is a child").success());
    }
    // The tests of the crate gdrcopy reach code that no C program reaches. They also check all libraries' fences.
    let mut of_the_crate = cargo(root(), &root().join("target"));
    succeed(of_the_crate.args(["test", "--package", "gdrcopy", "--lib", "--test", "emulated"]));
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    output
}

/// Makes `tree` a copy of this repository. Unchanged files keep their times, so that cargo does not rebuild them.
fn update_tree(tree: &Path) {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let names = succeed(git.current_dir(root())).stdout;
    let names = String::from_utf8(names).expect("names in UTF-8");
    let wanted = names.split_terminator('\0').map(|name| tree.join(name));
    remove_others(tree, &wanted.collect());
    for name in names.split_terminator('\0') {
        let from = root().join(name);
        let to = tree.join(name);
        if let Ok(target) = fs::read_link(&from) {
            fs::create_dir_all(to.parent().expect("a directory")).expect("writable");
            let _ = std::os::unix::fs::symlink(target, &to); // The link may exist already.
            continue;
        }
        let Ok(content) = fs::read(&from) else {
            continue; // The file is deleted, but git still lists it.
        };
        if fs::read(&to).ok().as_ref() != Some(&content) {
            fs::create_dir_all(to.parent().expect("a directory")).expect("writable");
            fs::copy(&from, &to).expect("writable");
        }
    }
}

/// Removes files below a directory that are not in `wanted`, because they were moved or deleted in the tree.
fn remove_others(directory: &Path, wanted: &BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_others(&path, wanted);
        } else if !wanted.contains(&path) {
            fs::remove_file(&path).expect("writable");
        }
    }
}

fn cargo(tree: &Path, target: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(tree).env("CARGO_TARGET_DIR", target);
    cargo
}

fn build_library(tree: &Path, target: &Path, lib: &Path) {
    succeed(cargo(tree, target).args(["build", "--package", "libgdrapi", "--package", "gdrx"]));
    fs::create_dir_all(lib).expect("writable");
    fs::copy(target.join("debug/libgdrapi.so"), lib.join("libgdrapi.so.2")).expect("built");
    let _ = std::os::unix::fs::symlink("libgdrapi.so.2", lib.join("libgdrapi.so"));
    let mut link = Command::new("cc");
    link.args(["-shared", "-Wl,-soname,libgdrx.so.1", "-Wl,--version-script=crates/gdrx/libgdrx.map"])
        .arg("-Wl,--whole-archive");
    link.arg(target.join("debug/libgdrx.a")).args(["-Wl,--no-whole-archive", "-o"]);
    succeed(link.arg(lib.join("libgdrx.so.1")).current_dir(tree));
}

/// Runs a test by its name in `mutants.toml`. The program `watched` ends the test if it hangs.
fn run(test: &str, work: &Path) -> Output {
    let (package, name) = test.split_once(' ').expect("a package or target, and a name");
    let mut cargo = Command::new(root().join("build/c_tests/watched"));
    cargo.arg(env!("CARGO")).current_dir(work.join("tree")).env("CARGO_TARGET_DIR", work.join("target"));
    cargo.env("RUST_BACKTRACE", "0");
    if ["c_programs", "emulated"].contains(&package) {
        let target: PathBuf = env::current_exe().expect("a path").ancestors().nth(3).expect("cargo's layout").into();
        cargo.current_dir(root()).env("CARGO_TARGET_DIR", target);
        cargo.env("GDRAPI_LIB", work.join("lib")).env("MODEL_CALLS", "40000");
        cargo.args(["test", "--package", "libgdrapi", "--test", package, "--", "--exact", name]);
    } else {
        cargo.args(["test", "--package", package, "--lib", "--tests", "--no-fail-fast", "--", name]);
    }
    cargo.output().expect("cargo starts")
}
