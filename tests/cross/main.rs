//! Makes the checks of `crates/gdrcopy-core/tests/copy_routines` in one single-threaded program, for `run.sh`.
//!
//! Rust's test harness cannot be used, because it creates threads. A program for AArch64 or POWER that creates a thread
//! hangs in Debian 12's qemu-user.

#[path = "../../crates/gdrcopy-core/src/routines/mod.rs"]
pub mod routines;

#[path = "../../crates/gdrcopy-core/tests/copy_routines/bytes.rs"]
mod bytes;
#[path = "../../crates/gdrcopy-core/tests/copy_routines/edges.rs"]
mod edges;
#[path = "../../crates/gdrcopy-core/tests/copy_routines/gather.rs"]
mod gather;
#[path = "../../crates/gdrcopy-core/tests/copy_routines/subject.rs"]
mod subject;

use routines::{Item, Shape};

/// `run.sh` disassembles this function and checks its fences.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn probe_write(dst: &mut u32, src: &u32) {
    // SAFETY: both sides are references to 4 bytes.
    unsafe { routines::write_word((&raw mut *dst).cast(), (&raw const *src).cast(), 4) };
}

/// `run.sh` disassembles this function and checks its fences.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn probe_read(dst: &mut u32, src: &u32) {
    // SAFETY: both sides are references to 4 bytes.
    unsafe { routines::read_word((&raw mut *dst).cast(), (&raw const *src).cast(), 4) };
}

/// `run.sh` disassembles this function and checks its fences.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn probe_gather(dst: &mut [u8; 16], src: &[u8; 16]) {
    let item = Item { dst: dst.as_mut_ptr(), src: src.as_ptr(), len: 16 };
    // SAFETY: both sides are references to 16 bytes. The loads take whole blocks around `src`, inside its pages.
    unsafe { routines::gather(routines::best(), Shape::MIXED, 1, |_| item) };
}

fn main() {
    println!("best copy routine: {}", routines::best().name());
    for routine in subject::routines() {
        bytes::check(routine, subject::write);
        bytes::check(routine, subject::read);
        edges::check(routine);
        gather::check(routine);
        gather::check_fields(routine);
        println!("ok: {}", routine.name());
    }
    routines::full_fence();
    let mut written = 0;
    let mut read = 0;
    probe_write(&mut written, &1);
    probe_read(&mut read, &written);
    assert_eq!(read, 1);
    let mut gathered = [0; 16];
    probe_gather(&mut gathered, &[1; 16]);
    assert_eq!(gathered, [1; 16]);
}
