//! The features of the CPU and the operating system.

use core::arch::asm;
use core::ffi::c_ulong;

// <linux/auxvec.h> and <asm/hwcap.h>.
const AT_HWCAP: c_ulong = 16;
const AT_HWCAP3: c_ulong = 29;
const HWCAP_CPUID: c_ulong = 1 << 11;
const HWCAP3_LS64: c_ulong = 1 << 3;

unsafe extern "C" {
    /// Entry `kind` of the vector that the kernel passes to a program, 0 if it has none.
    safe fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Returns whether programs can use LD64B and ST64B.
pub(super) fn has_ls64() -> bool {
    getauxval(AT_HWCAP3) & HWCAP3_LS64 != 0 && id_register_has_ls64()
}

/// Returns whether the ID register, as the kernel emulates it, shows LS64. A kernel that does not
/// enable the instructions hides them there.
fn id_register_has_ls64() -> bool {
    if getauxval(AT_HWCAP) & HWCAP_CPUID == 0 {
        return false;
    }
    let isar1: u64;
    // SAFETY: with HWCAP_CPUID set, programs may read the register.
    unsafe {
        asm!(
            "mrs {}, id_aa64isar1_el1",
            out(reg) isar1,
            options(nostack, preserves_flags, nomem, pure)
        );
    }
    isar1 >> 60 != 0
}
