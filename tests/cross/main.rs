//! The checks of `gdrcopy/tests/copy_routines` as one single-threaded program, for `run.sh`.
//!
//! Debian 12's qemu-user hangs when a program for these machines creates a thread, which rules out
//! the test harness of Rust.

#[path = "../../gdrcopy/src/routines/mod.rs"]
pub mod routines;

#[path = "../../gdrcopy/tests/copy_routines/bytes.rs"]
mod bytes;
#[path = "../../gdrcopy/tests/copy_routines/edges.rs"]
mod edges;
#[path = "../../gdrcopy/tests/copy_routines/subject.rs"]
mod subject;

use subject::Subject;

fn main() {
    println!("best copy routine: {}", routines::best().name());
    for subject in Subject::all() {
        bytes::check_writes(subject);
        bytes::check_reads(subject);
        edges::check(subject);
        println!("ok: {}", subject.name());
    }
    routines::full_fence();
}
