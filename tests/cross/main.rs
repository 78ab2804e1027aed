//! The checks of `tests/copy_kernels` as one single-threaded program, for `run.sh`.
//!
//! Debian 12's qemu-user hangs when a program for these machines creates a thread, which rules out
//! the test harness of Rust.

#[path = "../../src/copy/mod.rs"]
pub mod copy;

#[path = "../copy_kernels/bytes.rs"]
mod bytes;
#[path = "../copy_kernels/edges.rs"]
mod edges;
#[path = "../copy_kernels/subject.rs"]
mod subject;

use subject::Subject;

fn main() {
    println!("best copy routine: {}", copy::find(None).name());
    for subject in Subject::all() {
        bytes::check_writes(subject);
        bytes::check_reads(subject);
        edges::check(subject);
        println!("ok: {}", subject.name());
    }
    copy::full_fence();
}
