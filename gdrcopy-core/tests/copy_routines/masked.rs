//! Masked loads and stores of AVX-512, seen by stepping through copies one instruction at a time.
//!
//! A masked access that reaches into a page that is inaccessible, or was never accessed, does not
//! fault if its mask excludes that part. But the CPU detects that in microcode, which takes far
//! longer than the rest of a small copy. So no masked access of a copy may cross a page.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{SIGTRAP, greg_t, siginfo_t, ucontext_t};

use crate::edges::{LonePage, PAGE};
use crate::steps::{Handled, single_step};
use crate::subject::{read, routines, write};

/// The size of the smallest pages.
const SMALLEST_PAGE: usize = 4096;
const WIDTH: usize = 64;

/// Masked accesses, and those of them that crossed a page.
static MASKED: AtomicUsize = AtomicUsize::new(0);
static CROSSING: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_step(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context of the thread.
    let registers = unsafe { &(*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    // SAFETY: RIP points to the next instruction.
    if let Some(address) = unsafe { masked_address(registers) } {
        MASKED.fetch_add(1, Ordering::Relaxed);
        let crosses = address % SMALLEST_PAGE > SMALLEST_PAGE - WIDTH;
        CROSSING.fetch_add(crosses.into(), Ordering::Relaxed);
    }
}

/// The address that the next instruction loads from or stores to under a mask, if it is a move of 64 bytes that
/// does so.
///
/// # Safety
/// RIP must point to an instruction.
unsafe fn masked_address(registers: &[greg_t; 23]) -> Option<usize> {
    let code = ptr::with_exposed_provenance::<u8>(registers[libc::REG_RIP as usize] as usize);
    // SAFETY: each byte is read only if those before it show that the instruction is longer.
    let byte = |n| unsafe { usize::from(*code.add(n)) };
    let is_evex = byte(0) == 0x62 && byte(1) & 7 == 1;
    let is_move = || matches!(byte(4), 0x10 | 0x11 | 0x28 | 0x29 | 0x6f | 0x7f);
    let (mask, length) = (|| byte(3) & 7, || byte(3) >> 5 & 3);
    let (mode, rm) = (|| byte(5) >> 6, || byte(5) & 7);
    if !is_evex || !is_move() || mask() == 0 || mode() == 3 {
        return None;
    }
    assert_eq!(length(), 2, "a masked move that is not of 64 bytes");

    // The prefix holds bit 3 of register numbers, inverted, B of the base, X of the index.
    let high = |bit: u32| (!byte(1) >> bit & 1) << 3;
    let register = |number: usize| registers[GENERAL[number] as usize] as usize;
    let has_sib = rm() == 4;
    let (base, index) = if has_sib {
        let (base, index) = (byte(6) & 7 | high(5), byte(6) >> 3 & 7 | high(6));
        let scaled = (index != 4).then(|| register(index) << (byte(6) >> 6));
        (base, scaled.unwrap_or(0))
    } else {
        (rm() | high(5), 0)
    };
    assert!(mode() != 0 || base & 7 != 5, "a masked move without base");
    let at = 6 + usize::from(has_sib);
    let displacement = match mode() {
        0 => 0,
        1 => byte(at) as i8 as isize * WIDTH as isize,
        _ => i32::from_le_bytes([0, 1, 2, 3].map(|n| byte(at + n) as u8)) as isize,
    };
    Some((register(base) + index).wrapping_add_signed(displacement))
}

/// The general registers by their numbers in instructions.
const GENERAL: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

#[repr(align(64))]
struct Lines([u8; 2048]);

/// Steps through copies whose host side starts, or ends, next to an inaccessible page.
pub(crate) fn check() {
    let _handled = Handled::by(SIGTRAP, on_step);
    let host = LonePage::new();
    let mut device = Box::new(Lines([0; 2048]));
    // Only this routine has masked accesses, and every step costs a signal.
    for routine in routines().filter(|routine| routine.name() == "avx512") {
        for len in [3, 63, 200] {
            for at in [0, 4, 63] {
                for gap in [0, 31, 70] {
                    // SAFETY: the host side lies inside the page, the device side in its lines.
                    unsafe {
                        let device = device.0.as_mut_ptr().add(at);
                        for host in [host.start().add(gap), host.start().add(PAGE - gap - len)] {
                            single_step(|| read(routine, host, device, len));
                            single_step(|| write(routine, device, host, len));
                        }
                    }
                    assert_eq!(
                        CROSSING.load(Ordering::Relaxed),
                        0,
                        "{}: a masked access across a page in a copy of {len} bytes, {at} past a \
                         line, {gap} from the edge of a page",
                        routine.name()
                    );
                }
            }
        }
    }
    let has_avx512 = is_x86_feature_detected!("avx512bw");
    assert_eq!(MASKED.load(Ordering::Relaxed) > 0, has_avx512);
}
