//! Streams small messages to a GPU kernel through a ring, and back through another.
//!
//! `cargo run --release --example stream_messages [COUNT]`, on a GPU or under gdremu.

mod cuda;

use cuda::Cuda;
use gdrcopy::channel::Ring;
use gdrcopy::{Error, Gdr, MapFlag, Mapped, PinFlags};

type Message = [u32; 4];

const SLOTS: u32 = 64;
const PAGE: usize = 1 << 16;
/// Where the ring back begins.
const BACK: usize = PAGE / 2;

fn main() -> Result<(), Error> {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let count: usize = count.unwrap_or(1000);
    let cuda = Cuda::new();
    let memory = cuda.alloc(PAGE);
    let gdr = Gdr::open()?;
    // SAFETY: the memory is this program's, and is never freed. Besides the mapping, only the kernel writes it.
    let pin = unsafe { gdr.pin(memory, PAGE, PinFlags::DEFAULT)? };
    let mapping = pin.map(PAGE, MapFlag::Default)?;
    let mut to_gpu = Ring::new(mapping.slice(..BACK)?, SLOTS)?.into_sender();
    let mut from_gpu = Ring::new(mapping.slice(BACK..)?, SLOTS)?.into_receiver();

    let kernel = cuda.kernel(include_str!("echo.ptx"), "echo");
    let first = 0;
    let parameters = [memory, memory + BACK as u64, SLOTS.into(), first, count as u64];
    // SAFETY: the kernel's parameters; both rings are inside the memory.
    unsafe { cuda.launch(&kernel, 1, &parameters) };

    let messages: Vec<Message> = (0..count as u32).map(|i| [i, !i, i.rotate_left(8), 0]).collect();
    let mut received = vec![Message::default(); count];
    let (mut sent, mut back) = (0, 0);
    while back < count {
        sent += to_gpu.try_send(&messages[sent..])?;
        back += from_gpu.try_receive(&mut received[back..])?;
    }
    assert!(received == messages);
    println!("{count} messages of {} bytes came back in order", size_of::<Message>());
    cuda.synchronize();
    Ok(())
}
