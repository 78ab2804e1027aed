//! Times batches and gathers of random lines, as medians in ns per item. `examples/gdrx/speed.c` does the same by libgdrx
//! and by loops in plain C.
#![forbid(unsafe_code)]

use std::time::Instant;

use gdrcopy::memory::CudaAllocator;
use gdrcopy::{Gdr, Mapped, MappedSlice, Pool, Result};

const SIZE: usize = 32 << 20;
const LINE: usize = 64;
const RUNS: usize = 401;

fn main() -> Result<()> {
    let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
    let buffer = pool.alloc_zeroed(SIZE)?;
    let memory = buffer.as_slice();
    // The first access to a page takes longer.
    for offset in (0..SIZE).step_by(4096) {
        let word = memory.word::<u8>(offset)?;
        word.store(word.load());
    }
    println!("{:8} {:>6} {:>6} {:>9} {:>9}", "", "bytes", "items", "at a time", "by array");
    gathers::<8>(memory, 64)?;
    gathers::<16>(memory, 64)?;
    gathers::<64>(memory, 64)?;
    gathers::<64>(memory, 256)?;
    batches::<8>(memory, 16)?;
    batches::<8>(memory, 64)?;
    batches::<64>(memory, 16)?;
    batches::<64>(memory, 64)?;
    batches::<64>(memory, 256)
}

/// `MappedSlice::read_many` and `Array::gather`.
fn gathers<const N: usize>(memory: MappedSlice<'_>, count: usize) -> Result<()> {
    let array = memory.array::<[u8; N]>(0, SIZE / N)?;
    let mut values = vec![[0; N]; count];
    let mut times = [Vec::new(), Vec::new()];
    let mut random = 1;
    for _ in 0..RUNS {
        let lines = random_lines(count, &mut random);
        let mut items: Vec<(usize, &mut [u8])> = Vec::new();
        for (line, value) in lines.iter().zip(&mut values) {
            items.push((line * LINE, value));
        }
        memory.flush()?;
        let begin = Instant::now();
        memory.read_many(&mut items)?;
        times[0].push(begin.elapsed().as_nanos());

        let indexes: Vec<usize> = random_lines(count, &mut random).into_iter().map(|line| line * LINE / N).collect();
        memory.flush()?;
        let begin = Instant::now();
        array.gather(&indexes, &mut values)?;
        times[1].push(begin.elapsed().as_nanos());
    }
    print("gather", N, count, times);
    Ok(())
}

/// `Batch::write` and `Array::scatter`.
fn batches<const N: usize>(memory: MappedSlice<'_>, count: usize) -> Result<()> {
    let array = memory.array::<[u8; N]>(0, SIZE / N)?;
    let values = vec![[7; N]; count];
    let mut times = [Vec::new(), Vec::new()];
    let mut random = 1;
    for _ in 0..RUNS {
        let lines = random_lines(count, &mut random);
        memory.flush()?;
        let begin = Instant::now();
        let mut batch = memory.batch()?;
        for (line, value) in lines.iter().zip(&values) {
            batch.write(line * LINE, value)?;
        }
        batch.commit();
        times[0].push(begin.elapsed().as_nanos());

        let indexes: Vec<usize> = random_lines(count, &mut random).into_iter().map(|line| line * LINE / N).collect();
        memory.flush()?;
        let begin = Instant::now();
        array.scatter(&indexes, &values)?;
        times[1].push(begin.elapsed().as_nanos());
    }
    print("batch", N, count, times);
    Ok(())
}

/// Numbers of lines, by the xorshift generator of Marsaglia.
fn random_lines(count: usize, state: &mut u64) -> Vec<usize> {
    let mut lines = Vec::with_capacity(count);
    for _ in 0..count {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        lines.push((*state >> 16) as usize % (SIZE / LINE));
    }
    lines
}

fn print(what: &str, size: usize, count: usize, times: [Vec<u128>; 2]) {
    let [at_a_time, by_array] = times.map(|mut times| {
        times.sort_unstable();
        times[RUNS / 2] as f64 / count as f64
    });
    println!("{what:8} {size:>6} {count:>6} {at_a_time:>9.1} {by_array:>9.1}");
}
