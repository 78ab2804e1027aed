//! x86-64: the kernels, best first.
//!
//! The order is measured (one H200 on PCIe Gen5 x16, an AVX-512 Xeon, BAR1 write-combined):
//! AVX-512 reads 64 KiB at 1.02 GB/s, AVX2 at 0.82, SSE4.1 at 0.67; plain loads never overlap and reach
//! 0.06. Bursts of small writes differ several times, large writes by some percent.
//!
//! Only Intel's AVX-512 was measured. AMD's splits each 64-byte load into two on Zen 4, and nobody has
//! measured what that does to reads of write-combining memory: other CPUs get AVX2 unless asked.
//!
//! Stores are plain ones. The mapping's type has the CPU combine them, as it would non-temporal ones:
//! large copies run at the same rate with either. But of small writes in a row the CPU takes more in
//! plain stores before it stands still: 16 of 256 bytes took 24 ns each, not 90.

mod avx2;
mod avx512;
mod cpu;
pub(super) mod fence;
mod sse41;

pub(super) use cpu::Cpu;

use super::kernel::Kernel;
use super::loads::{self, StackLine};
use super::{LINE, portable, stores};

const AVX512: Kernel = Kernel {
    name: "avx512",
    runs: |cpu| cpu.avx512 && cpu.intel,
    write: avx512::write,
    read: avx512::read,
};

pub(super) static KERNELS: [&Kernel; 5] = [
    &AVX512,
    &Kernel {
        name: "avx2",
        runs: |cpu| cpu.avx2,
        write: avx2::write,
        read: avx2::read,
    },
    &Kernel {
        name: "sse41",
        runs: |cpu| cpu.sse41,
        write: sse41::write,
        read: sse41::read,
    },
    &portable::KERNEL,
    // Behind `portable`, which runs anywhere: only `GDRCOPY_ISA=avx512` selects it.
    &Kernel {
        runs: |cpu| cpu.avx512 && !cpu.intel,
        ..AVX512
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(cpu: &Cpu) -> Vec<&'static str> {
        let runs = KERNELS.iter().filter(|kernel| (kernel.runs)(cpu));
        runs.map(|kernel| kernel.name).collect()
    }

    #[test]
    fn avx512_is_first_on_intel_and_last_elsewhere() {
        let intel = Cpu {
            sse41: true,
            avx2: true,
            avx512: true,
            intel: true,
        };
        assert_eq!(names(&intel), ["avx512", "avx2", "sse41", "portable"]);
        let other = Cpu {
            intel: false,
            ..intel
        };
        assert_eq!(names(&other), ["avx2", "sse41", "portable", "avx512"]);
    }
}
