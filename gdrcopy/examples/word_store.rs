//! `word_store COUNT`: stores a word in GPU memory COUNT times. `scripts/ci/count-instructions.sh` counts the
//! instructions of a store.

#[allow(dead_code, reason = "other examples call the rest")]
mod cuda;

use gdrcopy::{Gdr, MapFlag, Mapped, PinFlags, Word};

const LEN: usize = 64 << 10;

/// What is counted, and not inlined for that reason.
#[inline(never)]
fn store(word: Word<'_, u32>, value: u32) {
    word.store(value);
}

fn main() -> Result<(), gdrcopy::Error> {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let address = cuda::Cuda::new().alloc(LEN);
    let gdr = Gdr::open()?;
    // SAFETY: the memory is not freed before the program ends, and nothing else uses it.
    let pin = unsafe { gdr.pin(address, LEN, PinFlags::DEFAULT) }?;
    let mapping = pin.map(LEN, MapFlag::Default)?;
    let word = mapping.word(0)?;
    for i in 0..count.unwrap_or(1) {
        store(word, i);
    }
    Ok(())
}
