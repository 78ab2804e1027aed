//! The copy routines on ordinary, cached memory, to see their cost apart from PCIe.
//!
//! `cargo bench --bench copy_routines [-- FILTER]`; names are direction/routine/bytes, as in
//! `read/avx2/64`. `gdrcopy compare` measures GPU memory, which counts in the end.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use gdrcopy_core::routines::{self, Routine};

/// One line, an unaligned size, one page, more than the L1 cache, more than the L2 cache. Words need no routine.
const SIZES: [usize; 5] = [64, 1000, 4 << 10, 64 << 10, 4 << 20];

/// Memory whose first byte starts a cache line.
struct Aligned(Vec<Line>);

#[derive(Clone)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "reached by address")] [u8; 64]);

impl Aligned {
    fn new(len: usize) -> Aligned {
        Aligned(vec![Line([0x5a; 64]); len.div_ceil(64)])
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    measure_all(&mut criterion);
    criterion.final_summary();
}

fn measure_all(criterion: &mut Criterion) {
    for (direction, copy) in
        [("write", routines::write_wc as unsafe fn(&Routine, *mut u8, *const u8, usize)), ("read", routines::read_wc)]
    {
        let mut group = criterion.benchmark_group(direction);
        group.warm_up_time(Duration::from_millis(300));
        group.measurement_time(Duration::from_secs(1));
        for routine in routines::supported() {
            for size in SIZES {
                measure(&mut group, routine, size, copy);
            }
        }
    }
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    routine: &'static Routine,
    size: usize,
    copy: unsafe fn(&Routine, *mut u8, *const u8, usize),
) {
    let (mut device, mut host) = (Aligned::new(size), Aligned::new(size));
    group.throughput(Throughput::Bytes(size as u64));
    group.bench_function(BenchmarkId::new(routine.name(), size), |bencher| {
        let (to, from) = (device.as_mut_ptr(), host.as_mut_ptr());
        // SAFETY: both sides hold `size` bytes in whole lines, and `supported` gave the routine out.
        bencher.iter(|| unsafe { copy(routine, black_box(to), black_box(from), size) });
    });
}
