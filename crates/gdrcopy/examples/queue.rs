//! A queue of messages to a running GPU kernel, with flow control. The CPU writes messages into slots, and counts them
//! in a word, the head. The GPU kernel takes the messages, and counts them in another word, the tail. The CPU looks at
//! the tail before it writes a slot again.
//!
//! `cargo run --release --example queue`, on a GPU or under gdremu.

mod cuda;

use std::time::Instant;

use cuda::Cuda;
use gdrcopy::memory::{CudaAllocator, DeviceAllocator, MapOptions};
use gdrcopy::{Error, Gdr, Mapped};

const MESSAGES: u32 = 1000;
const SLOTS: u32 = 16;
const PAGE: usize = 1 << 16;
/// The offset of the head in bytes. Each word and each slot has a cache line of its own.
const HEAD: usize = 0;
/// The offset of the tail in bytes.
const TAIL: usize = 64;
/// The offset of the result in bytes.
const SUM: usize = 128;
/// The offset of the first slot in bytes.
const FIRST_SLOT: usize = 192;

/// A message, which fills a cache line. The GPU kernel reads only the first number.
type Message = [u64; 8];

/// The GPU kernel, which adds up the first number of each message. It waits until the head (an acquire load) is beyond
/// the tail, and reads the message. Then it stores the new tail (after a fence), so the CPU may write the slot again.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64

.visible .entry add_up(.param .u64 queue_arg, .param .u32 messages_arg)
{
    .reg .pred %p;
    .reg .u32 %messages, %head, %tail, %slot;
    .reg .u64 %queue, %message, %number, %sum;
    ld.param.u64 %queue, [queue_arg];
    ld.param.u32 %messages, [messages_arg];
    mov.u32 %tail, 0;
    mov.u64 %sum, 0;
wait:
    ld.acquire.sys.global.u32 %head, [%queue];
    setp.eq.u32 %p, %head, %tail;
    @%p bra wait;
    and.b32 %slot, %tail, 15;
    mul.wide.u32 %message, %slot, 64;
    add.u64 %message, %message, %queue;
    ld.global.u64 %number, [%message+192];
    add.u64 %sum, %sum, %number;
    add.u32 %tail, %tail, 1;
    fence.acq_rel.sys;
    st.relaxed.sys.global.u32 [%queue+64], %tail;
    setp.lt.u32 %p, %tail, %messages;
    @%p bra wait;
    st.global.u64 [%queue+128], %sum;
    ret;
}";

fn main() -> Result<(), Error> {
    let cuda = Cuda::new();
    let mapping = Gdr::open()?.map_owned(CudaAllocator::new(0)?.allocate(PAGE)?, MapOptions::default())?;
    mapping.fill(0)?;
    let head = mapping.word::<u32>(HEAD)?;
    let tail = mapping.word::<u32>(TAIL)?;
    let slots = mapping.array::<Message>(FIRST_SLOT, SLOTS as usize)?;

    let kernel = cuda.kernel(PTX, "add_up");
    // SAFETY: these are the GPU kernel's parameters, and the words and slots are inside the memory.
    unsafe { cuda.launch(&kernel, 1, &[mapping.device_address(), MESSAGES.into()]) };
    let begin = Instant::now();
    // Reading the tail takes a round trip, so the CPU reads the tail only when the queue may be full.
    let mut taken = 0;
    for sent in 0..MESSAGES {
        if sent - taken == SLOTS {
            taken = tail.spin_until(|tail| sent - tail < SLOTS, None)?;
        }
        slots.set((sent % SLOTS) as usize, [sent.into(); 8])?;
        head.store(sent + 1); // The store is a release, so the head arrives after the message.
    }
    tail.spin_until(|tail| tail == MESSAGES, None)?;
    println!("{:?} per message", begin.elapsed() / MESSAGES);
    cuda.synchronize();
    let numbers = u64::from(MESSAGES);
    assert_eq!(mapping.word::<u64>(SUM)?.load(), numbers * (numbers - 1) / 2);
    Ok(())
}
