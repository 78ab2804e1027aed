//! `gdrcopy doctor` under gdremu with one problem each, where it finds the problem, and suggests a fix.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{FAULTY, Output, gdrcopy, library, run};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::Value;
use tempfile::TempDir;

/// The JSON report.
struct Report {
    status: Option<i32>,
    json: Value,
}

impl Report {
    fn of(output: Output) -> Report {
        Report { status: output.status, json: output.json() }
    }

    /// The findings of sections whose title has this prefix.
    fn findings(&self, section: &str) -> Vec<&Value> {
        let sections = self.json["sections"].as_array().unwrap();
        let these = sections.iter().filter(|other| other["title"].as_str().unwrap().starts_with(section));
        these.flat_map(|section| section["findings"].as_array().unwrap()).collect()
    }

    /// Asserts that a finding with these words in its value and remedy exists.
    #[track_caller]
    fn finds(&self, verdict: &str, section: &str, subject: &str, words: &[&str]) {
        let output = |finding: &Value| format!("{} → {}", finding["value"], finding["remedy"]);
        let found = self.findings(section).into_iter().any(|finding| {
            finding["subject"] == subject
                && finding["verdict"] == verdict
                && words.iter().all(|word| output(finding).contains(word))
        });
        assert!(found, "{verdict} {section}/{subject} {words:?} in {:#}", self.json);
    }

    /// Asserts the number of problems and the exit status, and that each problem and warning has a
    /// remedy.
    #[track_caller]
    fn with_problems(self, count: usize) -> Report {
        assert_eq!(self.json["problems"], count, "{:#}", self.json);
        assert_eq!(self.json["usable"], count == 0);
        assert_eq!(self.status, Some(i32::from(count > 0)));
        let bad = |finding: &&Value| ["warning", "problem"].contains(&finding["verdict"].as_str().unwrap());
        for finding in self.findings("").into_iter().filter(bad) {
            assert!(!finding["remedy"].as_str().unwrap().is_empty(), "{finding}");
        }
        self
    }
}

/// A directory for LD_LIBRARY_PATH that holds this library under both names.
fn directory_with(library: &Path) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::copy(library, directory.path().join("libgdrapi.so.2")).unwrap();
    symlink("libgdrapi.so.2", directory.path().join("libgdrapi.so")).unwrap();
    directory
}

/// Runs doctor with this project's library on the path.
fn doctor(emulated: &[&str], arguments: &[&str]) -> Report {
    doctor_with(&[], emulated, arguments)
}

/// Runs doctor with these environment variables.
fn doctor_with(variables: &[(&str, &str)], emulated: &[&str], arguments: &[&str]) -> Report {
    let directory = directory_with(&library());
    let mut command = gdrcopy(emulated, &[&["doctor", "--json"], arguments].concat());
    command.env("LD_LIBRARY_PATH", directory.path()).envs(variables.iter().copied());
    Report::of(run(&mut command))
}

/// Directories of libraries, in the order in which the loader searches them.
fn search_path(directories: &[&TempDir]) -> String {
    directories.iter().map(|directory| directory.path().to_str().unwrap()).collect::<Vec<_>>().join(":")
}

