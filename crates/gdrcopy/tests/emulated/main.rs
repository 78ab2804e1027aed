//! Tests that need a driver and a GPU. They run themselves again under gdremu.

mod access;
#[path = "../../../../tests/built/mod.rs"]
mod built;
mod contexts;
#[path = "../../examples/cuda/mod.rs"]
mod cuda;
mod dma_buf;
#[cfg(target_arch = "x86_64")]
mod fences;
mod gates;
mod host_memory;
mod ownership;
mod pool;
#[cfg(target_arch = "x86_64")]
#[path = "../../../gdrcopy-core/tests/copy_routines/steps.rs"]
mod steps;

use std::process::Command;

/// Runs the ignored tests that `filter`, words for the test program, selects; `outcome` is for those that compare with it.
/// A pin that is left behind is a failure.
fn under_gdremu(options: &str, filter: &str, outcome: &str) {
    let tests = std::env::current_exe().expect("a path");
    let status = Command::new(built::built("gdremu"))
        .args(["--leak-exit", "42"])
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

/// Defines tests that run those which a filter selects, with each of these options of gdremu.
macro_rules! under_gdremu {
    ($($test:ident: $($filter:literal with $($options:literal)|+),+;)+) => { $(
        #[test]
        fn $test() {
            $(for options in [$($options),+] {
                under_gdremu(options, $filter, "");
            })+
        }
    )+ };
}

under_gdremu! {
    ownership_under_gdremu: "ownership::" with "";
    access_under_gdremu: "access::" with "" | "--profile cached" | "--profile device" | "--profile dmabuf";
    pool_under_gdremu: "pool::" with
        "" | "--no-mempools" | "--profile device" | "--profile dmabuf" | "--profile traditional";
    contexts_under_gdremu: "contexts::" with "";
    // With gdrdrv; and with nothing else that works.
    host_memory_under_gdremu: "host_memory::" with "" | "--no-gdrdrv --cuda-version 11.7";
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
#[cfg(target_arch = "x86_64")]
fn fences_under_gdremu() {
    let (gdrapi, archive) = (built::built("libgdrapi.so"), built::built("libgdrx.a"));
    let gdrx = archive.with_file_name("libgdrx_of_tests.so");
    let mut linker = Command::new("cc");
    linker.args(["-shared", "-Wl,--whole-archive"]).arg(&archive).args(["-Wl,--no-whole-archive", "-lgcc_s", "-ldl"]);
    let status = linker.arg("-o").arg(&gdrx).status().expect("a C compiler");
    assert!(status.success(), "{linker:?}");
    under_gdremu("", "fences::", &format!("{}:{}", gdrapi.display(), gdrx.display()));
}

#[test]
fn examples_run_under_gdremu() {
    for (example, profile) in [
        ("quick_start", "default"),
        ("flag_to_kernel", "default"),
        ("poll_flags", "default"),
        ("shared_pool", "default"),
        ("register_for_rdma", "default"),
        ("share_memory", "dmabuf"),
    ] {
        let status = Command::new(built::built("gdremu"))
            .args(["--leak-exit", "66", "--profile", profile, "--"])
            .arg(built::example(example))
            .status()
            .expect("gdremu starts");
        assert!(status.success(), "{example}");
    }
}

#[test]
fn open_succeeds_where_it_should() {
    for (options, outcome) in gates::GATES {
        under_gdremu(options, "gates::", &format!("{outcome:?}"));
    }
}

/// Asserts that a mapping or slice of `room` bytes has refused others.
#[track_caller]
fn assert_outside(result: gdrcopy::Result<()>, bytes: [usize; 2], room: usize) {
    let Err(gdrcopy::Error::OutOfMapping { offset, len, room: reported, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!(([offset, len], reported), (bytes, room));
}
