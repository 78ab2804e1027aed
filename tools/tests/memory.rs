//! Where buffers come from, and what is said where they cannot be pinned or mapped.

mod common;

use common::{Said, gdrcopy, library, run};

const MEASURING: [&str; 3] = ["copybw", "copylat", "apiperf"];

fn tool(machine: &[&str], name: &str, options: &[&str]) -> Said {
    let library = library();
    let size = ["-s", "64K", "--lib", library.to_str().unwrap()];
    let few: &[_] = match name {
        "apiperf" => &["-n", "5"],
        _ => &["-w", "20", "-r", "20"],
    };
    run(gdrcopy(machine, &[name]).args(size).args(few).args(options))
}

#[test]
fn every_kind_of_memory_can_be_measured() {
    let machine = ["--cuda-version", "13.3"];
    for name in MEASURING {
        for kind in ["cuMemAlloc", "cuMemCreate", "pool", "auto", "cumemcreate"] {
            let said = tool(&machine, name, &["-a", kind]);
            assert_eq!(said.status, Some(0), "{name} {kind}: {said:?}");
            let told = match kind {
                "auto" => "cuMemAlloc",
                "cumemcreate" => "cuMemCreate",
                kind => kind,
            };
            let told = format!("buffer from {told}:");
            assert!(said.stdout.contains(&told), "{name} {kind}: {said:?}");
        }
    }
}

#[test]
fn without_pools_there_is_plain_memory() {
    for name in MEASURING {
        let said = tool(&["--no-mempools"], name, &["-a", "pool"]);
        assert_eq!(said.status, Some(0), "{name}: {said:?}");
        assert!(said.stderr.contains("no memory pools"), "{name}: {said:?}");
        assert!(
            said.stdout.contains("buffer from cuMemAlloc:"),
            "{name}: {said:?}"
        );
    }
}

#[test]
fn pools_that_cannot_be_pinned_are_refused_with_advice() {
    for name in MEASURING {
        let said = tool(&["--cuda-version", "12.8"], name, &["-a", "pool"]);
        assert_eq!(said.status, Some(1), "{name}: {said:?}");
        assert!(
            said.stderr.contains("Use -a cuMemAlloc"),
            "{name}: {said:?}"
        );
    }
}

#[test]
fn auto_takes_what_can_be_pinned() {
    let said = tool(
        &["--fault", "PIN_BUFFER_V2:EINVAL@1"],
        "copybw",
        &["-a", "auto"],
    );
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.stdout.contains("buffer from cuMemCreate:"), "{said:?}");
}

#[test]
fn failing_calls_are_explained_with_status_1() {
    for (fault, call, advice) in [
        (
            "PIN_BUFFER_V2:EINVAL",
            "gdr_pin_buffer: EINVAL",
            "-a cuMemCreate",
        ),
        ("PIN_BUFFER_V2:ENOMEM", "gdr_pin_buffer: ENOMEM", "BAR1"),
        ("MMAP:EAGAIN", "gdr_map: EAGAIN", "GDRCOPY_ENABLE_LOGGING=1"),
        ("OPEN:EACCES", "gdr_open", "gdrcopy doctor"),
        (
            "cuMemAlloc:2",
            "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY",
            "(2)",
        ),
    ] {
        for name in MEASURING {
            let said = tool(&["--fault", fault], name, &[]);
            assert_eq!(said.status, Some(1), "{name} {fault}: {said:?}");
            for text in [call, advice] {
                assert!(said.stderr.contains(text), "{name} {fault}: {said:?}");
            }
            assert_eq!(said.stdout, "", "{name} {fault}");
        }
    }
}

#[test]
fn mapping_types_are_asked_for() {
    let said = tool(&["--platform", "cached"], "copybw", &["-M", "wc"]);
    assert!(said.stdout.contains("write-combining mapping"), "{said:?}");
    let said = tool(&["--platform", "cached"], "copybw", &[]);
    assert!(said.stdout.contains("cached mapping"), "{said:?}");
    let said = tool(&[], "copybw", &["-M", "cache"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(said.stderr.contains("Leave out -M"), "{said:?}");
}

#[test]
fn errors_that_no_list_has_are_numbers() {
    let said = tool(&["--fault", "cuMemAlloc:4242"], "copybw", &[]);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(said.stderr.contains("(4242)"), "{said:?}");
}