/// Compiles a library from C, to a file of this name.
fn compile(source: &str, name: &str) -> PathBuf {
    common::compile(source, Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
}

/// A file with this text, for gdremu's --file.
fn stand_in(directory: &TempDir, path: &str, text: &str) -> String {
    let file = directory.path().join(path.replace('/', "_"));
    fs::write(&file, text).unwrap();
    format!("--file={path}={}", file.display())
}

const PCI: &str = "/sys/bus/pci/devices/0000:1b:00.0";

/// The functions of a library of release 2.4, which opens nothing.
const OLD: &str = "tools/tests/old.c";

// ---- Planted faults ----

#[test]
fn first_step_cures_the_fault() {
    let directory = tempfile::tempdir().unwrap();
    let both_names = directory_with(&library());
    let one_name = directory_with(&library());
    fs::remove_file(one_name.path().join("libgdrapi.so")).unwrap();
    let foreign = directory_with(&compile(FAULTY, "foreign-first.so"));
    let (right, foreign_first) = (search_path(&[&both_names]), search_path(&[&foreign, &both_names]));
    let one = search_path(&[&one_name]);
    // A file that is no library, before the right one.
    let garbage = directory_with(&library());
    fs::remove_file(garbage.path().join("libgdrapi.so.2")).unwrap();
    fs::write(garbage.path().join("libgdrapi.so.2"), "no library").unwrap();
    let garbage_first = search_path(&[&garbage, &both_names]);
    let remove = format!("remove {}/libgdrapi.so.2", search_path(&[&garbage]));
    // A release that knows no dma-bufs.
    let old = directory_with(&compile(OLD, "old-library.so"));
    let old_first = search_path(&[&old, &both_names]);
    let no_module = ["--no-gdrdrv", "--cuda-version", "13.3"];
    let settings = directory.path().join("nccl.conf");
    fs::write(&settings, "# of NCCL\nNCCL_GDRCOPY_ENABLE=1\n").unwrap();
    let settings = settings.to_str().unwrap();
    let dummy = stand_in(&directory, "/sys/module/nv_p2p_dummy/holders/gdrdrv", "");
    let cdmm = "CoherentGPUMemoryMode: \"driver\"\n";
    let cdmm = stand_in(&directory, "/proc/driver/nvidia/params", cdmm);
    let link = format!("add the link: ln -s libgdrapi.so.2 {one}/libgdrapi.so");

    let library = library();
    let behind = ("FAULTY_BEHIND", library.to_str().unwrap());
    let usual = [("LD_LIBRARY_PATH", &*right), behind, ("FAULTY", "not at all")];
    let steps = |emulated: &[&str], arguments: &[&str], variables: &[(&str, &str)]| {
        let steps = doctor_with(&[&usual[..], variables].concat(), emulated, arguments).json["steps"].clone();
        serde_json::from_value::<Vec<String>>(steps).unwrap()
    };
    // The steps of this computer, as a distant NUMA node.
    let steps_of_this = steps(&[], &[], &[]);
    type Fault<'a> = (&'a [&'a str], &'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);
    let enabled = ("NCCL_GDRCOPY_ENABLE", "1");
    let faults: [Fault; 22] = [
        (&[], &[], &[("LD_LIBRARY_PATH", &one)], &[&link]),
        (&[], &[], &[("LD_LIBRARY_PATH", &foreign_first)], &[&right, "first on LD_LIBRARY_PATH"]),
        (&["--no-gdrdrv"], &[], &[], &["either ", "modprobe gdrdrv", "; or update the GPU driver"]),
        (&["--gdrdrv-errno", "EACCES"], &[], &[], &["chmod 666", "; or update the GPU driver"]),
        (&[&dummy], &[], &[], &["either unload both", "nv-p2p-dummy"]),
        (&["--driver-version", "1.9"], &[], &[], &["either update the module to 2.0"]),
        (&["--no-gdrdrv"], &[], &[("container", "podman")], &["--device=/dev/gdrdrv"]),
        (&["--no-gdrdrv", "--platform", "cached", &cdmm], &[], &[], &["modprobe gdrdrv"]),
        (&["--platform", "cached", &cdmm], &[], &[], &[]),
        (&[], &[], &[("GDRCOPY_ENABLE_LOGING", "1")], &["is GDRCOPY_ENABLE_LOGGING"]),
        (&[], &[], &[("GDRCOPY_THREADS", "999")], &["correct GDRCOPY_THREADS"]),
        (&[], &["--for", "nccl"], &[], &["set NCCL_GDRCOPY_ENABLE=1"]),
        (&[], &["--for", "nccl"], &[("NCCL_GDRCOPY_ENABLE", "1")], &[]),
        (&[], &["--for", "nccl"], &[("NCCL_CONF_FILE", settings)], &[]),
        (
            &[],
            &["--for", "nccl"],
            &[("NCCL_CONF_FILE", settings), ("NCCL_GDRCOPY_ENABLE", "0")],
            &["set NCCL_GDRCOPY_ENABLE=1"],
        ),
        (&[], &[], &[("LD_LIBRARY_PATH", &garbage_first)], &[&remove]),
        (&[], &["--for", "nccl"], &[("LD_LIBRARY_PATH", &garbage_first), enabled], &[&remove]),
        (
            &no_module,
            &[],
            &[("LD_LIBRARY_PATH", &old_first)],
            &["load libgdrapi 2.6", "or load that (modprobe gdrdrv)"],
        ),
        (
            &no_module,
            &["--for", "nccl"],
            &[("LD_LIBRARY_PATH", &old_first), enabled],
            &["load libgdrapi 2.6", "or load that (modprobe gdrdrv)"],
        ),
        (&[], &[], &[("GDRCOPY_USE_DMABUF_MMAP", "1")], &["unset GDRCOPY_USE_DMABUF_MMAP", "or update"]),
        (
            &["--cuda-version", "13.3", "--dmabuf", "export"],
            &[],
            &[("GDRCOPY_USE_DMABUF_MMAP", "1")],
            &["unset GDRCOPY_USE_DMABUF_MMAP"],
        ),
        (&["--gdrdrv-errno", "ENOTTY"], &[], &[], &["either it leads to another driver", "remove it"]),
    ];
    for (emulated, arguments, variables, words) in faults {
        let steps = steps(emulated, arguments, variables);
        let first = steps.iter().find(|step| !steps_of_this.contains(step));
        let context = format!("{emulated:?} {arguments:?} {variables:?}: {steps:?}");
        assert_eq!(first.is_some(), !words.is_empty(), "{context}");
        let first = first.cloned().unwrap_or_default();
        assert!(words.iter().all(|word| first.contains(word)), "{words:?}, {context}");
    }
}

// ---- Nothing wrong ----

#[test]
fn healthy_system_has_no_problem() {
    for emulated in [
        &[] as &[&str],
        &["--gpus", "3"],
        &["--no-gdrdrv", "--cuda-version", "13.5", "--dmabuf", "mmap"],
        &["--platform", "cached"],
    ] {
        doctor(emulated, &[]).with_problems(0);
    }
    let report = doctor(&["--gpus", "2"], &[]);
    report.finds("ok", "gdrdrv", "module version", &["2.6"]);
    report.finds("ok", "gdrdrv", "persistent mapping", &["on"]);
    report.finds("ok", "GPU driver and CUDA", "CUDA", &["13.0"]);
    report.finds("ok", "GPU 1: gdremu GPU at 0000:2b:00.0", "BAR1 size", &["128 GiB"]);
    report.finds("ok", "GPU 1", "PCIe link", &["generation 5, 16 lanes"]);
    report.finds("ok", "GPU 1", "NUMA node", &["0"]);
    for name in ["libgdrapi.so.2", "libgdrapi.so"] {
        report.finds("ok", "libgdrapi", name, &["libgdrapi.so.2", "this project's, 2.6"]);
    }
    report.finds("ok", "self-test", "passed", &["GPU 1", "write-combining mapping of gdrdrv"]);
    assert_eq!(report.findings("self-test").len(), 2);
}

#[test]
fn gpu_option_selects_the_gpu() {
    let report = doctor(&["--gpus", "3"], &["--gpu", "2"]);
    assert_eq!(report.findings("self-test").len(), 1);
    report.finds("ok", "self-test", "passed", &["GPU 2"]);
    let report = doctor(&["--gpus", "3"], &["--gpu", "3"]).with_problems(1);
    report.finds("problem", "self-test", "not run", &["no GPU 3", "CUDA has 3"]);
}

#[test]
fn coherent_platforms_and_dma_bufs_are_reported() {
    let report = doctor(&["--platform", "cached"], &[]);
    report.finds("ok", "GPU 0", "platform", &["coherent"]);
    report.finds("ok", "self-test", "passed", &["cached mapping of gdrdrv"]);
    let report = doctor(&["--no-gdrdrv", "--cuda-version", "13.3"], &[]);
    report.finds("warning", "gdrdrv", "device node", &["no /dev/gdrdrv", "modprobe"]);
    report.finds("ok", "self-test", "passed", &["mapping of a dma-buf"]);
}

// ---- One fault, one finding ----

#[test]
fn each_fault_is_found_with_its_remedy() {
    const CUDA: &str = "GPU driver and CUDA";
    type Fault<'a> = (&'a [&'a str], usize, &'a str, &'a str, &'a str, &'a [&'a str]);
    let dma_bufs = ["--gdrdrv-errno", "EACCES", "--cuda-version", "13.3"];
    let no_dma_bufs = ["12.2", "13.3", "update the GPU driver"];
    let faults: [Fault; 18] = [
        (&["--gdrdrv-errno", "EACCES"], 3, "problem", "gdrdrv", "opening it", &["EACCES", "chmod 666"]),
        (&["--gdrdrv-errno", "EPERM"], 3, "problem", "gdrdrv", "opening it", &["EPERM", "device cgroup"]),
        (&["--gdrdrv-errno", "ENXIO"], 3, "problem", "gdrdrv", "opening it", &["ENXIO", "modprobe gdrdrv"]),
        (&["--gdrdrv-errno", "EMFILE"], 3, "problem", "gdrdrv", "opening it", &["EMFILE", "ulimit -n"]),
        (&dma_bufs, 0, "warning", "gdrdrv", "opening it", &["EACCES"]),
        (&dma_bufs, 0, "ok", "gdrdrv", "device node", &["mode 600"]),
        (
            &["--driver-version", "1.9"],
            3,
            "problem",
            "gdrdrv",
            "module version",
            &["1.9 is too old", "update the module"],
        ),
        (&["--driver-version", "2.4"], 0, "warning", "gdrdrv", "module version", &["2.4", "update the module to 2.5"]),
        (
            &["--min-api-version", "3.0"],
            3,
            "problem",
            "gdrdrv",
            "module version",
            &["3.0 and later", "update libgdrapi"],
        ),
        (&["--traditional"], 0, "warning", "gdrdrv", "persistent mapping", &["off", "use_persistent_mapping=1"]),
        (&["--no-gdrdrv", "--cuda-version", "12.2"], 3, "problem", CUDA, "dma-buf backend", &no_dma_bufs),
        (&["--cuda-version", "12.2"], 0, "ok", CUDA, "dma-buf backend", &["not needed here"]),
        (&["--fault", "cuInit:803"], 1, "problem", CUDA, "GPUs", &["cuInit", "803", "nvidia-smi"]),
        (&["--no-mempools"], 0, "ok", "GPU 0", "memory pools", &["none"]),
        (&["--bar1-size", "256M"], 0, "warning", "GPU 0", "BAR1 size", &["256 MiB", "Resizable BAR"]),
        (&["--bar1-size", "512K"], 1, "problem", "self-test", "failed", &["gdr_pin_buffer", "BAR1"]),
        (&["--fault", "PIN_BUFFER_V2:ENOMEM"], 1, "problem", "self-test", "failed", &["gdr_pin_buffer", "BAR1"]),
        (&["--fault", "MMAP:ENOMEM"], 1, "problem", "self-test", "failed", &["gdr_map", "max_map_count"]),
    ];
    for (emulated, problems, verdict, section, subject, words) in faults {
        doctor(emulated, &[]).with_problems(problems).finds(verdict, section, subject, words);
    }
}

