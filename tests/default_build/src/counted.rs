//! The functions whose instructions `ci/scripts/count-instructions.sh` counts. They are not inlined, so that callgrind
//! can find them.

use gdrcopy::owned::OwnedWord;
use gdrcopy::{Array, Mapped, MappedSlice, PoolBuffer, Result, Word, Words};

#[inline(never)]
pub fn word_store(word: Word<'_, u64>, value: u64) {
    word.store(value);
}

#[inline(never)]
pub fn word_load(word: Word<'_, u64>) -> u64 {
    word.load()
}

#[inline(never)]
pub fn owned_word_store(word: &OwnedWord<u64>, value: u64) {
    word.view().store(value);
}

#[inline(never)]
pub fn make_word_and_load(memory: MappedSlice<'_>, at: usize) -> Result<u64> {
    Ok(memory.word::<u64>(at)?.load())
}

#[inline(never)]
pub fn slice_write_8(memory: MappedSlice<'_>, at: usize, bytes: &[u8; 8]) -> Result<()> {
    memory.write(at, bytes)
}

#[inline(never)]
pub fn slice_write_64(memory: MappedSlice<'_>, at: usize, bytes: &[u8; 64]) -> Result<()> {
    memory.write(at, bytes)
}

#[inline(never)]
pub fn slice_read_64(memory: MappedSlice<'_>, at: usize, bytes: &mut [u8; 64]) -> Result<()> {
    memory.read(at, bytes)
}

#[inline(never)]
pub fn buffer_write_64(buffer: &PoolBuffer, at: usize, bytes: &[u8; 64]) -> Result<()> {
    buffer.write(at, bytes)
}

#[inline(never)]
pub fn array_set(array: Array<'_, u64>, index: usize, value: u64) -> Result<()> {
    array.set(index, value)
}

#[inline(never)]
pub fn batch_of_lines(memory: MappedSlice<'_>, places: &[usize; 16], line: &[u8; 64]) -> Result<()> {
    let mut batch = memory.batch()?;
    for &place in places {
        batch.write(place, line)?;
    }
    batch.commit();
    Ok(())
}

#[inline(never)]
pub fn batch_of_words(memory: MappedSlice<'_>, words: &[Word<'_, u64>; 16], value: u64) -> Result<()> {
    let mut batch = memory.batch()?;
    for &word in words {
        batch.store(word, value);
    }
    batch.commit();
    Ok(())
}

#[inline(never)]
pub fn write_many_of_lines(memory: MappedSlice<'_>, items: &[(usize, &[u8]); 16]) -> Result<()> {
    memory.write_many(items)
}

#[inline(never)]
pub fn scatter_of_lines(lines: Array<'_, [u8; 64]>, indexes: &[usize; 16], values: &[[u8; 64]; 16]) -> Result<()> {
    lines.scatter(indexes, values)
}

#[inline(never)]
pub fn array_gather_of_lines(
    lines: Array<'_, [u8; 64]>,
    indexes: &[usize; 16],
    values: &mut [[u8; 64]; 16],
) -> Result<()> {
    lines.gather(indexes, values)
}

#[inline(never)]
pub fn gather_of_words(words: &Words<'_, u64>, values: &mut [u64; 16]) {
    words.load_all(values);
}

#[inline(never)]
pub fn gather_of_lines(memory: MappedSlice<'_>, items: &mut [(usize, &mut [u8]); 16]) -> Result<()> {
    memory.read_many(items)
}
