//! Writes a message to GPU memory through a mapping, and reads it back. docs/gdremu.md says how to run this test
//! without a GPU.

#[test]
fn message_arrives() -> Result<(), gdrcopy::Error> {
    let message = b"straight into GPU memory";
    let mut seen = [0; 24];
    use gdrcopy::memory::CudaAllocator;
    use gdrcopy::{Gdr, Mapped, Pool};
    let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
    let buffer = pool.alloc(message.len())?;
    buffer.write(0, message)?;
    buffer.read(0, &mut seen)?;
    assert_eq!(&seen, message);
    Ok(())
}