// ---- The module ----

#[test]
fn missing_module() {
    let report = doctor(&["--no-gdrdrv"], &[]).with_problems(3);
    report.finds("problem", "gdrdrv", "device node", &["no /dev/gdrdrv", "modprobe gdrdrv"]);
    report.finds("problem", "GPU driver and CUDA", "dma-buf backend", &["13.0", "13.3", "610"]);
    report.finds("problem", "self-test", "failed", &["gdr_open", "the library reports", "modprobe"]);
}

#[test]
fn missing_node() {
    let directory = tempfile::tempdir().unwrap();
    let modules = stand_in(&directory, "/proc/modules", "gdrdrv 24576 0 - Live 0x0\n");
    let report = doctor_with(&[("container", "podman")], &["--no-gdrdrv", &modules], &[]);
    report.finds("problem", "gdrdrv", "device node", &["loaded, but", "--device=/dev/gdrdrv"]);
    report.finds("ok", "machine", "container", &["host"]);
}

#[test]
fn module_bound_to_nv_p2p_dummy() {
    let directory = tempfile::tempdir().unwrap();
    let holder = stand_in(&directory, "/sys/module/nv_p2p_dummy/holders/gdrdrv", "");
    let words = ["nv-p2p-dummy", "modprobe -r", "blacklist"];
    let report = doctor(&[&holder], &[]);
    report.finds("problem", "gdrdrv", "bound to", &words);
    report.finds("problem", "GPU driver and CUDA", "dma-buf backend", &["13.3"]);
    assert_eq!(report.status, Some(1));

    let report = doctor(&[&holder, "--cuda-version", "13.3"], &[]);
    report.finds("warning", "gdrdrv", "bound to", &words);
    assert_eq!(report.status, Some(0));
}

#[test]
fn kernel_that_only_loads_signed_modules() {
    let directory = tempfile::tempdir().unwrap();
    let lockdown = stand_in(&directory, "/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    let report = doctor(&["--no-gdrdrv", &lockdown], &[]);
    let advice = match report.findings("machine")[0]["value"] == "none" {
        true => "mokutil",
        false => "on the host", // modules of a container are loaded there
    };
    report.finds("problem", "gdrdrv", "device node", &["modprobe gdrdrv", advice]);
}

// ---- The GPU driver and CUDA ----

#[test]
fn no_cuda_driver() {
    // Under gdremu there is always one. Here, an invalid file hides the system's own.
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("libcuda.so.1"), "no library").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    command.args(["doctor", "--json", "--lib"]).arg(library());
    let report = Report::of(run(command.env("LD_LIBRARY_PATH", directory.path())));
    report.finds("problem", "GPU driver and CUDA", "CUDA", &["libcuda.so.1", "install the GPU driver"]);
    report.finds("unknown", "self-test", "not run", &["no GPU"]);
    assert_eq!(report.status, Some(1));
}

#[test]
fn no_gpu() {
    let report = doctor(&["--gpus", "0"], &[]);
    report.finds("problem", "GPU driver and CUDA", "GPUs", &["no GPU", "CUDA_VISIBLE_DEVICES"]);
    // Where the computer lists no PCI devices, the bus is unknown.
    let on_the_bus = ["hardware", "use a computer with one"];
    let bus = report.findings("GPU driver")[0]["subject"] == on_the_bus[0];
    assert_eq!(bus, report.json["steps"][0].as_str().unwrap().starts_with(on_the_bus[1]), "{:#}", report.json);
    report.with_problems(if bus { 2 } else { 1 });
}

#[test]
fn driver_versions_come_from_their_files() {
    let directory = tempfile::tempdir().unwrap();
    let version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n";
    let version = stand_in(&directory, "/proc/driver/nvidia/version", version);
    let modules = stand_in(&directory, "/proc/modules", "nvidia_peermem 20480 0 - Live 0x0\n");
    let report = doctor(&[&version, &modules], &[]);
    report.finds("ok", "GPU driver and CUDA", "GPU driver", &["580.95.05, open kernel modules"]);
    report.finds("ok", "GPU driver and CUDA", "nvidia-peermem", &["loaded"]);
    let modules = stand_in(&directory, "/proc/modules", "nvidia 1 0 - Live 0x0\n");
    doctor(&[&modules], &[]).finds("ok", "GPU driver and CUDA", "nvidia-peermem", &["not loaded"]);
}

#[test]
fn cdmm_is_reported_where_a_gpu_is_coherent() {
    let directory = tempfile::tempdir().unwrap();
    let section = "GPU driver and CUDA";
    for (mode, verdict, word) in [
        ("driver", "ok", "on: "),
        ("numa", "ok", "off: "),
        ("", "unknown", "NVreg_CoherentGPUMemoryMode"),
        ("new", "unknown", "new"),
    ] {
        let params = format!("ImexChannelCount: 2048\nCoherentGPUMemoryMode: \"{mode}\"\n");
        let params = stand_in(&directory, "/proc/driver/nvidia/params", &params);
        doctor(&["--platform", "cached", &params], &[]).with_problems(0).finds(verdict, section, "CDMM", &[word]);
        doctor(&[&params], &[]).finds("ok", section, "CDMM", &["no GPU has a coherent link"]);
    }
    let none = stand_in(&directory, "/proc/driver/nvidia/params", "EnableMSI: 1\n");
    doctor(&["--platform", "cached", &none], &[]).finds("unknown", section, "CDMM", &["not reported"]);
}

// ---- GPUs ----

#[test]
fn no_gpudirect_rdma() {
    let report = doctor(&["--gpus", "2", "--rdma", "yes,no"], &[]).with_problems(2);
    report.finds("ok", "GPU 0", "GPUDirect RDMA", &["supported"]);
    report.finds("ok", "self-test", "passed", &["GPU 0"]);
    report.finds("problem", "GPU 1", "GPUDirect RDMA", &["cannot pin", "CUDA_VISIBLE_DEVICES"]);
    report.finds("warning", "GPU 1", "RDMA with VMM", &["cuMemCreate", "cuMemAlloc"]);
    report.finds("problem", "self-test", "failed", &["GPU 1", "gdr_pin_buffer"]);
    let report = doctor(&["--rdma", "no", "--gdrdrv-errno", "EACCES"], &[]);
    report.finds("problem", "GPU 0", "GPUDirect RDMA", &["cannot pin"]);
    let report = doctor(&["--rdma", "no", "--no-gdrdrv", "--cuda-version", "13.3"], &[]).with_problems(0);
    report.finds("warning", "GPU 0", "GPUDirect RDMA", &["cannot pin"]);
}

