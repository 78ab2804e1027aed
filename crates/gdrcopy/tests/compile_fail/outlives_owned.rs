use std::sync::{Arc, OnceLock};

use gdrcopy::memory::{OwnedMapping, RawMemory};
use gdrcopy::owned::{OwnedArray, OwnedSlice, OwnedWord, View};
use gdrcopy::{Array, Mapped, MappedSlice, Mapping, Result, Word, Words};

fn word(owned: OwnedWord<u32>) -> Word<'static, u32> {
    owned.view() //~ E0515
}

fn array(owned: OwnedArray<u32>) -> Array<'static, u32> {
    owned.view() //~ E0515
}

fn slice(owned: OwnedSlice) -> MappedSlice<'static> {
    owned.as_slice() //~ E0515
}

fn word_used_later(owned: OwnedWord<u32>) -> u32 {
    let word = owned.view();
    drop(owned); //~ E0505
    word.load()
}

fn slice_kept(mapping: Arc<Mapping>) -> Option<u32> {
    let mut kept = None;
    OwnedWord::<u32>::new(mapping, |memory| {
        kept = Some(memory); //~ E0521
        memory.word(0)
    });
    kept?.word(0).ok().map(Word::load)
}

fn slice_kept_for_ever(mapping: Arc<Mapping>) {
    static KEPT: OnceLock<MappedSlice<'static>> = OnceLock::new();
    let _ = OwnedWord::<u32>::new(mapping, |memory| {
        KEPT.set(memory); //~ E0521
        memory.word(0)
    });
}

fn words_of_owned(owned: OwnedArray<u32>) -> Result<Words<'static, u32>> {
    let view = owned.view();
    (0..4).map(move |i| view.word(i)).collect() //~ E0515
}

fn memory_taken_back(mapping: OwnedMapping<RawMemory>) -> Result<u32> {
    let word = mapping.word::<u32>(0)?;
    drop(mapping.into_memory()); //~ E0505
    Ok(word.load())
}

struct Keeps(Word<'static, u32>);

impl View for Keeps { //~ E0277
}
