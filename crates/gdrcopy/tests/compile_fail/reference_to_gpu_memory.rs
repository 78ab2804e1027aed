use std::sync::atomic::{AtomicU32, Ordering};

use gdrcopy::{MappedSlice, Mapping, Word};

fn dereferenced(mapping: &Mapping) -> &[u8] {
    mapping //~ E0308
}

fn borrowed(mapping: &Mapping) -> &[u8] {
    mapping.as_ref() //~ E0599
}

fn bytes<'m>(slice: MappedSlice<'m>) -> &'m [u8] {
    slice //~ E0308
}

fn byte(slice: MappedSlice<'_>) -> u8 {
    slice[0] //~ E0608
}

fn atomic<'m>(word: &'m Word<'m, u32>) -> &'m AtomicU32 {
    word //~ E0308
}

fn read_modify_write(word: Word<'_, u32>) -> u32 {
    word.fetch_add(1, Ordering::SeqCst) //~ E0599
}
