//! Finds masked loads and stores of AVX-512 by stepping through copies one instruction at a time.
//!
//! A masked access that reaches into a page that is inaccessible, or was never accessed, does not
//! fault if its mask excludes that part. But the CPU detects that in microcode, which takes far
//! longer than the rest of a small copy. So no masked access of a copy may cross a page.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{SIGTRAP, siginfo_t, ucontext_t};

use crate::edges::LonePage;
use crate::routines::{self, Item, Shape};
use crate::steps::{handle, single_step};
use crate::subject::read;

/// The size in bytes of the smallest pages of x86-64.
const SMALLEST_PAGE: usize = 4096;
const LINE: usize = 64;

/// `on_step` sets this if the next instruction makes a masked access.
static IS_MASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_step(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context, in which RIP points to an instruction. The instruction has at least six
    // bytes if it begins with 0x62, the first byte of EVEX, which is the prefix of AVX-512 instructions.
    let [map, masking, opcode, operands] = unsafe {
        let next = (*context.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize];
        let next = ptr::with_exposed_provenance::<u8>(next as usize);
        if *next != 0x62 {
            return;
        }
        [1, 3, 4, 5].map(|n| *next.add(n))
    };
    let is_move = map & 7 == 1 && matches!(opcode, 0x10 | 0x11 | 0x28 | 0x29 | 0x6f | 0x7f);
    let is_of_memory = operands >> 6 != 3;
    if is_move && is_of_memory && masking & 7 != 0 {
        IS_MASKED.store(true, Ordering::Relaxed);
    }
}

/// Returns whether the copy makes masked accesses.
fn is_masked(copy: impl FnOnce()) -> bool {
    IS_MASKED.store(false, Ordering::Relaxed);
    // SAFETY: `check` has installed the handler.
    unsafe { single_step(copy) };
    IS_MASKED.load(Ordering::Relaxed)
}

/// Returns whether an access of 64 bytes at this address crosses a page.
fn crosses_page(address: *const u8) -> bool {
    address.addr() % SMALLEST_PAGE > SMALLEST_PAGE - LINE
}

/// The offset in a cache line of device memory and the size of each copy to check. Each copy has one partial line.
const COPIES: [(usize, usize); 7] = [(0, 3), (4, 3), (61, 3), (0, 63), (1, 63), (0, 200), (56, 200)];

/// Steps through copies at and near the edges of pages, on the host side and on the device side. Checks that a copy
/// makes masked accesses unless they would cross a page.
pub(crate) fn check() {
    let Some(routine) = routines::supported().find(|routine| routine.name() == "avx512") else {
        return;
    };
    handle(SIGTRAP, on_step);
    let (host_page, device_page) = (LonePage::new(), LonePage::new());
    for (offset, len) in COPIES {
        for line in [LINE, SMALLEST_PAGE - LINE] {
            for before_page in [0, 1, 31, 63, 64, 100, 199, 250] {
                let host = host_page.start().wrapping_add(2 * SMALLEST_PAGE - before_page);
                let device = device_page.start().wrapping_add(line + offset);
                let case = format!("{len} bytes at {device:p} and {host:p}");

                let part = if offset == 0 { host.wrapping_add(len - len % LINE) } else { host.wrapping_sub(offset) };
                // SAFETY: the `len` bytes at `host` and at `device` lie inside `host_page` and `device_page`.
                let is_read_masked = is_masked(|| unsafe { read(routine, host, device, len) });
                assert_eq!(is_read_masked, !crosses_page(part), "read of {case}");

                let last = (len - 1) / LINE * LINE;
                let crosses = crosses_page(host.wrapping_add(last)) || crosses_page(device.wrapping_add(last));
                let item = |_| Item { dst: device, src: host, len };
                let is_write_masked = is_masked(|| {
                    // SAFETY: the `len` bytes at `host` and at `device` lie inside `host_page` and `device_page`.
                    unsafe { routines::write_many_unfenced(routine, Shape::MIXED, 1, item) };
                });
                assert_eq!(is_write_masked, !crosses, "write of {case}");
            }
        }
    }
}
