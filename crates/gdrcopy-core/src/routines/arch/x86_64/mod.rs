//! The copy routines and the fences of x86-64.
//!
//! The order in which routines are preferred was measured (one H200 on PCIe Gen5 x16, an AVX-512 Xeon, BAR1
//! write-combined). AVX-512 reads 64 KiB at 1.02 GB/s, AVX2 at 0.82, SSE4.1 at 0.67. Plain loads never overlap and
//! reach 0.06. In bursts of small writes, the routines' times differ several-fold; in large writes, by a few percent.
//!
//! Only Intel's AVX-512 was measured. AMD's Zen 4 splits each 64-byte load into two. The effect on reads of
//! write-combining memory was not measured, so CPUs of other makers get AVX2 unless AVX-512 is asked for.
//!
//! Stores are plain. The mapping's type makes the CPU combine them like non-temporal stores, so large copies run at the
//! same rate with either. In a burst of small writes, the CPU accepts more plain stores before it stalls: 16 writes of
//! 256 bytes took 24 ns each by plain stores, and 90 ns by non-temporal stores.

mod avx2;
mod avx512;
pub(crate) mod fence;
mod prefetch;
mod sse41;

use core::arch::x86_64::__cpuid;
use core::ptr;
use std::is_x86_feature_detected;

use crate::routines::instructions::Work;
use crate::routines::portable;
use crate::routines::routine::{Item, Routine};
use crate::routines::shape::Shaped;

static AVX512: Routine =
    Routine { name: "avx512", write: avx512::write, write_one: avx512::write_one, read: avx512::read };

static AVX2: Routine = Routine { name: "avx2", write: avx2::write, write_one: avx2::write_one, read: avx2::read };

static SSE41: Routine = Routine { name: "sse41", write: sse41::write, write_one: sse41::write_one, read: sse41::read };

/// The properties of a CPU that decide which routines it gets.
struct Cpu {
    sse41: bool,
    avx2: bool,
    /// True if the CPU has AVX-512 F and BW.
    avx512: bool,
    intel: bool,
}

impl Cpu {
    #[inline(never)]
    fn detect() -> Self {
        Cpu {
            sse41: is_x86_feature_detected!("sse4.1"),
            avx2: is_x86_feature_detected!("avx2"),
            avx512: is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw"),
            intel: maker().as_flattened() == b"GenuineIntel",
        }
    }
}

/// Returns the name of the CPU's maker, such as "GenuineIntel", in three parts of four bytes.
#[allow(unused_unsafe, reason = "CPUID became safe to call after Rust 1.89")]
fn maker() -> [[u8; 4]; 3] {
    // SAFETY: every x86-64 CPU has CPUID.
    let leaf = unsafe { __cpuid(0) };
    [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes)
}

/// Returns the routines that this CPU can run, best first. If Intel did not make the CPU, AVX-512 comes last.
pub fn supported() -> impl Iterator<Item = &'static Routine> {
    supported_by(&Cpu::detect())
}

fn supported_by(cpu: &Cpu) -> impl Iterator<Item = &'static Routine> + use<> {
    [
        (cpu.avx512 && cpu.intel, &AVX512),
        (cpu.avx2, &AVX2),
        (cpu.sse41, &SSE41),
        (true, &portable::ROUTINE),
        (cpu.avx512 && !cpu.intel, &AVX512),
    ]
    .into_iter()
    .filter_map(|(runs, routine)| runs.then_some(routine))
}

/// Runs the loop `W` by `routine`'s instructions. Returns `None` if the routine is not specific to this architecture.
///
/// # Safety
/// The contract of [`Work::run`], and the CPU must be able to run the routine.
#[inline(always)]
pub(crate) unsafe fn run<W: Work>(
    routine: &Routine,
    shape: impl Shaped,
    count: usize,
    item: impl Fn(usize) -> Item,
) -> Option<bool> {
    // SAFETY: contract of this function: the CPU can run the routine, and so the instructions of its module.
    unsafe {
        if ptr::eq(routine, &AVX512) {
            Some(avx512::run::<W>(shape, count, item))
        } else if ptr::eq(routine, &AVX2) {
            Some(avx2::run::<W>(shape, count, item))
        } else if ptr::eq(routine, &SSE41) {
            Some(sse41::run::<W>(shape, count, item))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(cpu: &Cpu) -> Vec<&'static str> {
        supported_by(cpu).map(Routine::name).collect()
    }

    #[test]
    fn avx512_is_first_on_intel_and_last_elsewhere() {
        let intel = Cpu { sse41: true, avx2: true, avx512: true, intel: true };
        assert_eq!(names(&intel), ["avx512", "avx2", "sse41", "portable"]);
        let other = Cpu { intel: false, ..intel };
        assert_eq!(names(&other), ["avx2", "sse41", "portable", "avx512"]);
    }

    #[test]
    fn maker_is_that_which_linux_reports() {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").expect("cpuinfo");
        let maker = String::from_utf8_lossy(maker().as_flattened()).into_owned();
        assert!(cpuinfo.contains(&format!(": {maker}\n")), "{maker}");
        assert_eq!(Cpu::detect().intel, maker == "GenuineIntel");
    }
}