#[test]
fn bar1_use_comes_from_nvml() {
    let directory = tempfile::tempdir().unwrap();
    // Hides the version of a real GPU driver.
    let version = stand_in(&directory, "/proc/driver/nvidia/version", "NVRM\n");
    // Preloaded: gdremu has an NVML of its own, which comes before LD_LIBRARY_PATH.
    let nvml = compile("tools/tests/nvml.c", "libnvidia-ml.so.1");
    let fuller = ["127.9 GiB used, 72 MiB free", "the section pins"];
    let (known, unknown) = ("pid uid bytes mapped type age command\n", "");
    for (pins, used, verdict, words) in [
        (unknown, "1024", "ok", &["1 GiB used, 127 GiB free"] as &[&str]),
        (known, "131000", "warning", &fuller),
        (unknown, "131000", "warning", &["127.9 GiB used, 72 MiB free", "gdrcopy ps"]),
    ] {
        let pins = stand_in(&directory, PINS, pins);
        // Loaded already, it is found before gdremu's own.
        let preloaded = ("LD_PRELOAD", nvml.to_str().unwrap());
        let variables = [preloaded, ("NVML_GPU", "0000:1b:00.0"), ("NVML_BAR1_USED", used)];
        let report = doctor_with(&variables, &[&version, &pins], &[]).with_problems(0);
        report.finds(verdict, "GPU 0", "BAR1 use", words);
        report.finds("ok", "GPU driver and CUDA", "GPU driver", &["580.1"]);
    }
}

const PINS: &str = "/proc/driver/gdrdrv/pins";

#[test]
fn pins_of_all_processes_are_listed_and_summed() {
    let directory = tempfile::tempdir().unwrap();
    let pins = "pid uid bytes mapped type age command\n\
                7 0 65536 no - 13 ucx\n\
                4242 1000 2097152 yes WC 12 python3 train.py\n";
    let pins = stand_in(&directory, PINS, pins);
    let report = doctor(&["--gpus", "2", &pins], &[]).with_problems(0);
    assert_eq!(report.findings("pins").len(), 3);
    report.finds("ok", "pins", "pinned", &["2 processes, 2 MiB mapped"]);
    report.finds("ok", "pins", "process", &["4242 (python3 train.py)"]);
    let sum = ["128 GiB; 2 MiB pinned through gdrdrv, on all GPUs"];
    report.finds("ok", "GPU 0", "BAR1 size", &sum);
    report.finds("ok", "GPU 1", "BAR1 size", &sum);

    let small = doctor(&["--bar1-size", "256M", &pins], &[]);
    small.finds("warning", "GPU 0", "BAR1 size", &["all pins; 2 MiB pinned"]);
}

#[test]
fn list_of_pins_in_another_form_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let pins = stand_in(&directory, PINS, "gpu pid bytes\n0 1 65536\n");
    let report = doctor(&[&pins], &[]).with_problems(0);
    assert_eq!(report.findings("pins").len(), 1);
    report.finds("unknown", "pins", "pinned", &["does not know", PINS]);
    report.finds("ok", "GPU 0", "BAR1 size", &["\"128 GiB\""]);
    let is_absent = doctor(&[], &[]).findings("pins").is_empty();
    assert_eq!(is_absent, !Path::new(PINS).exists());
}

#[test]
fn no_dma_bufs() {
    for what in ["no", "export"] {
        let emulated = ["--no-gdrdrv", "--cuda-version", "13.5", "--dmabuf", what];
        let report = doctor(&emulated, &[]).with_problems(3);
        report.finds("problem", "GPU 0", "dma-buf", &["open kernel modules"]);
        report.finds("problem", "gdrdrv", "device node", &[]);
    }
    let emulated = ["--no-gdrdrv", "--cuda-version", "13.5", "--gpus", "2", "--dmabuf", "no,mmap"];
    let report = doctor(&emulated, &[]).with_problems(2);
    report.finds("warning", "gdrdrv", "device node", &[]);
    report.finds("problem", "GPU 0", "dma-buf", &["cannot be exported"]);
    report.finds("problem", "self-test", "failed", &["GPU 0", "cannot be mapped as a dma-buf"]);
    report.finds("ok", "self-test", "passed", &["GPU 1"]);
}

#[test]
fn narrow_and_slow_links() {
    let directory = tempfile::tempdir().unwrap();
    let width = stand_in(&directory, &format!("{PCI}/current_link_width"), "4\n");
    doctor(&[&width], &[]).with_problems(0).finds("warning", "GPU 0", "PCIe link", &["4 lanes, of 16", "slot"]);
    let speed = stand_in(&directory, &format!("{PCI}/current_link_speed"), "2.5 GT/s PCIe\n");
    doctor(&[&speed], &[]).finds("ok", "GPU 0", "PCIe link", &["generation 1", "generation 5 when busy"]);
}

#[test]
fn far_numa_node() {
    let directory = tempfile::tempdir().unwrap();
    let far = stand_in(&directory, &format!("{PCI}/numa_node"), "77\n");
    let report = doctor(&[&far], &[]);
    match Path::new("/sys/devices/system/cpu/cpu0/node0").exists() {
        true => report.finds("warning", "GPU 0", "NUMA node", &["77", "numactl --cpunodebind=77"]),
        false => report.finds("ok", "GPU 0", "NUMA node", &["77"]),
    }
    let none = stand_in(&directory, &format!("{PCI}/numa_node"), "-1\n");
    doctor(&[&none], &[]).finds("unknown", "GPU 0", "NUMA node", &[]);
}

#[test]
fn windows_drives_the_gpu() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@build) #1 SMP\n";
    let kernel = stand_in(&directory, "/proc/version", kernel);
    let report = doctor(&[&kernel], &[]);
    report.finds("problem", "GPU 0", "platform", &["WSL", "Linux itself"]);
    assert_eq!(report.status, Some(1));
}

// ---- The process ----

#[test]
fn few_descriptors() {
    let doctor = env!("CARGO_BIN_EXE_gdrcopy");
    for (emulated, limit) in [(&[] as &[&str], 64), (&["--no-gdrdrv", "--cuda-version", "13.3"], 512)] {
        let directory = directory_with(&library());
        for (set, advice) in [("-S", "open files: ulimit -n"), ("", "have root raise the hard")] {
            let mut command = Command::new(common::built("gdremu"));
            command.args(emulated).args(["--", "sh", "-c"]);
            command.arg(format!("ulimit {set} -n {limit}; exec {doctor} doctor --json"));
            let report = Report::of(run(command.env("LD_LIBRARY_PATH", directory.path()))).with_problems(0);
            report.finds("warning", "machine", "open files", &[&limit.to_string(), advice]);
        }
    }
}

