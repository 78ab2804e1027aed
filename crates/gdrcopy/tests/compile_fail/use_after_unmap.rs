use gdrcopy::{MapFlag, Mapped, Mapping, Pin, Result, Word};

fn slice_of_unmapped(mapping: Mapping) {
    let slice = mapping.as_slice();
    let _ = mapping.unmap(); //~ E0505
    let _ = slice.write(0, &[1]);
}

fn unmapped(mapping: Mapping) {
    let _ = mapping.unmap();
    let _ = mapping.write(0, &[1]); //~ E0382
}

fn word_of_dropped(pin: &Pin) -> Result<u32> {
    let word: Word<'_, u32> = pin.map(4096, MapFlag::Default)?.word(0)?; //~ E0716
    Ok(word.load())
}
