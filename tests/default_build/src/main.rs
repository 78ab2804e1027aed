//! `default-build ACCESS COUNT`: calls the function ACCESS of the module `counted`, COUNT times. Each call accesses GPU
//! memory. `ci/scripts/count-instructions.sh` counts the function's instructions.
#![forbid(unsafe_code)]

mod counted;

use std::env;
use std::hint::black_box;

use gdrcopy::memory::CudaAllocator;
use gdrcopy::{Gdr, Mapped, Pool, Word, Words};

/// The number of items of a batch and of a gather.
const ITEMS: usize = 16;
/// The bytes from one item to the next. No two items are in one page.
const STRIDE: usize = 4096 + 64;

fn main() -> gdrcopy::Result<()> {
    let mut args = env::args().skip(1);
    let access = args.next().expect("an access");
    let count: usize = args.next().expect("a count").parse().expect("a number");

    let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
    let buffer = pool.alloc_zeroed(1 << 20)?;
    let memory = buffer.as_slice();

    let word: Word<'_, u64> = memory.word(0)?;
    let owned = pool.word(0_u64)?;
    let words: [Word<'_, u64>; ITEMS] = std::array::from_fn(|i| memory.word(i * STRIDE).expect("a word"));
    let gathered: Words<'_, u64> = words.into_iter().collect();
    let array = memory.array::<u64>(0, 1024)?;
    let rows = memory.array::<[u8; 64]>(0, ITEMS * STRIDE / 64)?;
    let indexes = places().map(|place| place / 64);

    let mut line = [1; 64];
    let mut lines = [[0; 64]; ITEMS];
    for i in 0..count {
        // The compiler must not know the offset, because then it could leave out the checks of the offset.
        let at = black_box(64 * (i % 64));
        match &*access {
            "word_store" => counted::word_store(word, i as u64),
            "word_load" => drop(black_box(counted::word_load(word))),
            "owned_word_store" => counted::owned_word_store(&owned, i as u64),
            "make_word_and_load" => drop(black_box(counted::make_word_and_load(memory, at)?)),
            "slice_write_8" => counted::slice_write_8(memory, at, &[1; 8])?,
            "slice_write_64" => counted::slice_write_64(memory, at, &line)?,
            "slice_read_64" => counted::slice_read_64(memory, at, &mut line)?,
            "buffer_write_64" => counted::buffer_write_64(&buffer, at, &line)?,
            "array_set" => counted::array_set(array, at / 8, 1)?,
            "batch_of_lines" => counted::batch_of_lines(memory, &places(), &line)?,
            "batch_of_words" => counted::batch_of_words(memory, &words, 1)?,
            "write_many_of_lines" => counted::write_many_of_lines(memory, &places().map(|at| (at, &line[..])))?,
            "scatter_of_lines" => counted::scatter_of_lines(rows, &indexes, &lines)?,
            "array_gather_of_lines" => counted::array_gather_of_lines(rows, &indexes, &mut lines)?,
            "gather_of_words" => counted::gather_of_words(&gathered, &mut [0; ITEMS]),
            "gather_of_lines" => {
                let mut offset = 0;
                let mut items = lines.each_mut().map(|line| {
                    offset += STRIDE;
                    (offset, &mut line[..])
                });
                counted::gather_of_lines(memory, &mut items)?;
            }
            _ => panic!("unknown access: {access}"),
        }
    }
    Ok(())
}

/// Returns the offsets of the items of batches and gathers.
fn places() -> [usize; ITEMS] {
    std::array::from_fn(|i| i * STRIDE)
}
