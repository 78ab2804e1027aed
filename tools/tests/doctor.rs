//! Tests `gdrcopy doctor`. In many states of a system, such as a missing device node, it must first advise the right
//! remedy, and that remedy must help. Other tests are about its report.

mod common;
#[path = "doctor/harness.rs"]
mod harness;
#[allow(dead_code, reason = "the tests need its table")]
#[path = "../src/commands/doctor/remedies.rs"]
mod remedies;
#[path = "doctor/states.rs"]
mod states;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;

use common::{Output, run};
use harness::{HEALTHY, Planted, Report, State};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use remedies::{REMEDIES, Remedy};
use states::{NOT_RUN, STATES};

// ---- Remedies ----

fn is_run(remedy: Remedy) -> bool {
    NOT_RUN.iter().all(|(_, remedies)| !remedies.contains(&remedy))
}

/// Returns whether a shell command works here. For example, only root can mount, and not in every container.
fn can(command: &str) -> bool {
    Command::new("sh").args(["-c", command]).status().unwrap().success()
}

/// Puts the system into each of the states, and checks the remedy that doctor advises first, also by running it.
#[track_caller]
fn choose_and_run(states: &[State]) {
    // Some of doctor's steps are for the computer that runs this test, for example for a distant NUMA node. The report
    // of the healthy state has them, too.
    let of_this = HEALTHY.examine();
    let mut faults = Vec::new();
    for state in states {
        // Some states need mounts. In others the right remedy depends on gdrdrv-load, which needs modinfo.
        if state.is_private() && !can("unshare -m mount -t tmpfs test /mnt")
            || (state.sh.contains("loaded") || state.first == [Remedy::ModuleSwitch]) && !can("modinfo -V")
        {
            eprintln!("not planted, as this computer cannot: {:?} {}", state.first, state.sh);
            continue;
        }
        let planted = state.plant();
        let report = planted.examine(&[]);
        report.is_consistent();
        if let Err(fault) = check(&planted, &report, &of_this) {
            let State { emulated, args, sh, .. } = state;
            faults.push(format!("{emulated} {args} {sh}: {fault}\n{:#}", report.json));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// Returns an error unless the first step that doctor advises is right and, if it can be run here, helps.
fn check(planted: &Planted, report: &Report, of_this: &Report) -> Result<(), String> {
    let State { usable, first, is_fixed, .. } = planted.state;
    if report.json["usable"] != usable {
        return Err(format!("usable is not {usable}"));
    }
    let steps = report.json["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| !of_this.steps().contains(step));
    let (&[remedy], Some(step)) = (first, step) else {
        return if first.is_empty() && step.is_none() { Ok(()) } else { Err(format!("not {first:?}")) };
    };
    // Either backend, gdrdrv or dma-bufs, is enough, so a step may have a second remedy to choose from, under `or`.
    let Some(step) = [step, &step["or"]].into_iter().find(|step| step["remedy"] == *remedy.name()) else {
        return Err(format!("not {remedy:?}"));
    };
    if !is_run(remedy) || is_fixed {
        return Ok(());
    }
    let commands: Vec<String> = serde_json::from_value(step["commands"].clone()).unwrap();
    let next = planted.examine(&commands);
    let is_still_there = next.steps().iter().any(|next| next["remedy"] == *remedy.name());
    // A remedy must leave fewer problems than before, or none. In a state with its own mount namespace, the sum of
    // problems and warnings must fall, too. DoctorStart is exempt: doctor sees more once it can start its processes.
    let ([problems, faults], [before, faults_before]) = (next.faults(), report.faults());
    let is_replaced = problems > 0 && problems >= before
        || planted.state.is_private() && remedy != Remedy::DoctorStart && faults > 0 && faults >= faults_before;
    if is_still_there || is_replaced {
        return Err(format!("not cured by {commands:?}: {:#}", next.json));
    }
    Ok(())
}

#[test]
fn every_remedy_is_planted_and_run_or_has_a_reason() {
    let states = STATES.concat();
    for &(remedy, ..) in REMEDIES {
        assert!(states.iter().any(|state| state.first == [remedy]), "{remedy:?} is never planted");
    }
    let named = NOT_RUN.iter().flat_map(|(_, remedies)| *remedies);
    assert_eq!(named.count(), REMEDIES.iter().filter(|(remedy, ..)| !is_run(*remedy)).count(), "one is named twice");
}

// ---- Findings ----

#[test]
fn findings_say_what_the_system_has() {
    const VERSION: (&str, &str) = ("/sys/module/nvidia/version", "580.95.05\n");
    for (emulated, file, verdict, section, subject, word) in [
        ("", VERSION, "ok", "GPU driver", "GPU driver", "580.95.05"),
        ("", ("", ""), "ok", "gdrdrv", "module version", "2.6"),
        ("--gpus 2", ("", ""), "ok", "GPU 1: gdremu GPU at 0000:2b:00.0", "GPUDirect RDMA", "supported"),
        ("", ("", ""), "ok", "libgdrapi", "libgdrapi.so", "this project's, 2.6"),
        ("", ("", ""), "unknown", "distributed engines", "NCCL_GDRCOPY_ENABLE", "only if this is for NCCL"),
        ("--gpus 2", ("", ""), "ok", "self-test on GPU 1", "passed", "write-combining mapping of gdrdrv"),
        ("--platform cached", ("", ""), "ok", "self-test", "passed", "cached mapping of gdrdrv"),
        ("--no-gdrdrv --cuda-version 13.3", ("", ""), "ok", "self-test", "passed", "mapping of a dma-buf"),
        ("--no-gdrdrv", ("", ""), "problem", "GPU driver", "dma-buf backend", "13.0, mapping dma-bufs needs 13.3"),
        ("--gpus 0", ("", ""), "unknown", "self-test", "not run", "no GPU"),
    ] {
        State { emulated, file, ..HEALTHY }.examine().finds(verdict, section, subject, word);
    }
}

#[test]
fn gpus_that_others_use_or_behind_a_hang_are_not_tested() {
    let report =
        State { emulated: "--gpus 2 --fault cuDevicePrimaryCtxRetain:2", args: "--gpu 1", ..HEALTHY }.examine();
    assert_eq!((report.status, &report.json["tested"]), (Some(0), &false.into()));
    assert_eq!(report.findings("self-test").len(), 1);
    report.finds("warning", "self-test on GPU 1", "not tested", "full");
    assert_eq!(HEALTHY.examine().json["tested"], true);

    let sh = "args=\"--lib $faulty\"; FAULTY=hang";
    let report = State { emulated: "--gpus 3", args: "--limit 3", sh, ..HEALTHY }.examine();
    report.finds("unknown", "self-test on the other GPUs", "not run", "GPU 0 did not end");
    assert_eq!(report.findings("self-test").len(), 2);
}

#[test]
fn module_that_kills_or_delays_the_process_is_named_as_such() {
    // A slow computer may need long for the kill, which ends the wait. Nothing ends the wait for the hang.
    for (sh, args, says) in [
        ("export GDRDRV=hang; preload $driver", "--limit 3", "it does not end"),
        ("export GDRDRV=kill; preload $driver", "--limit 60", "it ends the process"),
    ] {
        State { sh, args, ..HEALTHY }.examine().finds("problem", "gdrdrv", "opening it", says);
    }
}

/// All findings about the library have the same remedy, whether they are about a name, a file or the self-test.
#[test]
fn library_for_a_newer_c_library_has_one_remedy() {
    for sh in ["newer; args='--lib newer.so'", "newer; both newer.so other; path other"] {
        let report = State { sh, ..HEALTHY }.examine();
        let mut remedies: Vec<_> =
            report.findings("libgdrapi").iter().map(|finding| finding["remedy"].clone()).collect();
        remedies.extend(report.findings("self-test").iter().map(|finding| finding["remedy"].clone()));
        remedies.retain(|remedy| !remedy.is_null());
        assert!(remedies.len() > 1 && remedies.iter().all(|remedy| remedy == "library-build"), "{:#}", report.json);
    }
}

#[test]
fn line_that_forbids_the_module_is_named_and_made_a_comment() {
    if !can("unshare -m mount -t tmpfs test /mnt") {
        return;
    }
    let sh = "module; etc; mkdir -p /etc/modprobe.d
        printf 'install udf /bin/false\\ninstall gdrdrv /bin/false\\n' >/etc/modprobe.d/hardening.conf";
    let planted = State { emulated: "--no-gdrdrv", sh, ..HEALTHY }.plant();
    let report = planted.examine(&[]);
    let step = report.steps()[0];
    let text = step["text"].as_str().unwrap();
    assert!(text.starts_with("comment out line 2 of /etc/modprobe.d/hardening.conf, `install gdrdrv /bin/false`"));
    // gdrdrv-load must also log this line of modprobe's configuration. An empty program takes the place of modprobe.
    let load = concat!(env!("CARGO_MANIFEST_DIR"), "/../gdrdrv-c/system/gdrdrv-load");
    let run = format!("put /dev/null bin/modprobe; chmod +x bin/modprobe; PATH=$dir/bin:$PATH sh {load} 2>log");
    planted.examine(&[run]);
    let log = fs::read_to_string(planted.directory.path().join("log")).unwrap();
    assert!(log.ends_with(" /etc/modprobe.d/hardening.conf:2:install gdrdrv /bin/false\n"), "{log}");
    let command = step["commands"][0].as_str().unwrap();
    assert_eq!(planted.examine(&[command.into()]).steps()[0]["remedy"], "module-load");
}

#[test]
fn error_of_a_failed_build_is_in_the_report() {
    if !can("unshare -m mount -t tmpfs test /mnt") {
        return;
    }
    let report = State { emulated: "--no-gdrdrv", sh: "driver; failed 2.3 $(uname -r)", ..HEALTHY }.examine();
    report.finds("problem", "gdrdrv", "device node", "could not build it: gdrdrv.c:10:9: error: assignment of");
}

#[test]
fn directory_in_place_of_the_node_is_removed_on_the_host() {
    if !can("unshare -m mount -t tmpfs test /mnt") {
        return;
    }
    let sh = "dev; mkdir /dev/gdrdrv; export container=docker";
    let report = State { is_real: true, sh, ..HEALTHY }.examine();
    report.finds("problem", "gdrdrv", "device node", "a directory");
    let text = report.steps()[0]["text"].as_str().unwrap();
    assert!(text.starts_with("on the host, remove the directory /dev/gdrdrv") && text.contains("--device"), "{text}");
}

/// In each run, one call of the library never returns. --limit is so long that all other calls end within it, even on a
/// slow computer.
#[test]
fn call_that_hangs_is_named_while_doctor_waits_and_in_the_report() {
    let calls = "gdr_open gdr_close gdr_pin_buffer gdr_unpin_buffer gdr_get_info_v2 gdr_map gdr_unmap gdr_copy_to_mapping \
        gdr_copy_from_mapping";
    thread::scope(|scope| {
        for call in calls.split(' ') {
            scope.spawn(move || {
                let sh: &'static str = format!("args=\"--lib $faulty\"; FAULTY='stuck {call}'").leak();
                let planted = State { sh, args: "--limit 30", ..HEALTHY }.plant();
                let output = run(&mut planted.command(&[])).with_status(1);
                let name = call.trim_end_matches("_v2");
                output.prints(&[&format!("it did not end: {name} hangs")]);
                output.reports(&[&format!("gdrcopy doctor: waiting for {name}, up to 30 s\n")]);
            });
        }
    });
}

#[test]
fn library_whose_loading_hangs_is_loaded_once() {
    let sh = "both $faulty other; path other; FAULTY='stuck constructor'";
    let output = run(&mut State { sh, args: "--limit 3", ..HEALTHY }.plant().command(&[])).with_status(1);
    output.prints(&["it did not end: loading the library hangs"]);
    let waits = output.stderr.matches("waiting for loading the library, up to 3 s").count();
    assert_eq!(waits, 1, "{output:?}");
}

// ---- The report ----

#[test]
fn report_that_is_not_read_to_its_end_is_no_error() {
    let planted = HEALTHY.plant();
    let mut command = planted.command(&[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = Output::from(child.wait_with_output().unwrap());
    assert_eq!((output.status, output.stderr.contains("roken pipe")), (Some(141), false), "{output:?}");
}

#[test]
fn text_shows_the_report() {
    let page = |emulated, args, sh| run(&mut State { emulated, args, sh, ..HEALTHY }.plant().command(&[]));
    let well = page("", "", "").with_status(0);
    well.prints(&["gdrcopy works here (problems: 0, "]);
    let ill = page("--gdrdrv-errno EACCES", "", "").with_status(1);
    ill.prints(&["gdrcopy does not work here (problems: 3, ", "PROBLEM  opening it", "→ node-mode\n"]);
    ill.prints(&["\n  1. node-mode: ", "\n         chmod 666 /dev/gdrdrv\n     or driver-update: "]);
    page("--fault cuDevicePrimaryCtxRetain:2", "", "").prints(&["it was not tested (problems: 0, warnings: 1)"]);
    page("", "--for ucx", "")
        .prints(&["UCX would use GDRCopy here (problems: 0, ", "right/ucx/libuct_cuda_gdrcopy.so.0\n"]);
    page("", "--for nixl", "rm right/ucx/*")
        .prints(&["NIXL would use GDRCopy here if it has its plugin (problems: 0, "]);
    let control = page("", "", "export GDRCOPY_THREADS=$(printf '\\033[2J')");
    control.prints(&["GDRCOPY_THREADS=\u{fffd}[2J"]);
    assert!(!control.stdout.contains('\x1b'));
}

#[test]
fn sections_are_printed_before_the_self_test_ends() {
    let planted = State { sh: "args=\"--lib $faulty\"; FAULTY=hang", ..HEALTHY }.plant();
    let log = planted.directory.path().join("log");
    let mut command = planted.command(&[]);
    let mut child = command.stdout(fs::File::create(&log).unwrap()).process_group(0).spawn().unwrap();
    while !fs::read_to_string(&log).unwrap().contains("\ndistributed engines\n") {
        assert!(child.try_wait().unwrap().is_none(), "doctor ended");
    }
    // A signal to the whole process group also ends the process in which the library hangs.
    kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
}
