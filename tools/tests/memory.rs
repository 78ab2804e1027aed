//! Where buffers come from, and what is output where they cannot be pinned or mapped.

mod common;

use common::{Output, gdrcopy, lib, run};

const MEASURING: [&str; 3] = ["copybw", "copylat", "apiperf"];

fn tool(emulated: &[&str], name: &str, options: &[&str]) -> Output {
    let few: &[_] = match name {
        "apiperf" => &["-n", "5"],
        _ => &["-w", "20", "-r", "20"],
    };
    run(gdrcopy(emulated, &[name, "-s", "64K", &lib()]).args(few).args(options))
}

#[test]
fn every_kind_of_memory_is_measured() {
    let emulated = ["--cuda-version", "13.3"];
    for name in MEASURING {
        for kind in ["cuMemAlloc", "cuMemCreate", "pool", "auto", "cumemcreate"] {
            let output = tool(&emulated, name, &["-a", kind]).with_status(0);
            let expected = match kind {
                "auto" => "cuMemAlloc",
                "cumemcreate" => "cuMemCreate",
                kind => kind,
            };
            let expected = format!("buffer from {expected}:");
            output.prints(&[&expected]);
        }
    }
}

#[test]
fn missing_pools_are_replaced_by_plain_memory() {
    for name in MEASURING {
        let output = tool(&["--no-mempools"], name, &["-a", "pool"]).with_status(0);
        output.reports(&["no memory pools"]);
        output.prints(&["buffer from cuMemAlloc:"]);
    }
}

#[test]
fn pools_that_cannot_be_pinned_are_refused_with_advice() {
    for name in MEASURING {
        tool(&["--cuda-version", "12.8"], name, &["-a", "pool"]).with_status(1).reports(&["Use -a cuMemAlloc"]);
    }
}

#[test]
fn auto_uses_memory_that_can_be_pinned() {
    let output = tool(&["--fault", "PIN_BUFFER_V2:EINVAL@1"], "copybw", &["-a", "auto"]).with_status(0);
    output.prints(&["buffer from cuMemCreate:"]);
}

#[test]
fn failing_calls_are_explained_with_status_1() {
    for (fault, call, advice) in [
        ("PIN_BUFFER_V2:EINVAL", "gdr_pin_buffer: EINVAL", "-a cuMemCreate"),
        ("PIN_BUFFER_V2:ENOMEM", "gdr_pin_buffer: ENOMEM", "BAR1"),
        ("MMAP:EAGAIN", "gdr_map: EAGAIN", "GDRCOPY_ENABLE_LOGGING=1"),
        ("OPEN:EACCES", "gdr_open", "gdrcopy doctor"),
        ("cuMemAlloc:2", "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", "(2)"),
        ("cuMemAlloc:4242", "cuMemAlloc: ", "(4242)"),
    ] {
        for name in MEASURING {
            let output = tool(&["--fault", fault], name, &[]).with_status(1);
            output.reports(&[call, advice]);
            assert_eq!(output.stdout, "", "{name} {fault}");
        }
    }
}

#[test]
fn mapping_option_selects_the_type() {
    tool(&["--platform", "cached"], "copybw", &["-M", "wc"]).prints(&["write-combining mapping"]);
    tool(&["--platform", "cached"], "copybw", &[]).prints(&["cached mapping"]);
    tool(&[], "copybw", &["-M", "cache"]).with_status(1).reports(&["Leave out -M"]);
}
