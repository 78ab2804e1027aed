//! The example of README.md. It writes to GPU memory by a copy, a word and a batch.
//!
//! `cargo run --release --example quick_start`, on a GPU or under gdremu.

use gdrcopy::memory::{CudaAllocator, DeviceAllocator, MapOptions};
use gdrcopy::{Error, Gdr, Mapped};

fn main() -> Result<(), Error> {
    let gdr = Gdr::open()?;
    let memory = CudaAllocator::new(0)?.allocate(1 << 20)?; // of GPU 0
    let mapping = gdr.map_owned(memory, MapOptions::default())?;

    mapping.write(0, b"straight into GPU memory")?; // copies of any size
    let flag = mapping.word::<u32>(4096)?; // words: one PCIe transaction each
    flag.store(1);

    let mut batch = mapping.batch()?; // many writes, one fence
    for i in 0..64 {
        batch.write(8192 + 64 * i, &[i as u8; 64])?;
    }
    batch.commit();

    let address = mapping.device_address();
    println!("a GPU kernel finds them at {address:#x}");
    Ok(())
}
