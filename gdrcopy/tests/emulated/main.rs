//! Tests that need a driver and a GPU. They run themselves again under gdremu.

mod access;
#[path = "../../../tests/built/mod.rs"]
mod built;
mod channels;
mod contexts;
#[allow(dead_code, reason = "the model in the root package calls the rest")]
#[path = "../../../tests/emulated/cuda.rs"]
mod cuda;
mod dma_buf;
mod features;
mod freshness;
mod gates;
#[allow(dead_code, reason = "the examples call the rest")]
#[path = "../../examples/cuda/mod.rs"]
mod gpu;
mod host;
mod owned;
mod ownership;
mod pin_cache;
mod pool;
mod suspension;
mod transfer;

use std::process::Command;

/// Runs the ignored tests that `filter`, words for the test program, selects; `outcome` is for those of `gates`.
fn under_gdremu(options: &str, filter: &str, outcome: &str) {
    let tests = std::env::current_exe().expect("a path");
    let status = Command::new(built::built("gdremu"))
        .args(options.split_whitespace())
        .arg("--")
        .arg(&tests)
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .args(filter.split_whitespace())
        .env("OUTCOME_OF_TEST", outcome)
        .status()
        .expect("gdremu starts");
    assert!(status.success(), "gdremu {options}");
}

#[test]
fn ownership_under_gdremu() {
    under_gdremu("", "ownership::", "");
}

#[test]
fn suspension_under_gdremu() {
    for profile in ["default", "traditional", "dmabuf"] {
        under_gdremu(&format!("--profile {profile} {LEAK_IS_FAILURE}"), "suspension::", "");
    }
}

#[test]
fn access_under_gdremu() {
    for profile in ["default", "cached", "device", "dmabuf"] {
        under_gdremu(&format!("--profile {profile}"), "access::", "");
    }
}

/// A pin that is left behind is a failure.
const LEAK_IS_FAILURE: &str = "--leak-exit 42";

#[test]
fn pool_under_gdremu() {
    for options in
        ["--profile default", "--no-mempools", "--profile device", "--profile dmabuf", "--profile traditional"]
    {
        under_gdremu(&format!("{LEAK_IS_FAILURE} {options}"), "pool::", "");
    }
}

#[test]
fn owned_under_gdremu() {
    for profile in ["default", "dmabuf"] {
        let options = format!("{LEAK_IS_FAILURE} --profile {profile}");
        under_gdremu(&options, "owned::", "");
    }
}

#[test]
fn pin_cache_under_gdremu() {
    for profile in ["default", "dmabuf", "traditional"] {
        let options = format!("{LEAK_IS_FAILURE} --profile {profile}");
        under_gdremu(&options, "pin_cache::ranges::", "");
    }
}

#[test]
fn pin_cache_without_room_under_gdremu() {
    for (options, filter) in [
        ("--bar1-size 16M", "bar1_"),
        ("--bar1-size 16M --profile traditional", "bar1_"),
        ("--fault MMAP:ENOMEM@3", "mmap_"),
        ("--profile dmabuf", "descriptors_"),
    ] {
        let filter = format!("pin_cache::shortage::{filter}");
        under_gdremu(&format!("{LEAK_IS_FAILURE} {options}"), &filter, "");
    }
}

#[test]
fn channels_under_gdremu() {
    let compiled = channels::compile_device_library();
    let filter = if compiled { "channels::" } else { "channels:: --skip channels::header_" };
    for profile in ["default", "device"] {
        under_gdremu(&format!("--profile {profile}"), filter, "");
    }
}

#[test]
fn contexts_under_gdremu() {
    under_gdremu("", "contexts::", "");
}

#[test]
fn host_memory_under_gdremu() {
    // With gdrdrv; and with nothing else that works.
    for options in ["", "--no-gdrdrv --cuda-version 11.7"] {
        under_gdremu(options, "host::", "");
    }
}

#[test]
fn dma_buf_of_a_pin() {
    for profile in ["default", "dmabuf"] {
        under_gdremu(&format!("--profile {profile}"), "dma_buf::exported", "");
    }
    for options in ["--profile dmabuf", "--cuda-version 13.3"] {
        under_gdremu(options, "dma_buf::mapped", "");
    }
    for (options, error) in [
        ("--dmabuf no", "NoDmaBufExport { gpu: 0 }"),
        ("--cuda-version 11.6", "CudaTooOld { version: 11060, needed: 11070 }"),
    ] {
        under_gdremu(options, "dma_buf::refused", error);
    }
}

#[test]
fn transfer_under_gdremu() {
    for profile in ["default", "device", "dmabuf"] {
        under_gdremu(&format!("--profile {profile}"), "transfer::uncached::", "");
    }
    under_gdremu("--profile cached", "transfer::cached::", "");
}

#[test]
fn features_are_those_of_the_machine() {
    for (options, outcome) in features::MACHINES {
        under_gdremu(options, "features::", outcome);
    }
}

#[test]
fn freshness_under_gdremu() {
    under_gdremu("", "freshness::", "");
}

#[test]
fn device_header_compiles_for_gpus() {
    channels::compile_for_gpu();
}

#[test]
fn examples_run_under_gdremu() {
    for example in
        ["quick_start", "flag_to_kernel", "poll_flags", "stream_messages", "shared_pool", "register_for_rdma"]
    {
        let status = Command::new(built::built("gdremu"))
            .args(["--leak-exit", "66", "--"])
            .arg(built::example(example))
            .status()
            .expect("gdremu starts");
        assert!(status.success(), "{example}");
    }
}

#[test]
fn open_succeeds_where_it_should() {
    for (options, outcome) in gates::GATES {
        under_gdremu(options, "gates::", &outcome.to_code());
    }
}

/// The error of a mapping or slice of `room` bytes for others.
fn outside(offset: usize, len: usize, room: usize) -> gdrcopy::Error {
    gdrcopy::Error::OutOfMapping { offset, len, room }
}
