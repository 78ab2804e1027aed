//! Where buffers come from, and what is output where they cannot be pinned or mapped.

mod common;

use common::{Output, gdrcopy, library, run};

const MEASURING: [&str; 3] = ["copybw", "copylat", "apiperf"];

fn tool(emulated: &[&str], name: &str, options: &[&str]) -> Output {
    let library = library();
    let size = ["-s", "64K", "--lib", library.to_str().unwrap()];
    let few: &[_] = match name {
        "apiperf" => &["-n", "5"],
        _ => &["-w", "20", "-r", "20"],
    };
    run(gdrcopy(emulated, &[name]).args(size).args(few).args(options))
}

#[test]
fn every_kind_of_memory_is_measured() {
    let emulated = ["--cuda-version", "13.3"];
    for name in MEASURING {
        for kind in ["cuMemAlloc", "cuMemCreate", "pool", "auto", "cumemcreate"] {
            let output = tool(&emulated, name, &["-a", kind]);
            assert_eq!(output.status, Some(0), "{name} {kind}: {output:?}");
            let expected = match kind {
                "auto" => "cuMemAlloc",
                "cumemcreate" => "cuMemCreate",
                kind => kind,
            };
            let expected = format!("buffer from {expected}:");
            assert!(output.stdout.contains(&expected), "{name} {kind}: {output:?}");
        }
    }
}

#[test]
fn missing_pools_are_replaced_by_plain_memory() {
    for name in MEASURING {
        let output = tool(&["--no-mempools"], name, &["-a", "pool"]);
        assert_eq!(output.status, Some(0), "{name}: {output:?}");
        assert!(output.stderr.contains("no memory pools"), "{name}: {output:?}");
        assert!(output.stdout.contains("buffer from cuMemAlloc:"), "{name}: {output:?}");
    }
}

#[test]
fn pools_that_cannot_be_pinned_are_refused_with_advice() {
    for name in MEASURING {
        let output = tool(&["--cuda-version", "12.8"], name, &["-a", "pool"]);
        assert_eq!(output.status, Some(1), "{name}: {output:?}");
        assert!(output.stderr.contains("Use -a cuMemAlloc"), "{name}: {output:?}");
    }
}

#[test]
fn auto_uses_memory_that_can_be_pinned() {
    let output = tool(&["--fault", "PIN_BUFFER_V2:EINVAL@1"], "copybw", &["-a", "auto"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.stdout.contains("buffer from cuMemCreate:"), "{output:?}");
}

#[test]
fn failing_calls_are_explained_with_status_1() {
    for (fault, call, advice) in [
        ("PIN_BUFFER_V2:EINVAL", "gdr_pin_buffer: EINVAL", "-a cuMemCreate"),
        ("PIN_BUFFER_V2:ENOMEM", "gdr_pin_buffer: ENOMEM", "BAR1"),
        ("MMAP:EAGAIN", "gdr_map: EAGAIN", "GDRCOPY_ENABLE_LOGGING=1"),
        ("OPEN:EACCES", "gdr_open", "gdrcopy doctor"),
        ("cuMemAlloc:2", "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", "(2)"),
    ] {
        for name in MEASURING {
            let output = tool(&["--fault", fault], name, &[]);
            assert_eq!(output.status, Some(1), "{name} {fault}: {output:?}");
            for text in [call, advice] {
                assert!(output.stderr.contains(text), "{name} {fault}: {output:?}");
            }
            assert_eq!(output.stdout, "", "{name} {fault}");
        }
    }
}

#[test]
fn mapping_option_selects_the_type() {
    let output = tool(&["--platform", "cached"], "copybw", &["-M", "wc"]);
    assert!(output.stdout.contains("write-combining mapping"), "{output:?}");
    let output = tool(&["--platform", "cached"], "copybw", &[]);
    assert!(output.stdout.contains("cached mapping"), "{output:?}");
    let output = tool(&[], "copybw", &["-M", "cache"]);
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.stderr.contains("Leave out -M"), "{output:?}");
}

#[test]
fn unknown_errors_are_printed_as_numbers() {
    let output = tool(&["--fault", "cuMemAlloc:4242"], "copybw", &[]);
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.stderr.contains("(4242)"), "{output:?}");
}
