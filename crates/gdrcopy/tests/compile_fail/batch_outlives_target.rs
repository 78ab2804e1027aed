use gdrcopy::{Batch, Mapped, Mapping, Result};

fn written(batch: &mut Batch<'_>, other: Mapping) -> Result<()> {
    batch.write_to(other.as_slice(), 0, &[1]) //~ E0597
}

fn stored<'m>(batch: &mut Batch<'m>, other: Mapping) -> Result<()> {
    batch.store(other.word::<u32>(0)?, 1); //~ E0597
    Ok(())
}
