//! The features of the CPU and the operating system, from CPUID and XGETBV.

use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// The instruction sets that routines need.
#[derive(Debug, PartialEq)]
pub(super) struct Cpu {
    pub(super) sse41: bool,
    pub(super) avx2: bool,
    /// AVX-512 F and BW.
    pub(super) avx512: bool,
    /// Made by Intel.
    pub(super) intel: bool,
}

impl Cpu {
    pub(super) fn detect() -> Self {
        Words::read().decode()
    }
}

/// The words of CPUID and XGETBV that describe the CPU.
struct Words {
    /// EBX, EDX and ECX of leaf 0.
    vendor: [u32; 3],
    leaf1_ecx: u32,
    leaf7_ebx: u32,
    /// The register states that the operating system saves; 0 if it does not say.
    xcr0: u64,
}

const OSXSAVE: u32 = 27;

const INTEL: [u32; 3] = [u32::from_le_bytes(*b"Genu"), u32::from_le_bytes(*b"ineI"), u32::from_le_bytes(*b"ntel")];

impl Words {
    #[allow(unused_unsafe, reason = "CPUID became safe to call after Rust 1.89")]
    fn read() -> Self {
        // SAFETY: every x86-64 CPU has CPUID; leaf 7 is read only where leaf 0 announces it, and
        // OSXSAVE says that XGETBV may be used.
        unsafe {
            let leaf0 = __cpuid(0);
            let leaf1_ecx = __cpuid(1).ecx;
            let leaf7_ebx = if leaf0.eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
            let xcr0 = if bit(leaf1_ecx, OSXSAVE) { xcr0() } else { 0 };
            Words { vendor: [leaf0.ebx, leaf0.edx, leaf0.ecx], leaf1_ecx, leaf7_ebx, xcr0 }
        }
    }

    fn decode(&self) -> Cpu {
        // XMM and YMM; for ZMM also the opmasks, the upper halves of ZMM0 to 15, and ZMM16 to 31.
        // Registers that the system does not save are lost at the next thread switch.
        let saves_ymm = self.xcr0 & 0b0000_0110 == 0b0000_0110;
        let saves_zmm = self.xcr0 & 0b1110_0110 == 0b1110_0110;
        let (avx512f, avx512bw) = (bit(self.leaf7_ebx, 16), bit(self.leaf7_ebx, 30));
        Cpu {
            sse41: bit(self.leaf1_ecx, 19),
            avx2: bit(self.leaf1_ecx, 28) && bit(self.leaf7_ebx, 5) && saves_ymm,
            avx512: avx512f && avx512bw && saves_zmm,
            intel: self.vendor == INTEL,
        }
    }
}

fn bit(word: u32, n: u32) -> bool {
    word >> n & 1 == 1
}

/// # Safety
/// CPUID must announce OSXSAVE.
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: OSXSAVE announces XGETBV: contract of this function. Register 0 always exists.
    unsafe { _xgetbv(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Words = Words { vendor: INTEL, leaf1_ecx: u32::MAX, leaf7_ebx: u32::MAX, xcr0: u64::MAX };
    const EVERYTHING: Cpu = Cpu { sse41: true, avx2: true, avx512: true, intel: true };

    #[test]
    fn every_state_bit_of_avx512_is_required() {
        for state in 0..64 {
            let words = Words { xcr0: !(1 << state), ..ALL };
            let expected =
                Cpu { avx2: ![1, 2].contains(&state), avx512: ![1, 2, 5, 6, 7].contains(&state), ..EVERYTHING };
            assert_eq!(words.decode(), expected, "without bit {state} of XCR0");
        }
    }

    #[test]
    fn every_word_of_the_vendor_is_compared() {
        for n in 0..3 {
            let mut vendor = INTEL;
            vendor[n] ^= 1;
            let expected = Cpu { intel: false, ..EVERYTHING };
            assert_eq!(Words { vendor, ..ALL }.decode(), expected, "word {n}");
        }
    }

    #[test]
    fn every_feature_bit_is_required() {
        for n in 0..32 {
            let without = !(1 << n);
            let expected = Cpu { sse41: n != 19, avx2: n != 28, ..EVERYTHING };
            assert_eq!(Words { leaf1_ecx: without, ..ALL }.decode(), expected, "leaf 1 ECX {n}");
            let expected = Cpu { avx2: n != 5, avx512: ![16, 30].contains(&n), ..EVERYTHING };
            assert_eq!(Words { leaf7_ebx: without, ..ALL }.decode(), expected, "leaf 7 EBX {n}");
        }
    }

    #[test]
    fn detection_agrees_with_the_standard_library_and_linux() {
        let cpu = Cpu::detect();
        assert_eq!(cpu.sse41, std::is_x86_feature_detected!("sse4.1"));
        assert_eq!(cpu.avx2, std::is_x86_feature_detected!("avx2"));
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").expect("cpuinfo");
        assert_eq!(cpu.intel, cpuinfo.contains("GenuineIntel"));
        let avx512f = std::is_x86_feature_detected!("avx512f");
        assert_eq!(cpu.avx512, avx512f && std::is_x86_feature_detected!("avx512bw"));
    }
}
