//! Masked loads and stores of AVX-512, seen by stepping through copies one instruction at a time.
//!
//! A masked access that reaches into a page that is inaccessible, or was never accessed, does not
//! fault if its mask excludes that part. But the CPU detects that in microcode, which takes far
//! longer than the rest of a small copy. So no masked access of a copy may cross a page.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{SIGTRAP, greg_t, siginfo_t, ucontext_t};

use crate::edges::LonePage;
use crate::routines::{self, Item, Shape};
use crate::steps::{Handled, single_step};
use crate::subject::{self, read, write};

/// The size of the smallest pages.
const SMALLEST_PAGE: usize = 4096;
const WIDTH: usize = 64;

/// The number of masked accesses, and of those that crossed a page.
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
    // SAFETY: RIP points to an instruction. After EVEX's first byte, it has six at least.
    let [_, extensions, _, masking, opcode, modrm] = unsafe {
        if *code != 0x62 {
            return None;
        }
        *code.cast::<[u8; 6]>()
    };
    let is_move = extensions & 7 == 1 && matches!(opcode, 0x10 | 0x11 | 0x28 | 0x29 | 0x6f | 0x7f);
    let mask = masking & 7;
    let mode = modrm >> 6;
    if !is_move || mask == 0 || mode == 3 {
        return None;
    }
    assert_eq!(masking >> 5 & 3, 2, "a masked move that is not of 64 bytes");

    // The prefix holds bit 3 of register numbers, inverted, B of the base, X of the index.
    let base_extension = (!extensions >> 5 & 1) << 3;
    let index_extension = (!extensions >> 6 & 1) << 3;
    let mut base = modrm & 7;
    let mut scaled_index = 0;
    // SAFETY: the mode and the base say how many bytes the instruction has. A base of 4 means that a SIB byte follows.
    let displacement = unsafe {
        let mut rest = code.add(6);
        if base == 4 {
            let sib = *rest;
            rest = rest.add(1);
            base = sib & 7;
            let index = sib >> 3 & 7 | index_extension;
            if index != 4 {
                scaled_index = general(registers, index) << (sib >> 6);
            }
        }
        match mode {
            0 => 0,
            1 => *rest.cast::<i8>() as isize * WIDTH as isize,
            _ => rest.cast::<i32>().read_unaligned() as isize,
        }
    };
    assert!(mode != 0 || base != 5, "a masked move without base");
    Some((general(registers, base | base_extension) + scaled_index).wrapping_add_signed(displacement))
}

/// The value of the general register with this number.
fn general(registers: &[greg_t; 23], number: u8) -> usize {
    registers[GENERAL[usize::from(number)] as usize] as usize
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

/// Steps through copies whose host side, and whose device side, start or end next to an inaccessible page.
pub(crate) fn check() {
    let _handled = Handled::by(SIGTRAP, on_step);
    let host = LonePage::new();
    let device = LonePage::new();
    // Only this routine has masked accesses, and every step costs a signal.
    for routine in subject::routines() {
        if routine.name() != "avx512" {
            continue;
        }
        for len in [3, 63, 200] {
            for at in [0, 4, 63] {
                for gap in [0, 31, 70] {
                    for host in host.ends(len, gap) {
                        for device in device.ends(len, at) {
                            // SAFETY: both sides lie inside their pages.
                            unsafe {
                                single_step(|| read(routine, host, device, len));
                                single_step(|| write(routine, device, host, len));
                                single_step(|| {
                                    let item = |_| Item { dst: device, src: host, len };
                                    routines::write_many_unfenced(routine, Shape::MIXED, 1, item);
                                });
                            }
                        }
                    }
                    assert_eq!(
                        CROSSING.load(Ordering::Relaxed),
                        0,
                        "{}: a masked access across a page in a copy of {len} bytes, {at} and {gap} \
                         from the edges of pages",
                        routine.name()
                    );
                }
            }
        }
    }
    let has_avx512 = is_x86_feature_detected!("avx512bw");
    assert_eq!(MASKED.load(Ordering::Relaxed) > 0, has_avx512);
}
