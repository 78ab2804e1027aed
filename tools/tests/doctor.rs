//! `gdrcopy doctor`: planted states and the remedy that it chooses first, which is run; running processes; the report.

mod common;
#[path = "doctor/harness.rs"]
mod harness;
#[allow(dead_code, reason = "the tests need its table")]
#[path = "../src/commands/doctor/remedies.rs"]
mod remedies;
#[path = "doctor/states.rs"]
mod states;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{Output, built, gdrcopy, library, run};
use harness::Content::{Faulty, Ours, Talking, Text};
use harness::{HEALTHY, Planted, Report, State, name};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use remedies::{REMEDIES, Remedy};
use serde_json::Value;
use states::{DRIVER, LIBRARY, MODULE, NODES, NOT_PLANTED, NOT_RUN, SETTINGS};

// ---- Remedies ----

fn is_run(remedy: Remedy) -> bool {
    NOT_RUN.iter().all(|(remedies, _)| !remedies.contains(&remedy))
}

/// Only root can mount, and not in every container.
fn can_mount() -> bool {
    Command::new("sh").args(["-c", "unshare -m mount -t tmpfs test /mnt"]).status().unwrap().success()
}

/// Plants the states, has doctor choose, and runs what it chose.
#[track_caller]
fn choose_and_run(states: &[State]) {
    // Steps of this computer, as for a distant NUMA node.
    let of_this = HEALTHY.examine();
    let mut faults = Vec::new();
    for state in states {
        if state.is_private && !can_mount() {
            eprintln!("not planted, as nothing can be mounted: {:?} {}", state.first, state.before);
            continue;
        }
        let planted = state.plant();
        let report = planted.examine(&[]);
        report.is_consistent();
        let fault = match fault(state, &report, &of_this) {
            Ok(Some(step)) => not_cured(&planted, &report, &step),
            Ok(None) => None,
            Err(fault) => Some(fault),
        };
        let of =
            |fault| format!("{} {} {:?}: {fault}\n{:#}", state.emulated, state.arguments, state.variables, report.json);
        faults.extend(fault.map(of));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// Returns the first step, or an error if the report is wrong.
fn fault(state: &State, report: &Report, of_this: &Report) -> Result<Option<Value>, String> {
    if report.json["usable"] != state.usable {
        return Err(format!("usable is not {}", state.usable));
    }
    let expected: Vec<_> = state.first.iter().map(|&remedy| name(remedy)).collect();
    let steps = report.json["steps"].as_array().unwrap();
    match steps.iter().find(|step| !of_this.steps().contains(step)) {
        None if expected.is_empty() => Ok(None),
        None => Err(format!("no step, not {expected:?}")),
        // One backend is enough, so there may be a remedy for either.
        Some(first) => {
            let chosen =
                [first, &first["or"]].into_iter().find(|step| expected.iter().any(|name| step["remedy"] == **name));
            chosen.cloned().map(Some).ok_or(format!("not {expected:?}"))
        }
    }
}

/// Runs a step, unless the reason why not is known. Says if doctor prints it still, or another one instead.
fn not_cured(planted: &Planted, before: &Report, step: &Value) -> Option<String> {
    let &(remedy, ..) = REMEDIES.iter().find(|(remedy, ..)| step["remedy"] == *name(*remedy))?;
    if !is_run(remedy) || planted.state.is_fixed {
        return None;
    }
    let commands: Vec<String> = serde_json::from_value(step["commands"].clone()).unwrap();
    let next = planted.examine(&commands);
    let is_still_there = next.steps().iter().any(|next| next["remedy"] == step["remedy"]);
    // In a place of its own, another fault instead is no cure.
    let faults =
        |report: &Report| report.json["problems"].as_u64().unwrap() + report.json["warnings"].as_u64().unwrap();
    let is_replaced = planted.state.is_private && faults(&next) >= faults(before);
    (is_still_there || is_replaced).then(|| format!("not cured by {commands:?}: {:#}", next.json))
}

#[test]
fn driver_and_gpu() {
    choose_and_run(DRIVER);
}

#[test]
fn device_nodes() {
    choose_and_run(NODES);
}

#[test]
fn module_and_machine() {
    choose_and_run(MODULE);
}

#[test]
fn libraries() {
    choose_and_run(LIBRARY);
}

#[test]
fn settings_and_engines() {
    choose_and_run(SETTINGS);
}

#[test]
fn every_remedy_is_run_or_has_a_reason() {
    let states = [DRIVER, NODES, MODULE, LIBRARY, SETTINGS].concat();
    for &(remedy, ..) in REMEDIES {
        let is_planted = states.iter().any(|state| state.first == [remedy]);
        let is_named = NOT_PLANTED.iter().any(|(remedies, _)| remedies.contains(&remedy));
        assert_ne!(is_planted, is_named, "{remedy:?} is planted, or named with a reason");
        assert!(is_planted || !is_run(remedy), "{remedy:?} is never run");
    }
    let named = NOT_RUN.iter().flat_map(|(remedies, _)| *remedies);
    assert!(NOT_RUN.iter().all(|(_, reason)| !reason.is_empty()));
    assert_eq!(named.count(), REMEDIES.iter().filter(|(remedy, ..)| !is_run(*remedy)).count(), "one is named twice");
}

// ---- Findings ----

/// A state in which all is well, with the options of gdremu and the text of its stand-in file.
fn with(emulated: &'static str, text: &'static str) -> Report {
    let files: &'static [_] = Box::leak(Box::new([("file", Text(text))]));
    State { emulated, files, ..HEALTHY }.examine()
}

#[test]
fn healthy_system_has_no_problem() {
    for emulated in
        ["--no-gdrdrv --cuda-version 13.5 --dmabuf mmap", "--platform cached", "--no-mempools", "--cuda-version 12.2"]
    {
        assert_eq!(with(emulated, "").status, Some(0), "{emulated}");
    }
    let report = with("--gpus 2", "");
    assert_eq!((report.status, &report.json["tested"]), (Some(0), &true.into()));
    report.finds("ok", "gdrdrv", "module version", &["2.6"]);
    report.finds("ok", "gdrdrv", "persistent mapping", &["on"]);
    report.finds("ok", "GPU driver and CUDA", "CUDA", &["13.0"]);
    report.finds("ok", "GPU 1: gdremu GPU at 0000:2b:00.0", "BAR1 size", &["128 GiB"]);
    report.finds("ok", "GPU 1", "PCIe link", &["generation 5, 16 lanes"]);
    report.finds("ok", "GPU 1", "NUMA node", &["0"]);
    for name in ["libgdrapi.so.2", "libgdrapi.so"] {
        report.finds("ok", "libgdrapi", name, &["libgdrapi.so.2", "this project's, 2.6"]);
    }
    report.finds("unknown", "distributed engines", "NCCL_GDRCOPY_ENABLE", &["not set", "only if this is for NCCL"]);
    report.finds("ok", "self-test on GPU 1", "passed", &["write-combining mapping of gdrdrv"]);
    assert_eq!(report.findings("self-test").len(), 2);
    with("--platform cached", "").finds("ok", "self-test", "passed", &["cached mapping of gdrdrv"]);
    with("--no-gdrdrv --cuda-version 13.3", "").finds("ok", "self-test", "passed", &["mapping of a dma-buf"]);
}

#[test]
fn gpu_option_selects_the_gpu() {
    let report = State { emulated: "--gpus 3", arguments: "--gpu 2", ..HEALTHY }.examine();
    assert_eq!(report.findings("self-test").len(), 1);
    report.finds("ok", "self-test on GPU 2", "passed", &[]);
}

#[test]
fn gpu_that_others_use_is_not_tested() {
    let report = with("--gpus 2 --fault cuDevicePrimaryCtxRetain:2", "");
    assert_eq!((report.status, &report.json["tested"]), (Some(0), &false.into()));
    report.finds("warning", "self-test on GPU 1", "not tested", &["(2)", "full"]);
    let report = with("--fault cuDevicePrimaryCtxRetain:2 --gdrdrv-errno EACCES", "");
    assert_eq!(report.status, Some(1), "the verdict is that of the other lines");
    // Its own copies fail, which is no other program.
    let report = with("--fault cuMemcpyDtoH:719", "");
    report.finds("problem", "self-test", "failed", &["(719)"]);
}

#[test]
fn other_gpus_are_not_tried_after_a_hang() {
    let variables = &[("FAULTY", "hang")];
    let arguments = "--lib {dir}/faulty.so --limit 3";
    let state = State { files: &[("faulty.so", Faulty)], variables, arguments, emulated: "--gpus 3", ..HEALTHY };
    let report = state.examine();
    report.finds("unknown", "self-test on the other GPUs", "not run", &["GPU 0 did not end"]);
    assert_eq!(report.findings("self-test").len(), 2);
}

#[test]
fn report_names_what_fails() {
    for (emulated, section, subject, words) in [
        ("--gdrdrv-errno EMFILE", "gdrdrv", "opening it", &["EMFILE"] as &[&str]),
        ("--no-gdrdrv", "gdrdrv", "device node", &["no /dev/gdrdrv"]),
        ("--no-gdrdrv", "GPU driver", "dma-buf backend", &["13.0", "13.3"]),
        ("--no-gdrdrv", "self-test", "failed", &["gdr_open"]),
        ("--fault cuInit:803", "GPU driver", "GPUs", &["cuInit", "803", "release"]),
        ("--gpus 2 --rdma yes,no", "self-test on GPU 1", "failed", &["gdr_pin_buffer"]),
        ("--fault MMAP:ENOMEM", "self-test", "failed", &["gdr_map"]),
    ] {
        with(emulated, "").finds("problem", section, subject, words);
    }
    let unpinned = with("--rdma no --no-gdrdrv --cuda-version 13.3", "");
    unpinned.finds("warning", "GPU 0", "GPUDirect RDMA", &["cannot pin"]);
    assert_eq!(unpinned.status, Some(0));
    let few = State { before: "ulimit -S -n 512", emulated: "--no-gdrdrv --cuda-version 13.3", ..HEALTHY };
    few.examine().finds("warning", "machine", "open files", &["512", "each pin uses one"]);
    let hidden = State { variables: &[("CUDA_VISIBLE_DEVICES", "7")], ..HEALTHY };
    hidden.examine().finds("problem", "GPU driver", "GPUs", &["CUDA_VISIBLE_DEVICES=7"]);
    let conf = State { files: &[("ucx.conf", Text("UCX_TLS=rc\n"))], arguments: "--for ucx", ..HEALTHY };
    conf.examine().finds("problem", "UCX", "UCX_TLS", &["rc, of ", "ucx.conf"]);
}

#[test]
fn no_gpu() {
    let report = with("--gpus 0", "");
    report.finds("problem", "GPU driver and CUDA", "GPUs", &["no GPU"]);
    // Where the computer lists no PCI devices, the bus is unknown.
    let is_absent = report.findings("GPU driver")[0]["subject"] == "hardware";
    assert_eq!(is_absent, report.json["steps"][0]["remedy"] == *name(Remedy::GpuNone), "{:#}", report.json);
    report.finds("unknown", "self-test", "not run", &["no GPU"]);
}

#[test]
fn stand_ins_of_the_kernels_files() {
    let params = "ImexChannelCount: 2048\nCoherentGPUMemoryMode: \"";
    for (path, text, verdict, section, subject, word) in [
        (
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n",
            "ok",
            "GPU driver",
            "GPU driver",
            "580.95.05, open kernel modules",
        ),
        ("/proc/modules", "nvidia_peermem 20480 0 - Live 0x0\n", "ok", "GPU driver", "nvidia-peermem", "loaded"),
        ("/proc/modules", "nvidia 1 0 - Live 0x0\n", "ok", "GPU driver", "nvidia-peermem", "not loaded"),
        ("/proc/driver/nvidia/params", "driver\"\n", "ok", "GPU driver", "CDMM", "on: "),
        ("/proc/driver/nvidia/params", "numa\"\n", "ok", "GPU driver", "CDMM", "off: "),
        ("/proc/driver/nvidia/params", "\"\n", "unknown", "GPU driver", "CDMM", "NVreg_CoherentGPUMemoryMode"),
        ("/proc/driver/nvidia/params", "new\"\n", "unknown", "GPU driver", "CDMM", "new"),
        (
            "/sys/bus/pci/devices/0000:1b:00.0/current_link_speed",
            "2.5 GT/s PCIe\n",
            "ok",
            "GPU 0",
            "PCIe link",
            "generation 5 when busy",
        ),
        ("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "-1\n", "unknown", "GPU 0", "NUMA node", ""),
        (
            "/proc/driver/gdrdrv/pins",
            "pid uid bytes mapped type age command\n",
            "unknown",
            "pins",
            "pinned",
            "does not know",
        ),
        (
            "/proc/driver/gdrdrv/pins",
            "pid uid gpu bytes mapped type age command\n7 0 GPU-1 65536 no - 13 ucx\n",
            "ok",
            "pins",
            "process",
            "7 (ucx)",
        ),
        (
            "/proc/driver/gdrdrv/pins",
            "pid uid gpu bytes mapped type age command\n7 0 GPU-1 65536 no - 13 ucx\n",
            "ok",
            "GPU 0",
            "BAR1 size",
            "128 GiB; 64 KiB pinned through gdrdrv, on all GPUs",
        ),
    ] {
        let text = if path.ends_with("params") { format!("{params}{text}") } else { text.to_owned() };
        let emulated = format!("--platform cached --file={path}={{dir}}/file");
        let report = with(Box::leak(emulated.into_boxed_str()), Box::leak(text.into_boxed_str()));
        report.finds(verdict, section, subject, &[word]);
    }
    with("", "").finds("ok", "GPU driver", "CDMM", &["no GPU has a coherent link"]);
}

// ---- The library ----

#[test]
fn path_that_is_not_utf_8_is_searched_also() {
    let planted = HEALTHY.plant();
    let list = [b"/nowhere/\xff:", planted.path().as_bytes(), b"/right"].concat();
    let mut command = planted.command(&[]);
    let report = run(command.arg("--json").env("LD_LIBRARY_PATH", OsStr::from_bytes(&list))).with_status(0).json();
    assert!(report.to_string().contains("by LD_LIBRARY_PATH"), "{report:#}");
}

#[test]
fn pipe_on_the_path_is_not_opened() {
    let state =
        State { variables: &[("LD_LIBRARY_PATH", "{dir}:{dir}/right"), ("NCCL_GDRCOPY_ENABLE", "1")], ..HEALTHY };
    for (arguments, status) in [("", 1), ("--for nccl", 0), ("--for ucx", 1)] {
        let planted = State { arguments, ..state }.plant();
        mkfifo(&Path::new(planted.path()).join("libgdrapi.so.2"), Mode::S_IRWXU).unwrap();
        let report = planted.examine(&[]);
        assert_eq!(report.status, Some(status), "{:#}", report.json);
        if status == 1 {
            assert_eq!(report.json["steps"][0]["remedy"], name(Remedy::LibraryRemove), "{:#}", report.json);
        }
    }
}

#[test]
fn preloaded_library() {
    // cargo's own path has target/debug, and so the plain name.
    let state = State {
        variables: &[("LD_PRELOAD", "{dir}/right/libgdrapi.so.2"), ("LD_LIBRARY_PATH", "{dir}/none")],
        ..HEALTHY
    };
    let report = state.examine();
    report.finds("ok", "libgdrapi", "on the path", &["right/libgdrapi.so.2", "LD_PRELOAD"]);
    report.finds("ok", "libgdrapi", "libgdrapi.so.2", &["right/libgdrapi.so.2"]);
    // glibc compares names with SONAMEs.
    report.finds("warning", "libgdrapi", "libgdrapi.so", &["leads nowhere", "NCCL"]);
}

#[test]
fn library_beside_the_program() {
    // As `make tools` leaves them, and as they are installed.
    for (bin, lib) in [("tools/bin", "lib"), ("bin", "lib64")] {
        let root = tempfile::tempdir().unwrap();
        let (bin, lib) = (root.path().join(bin), root.path().join(lib));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&lib).unwrap();
        let program = bin.join("gdrcopy");
        fs::copy(env!("CARGO_BIN_EXE_gdrcopy"), &program).unwrap();
        fs::copy(library(), lib.join("libgdrapi.so.2")).unwrap();
        let mut command = Command::new(built("gdremu"));
        command.arg("--").arg(&program).args(["doctor", "--json", "--limit", "600"]);
        // Programs do not find it.
        let output = run(command.env_remove("LD_LIBRARY_PATH")).with_status(1);
        output.prints(&["this project's, 2.6", "beside gdrcopy", "library-path"]);
        // The loader's own search comes first.
        let found = HEALTHY.plant();
        let output = run(command.env("LD_LIBRARY_PATH", format!("{}/right", found.path()))).with_status(0);
        assert!(!output.stdout.contains("beside gdrcopy"), "{output:?}");
    }
}

#[test]
fn library_that_prints_is_no_fault() {
    // As the banner of a profiler.
    let state =
        State { files: &[("talks.so", Talking)], before: "export LD_PRELOAD={dir}/talks.so:$LD_PRELOAD", ..HEALTHY };
    let output = run(state.plant().command(&[]).arg("--json")).with_status(0);
    output.prints(&["a banner", "\"usable\": true"]);
}

#[test]
fn doctor_needs_no_directory_for_temporary_files() {
    State { before: "export TMPDIR=/nowhere", ..HEALTHY }.examine().finds("ok", "self-test", "passed", &[]);
}

// ---- A running process ----

/// A tool that holds a mapping of 1 MiB until it is dropped, and its process, as `gdrcopy ps` shows it.
struct Holder {
    emulator: Child,
    row: Value,
}

impl Holder {
    /// Its library is in this directory.
    fn start(directory: &str) -> Holder {
        let endless = ["copybw", "-s", "1M", "-w", "1000000000"];
        let mut command = gdrcopy(&[], &endless);
        command.env("LD_LIBRARY_PATH", directory).env("UCX_TLS", "rc");
        let emulator = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut holder = Holder { emulator, row: Value::Null };
        while holder.row.is_null() {
            assert_eq!(holder.emulator.try_wait().unwrap(), None, "the tool ended");
            let rows: Value = serde_json::from_str(&gdrcopy_ps(&["--format", "json"])).unwrap();
            let is_this = |row: &&Value| row["libgdrapi"].as_str().unwrap().contains(directory) && row["mappings"] != 0;
            holder.row = rows.as_array().unwrap().iter().find(is_this).cloned().unwrap_or_default();
        }
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        match self.row["pid"].as_i64() {
            Some(pid) => kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap(),
            None => self.emulator.kill().unwrap(),
        }
        self.emulator.wait().unwrap();
    }
}

fn gdrcopy_ps(options: &[&str]) -> String {
    let output = run(Command::new(env!("CARGO_BIN_EXE_gdrcopy")).arg("ps").args(options)).with_status(0);
    output.stdout
}

fn doctor_of(pid: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    run(command.args(["doctor", "--pid", pid]).args(options))
}

fn report_of(pid: &str, options: &[&str]) -> Report {
    let output = doctor_of(pid, &[options, &["--json"]].concat());
    let report = Report { status: output.status, json: output.json() };
    report.is_consistent();
    report
}

/// The report on a process that does nothing.
fn report_of_sleep(prepare: impl Fn(&mut Command), is_ready: impl Fn(u32) -> bool, options: &[&str]) -> Report {
    let mut sleep = Command::new("sleep");
    prepare(sleep.arg("1000"));
    let mut child = sleep.spawn().unwrap();
    while !is_ready(child.id()) {
        assert!(child.try_wait().unwrap().is_none(), "sleep ended");
    }
    let report = report_of(&child.id().to_string(), options);
    child.kill().unwrap();
    child.wait().unwrap();
    report
}

#[test]
fn empty_object_of_the_name_is_no_second_library() {
    let planted = HEALTHY.plant();
    // As the wheel has it.
    let object = PathBuf::from(format!("{}/right/libgdrapi.so", planted.path()));
    fs::remove_file(&object).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-x", "none", "-Wl,-soname,libgdrapi.so"]);
    gcc.args(["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"]).arg(object.with_file_name("libgdrapi.so.2"));
    assert!(gcc.arg("-o").arg(&object).status().unwrap().success());
    let loaded = |pid| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().contains("/libgdrapi.so.2\n");
    let prepare = |sleep: &mut Command| {
        sleep.env("LD_PRELOAD", &object);
    };
    let report = report_of_sleep(prepare, loaded, &[]);
    report.finds("ok", "process", "libgdrapi", &["libgdrapi.so (this project's)"]);
    assert_eq!(report.json["warnings"], 0, "{:#}", report.json);
    // It has loaded a library, and opened nothing.
    assert_eq!(report.json["steps"][0]["remedy"], name(Remedy::ProcessClosed));
}

#[test]
fn process_with_a_library_for_each_name_is_warned_of() {
    let planted = State { files: &[("other/libgdrapi.so", Faulty)], ..HEALTHY }.plant();
    let both = format!("{0}/right/libgdrapi.so.2:{0}/other/libgdrapi.so", planted.path());
    let loaded = |pid| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().contains("/other/libgdrapi.so\n");
    let prepare = |sleep: &mut Command| {
        sleep.env("LD_PRELOAD", &both);
    };
    let report = report_of_sleep(prepare, loaded, &[]);
    let step = |remedy| report.steps().iter().any(|step| step["remedy"] == name(remedy));
    assert!(step(Remedy::ProcessNames), "{:#}", report.json);
}

#[test]
fn process_that_uses_gdrcopy_is_listed_and_examined() {
    let planted = HEALTHY.plant();
    let holder = Holder::start(&format!("{}/right", planted.path()));
    // gdremu's pinned host memory is in the same file as its GPU memory.
    assert!(holder.row["mapped_bytes"].as_u64() >= Some(1 << 20), "{}", holder.row);
    assert_eq!((&holder.row["open"], &holder.row["emulated"]), (&1.into(), &true.into()));
    let pid = holder.row["pid"].to_string();
    let line = gdrcopy_ps(&[]).lines().find(|line| line.contains(&pid)).unwrap().to_owned();
    assert!(line.contains(" MiB (emulated)"), "{line}");

    let report = report_of(&pid, &[]);
    assert_eq!(report.status, Some(0));
    let title = format!("process {pid} (gdrcopy)");
    report.finds("ok", &title, "libgdrapi", &["libgdrapi.so.2 (this project's)"]);
    report.finds("ok", &title, "device", &["/dev/gdrdrv is open", ", 1 descriptor"]);
    report.finds("ok", &title, "mapped", &[" MiB in "]);
    report.finds("warning", "environment", "UCX_TLS", &["rc"]);
    let report = report_of(&pid, &["--for", "ucx"]);
    report.finds("problem", "environment", "UCX_TLS", &["rc"]);
    assert_eq!(report.status, Some(1));
    // It does use GDRCopy.
    let text = doctor_of(&pid, &["--for", "ucx"]);
    text.prints(&[&format!("UCX in process {pid} would not use GDRCopy: 1 problem")]);
}

#[test]
fn replaced_library_of_a_process_is_reported() {
    let planted = HEALTHY.plant();
    let file = format!("{}/right/libgdrapi.so.2", planted.path());
    let holder = Holder::start(&format!("{}/right", planted.path()));
    let first_step = || report_of(&holder.row["pid"].to_string(), &[]).json["steps"][0]["remedy"].clone();
    fs::remove_file(&file).unwrap();
    assert_eq!(first_step(), name(Remedy::ProcessRemoved));
    fs::copy(library(), &file).unwrap();
    assert_eq!(first_step(), name(Remedy::ProcessRestart));
}

#[test]
fn process_without_gdrcopy_is_no_user() {
    let report = report_of(&std::process::id().to_string(), &[]);
    assert_eq!(report.json["steps"][0]["remedy"], name(Remedy::ProcessNone));
}

#[test]
fn settings_of_a_process_come_from_its_files_also() {
    let home = tempfile::tempdir().unwrap();
    // One byte that is not UTF-8.
    fs::write(home.path().join(".nccl.conf"), b"# \xff\nNCCL_GDRCOPY_ENABLE=1\n").unwrap();
    fs::write(home.path().join("named"), "NCCL_GDRCOPY_ENABLE=0\n").unwrap();
    fs::write(home.path().join("ucx.conf"), "UCX_TLS=rc\n").unwrap();
    // No file of this name can be opened, also by root.
    symlink("endless", home.path().join("endless")).unwrap();
    let path = home.path().to_str().unwrap();
    for (engine, verdict, variables, words) in [
        ("nccl", "ok", &[("HOME", path)] as &[(&str, &str)], ["1", ".nccl.conf"]),
        ("nccl", "problem", &[("HOME", path), ("NCCL_CONF_FILE", &format!("{path}/named"))], ["0", "named"]),
        ("nccl", "problem", &[("HOME", path), ("NCCL_CONF_FILE", "named")], ["0", "named"]),
        ("nccl", "problem", &[("HOME", "/nowhere")], ["not set", ""]),
        ("nccl", "unknown", &[("NCCL_CONF_FILE", &format!("{path}/endless"))], ["endless", "cannot be read"]),
        // In its working directory.
        ("ucx", "problem", &[("HOME", "/nowhere")], ["rc", "./ucx.conf"]),
    ] {
        let prepare = |sleep: &mut Command| {
            sleep.env_clear().envs(variables.iter().copied()).current_dir(path);
        };
        let subject = if engine == "ucx" { "UCX_TLS" } else { "NCCL_GDRCOPY_ENABLE" };
        let report = report_of_sleep(prepare, |_| true, &["--for", engine]);
        report.finds(verdict, "environment", subject, &words);
    }
}

#[test]
fn process_that_does_not_exist_is_an_error_with_advice() {
    // More than the kernel's limit.
    doctor_of("4194305", &[]).with_status(1).reports(&["no process 4194305", "gdrcopy ps"]);
    assert_eq!(doctor_of("self", &[]).status, Some(2));
}

// ---- The report ----

#[test]
fn text_shows_the_report_in_color_on_request() {
    let page = |emulated, color: &[(&str, &str)]| {
        let planted = State { emulated, ..HEALTHY }.plant();
        let mut command = planted.command(&[]);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        run(command.envs(color.iter().copied()))
    };
    let well = page("", &[]).with_status(0);
    well.prints(&["gdrcopy works here: no problems"]);
    assert!(!well.stdout.contains('\x1b'), "no color without a terminal");
    let ill = page("--gdrdrv-errno EACCES", &[]).with_status(1);
    ill.prints(&["gdrcopy does not work here: 3 problems", "PROBLEM  opening it", "→ node-mode\n"]);
    ill.prints(&["\n  1. node-mode: ", "\n         chmod 666 /dev/gdrdrv\n     or driver-update: "]);
    page("--fault cuDevicePrimaryCtxRetain:2", &[])
        .with_status(0)
        .prints(&["it was not tested: no problems, 1 warning"]);

    let ucx = State { arguments: "--for ucx", variables: &[("UCX_MODULE_DIR", "/opt")], ..HEALTHY }.plant();
    run(&mut ucx.command(&[])).prints(&["UCX would use GDRCopy here if it has its plugin: no", "/opt: not examined"]);

    let colored = page("", &[("CLICOLOR_FORCE", "1")]);
    assert!(colored.stdout.contains('\x1b'), "{colored:?}");
    let plain = page("", &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]);
    assert!(!plain.stdout.contains('\x1b'), "{plain:?}");
}

#[test]
fn sections_are_printed_before_the_self_test_ends() {
    let state = State {
        files: &[("other.so", Faulty), ("unused", Ours)],
        variables: &[("FAULTY", "hang")],
        arguments: "--lib {dir}/other.so",
        ..HEALTHY
    };
    let planted = state.plant();
    let log = Path::new(planted.path()).join("log");
    let mut command = planted.command(&[]);
    let mut child = command.stdout(fs::File::create(&log).unwrap()).process_group(0).spawn().unwrap();
    while !fs::read_to_string(&log).unwrap().contains("\ndistributed engines\n") {
        assert!(child.try_wait().unwrap().is_none(), "doctor ended");
    }
    // With the process that hangs.
    kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
}

#[test]
fn wrong_options_give_status_2() {
    for wrong in [&["--gpu", "first"] as &[&str], &["--lib"], &["--json=maybe"], &["--for", "mpi"]] {
        let output = run(&mut gdrcopy(&[], &[&["doctor"], wrong].concat())).with_status(2);
        assert_eq!(output.stdout, "");
    }
}
