//! The checks of `gdrcopy/tests/copy_routines` as one single-threaded program, for `run.sh`.
//!
//! Debian 12's qemu-user hangs when a program for these machines creates a thread, which rules out
//! the test harness of Rust.

/// The part of the crate that is tested, at its path there.
#[path = "../../gdrcopy/src/copy"]
pub mod copy {
    pub mod routines;
    pub use routines::*;
}

#[path = "../../gdrcopy/tests/copy_routines/bytes.rs"]
mod bytes;
#[path = "../../gdrcopy/tests/copy_routines/edges.rs"]
mod edges;
#[path = "../../gdrcopy/tests/copy_routines/subject.rs"]
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
