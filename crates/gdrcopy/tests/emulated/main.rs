//! Tests that need a driver and a GPU. They run under gdremu, which emulates both.

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
#[path = "../../../../tests/under_gdremu/mod.rs"]
mod under_gdremu;

use std::path::PathBuf;
use std::process::Command;

use under_gdremu::Runner;

fn main() {
    let mut runner = Runner::new("crate");
    let dma_bufs = ["--profile dmabuf", "--cuda-version 13.3"];
    let pools = ["", "--no-mempools", "--profile device", "--profile dmabuf", "--profile traditional"];
    runner.add(ownership::TESTS, &[""]);
    runner.add(access::TESTS, &["", "--profile cached", "--profile device", "--profile dmabuf"]);
    runner.add(pool::TESTS, &pools);
    #[cfg(feature = "cudarc-0-19")]
    runner.add(pool::with_cudarc::TESTS, &pools);
    runner.add(contexts::TESTS, &[""]);
    // These tests run twice: with gdrdrv, and then without gdrdrv, under a CUDA that cannot map dma-bufs.
    runner.add(host_memory::TESTS, &["", "--no-gdrdrv --cuda-version 11.7"]);
    runner.add(dma_buf::EXPORTED, &["", "--profile dmabuf"]);
    runner.add(dma_buf::MAPPED, &dma_bufs);
    runner.add(dma_buf::REFUSED, &["--dmabuf no", "--cuda-version 11.6"]);
    #[cfg(target_arch = "x86_64")]
    runner.add_prepared(fences::TESTS, "", link_gdrx);
    for (options, _) in gates::GATES {
        runner.add(gates::TESTS, &[options]);
    }
    for example in ["quick_start", "queue", "poll_flags", "register_for_rdma"] {
        runner.add_example(example, "", built::example);
    }
    runner.add_example("share_memory", "--profile dmabuf", built::example);
    runner.run();
}

/// Returns the paths of the C libraries that the tests of fences load: cargo builds libgdrapi, and `link_gdrx` links
/// libgdrx. They are in the parent of this program's directory.
fn libraries() -> [PathBuf; 2] {
    let program = std::env::current_exe().expect("a path");
    let directory = program.ancestors().nth(2).expect("a profile's directory");
    ["libgdrapi.so", "libgdrx_of_tests.so"].map(|name| directory.join(name))
}

#[cfg(target_arch = "x86_64")]
fn link_gdrx() {
    let archive = built::built("libgdrx.a");
    let [_, gdrx] = libraries();
    let mut linker = Command::new("cc");
    linker.args(["-shared", "-Wl,--whole-archive"]).arg(&archive).args(["-Wl,--no-whole-archive", "-lgcc_s", "-ldl"]);
    let status = linker.arg("-o").arg(&gdrx).status().expect("a C compiler");
    assert!(status.success(), "{linker:?}");
}

/// Asserts that a mapping or slice of `room` bytes has refused these bytes (offset and length), which are outside.
#[track_caller]
fn assert_outside(result: gdrcopy::Result<()>, bytes: [usize; 2], room: usize) {
    let Err(gdrcopy::Error::OutOfMapping { offset, len, room: reported, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!(([offset, len], reported), (bytes, room));
}
