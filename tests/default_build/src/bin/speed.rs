//! Prints how long batches and gathers at random places take, as medians in ns per item. `examples/gdrx/speed.c`
//! measures the same by libgdrx and by loops in plain C.
#![forbid(unsafe_code)]

use std::time::Instant;

use gdrcopy::memory::CudaAllocator;
use gdrcopy::{Gdr, Mapped, MappedSlice, Pool, Result};

const SIZE: usize = 32 << 20;
const LINE: usize = 64;
const LARGEST: usize = 256;
const RUNS: usize = 201;
const COUNTS: [usize; 4] = [4, 16, 64, 256];

/// The sizes of items in bytes, and the offsets in a cache line at which they begin.
const SHAPES: [(usize, usize); 10] =
    [(8, 0), (16, 0), (32, 0), (64, 0), (24, 20), (60, 4), (100, 4), (16, 56), (128, 0), (256, 0)];

fn main() -> Result<()> {
    let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
    let buffer = pool.alloc_zeroed(SIZE)?;
    let memory = buffer.as_slice();
    // Accesses each page before the measurement, because the first access to a page takes longer.
    for offset in (0..SIZE).step_by(4096) {
        let word = memory.word::<u8>(offset)?;
        word.store(word.load());
    }
    let mut random = Random(1);
    println!("{:14} {:>6} {:>9} {:>11}", "", "items", "read_many", "write_many");
    for (size, place) in SHAPES {
        let shape = format!("{size} B at {place}");
        time(memory, &shape, &mut random, |random| (size, random.line() * LINE + place))?;
    }
    time(memory, "4 to 128 B", &mut random, |random| {
        (4 + 4 * random.below(32), random.line() * LINE + 4 * random.below(16))
    })?;
    println!("{:14} {:>6} {:>9} {:>11}", "", "items", "gather", "scatter");
    time_array::<8>(memory, &mut random)?;
    time_array::<64>(memory, &mut random)?;
    time_array::<128>(memory, &mut random)
}

/// Times `MappedSlice::read_many` and `MappedSlice::write_many`. `item` returns the size and offset of each item.
fn time(
    memory: MappedSlice<'_>,
    shape: &str,
    random: &mut Random,
    item: impl Fn(&mut Random) -> (usize, usize),
) -> Result<()> {
    for count in COUNTS {
        let mut values = vec![[7; LARGEST]; count];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            let mut items: Vec<(usize, &mut [u8])> = Vec::new();
            for value in &mut values {
                let (size, offset) = item(random);
                items.push((offset, &mut value[..size]));
            }
            memory.flush()?;
            let begin = Instant::now();
            memory.read_many(&mut items)?;
            times[0].push(begin.elapsed().as_nanos());

            let writes: Vec<(usize, &[u8])> = items.iter().map(|(offset, value)| (*offset, &**value)).collect();
            let begin = Instant::now();
            memory.write_many(&writes)?;
            times[1].push(begin.elapsed().as_nanos());
        }
        print(shape, count, times);
    }
    Ok(())
}

/// Times `Array::gather` and `Array::scatter` of elements of `N` bytes.
fn time_array<const N: usize>(memory: MappedSlice<'_>, random: &mut Random) -> Result<()> {
    let array = memory.array::<[u8; N]>(0, SIZE / N)?;
    for count in COUNTS {
        let mut values = vec![[7; N]; count];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            let indexes: Vec<usize> = (0..count).map(|_| random.line() * LINE / N).collect();
            memory.flush()?;
            let begin = Instant::now();
            array.gather(&indexes, &mut values)?;
            times[0].push(begin.elapsed().as_nanos());

            let begin = Instant::now();
            array.scatter(&indexes, &values)?;
            times[1].push(begin.elapsed().as_nanos());
        }
        print(&format!("array of {N} B"), count, times);
    }
    Ok(())
}

/// Marsaglia's xorshift generator of pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }

    /// Returns the number of a random cache line, but none of the last 8. An item that begins there may not fit.
    fn line(&mut self) -> usize {
        self.below(SIZE / LINE - 8)
    }
}

fn print(what: &str, count: usize, times: [Vec<u128>; 2]) {
    let [reads, writes] = times.map(|mut times| {
        times.sort_unstable();
        times[RUNS / 2] as f64 / count as f64
    });
    println!("{what:14} {count:>6} {reads:>9.1} {writes:>11.1}");
}
