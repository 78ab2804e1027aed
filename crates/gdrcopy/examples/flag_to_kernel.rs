//! Low-latency signals to a running GPU kernel. The CPU sets a flag, the kernel answers by another.
//!
//! `cargo run --release --example flag_to_kernel`, on a GPU or under gdremu.

mod cuda;

use std::time::Instant;

use cuda::Cuda;
use gdrcopy::memory::{CudaAllocator, DeviceAllocator, MapOptions};
use gdrcopy::{Error, Gdr, Mapped};

const ROUNDS: u32 = 1000;
const PAGE: usize = 1 << 16;
/// The two flags have lines of their own.
const REQUEST: usize = 0;
const ANSWER: usize = 64;

/// In each round, waits until the request is the round's number (a load that is an acquire), then answers by the same
/// number (a store after a fence).
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64

.visible .entry answer_requests(.param .u64 request_arg, .param .u64 answer_arg, .param .u32 rounds_arg)
{
    .reg .pred %p;
    .reg .u32 %rounds, %round, %seen;
    .reg .u64 %request, %answer;
    ld.param.u64 %request, [request_arg];
    ld.param.u64 %answer, [answer_arg];
    ld.param.u32 %rounds, [rounds_arg];
    mov.u32 %round, 1;
wait:
    ld.acquire.sys.global.u32 %seen, [%request];
    setp.ne.u32 %p, %seen, %round;
    @%p bra wait;
    fence.acq_rel.sys;
    st.relaxed.sys.global.u32 [%answer], %round;
    add.u32 %round, %round, 1;
    setp.le.u32 %p, %round, %rounds;
    @%p bra wait;
    ret;
}";

fn main() -> Result<(), Error> {
    let cuda = Cuda::new();
    let mapping = Gdr::open()?.map_owned(CudaAllocator::new(0)?.allocate(PAGE)?, MapOptions::default())?;
    let memory = mapping.device_address();
    mapping.fill(0)?;
    let request = mapping.word::<u32>(REQUEST)?;
    let answer = mapping.word::<u32>(ANSWER)?;

    let kernel = cuda.kernel(PTX, "answer_requests");
    let (request_on_gpu, answer_on_gpu) = (memory + REQUEST as u64, memory + ANSWER as u64);
    // SAFETY: the kernel's parameters; both flags are inside the memory.
    unsafe { cuda.launch(&kernel, 1, &[request_on_gpu, answer_on_gpu, ROUNDS.into()]) };
    let begin = Instant::now();
    for round in 1..=ROUNDS {
        request.store(round);
        answer.spin_until(|value| value == round, None)?;
    }
    println!("{:?} per round trip", begin.elapsed() / ROUNDS);
    cuda.synchronize();
    Ok(())
}
