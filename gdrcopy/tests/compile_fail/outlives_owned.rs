use std::sync::Arc;

use gdrcopy::owned::{OwnedArray, OwnedSlice, OwnedWord, View};
use gdrcopy::{Array, Mapped, MappedSlice, Mapping, Word};

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

struct Keeps(Word<'static, u32>);

impl View for Keeps { //~ E0277
}
