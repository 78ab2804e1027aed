use gdrcopy::{Array, Batch, MappedSlice, Mapped, Mapping, Result, Word, Words};

fn slice(mapping: Mapping) -> MappedSlice<'static> {
    mapping.as_slice() //~ E0515
}

fn word(mapping: Mapping) -> Result<Word<'static, u32>> {
    mapping.word(0) //~ E0515
}

fn words(mapping: Mapping) -> Result<Words<'static, u32>> {
    [mapping.word(0)].into_iter().collect() //~ E0515
}

fn array(mapping: Mapping) -> Result<Array<'static, u64>> {
    mapping.array(0, 8) //~ E0515
}

fn batch(mapping: Mapping) -> Result<Batch<'static>> {
    mapping.batch() //~ E0515
}
