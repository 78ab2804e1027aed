//! Puts the system into states in which something is wrong, mostly by gdremu's emulation, and reads doctor's report.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use super::common::{Output, built, compile, library};
use super::remedies::Remedy;

/// A state of the system, such as a missing device node, and what doctor must report on it.
#[derive(Clone, Copy)]
pub(crate) struct State {
    /// The remedy of the first step that doctor must advise, or nothing.
    pub(crate) first: &'static [Remedy],
    /// True if doctor must report no problem.
    pub(crate) usable: bool,
    /// The options of gdremu, which emulates most of the state.
    pub(crate) emulated: &'static str,
    /// True if doctor runs without gdremu.
    pub(crate) is_real: bool,
    /// True if the remedy's commands cannot cure the state here, for example because gdremu emulates it. The test does
    /// not run them.
    pub(crate) is_fixed: bool,
    /// The path of a file of /proc or /sys that gdremu emulates, if any, and its text.
    pub(crate) file: (&'static str, &'static str),
    /// Shell commands that bring about the rest of the state, before doctor starts.
    pub(crate) sh: &'static str,
    /// The options for doctor.
    pub(crate) args: &'static str,
}

/// The state in which nothing is wrong.
pub(crate) const HEALTHY: State =
    State { first: &[], usable: true, emulated: "", is_real: false, is_fixed: false, file: ("", ""), sh: "", args: "" };