#[test]
fn unsupported_copy_routine() {
    let report = doctor_with(&[("GDRCOPY_ISA", "abacus")], &[], &[]).with_problems(0);
    report.finds("warning", "machine", "copy routine", &["abacus", "unset GDRCOPY_ISA"]);
    report.finds("ok", "libgdrapi", "environment", &["GDRCOPY_ISA=abacus"]);
}

#[test]
fn forced_dma_bufs() {
    let report = doctor_with(&[("GDRCOPY_USE_DMABUF_MMAP", "1")], &[], &[]).with_problems(2);
    report.finds("problem", "GPU driver and CUDA", "dma-buf backend", &["13.3"]);
    report.finds("ok", "gdrdrv", "module version", &["2.6"]);
}

#[test]
fn pod_without_gdrdrv() {
    let report = doctor_with(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")], &["--no-gdrdrv"], &[]);
    report.finds("problem", "gdrdrv", "device node", &["on the host", "GDRCOPY_ENABLED=true"]);
}

#[test]
fn apptainer_without_gdrdrv() {
    for name in ["APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"] {
        let report = doctor_with(&[(name, "/images/job.sif")], &["--no-gdrdrv"], &[]);
        report.finds("problem", "gdrdrv", "device node", &["on the host", "apptainer run --bind /dev/gdrdrv"]);
        report.finds("ok", "machine", "container", &["Apptainer"]);
    }
}

#[test]
fn gvisor_sandbox() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n";
    let kernel = stand_in(&directory, "/proc/version", kernel);
    doctor(&[&kernel], &[]).finds("warning", "machine", "sandbox", &["gVisor", "runc"]);
    let report = doctor(&[], &[]);
    let subjects = report.findings("machine");
    assert!(subjects.iter().all(|finding| finding["subject"] != "sandbox"));
}

#[test]
fn settings_of_engines_that_disable_gdrcopy() {
    let section = "distributed engines";
    let report = |settings: &[(&str, &str)]| doctor_with(settings, &[], &[]).with_problems(0);
    for (name, bad, good) in [
        ("UCX_TLS", "rc,sm", "rc,cuda"),
        ("NCCL_GDRCOPY_ENABLE", "0", "1"),
        ("NCCL_GDRCOPY_ENABLE", "2", "0x1"),
        ("NCCL_GDRCOPY_ENABLE", "true", " 1"),
        ("NCCL_GDRCOPY_FIFO_ENABLE", "0", "1"),
        ("NCCL_GDRCOPY_FIFO_ENABLE", "false", "2"),
        ("NCCL_GDRCOPY_SYNC_ENABLE", "0", "1"),
        ("NCCL_GDRCOPY_USE_INTERNAL_DMABUF", "1", "0"),
        ("NVSHMEM_DISABLE_GDRCOPY", "true", "0"),
        ("NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF", "1", "0"),
        ("FI_HMEM_CUDA_USE_GDRCOPY", "false", "true"),
        ("DOCA_GPUNETIO_DISABLE_GDRCOPY", "1", "0"),
    ] {
        report(&[(name, bad)]).finds("warning", section, name, &[bad, "set"]);
        report(&[(name, good)]).finds("ok", section, name, &[good]);
    }
    let report = report(&[]);
    report.finds("ok", section, "UCX_TLS", &["not set"]);
    report.finds("ok", section, "NCCL_GDRCOPY_ENABLE", &["not set", "1 has NCCL use it"]);
    assert_eq!(report.findings(section).len(), 2);
}

// ---- One engine ----

#[test]
fn engine_is_judged_by_what_it_needs() {
    let one_name = directory_with(&library());
    fs::remove_file(one_name.path().join("libgdrapi.so")).unwrap();
    let one_name = one_name.path().to_str().unwrap();
    let nowhere = [("GDRCOPY_PATH_L", "/nowhere")];
    type Settings<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, &str, Settings, Settings); 7] = [
        ("nccl", "NCCL_GDRCOPY_ENABLE", &[("NCCL_GDRCOPY_ENABLE", "1")], &[]),
        ("ucx", "UCX_TLS", &[("LD_LIBRARY_PATH", one_name)], &[("UCX_TLS", "rc")]),
        ("nvshmem", "NVSHMEM_DISABLE_GDRCOPY", &[("LD_LIBRARY_PATH", one_name)], &[("NVSHMEM_DISABLE_GDRCOPY", "1")]),
        (
            "libfabric",
            "FI_HMEM_CUDA_USE_GDRCOPY",
            &[("LD_LIBRARY_PATH", one_name)],
            &[("FI_HMEM_CUDA_USE_GDRCOPY", "0")],
        ),
        ("dpdk", "GDRCOPY_PATH_L", &[], &nowhere),
        ("dpdk", "libgdrapi.so", &[], &[("LD_LIBRARY_PATH", one_name)]),
        ("nccl", "libgdrapi.so", &[("NCCL_GDRCOPY_ENABLE", "1")], &[("LD_LIBRARY_PATH", one_name)]),
    ];
    for (engine, subject, good, bad) in cases {
        let well = doctor_with(good, &[], &["--for", engine]).with_problems(0);
        well.finds("ok", "self-test", "passed", &["GPU 0"]);
        assert!(well.findings("machine").is_empty(), "{:#}", well.json);
        let ill = doctor_with(bad, &[], &["--for", engine]);
        assert_eq!(ill.status, Some(1), "{:#}", ill.json);
        let title = ill.json["sections"][0]["title"].as_str().unwrap().to_owned();
        assert_eq!(title.to_lowercase(), engine);
        ill.finds("problem", &title, subject, &[]);
    }
}

#[test]
fn engine_that_wants_a_newer_module() {
    for (version, status) in [("2.0", 1), ("2.1", 0)] {
        let enabled = [("NCCL_GDRCOPY_ENABLE", "1")];
        let report = doctor_with(&enabled, &["--driver-version", version], &["--for", "nccl"]);
        assert_eq!(report.status, Some(status), "{:#}", report.json);
    }
}

#[test]
fn doctor_needs_no_directory_for_temporary_files() {
    let directory = directory_with(&library());
    // gdremu itself needs one.
    let mut command = Command::new(common::built("gdremu"));
    command.args(["--", "env", "TMPDIR=/nowhere", env!("CARGO_BIN_EXE_gdrcopy"), "doctor", "--json"]);
    let report = Report::of(run(command.env("LD_LIBRARY_PATH", directory.path()))).with_problems(0);
    report.finds("ok", "self-test", "passed", &["GPU 0"]);
}

#[test]
fn doctor_that_cannot_start_itself_says_so() {
    let directory = directory_with(&library());
    let doctor = env!("CARGO_BIN_EXE_gdrcopy");
    let mut command = Command::new(common::built("gdremu"));
    // The parent's report needs 4 descriptors, and a probe more.
    command.args(["--", "sh", "-c"]).arg(format!("ulimit -n 5; exec {doctor} doctor --json --for ucx"));
    let report = Report::of(run(command.env("LD_LIBRARY_PATH", directory.path()))).with_problems(1);
    report.finds("problem", "UCX", "libgdrapi.so.2", &["Too many open files", "doctor starts itself", "ulimit -n"]);
}

