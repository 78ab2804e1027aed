use std::cell::Cell;
use std::num::NonZeroU32;

use gdrcopy::{Array, Mapped, Mapping, Result, Word};

fn boolean(mapping: &Mapping) -> Result<Word<'_, bool>> {
    mapping.word(0) //~ E0277
}

fn reference(mapping: &Mapping) -> Result<Word<'_, &u32>> {
    mapping.word(0) //~ E0277
}

fn cell(mapping: &Mapping) -> Result<Array<'_, Cell<u32>>> {
    mapping.array(0, 1) //~ E0277
}

fn never_zero(mapping: &Mapping) -> Result<Array<'_, NonZeroU32>> {
    mapping.array(0, 1) //~ E0277
}