/// Shell code that runs before the commands of each [`State`], and defines functions for them. It enters the state's
/// directory. There it makes a directory `right` with this project's library under both names, and a stand-in for UCX.
const WORDS: &str = r#"
cd "$dir"
export HOME="$dir" LD_LIBRARY_PATH="$dir/right" FAULTY=no FAULTY_BEHIND="$ours"
path() { LD_LIBRARY_PATH=; for part; do LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$dir/$part; done; LD_LIBRARY_PATH=${LD_LIBRARY_PATH#:}; }
put() { mkdir -p "${2%/*}"; cp "$1" "$2"; }
both() { put "$1" "$2/libgdrapi.so.2"; ln -sfn libgdrapi.so.2 "$2/libgdrapi.so"; }
# Makes a library one for another CPU, RISC-V.
foreign() { printf '\363' | dd of="$1" bs=1 seek=18 conv=notrunc status=none; }
preload() { export LD_PRELOAD="$1:$LD_PRELOAD"; }
# Makes a libgdrapi 2.4 whose calls fail as on a system without gdrdrv. Options of gcc can follow; -DMINOR=3 makes a 2.3.
old() {
    (
        echo '#ifndef MINOR
#define MINOR 4
#endif
void *gdr_open(void) { return 0; } void gdr_runtime_get_version(int *major, int *minor) { *major = 2; *minor = MINOR; }'
        for call in close pin_buffer unpin_buffer get_info $([ "$1" = -DMINOR=3 ] || echo get_info_v2) map unmap copy_to_mapping copy_from_mapping; do
            echo "int gdr_$call(void) { return 19; }"
        done
    ) | gcc -shared "$@" -x c - -o old.so
}
# Makes a libgdrapi that needs a C library newer than any.
newer() {
    mkdir libc; echo 'GLIBC_2.94 { later; };' >map; echo 'int later(void) { return 0; }' >later.c
    gcc -shared -nostdlib -Wl,-soname,libc.so.6,--version-script,map later.c -o libc/libc.so.6
    echo 'int later(void); void *gdr_open(void) { return later() ? (void *)0 : 0; }' >newer.c
    gcc -shared -fPIC -nostdlib newer.c libc/libc.so.6 -o newer.so
}
both "$ours" right
# Puts a UCX into this directory, with its plugin for GDRCopy.
ucx() { put /dev/null "$1/libucs.so.0"; mkdir -p "$1/ucx"; echo gdr_get_info_v2 >"$1/ucx/libuct_cuda_gdrcopy.so.0"; }
ucx right

# Has doctor obey the permissions of files. It still runs as root, who owns the files of the test.
as_user() { wrap="setpriv --bounding-set=-dac_override,-dac_read_search"; }

# Changes to a root directory without the files that mark containers, on a computer without a PCI bus.
root() {
    mkdir -p root; mount -t tmpfs root root
    for top in /*/; do mkdir "root$top"; [ "$top" = /run/ ] || mount --rbind "$top" "root$top"; done
    cd root; pivot_root . mnt; cd "$dir"; mount -t tmpfs pci /sys/bus/pci
}

# Puts a GPU of NVIDIA on the PCI bus. `root` must have run before.
gpu() { mkdir -p /sys/bus/pci/devices/$1; echo 0x10de >/sys/bus/pci/devices/$1/vendor; echo 0x030200 >/sys/bus/pci/devices/$1/class; }

# Puts a copy of /etc in its place, which the state may change. `root` must have run before.
etc() { mount -t tmpfs -o mode=755 etc /etc; cp -a /mnt/etc/. /etc; }

# Runs `root`, and puts a libcuda.so.1 into LD_LIBRARY_PATH, whose cuInit has this result.
cuda() { root; put "$libcuda" cuda/libcuda.so.1; path right cuda; export CU_INIT="$1"; }

# Runs `cuda`, makes a new /dev, and makes gdrdrv the driver of major number 120. `node` also makes the device node.
dev() {
    cuda 0; mount -t tmpfs -o mode=755 dev /dev; mknod -m 666 /dev/null c 1 3; mount -t tmpfs driver /proc/driver
    mkdir /proc/driver/gdrdrv; echo >/proc/driver/gdrdrv/params; printf 'Character devices:\n120 gdrdrv\n' >devices
    mount --bind devices /proc/devices; export LD_PRELOAD="$driver"
}
node() { dev; mknod -m "${1:-666}" /dev/gdrdrv "${2:-c}" "${3:-120}" 0; }
# Is a Docker container whose libcuda.so.1 does not open.
capabilities() { dev; echo no library >cuda/libcuda.so.1; export container=docker; }

# Runs `root`, and leaves no kernel module. Each of the next functions runs the one before it, and adds something: the
# module's sources, the kernel's headers, the GPU driver's sources, and a module for the open GPU driver.
modules() {
    root; kernel=/lib/modules/$(uname -r); mkdir -p /lib/modules
    for tree in /lib/modules /usr/src /var/lib; do mount -t tmpfs tree $tree; done; mkdir -p "$kernel" /var/lib/dkms
}
sources() { modules; mkdir /usr/src/gdrdrv-2.6; }
headers() { sources; put /dev/null "$kernel/build/Makefile"; }
driver() { headers; put /dev/null /usr/src/nvidia-580/nvidia/nv-p2p.c; }
# Has DKMS's log say that the build of this version failed for this kernel.
failed() {
    put /dev/null "/var/lib/dkms/gdrdrv/$1/build/make.log"
    printf '%s\n' "DKMS make.log for gdrdrv-$1 for kernel $2 (x86_64)" 'make: Entering directory' \
        "gdrdrv.c:10:9: error: assignment of read-only member 'vm_flags'" 'make: *** [all] Error 2' >"/var/lib/dkms/gdrdrv/$1/build/make.log"
}
module() {
    driver; mkdir "$kernel/extra"; touch "$kernel/modules.order" "$kernel/modules.builtin"
    echo extra/gdrdrv.ko: >"$kernel/modules.dep"
    printf '.section .modinfo,"a"\n.asciz "gpu_driver=opensource"\n.asciz "version=2.6"\n' | as -o "$kernel/extra/gdrdrv.ko" -; depmod
}
# `installed` adds a GPU driver with this license. `loaded` adds one that is loaded but not installed, with these letters of
# taint.
installed() {
    printf '.section .modinfo,"a"\n.asciz "license=%s"\n.section __ksymtab_strings,"a"\n.asciz "nvidia_p2p_get_pages"\n' "$1" |
        as -o "$kernel/extra/nvidia.ko" -
    depmod
}
loaded() {
    printf '0 t nvidia_p2p_get_pages%s\t[nvidia]\n' _persistent '' >kallsyms; mount --bind kallsyms /proc/kallsyms
    mount -t tmpfs modules /sys/module; mkdir /sys/module/nvidia; echo "$1" >/sys/module/nvidia/taint
}
# Has the kernel's log say that it refused the module this many seconds after its boot.
refused() {
    put /dev/null bin/dmesg; chmod +x bin/dmesg; PATH=$dir/bin:$PATH
    printf '#!/bin/sh\necho "[%s.0] gdrdrv: disagrees about version of symbol nvidia_p2p_get_pages"\n' "$1" >bin/dmesg
}
"#;

/// A state, and the directory for its files. Each call of `examine` sets the state up again, and runs doctor.
pub(crate) struct Planted {
    pub(crate) state: State,
    pub(crate) directory: TempDir,
}

/// Returns the directory for the files of states, and for stand-ins such as a faulty library. If another user has built
/// the test, this user may not write to cargo's directory.
fn place() -> PathBuf {
    match env::var_os("GDRCOPY_TEST_BUILT") {
        Some(_) => env::temp_dir(),
        None => env!("CARGO_TARGET_TMPDIR").into(),
    }
}

/// Returns shell variables for the commands of states, each with its name and the path of a program or library.
fn stand_ins() -> &'static [(&'static str, PathBuf)] {
    static ALL: OnceLock<Vec<(&str, PathBuf)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = vec![("ours", library()), ("gdrcopy", env!("CARGO_BIN_EXE_gdrcopy").into())];
        for (name, source, file) in [
            ("faulty", "tools/tests/faulty.c", "doctors-faulty.so"),
            ("absent", "c_tests/absent/libgdrapi.c", "doctors-absent.so"),
            ("libcuda", "c_tests/fake_cuda/libcuda.c", "libcuda.so.1"),
            ("driver", "tools/tests/doctor/node.c", "doctors-node.so"),
        ] {
            all.push((name, compile(source, place().join(file))));
        }
        all
    })
}

impl State {
    pub(crate) fn plant(self) -> Planted {
        let directory = tempfile::tempdir_in(place()).unwrap();
        fs::write(directory.path().join("file"), self.file.1).unwrap();
        Planted { state: self, directory }
    }

    pub(crate) fn examine(self) -> Report {
        self.plant().examine(&[])
    }

    /// Returns whether the state needs its own mount namespace. It does if one of its commands is `mount` or a shell
    /// function that mounts something.
    pub(crate) fn is_private(&self) -> bool {
        const WORDS: [&str; 11] = [
            "root",
            "mount",
            "cuda",
            "dev",
            "capabilities",
            "node",
            "modules",
            "sources",
            "headers",
            "driver",
            "module",
        ];
        self.sh.split([' ', ';', '\n']).any(|word| WORDS.contains(&word))
    }
}

impl Planted {
    /// Returns the command that sets up the state, runs these commands in the same shell, and then runs doctor.
    pub(crate) fn command(&self, steps: &[String]) -> Command {
        let State { emulated, is_real, file, sh, args, .. } = self.state;
        let path = self.directory.path();
        let mut command = Command::new("env");
        if self.state.is_private() {
            command.args(["unshare", "-m"]);
        }
        if !is_real {
            command.arg(built("gdremu")).args(emulated.split_whitespace());
            if !file.0.is_empty() {
                command.arg(format!("--file={}={}/file", file.0, path.display()));
            }
            command.arg("--");
        }
        // Each step is on its own lines, as if a user had typed it.
        let steps = steps.join("\n");
        let doctor = format!("$wrap \"$gdrcopy\" doctor --limit 600 $args {args} \"$@\"");
        command.args(["sh", "-c", &format!("{WORDS}\n{sh}\n{steps}\n{doctor}"), "sh"]);
        command
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap())
            .env("dir", path)
            .envs(stand_ins().iter().cloned());
        command
    }

    pub(crate) fn examine(&self, steps: &[String]) -> Report {
        let output = Output::from(self.command(steps).arg("--json").output().unwrap());
        Report { status: output.status, json: output.json() }
    }
}

/// doctor's exit status and JSON report.
pub(crate) struct Report {
    pub(crate) status: Option<i32>,
    pub(crate) json: Value,
}

impl Report {
    /// Returns the findings of the sections whose titles begin with `section`.
    pub(crate) fn findings(&self, section: &str) -> Vec<&Value> {
        let sections = self.json["sections"].as_array().unwrap();
        let these = sections.iter().filter(|other| other["title"].as_str().unwrap().starts_with(section));
        these.flat_map(|section| section["findings"].as_array().unwrap()).collect()
    }

    /// Asserts that there is a finding with this subject, this verdict, and this word in its value.
    #[track_caller]
    pub(crate) fn finds(&self, verdict: &str, section: &str, subject: &str, word: &str) {
        for finding in self.findings(section) {
            let value = finding["value"].as_str().unwrap();
            if finding["subject"] == subject && finding["verdict"] == verdict && value.contains(word) {
                return;
            }
        }
        panic!("no {verdict} {section}/{subject} {word} in {:#}", self.json);
    }

    /// Returns the steps that doctor advises, each followed by the one that may be taken instead, if there is one.
    pub(crate) fn steps(&self) -> Vec<&Value> {
        let mut steps = Vec::new();
        for step in self.json["steps"].as_array().unwrap() {
            steps.push(step);
            steps.extend(Some(&step["or"]).filter(|or| !or.is_null()));
        }
        steps
    }

    /// Returns the number of problems, and the number of problems and warnings together.
    pub(crate) fn faults(&self) -> [u64; 2] {
        let [problems, warnings] = ["problems", "warnings"].map(|name| self.json[name].as_u64().unwrap());
        [problems, problems + warnings]
    }

    /// Asserts that status, counts, remedies and steps agree with each other.
    #[track_caller]
    pub(crate) fn is_consistent(&self) {
        let findings = self.findings("");
        for (count, verdict) in [("problems", "problem"), ("warnings", "warning")] {
            let number = findings.iter().filter(|finding| finding["verdict"] == verdict).count();
            assert_eq!(self.json[count], number, "{:#}", self.json);
        }
        let usable = self.json["problems"] == 0;
        assert_eq!((&self.json["usable"], self.status), (&usable.into(), Some(i32::from(!usable))));
        let steps = self.steps();
        for (number, step) in steps.iter().enumerate() {
            assert!(!steps[..number].contains(step), "twice: {step}");
            // Without the braces of awk and the shell, all braces must be JSON's: no placeholder like {file} is left.
            let text = step.to_string().replace("{print $1}", "").replace("${", "");
            assert_eq!(text.matches('{').count(), 1 + usize::from(step["or"].is_object()), "{text}");
        }
    }
}