// ---- A running process ----

/// A tool that holds a mapping of 1 MiB until it is dropped, and its process, as `gdrcopy ps` shows it.
struct Holder {
    emulator: Child,
    row: Value,
}

impl Holder {
    /// Its library is in this directory.
    fn start(directory: &TempDir) -> Holder {
        let endless = ["copybw", "-s", "1M", "-w", "1000000000"];
        let mut command = gdrcopy(&[], &endless);
        command.env("LD_LIBRARY_PATH", directory.path()).env("UCX_TLS", "rc");
        let emulator = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut holder = Holder { emulator, row: Value::Null };
        while holder.row.is_null() {
            assert_eq!(holder.emulator.try_wait().unwrap(), None, "the tool ended");
            let rows: Value = serde_json::from_str(&gdrcopy_ps(&["--format", "json"])).unwrap();
            let mut rows = rows.as_array().unwrap().clone().into_iter();
            let library = directory.path().to_str().unwrap();
            holder.row = rows
                .find(|row| row["libgdrapi"].as_str().unwrap().contains(library) && row["mappings"] != 0)
                .unwrap_or_default();
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
    run(command.args(["doctor", "--json", "--pid", pid]).args(options))
}

#[test]
fn empty_object_of_the_name_is_no_second_library() {
    let directory = directory_with(&library());
    // As the wheel has it.
    let object = directory.path().join("libgdrapi.so");
    fs::remove_file(&object).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-x", "none", "-Wl,-soname,libgdrapi.so"]);
    gcc.args(["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"]).arg(directory.path().join("libgdrapi.so.2"));
    assert!(gcc.arg("-o").arg(&object).status().unwrap().success());
    let mut child = Command::new("sleep").arg("1000").env("LD_PRELOAD", &object).spawn().unwrap();
    let pid = child.id().to_string();
    let loaded = || fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().contains("/libgdrapi.so.2\n");
    while !loaded() {
        assert!(child.try_wait().unwrap().is_none(), "sleep ended");
    }
    let report = Report::of(doctor_of(&pid, &[]));
    child.kill().unwrap();
    child.wait().unwrap();
    report.finds("ok", "process", "libgdrapi", &["libgdrapi.so (this project's)"]);
    let warned = report.findings("process").iter().any(|finding| finding["verdict"] == "warning");
    assert!(!warned, "{:#}", report.json);
}

#[test]
fn process_that_uses_gdrcopy_is_listed_and_examined() {
    let directory = directory_with(&library());
    let holder = Holder::start(&directory);
    // gdremu's pinned host memory is in the same file as its GPU memory.
    assert!(holder.row["mapped_bytes"].as_u64() >= Some(1 << 20), "{}", holder.row);
    assert_eq!((&holder.row["open"], &holder.row["emulated"]), (&1.into(), &true.into()));
    let pid = holder.row["pid"].to_string();
    let line = gdrcopy_ps(&[]).lines().find(|line| line.contains(&pid)).unwrap().to_owned();
    assert!(line.contains(" MiB (emulated)"), "{line}");

    let report = Report::of(doctor_of(&pid, &[])).with_problems(0);
    let title = format!("process {pid} (gdrcopy)");
    report.finds("ok", &title, "libgdrapi", &["libgdrapi.so.2 (this project's)"]);
    report.finds("ok", &title, "device", &["/dev/gdrdrv is open"]);
    report.finds("ok", &title, "mapped", &[" MiB in "]);
    report.finds("warning", "environment", "UCX_TLS", &["rc", "unset UCX_TLS"]);
    let report = Report::of(doctor_of(&pid, &["--for", "ucx"]));
    report.finds("problem", "environment", "UCX_TLS", &["rc"]);
    assert_eq!(report.status, Some(1));
}

#[test]
fn replaced_library_of_a_process_is_reported() {
    let directory = directory_with(&library());
    let file = directory.path().join("libgdrapi.so.2");
    let holder = Holder::start(&directory);
    let pid = holder.row["pid"].to_string();
    fs::remove_file(&file).unwrap();
    let words = [file.to_str().unwrap(), "removed since", "install"];
    Report::of(doctor_of(&pid, &[])).finds("warning", "process", "libgdrapi", &words);
    fs::copy(library(), &file).unwrap();
    let report = Report::of(doctor_of(&pid, &[])).with_problems(0);
    report.finds("warning", "process", "libgdrapi", &["this project's", "replaced since", "restart the process"]);
}

#[test]
fn path_that_is_not_utf_8_is_searched_also() {
    let directory = directory_with(&library());
    let list = [b"/nowhere/\xff:".as_slice(), directory.path().as_os_str().as_bytes()].concat();
    let mut command = gdrcopy(&[], &["doctor", "--json"]);
    let report = Report::of(run(command.env("LD_LIBRARY_PATH", OsStr::from_bytes(&list)))).with_problems(0);
    report.finds("ok", "libgdrapi", "on the path", &[directory.path().to_str().unwrap(), "LD_LIBRARY_PATH"]);
}

#[test]
fn process_without_gdrcopy_is_no_user() {
    let pid = std::process::id().to_string();
    Report::of(doctor_of(&pid, &[])).with_problems(1).finds("problem", "process", "libgdrapi", &["none is mapped"]);
}

#[test]
fn settings_of_a_process_come_from_its_files_also() {
    let home = tempfile::tempdir().unwrap();
    let (file, root) = (home.path().join(".nccl.conf"), format!("/proc/{}/root", std::process::id()));
    // One byte that is not UTF-8.
    fs::write(&file, b"# \xff\nNCCL_GDRCOPY_ENABLE=1\n").unwrap();
    let below_root = format!("{root}{}", file.display());
    assert!(Path::new(&below_root).exists());
    let named = home.path().join("named");
    fs::write(&named, "NCCL_GDRCOPY_ENABLE=0\n").unwrap();
    let verdict = |verdict: &str, variables: &[(&str, &Path)], words: &[&str]| {
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").env_clear().envs(variables.iter().copied()).current_dir(home.path());
        let mut child = sleep.spawn().unwrap();
        let report = Report::of(doctor_of(&child.id().to_string(), &["--for", "nccl"]));
        child.kill().unwrap();
        child.wait().unwrap();
        report.finds(verdict, "environment", "NCCL_GDRCOPY_ENABLE", words);
    };
    verdict("ok", &[("HOME", home.path())], &["1"]);
    verdict("problem", &[("HOME", home.path()), ("NCCL_CONF_FILE", &named)], &["0"]);
    verdict("problem", &[("HOME", home.path()), ("NCCL_CONF_FILE", Path::new("named"))], &["0"]);
    verdict("problem", &[("HOME", Path::new("/nowhere"))], &["not set"]);
    // No file of this name can be opened, also by root.
    let endless = home.path().join("endless");
    symlink("endless", &endless).unwrap();
    verdict("unknown", &[("NCCL_CONF_FILE", &endless)], &["endless", "cannot be read"]);
}

#[test]
fn process_that_does_not_exist_is_an_error_with_advice() {
    // More than the kernel's limit.
    doctor_of("4194305", &[]).with_status(1).reports(&["no process 4194305", "gdrcopy ps"]);
    assert_eq!(doctor_of("self", &[]).status, Some(2));
}

// ---- The library ----

#[test]
fn misspelt_variables_and_values_out_of_range_are_reported() {
    let rated = |name: &str, value: &str| doctor_with(&[(name, value)], &[], &[]).with_problems(0);
    for (name, value, words) in [
        ("GDRCOPY_ENABLE_LOGING", "1", ["no such variable", "GDRCOPY_ENABLE_LOGGING"]),
        ("GDRCOPY_THREADS", "999", ["999", "from 1 to 128"]),
        ("GDRCOPY_LOG_LEVEL", "9", ["9", "from 1 to 4"]),
        ("GDRCOPY_DMA_READ", "64K", ["64K", "number of bytes"]),
        ("GDRCOPY_USE_DMABUF_MMAP", "yes", ["yes", "is not 1"]),
    ] {
        rated(name, value).finds("warning", "libgdrapi", "environment", &words);
    }
    for (name, value) in [("GDRCOPY_THREADS", "8"), ("GDRCOPY_HOME", "/opt"), ("GDRCOPY_ENABLE_LOGGING", "x")] {
        rated(name, value).finds("ok", "libgdrapi", "environment", &[name, value]);
    }
}

#[test]
fn file_on_the_path_that_is_no_library_is_reported() {
    let garbage = tempfile::tempdir().unwrap();
    fs::write(garbage.path().join("libgdrapi.so.2"), "garbage").unwrap();
    let right = directory_with(&library());
    let report = doctor_with(&[("LD_LIBRARY_PATH", &search_path(&[&garbage, &right]))], &[], &[]);
    report.finds("warning", "libgdrapi", "on the path", &["no library", "remove"]);
}

#[test]
fn pipe_on_the_path_is_not_opened() {
    let directory = directory_with(&library());
    let (pipe, path) = (tempfile::tempdir().unwrap(), |first| search_path(&[first, &directory]));
    let file = pipe.path().join("libgdrapi.so.2");
    mkfifo(&file, Mode::S_IRWXU).unwrap();
    let report = doctor_with(&[("LD_LIBRARY_PATH", &path(&pipe))], &[], &[]);
    let remove = format!("remove {}", file.display());
    report.finds("warning", "libgdrapi", "on the path", &["no library", &remove]);
    report.finds("problem", "self-test", "failed", &["is a pipe"]);
    let nccl = [("LD_LIBRARY_PATH", &*path(&pipe)), ("NCCL_GDRCOPY_ENABLE", "1")];
    doctor_with(&nccl, &[], &["--for", "nccl"]).with_problems(0);
    doctor_with(&nccl, &[], &["--for", "ucx"]).finds("problem", "UCX", "libgdrapi.so.2", &["is a pipe", &remove]);
}

#[test]
fn names_that_lead_to_different_files_are_reported() {
    let (one, other) = (directory_with(&library()), directory_with(&library()));
    fs::remove_file(one.path().join("libgdrapi.so")).unwrap();
    let report = doctor_with(&[("LD_LIBRARY_PATH", &search_path(&[&one, &other]))], &[], &[]).with_problems(0);
    report.finds("warning", "libgdrapi", "names", &["different files"]);
}

#[test]
fn another_library_first_on_the_path() {
    let foreign = directory_with(&compile(FAULTY, "another-first.so"));
    let ours = directory_with(&library());
    let (path, library) = (search_path(&[&foreign, &ours]), library());
    let behind = ("FAULTY_BEHIND", library.to_str().unwrap());
    let report =
        doctor_with(&[("LD_LIBRARY_PATH", &path), behind, ("FAULTY", "not at all")], &[], &[]).with_problems(0);
    let (theirs, here) = (foreign.path().to_str().unwrap(), ours.path().to_str().unwrap());
    report.finds("ok", "libgdrapi", "on the path", &[theirs, "another one"]);
    report.finds("ok", "libgdrapi", "on the path", &[here, "this project's"]);
    report.finds("warning", "libgdrapi", "libgdrapi.so.2", &[theirs, "comes before", here, "LD_LIBRARY_PATH"]);
}

#[test]
fn remedies_for_another_library_of_one_name() {
    let other = directory_with(&compile(FAULTY, "one-name.so"));
    let ours = directory_with(&library());
    let plain = ours.path().join("libgdrapi.so");
    fs::remove_file(&plain).unwrap();
    let library = library();
    let report = |variables: &[(&str, &str)], arguments: &[&str]| {
        let usual =
            [("FAULTY_BEHIND", library.to_str().unwrap()), ("FAULTY", "not at all"), ("NCCL_GDRCOPY_ENABLE", "1")];
        doctor_with(&[&usual, variables].concat(), &[], arguments).with_problems(0)
    };
    let (here, first) = (search_path(&[&ours]), search_path(&[&ours, &other]));
    let link = format!("ln -s libgdrapi.so.2 {}", plain.display());
    // This one's directory is the first, but lacks the name.
    let first = [("LD_LIBRARY_PATH", &*first)];
    report(&first, &[]).finds("warning", "libgdrapi", "libgdrapi.so", &["add the link", &link]);
    let nccl = report(&first, &["--for", "nccl"]);
    nccl.finds("warning", "NCCL", "libgdrapi.so", &["add the link", &link]);
    assert_eq!(nccl.json["warnings"], 1, "{:#}", nccl.json);
    // It is the second, and lacks the name.
    let second = search_path(&[&other, &ours]);
    let words = ["first on LD_LIBRARY_PATH", &link];
    report(&[("LD_LIBRARY_PATH", &second)], &[]).finds("warning", "libgdrapi", "libgdrapi.so", &words);
    // It has the name for the other library.
    symlink(other.path().join("libgdrapi.so.2"), &plain).unwrap();
    let link = link.replace("-s", "-sf");
    report(&[("LD_LIBRARY_PATH", &here)], &[]).finds("warning", "libgdrapi", "libgdrapi.so", &[&link]);
    // The other one is preloaded.
    let preloaded = other.path().join("libgdrapi.so.2");
    let preloaded = preloaded.to_str().unwrap();
    let variables = [("LD_LIBRARY_PATH", &*here), ("LD_PRELOAD", preloaded)];
    let remove = format!("remove {preloaded} from LD_PRELOAD");
    report(&variables, &[]).finds("warning", "libgdrapi", "libgdrapi.so", &[&remove]);
}

#[test]
fn library_for_another_cpu_is_no_remedy() {
    let other = directory_with(&compile(FAULTY, "before-foreign.so"));
    let foreign = directory_with(&library());
    let file = foreign.path().join("libgdrapi.so.2");
    let mut bytes = fs::read(&file).unwrap();
    bytes[18] = 0xf3; // e_machine: RISC-V
    fs::write(&file, bytes).unwrap();
    let (path, library) = (search_path(&[&other, &foreign]), library());
    let variables = [("LD_LIBRARY_PATH", &*path), ("FAULTY_BEHIND", library.to_str().unwrap()), ("FAULTY", "no")];
    let report = doctor_with(&variables, &[], &[]).with_problems(0);
    report.finds("ok", "libgdrapi", "libgdrapi.so.2", &[other.path().to_str().unwrap()]);
}

#[test]
fn library_that_fails_before_a_right_one() {
    let old = directory_with(&compile(OLD, "fails-first.so"));
    let ours = directory_with(&library());
    let path = search_path(&[&old, &ours]);
    let enabled = ("NCCL_GDRCOPY_ENABLE", "1");
    let cure = format!("put {} first on LD_LIBRARY_PATH", search_path(&[&ours]));
    for arguments in [&[] as &[&str], &["--for", "nccl"]] {
        let report = doctor_with(&[("LD_LIBRARY_PATH", &path), enabled], &[], arguments).with_problems(1);
        report.finds("problem", "self-test", "failed", &["gdr_open failed", &cure]);
        assert!(report.json["steps"][0].as_str().unwrap().contains(&cure), "{:#}", report.json);
    }
    // Nothing else is wrong, and there is no other library.
    let report = doctor_with(&[("LD_LIBRARY_PATH", &search_path(&[&old])), enabled], &[], &["--for", "nccl"]);
    assert!(!report.json["steps"][0].as_str().unwrap().contains("above"), "{:#}", report.json);
    // The module is missing. So the library is not to blame.
    let report = doctor_with(&[("LD_LIBRARY_PATH", &path)], &["--no-gdrdrv"], &[]);
    report.finds("problem", "self-test", "failed", &["gdr_open failed", "see the problems above"]);
}

#[test]
fn preloaded_library() {
    let preloaded = directory_with(&library());
    let file = preloaded.path().join("libgdrapi.so.2");
    let mut command = gdrcopy(&[], &["doctor", "--json"]);
    // cargo's own has target/debug, and so the plain name.
    command.env_remove("LD_LIBRARY_PATH");
    let report = Report::of(run(command.env("LD_PRELOAD", &file))).with_problems(0);
    let file = file.to_str().unwrap();
    report.finds("ok", "libgdrapi", "on the path", &[file, "LD_PRELOAD"]);
    report.finds("ok", "libgdrapi", "libgdrapi.so.2", &[file]);
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
        let doctor = || {
            let mut command = Command::new(common::built("gdremu"));
            command.arg("--").arg(&program).args(["doctor", "--json"]);
            Report::of(run(command.env_remove("LD_LIBRARY_PATH")))
        };
        doctor().finds("problem", "libgdrapi", "libgdrapi.so.2", &["no library found"]);

        let file = lib.join("libgdrapi.so.2");
        fs::copy(library(), &file).unwrap();
        let report = doctor().with_problems(0);
        let file = file.to_str().unwrap();
        let words = [file, "this project's, 2.6", "beside gdrcopy"];
        report.finds("warning", "libgdrapi", "libgdrapi.so.2", &words);

        // The loader's own search comes first.
        let found = directory_with(&library());
        let mut command = Command::new(common::built("gdremu"));
        command.arg("--").arg(&program).args(["doctor", "--json"]);
        let report = Report::of(run(command.env("LD_LIBRARY_PATH", found.path())));
        let found = found.path().to_str().unwrap();
        report.finds("ok", "libgdrapi", "libgdrapi.so.2", &[found]);
    }
}

#[test]
fn library_that_copies_wrongly() {
    let (faulty, library) = (compile(FAULTY, "copies-wrongly.so"), library());
    for (fault, words) in [
        ("short", ["GPU 0", "gdr_copy_to_mapping", "1048575"]),
        ("wrong", ["GPU 0", "gdr_copy_from_mapping", "1048575"]),
    ] {
        let behind = ("FAULTY_BEHIND", library.to_str().unwrap());
        let report =
            doctor_with(&[behind, ("FAULTY", fault)], &[], &["--lib", faulty.to_str().unwrap()]).with_problems(1);
        report.finds("problem", "self-test", "failed", &words);
        report.finds("problem", "self-test", "failed", &["do not use this library"]);
    }
}

#[test]
fn library_that_prints_is_no_fault() {
    let talking = compile("tools/tests/talking.c", "talks.so");
    let directory = directory_with(&library());
    let (path, talking) = (search_path(&[&directory]), talking.to_str().unwrap().to_owned());
    // As the banner of a profiler.
    let variables = [("LD_LIBRARY_PATH", &*path), ("PRELOADED", &*talking)];
    let mut command = Command::new(common::built("gdremu"));
    let doctor = env!("CARGO_BIN_EXE_gdrcopy");
    command.args(["--", "sh", "-c"]).arg(format!("LD_PRELOAD=$PRELOADED:$LD_PRELOAD {doctor} doctor --json"));
    let output = run(command.envs(variables)).with_status(0);
    output.prints(&["a banner", "\"usable\": true"]);
}

#[test]
fn limit_of_file_sizes_is_named() {
    let directory = directory_with(&library());
    let doctor = env!("CARGO_BIN_EXE_gdrcopy");
    // gdremu writes files itself.
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -f 0; exec {doctor} doctor --json --for ucx"));
    let report = Report::of(run(command.env("LD_LIBRARY_PATH", directory.path())));
    report.finds("problem", "UCX", "libgdrapi.so.2", &["SIGXFSZ", "ulimit -f"]);
}

#[test]
fn library_that_dies() {
    let dying = compile("c_tests/absent/libgdrapi.c", "dies.so");
    let report = doctor(&[], &["--lib", dying.to_str().unwrap()]).with_problems(2);
    report.finds("problem", "libgdrapi", "--lib", &["died", "SIGABRT"]);
    report.finds("problem", "self-test", "failed", &["died", "SIGABRT"]);
}

#[test]
fn file_that_is_no_library() {
    let report = doctor(&[], &["--lib", "/dev/null"]).with_problems(2);
    report.finds("problem", "libgdrapi", "--lib", &["/dev/null", "name a libgdrapi file"]);
}

// ---- The report ----

#[test]
fn text_shows_the_report_in_color_on_request() {
    let directory = directory_with(&library());
    let page = |emulated: &[&str], color: &[(&str, &str)]| {
        let mut command = gdrcopy(emulated, &["doctor"]);
        command.env("LD_LIBRARY_PATH", directory.path());
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        run(command.envs(color.iter().copied()))
    };
    let well = page(&[], &[]).with_status(0);
    well.prints(&["gdrcopy works here: no problems"]);
    assert!(!well.stdout.contains('\x1b'), "no color without a terminal");

    let ill = page(&["--gdrdrv-errno", "EACCES"], &[]).with_status(1);
    ill.prints(&["gdrcopy does not work here: 3 problems", "PROBLEM  opening it"]);
    let step = "1. either make it readable and writable for all users: chmod 666";
    ill.prints(&[step]);

    let colored = page(&[], &[("CLICOLOR_FORCE", "1")]);
    assert!(colored.stdout.contains('\x1b'), "{colored:?}");
    let plain = page(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]);
    assert!(!plain.stdout.contains('\x1b'), "{plain:?}");
}

#[test]
fn wrong_options_give_status_2() {
    for wrong in [&["--gpu", "first"] as &[&str], &["--lib"], &["--json=maybe"]] {
        let output = run(&mut gdrcopy(&[], &[&["doctor"], wrong].concat())).with_status(2);
        assert_eq!(output.stdout, "");
    }
}
