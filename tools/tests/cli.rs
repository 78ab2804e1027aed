//! Tests the command line of all tools, their man pages and their shell completions.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use clap::CommandFactory;
use common::{built, example, gcc, gdrcopy, lib, library, run};
use gdrcopy_tools::cli::{Cli, LINKS};
use nix::unistd::geteuid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gdrcopy");

/// Returns the names of all tools.
fn tools() -> Vec<String> {
    let program = Cli::command();
    program.get_subcommands().map(|tool| tool.get_name().to_owned()).collect()
}

#[test]
fn wrong_options_give_status_2() {
    for tool in &tools() {
        let output = run(&mut gdrcopy(&[], &[tool, "--no-such-option"])).with_status(2);
        output.reports(&["--no-such-option"]);
        assert_eq!(output.stdout, "", "{tool}");
    }
}

/// The screen is a terminal of 24 lines and 80 columns.
#[test]
fn help_fits_on_a_screen() {
    let mut helps = vec![run(Command::new(PROGRAM).arg("--help"))];
    for tool in &tools() {
        let help = run(Command::new(PROGRAM).args([tool, "--help"]));
        assert_eq!(help.stdout, run(Command::new(PROGRAM).args([tool, "-h"])).stdout);
        let last_option = help.stdout.lines().rfind(|line| line.trim_start().starts_with('-'));
        assert!(last_option.unwrap().starts_with("  -h, --help "), "{}", help.stdout);
        helps.push(help);
    }
    for help in helps {
        let help = help.with_status(0);
        help.prints(&["Usage: gdrcopy"]);
        assert!(help.stdout.lines().count() <= 24, "{} lines: {}", help.stdout.lines().count(), help.stdout);
        for line in help.stdout.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn ps_lists_processes_that_use_gdrcopy() {
    let script = "\"$gdrcopy\" copybw -w 1000000000 >log & pid=$!; trap 'kill -9 $pid' EXIT
        until \"$gdrcopy\" ps | grep -A 1 \"$pid .* MiB  (emulated)\"; do kill -0 $pid || exit 1; done
        \"$gdrcopy\" ps --json";
    let directory = tempfile::tempdir().unwrap();
    symlink(library(), directory.path().join("libgdrapi.so.2")).unwrap();
    let mut ps = Command::new(built("gdremu"));
    ps.args(["--", "sh", "-c", script]).current_dir(&directory);
    ps.env("gdrcopy", PROGRAM).env("LD_LIBRARY_PATH", directory.path());
    let output = run(&mut ps).with_status(0);
    let file = library().canonicalize().unwrap();
    output.prints(&[" MiB  (emulated)\n", &format!("\n  this project's: {}\n", file.display()), "\"emulated\": true"]);
}

/// Without CAP_SYS_PTRACE, root sees no more of another user's process than other users do. So it would not help to run
/// `gdrcopy ps` as root.
#[test]
fn ps_does_not_advise_root_to_become_root() {
    if !geteuid().is_root() {
        return;
    }
    let mut sleep = Command::new("setpriv");
    let mut sleep = sleep.args(["--reuid=65534", "--clear-groups", "sleep", "1000"]).spawn().unwrap();
    while fs::metadata(format!("/proc/{}", sleep.id())).unwrap().uid() == 0 {
        thread::yield_now();
    }
    let mut ps = Command::new("setpriv");
    ps.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", PROGRAM, "ps"]);
    let output = run(&mut ps).with_status(0);
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    output.reports(&["without those that may not be examined, ", "whose root may not"]);
    assert!(!output.stderr.contains("as root"), "{output:?}");
}

#[test]
fn link_name_selects_the_tool() {
    let directory = tempfile::tempdir().unwrap();
    for tool in LINKS {
        let link = directory.path().join(format!("gdrcopy_{tool}"));
        symlink(PROGRAM, &link).unwrap();
        run(Command::new(&link).arg("-h")).prints(&[&format!("Usage: gdrcopy {tool}")]);
    }
}

#[test]
fn missing_cuda_driver_is_explained() {
    for tool in ["copybw", "copylat", "compare", "apiperf", "tune"] {
        let output = run(Command::new(PROGRAM).args([tool, &lib()])).with_status(1);
        output.reports(&["no CUDA driver"]);
        assert!(!output.stderr.contains("panicked"), "{tool}: {output:?}");
    }
}

#[test]
fn default_library_is_the_loaders_choice() {
    let directory = tempfile::tempdir().unwrap();
    symlink(library(), directory.path().join("libgdrapi.so.2")).unwrap();
    let few = ["copybw", "-w", "10", "-r", "10"];
    let output = run(gdrcopy(&[], &few).env("LD_LIBRARY_PATH", directory.path())).with_status(0);
    let file = library().canonicalize().unwrap();
    output.prints(&[file.to_str().unwrap()]);

    // Without LD_LIBRARY_PATH, the loader finds a libgdrapi only if one is installed on this computer.
    let installed = run(Command::new(loader_prints_its_choice(directory.path())).env_remove("LD_LIBRARY_PATH"));
    let output = run(gdrcopy(&[], &few).env_remove("LD_LIBRARY_PATH"));
    if installed.status == Some(0) {
        output.prints(&[installed.stdout.trim_end()]);
    } else {
        output.with_status(1).reports(&["--lib"]);
    }
}

/// Builds a program that prints the path of the libgdrapi that dlopen finds. The program fails if there is none.
fn loader_prints_its_choice(directory: &Path) -> PathBuf {
    let source = "#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
        int main(void) {\n\
            void *library = dlopen(\"libgdrapi.so.2\", RTLD_NOW); Dl_info info;\n\
            if (!library || !dladdr(dlsym(library, \"gdr_open\"), &info)) return 1;\n\
            puts(realpath(info.dli_fname, NULL)); return 0; }";
    let file = directory.join("choice.c");
    let program = directory.join("choice");
    fs::write(&file, source).unwrap();
    gcc(file, &[], &program);
    program
}

#[test]
fn removed_options_are_refused_with_one_line() {
    for option in ["-l", "--sweep", "--plot", "--verify", "--alloc=pool", "--alloc=auto", "--format=csv"] {
        let output = run(Command::new(PROGRAM).args(["copybw", option])).with_status(2);
        assert_eq!((&output.stdout[..], output.stderr.lines().count()), ("", 1), "{output:?}");
        output.reports(&[&format!("gdrcopy copybw: {option} was removed: ")]);
    }
    let output = run(Command::new(PROGRAM).args(["compare", "--svg", "file.svg"])).with_status(2);
    assert_eq!((&output.stdout[..], output.stderr.lines().count()), ("", 1), "{output:?}");
    output.reports(&["gdrcopy compare: --svg was removed: --json FILE has the numbers"]);
}

#[test]
fn removed_tools_are_refused_with_one_line() {
    for arguments in [&["suspend", "--tree", "1"][..], &["resume", "1"], &["checkpoint", "--", "true"]] {
        let output = run(Command::new(PROGRAM).args(arguments)).with_status(2);
        assert_eq!((&output.stdout[..], output.stderr.lines().count()), ("", 1), "{output:?}");
        output.reports(&[
            &format!("gdrcopy: {} was removed: ", arguments[0]),
            "gdr_close before CRIU's dump",
            "`gdrcopy ps`",
        ]);
    }
}

/// Returns the examples in the help of a command.
fn examples(command: &clap::Command) -> Vec<String> {
    let help = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    lines.map(str::to_owned).collect()
}

fn read(directory: &Path, file: &str) -> String {
    fs::read_to_string(directory.join(file)).expect(file)
}

#[test]
fn pages_have_their_sections_and_links_their_completions() {
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new(example("generate")).arg(directory.path()).arg("2026-11-22").status();
    assert!(status.unwrap().success());
    let directory = directory.path();
    let overview = read(directory, "man/man1/gdrcopy.1");

    let mut program = Cli::command();
    program.build();
    for tool in program.get_subcommands() {
        let name = tool.get_name();
        assert!(overview.contains(&format!("gdrcopy\\-{name}(1)")), "{name}: {overview}");
        let page = read(directory, &format!("man/man1/gdrcopy-{name}.1"));
        assert!(read(directory, "bash-completion/completions/gdrcopy").contains(name));
        if LINKS.contains(&name) {
            for file in
                [format!("bash-completion/completions/gdrcopy_{name}"), format!("zsh/site-functions/_gdrcopy_{name}")]
            {
                assert!(read(directory, &file).contains("--json"), "{file}");
            }
            assert_eq!(read(directory, &format!("man/man1/gdrcopy_{name}.1")), format!(".so man1/gdrcopy-{name}.1\n"));
        }
        let sections = ["OPTIONS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO"];
        for section in sections {
            assert_eq!(page.matches(&format!(".SH {section}\n")).count(), 1, "{name}: {page}");
        }
        let copies = LINKS.contains(&name) || ["compare", "tune"].contains(&name);
        assert_eq!(page.contains("a byte was copied wrong"), copies, "{name}: {page}");
        let title = concat!(" 2026-11-22 \"gdrcopy ", env!("CARGO_PKG_VERSION"), "\" ");
        assert!(page.contains(title), "{name}: {page}");
    }
}

#[test]
fn examples_are_valid_command_lines() {
    let program = Cli::command();
    for command in std::iter::once(&program).chain(program.get_subcommands()) {
        let examples = examples(command);
        assert!(!examples.is_empty(), "{}", command.get_name());
        for example in examples {
            let words = example.split(' ').skip_while(|word| *word != "gdrcopy");
            let words = words.take_while(|word| !word.starts_with(['>', '&']));
            if let Err(error) = Cli::command().try_get_matches_from(words) {
                panic!("{example}: {error}");
            }
        }
    }
}
