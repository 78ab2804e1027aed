//! Accesses a pool and its memory from several threads. `ci/scripts/check-threads.sh` runs it under ThreadSanitizer.
#![forbid(unsafe_code)]

use std::thread;

use gdrcopy::memory::CudaAllocator;
use gdrcopy::{Gdr, Mapped, Pool, PoolBuffer, Result, Words};

const THREADS: u64 = 4;
const ROUNDS: u64 = 200;
/// The number of words that all threads read and write.
const WORDS: u64 = 64;

struct Shared {
    pool: Pool,
    words: PoolBuffer,
    large: PoolBuffer,
}

fn main() -> Result<()> {
    let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
    let shared = Shared {
        words: pool.alloc_zeroed(8 * WORDS as usize + 64 * THREADS as usize)?,
        large: pool.alloc(4 << 20)?,
        pool,
    };
    // The threads return their results instead of locking a shared list, because ThreadSanitizer does not see the locks
    // of the standard library, which was built without it.
    let results = thread::scope(|scope| {
        let shared = &shared;
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            threads.push(scope.spawn(move || run(shared, thread)));
        }
        let mut results = Vec::new();
        for thread in threads {
            results.push(thread.join().expect("no panic"));
        }
        results
    });
    for kept in results {
        drop(kept?); // This thread frees buffers that other threads have allocated.
    }
    Ok(())
}

/// Makes the accesses of one thread, and returns the buffers that it has kept.
fn run(shared: &Shared, thread: u64) -> Result<Vec<PoolBuffer>> {
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        access(shared, thread, round, &mut kept)?;
    }
    Ok(kept)
}

/// Makes each kind of access once, and large copies in some rounds. In memory that other threads access at the
/// same time, it writes only words.
fn access(shared: &Shared, thread: u64, round: u64, kept: &mut Vec<PoolBuffer>) -> Result<()> {
    let number = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ thread;
    let offset = 8 * (number % WORDS) as usize;
    let word = shared.words.word::<u64>(offset)?;
    word.store(number);
    word.load();
    shared.words.write(offset, &number.to_ne_bytes())?;
    shared.words.read(offset, &mut [0; 8])?;
    let mut batch = shared.words.batch()?;
    batch.store(word, round);
    batch.write(8 * WORDS as usize + 64 * thread as usize, &[thread as u8; 64])?;
    batch.commit();
    shared.words.read_many(&mut [(offset / 2, &mut [0; 100])])?;
    let words = (0..WORDS as usize).map(|at| shared.words.word::<u64>(8 * at));
    let words: Words<'_, u64> = words.collect::<Result<_>>()?;
    words.load_all(&mut [0; WORDS as usize]);

    let buffer = shared.pool.alloc(1 + number as usize % 70_000)?;
    match number % 3 {
        0 => kept.push(buffer),
        1 => drop(kept.pop()),
        _ => {}
    }
    if round % 20 == 0 {
        shared.pool.trim()?;
        shared.pool.report()?;
    }
    if thread == 0 && round % 50 == 0 {
        let mut bytes = vec![thread as u8; 2 << 20];
        shared.large.write(0, &bytes)?;
        shared.large.read(1 << 20, &mut bytes)?;
    }
    Ok(())
}
