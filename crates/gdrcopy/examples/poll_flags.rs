//! Polls 64 flags at once. Each thread of a GPU kernel sets one of them when it has done its work.
//!
//! `cargo run --release --example poll_flags`, on a GPU or under gdremu.

mod cuda;

use cuda::Cuda;
use gdrcopy::memory::{CudaAllocator, DeviceAllocator, MapOptions};
use gdrcopy::{Error, Gdr, Mapped, Words};

const FLAGS: usize = 64;
/// The number of bytes from one flag to the next. Each flag has a cache line of its own.
const STRIDE: usize = 64;
const PAGE: usize = 1 << 16;

/// The GPU kernel. Its thread `t` works for `t` × `work` loops, then sets flag `t` to `t` + 1.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64

.visible .entry work_and_signal(.param .u64 flags_arg, .param .u32 stride_arg, .param .u32 work_arg)
{
    .reg .pred %p;
    .reg .u32 %stride, %work, %thread, %left;
    .reg .u64 %flags, %flag;
    ld.param.u64 %flags, [flags_arg];
    ld.param.u32 %stride, [stride_arg];
    ld.param.u32 %work, [work_arg];
    mov.u32 %thread, %tid.x;
    mul.lo.u32 %left, %thread, %work;
    mul.wide.u32 %flag, %thread, %stride;
    add.u64 %flag, %flag, %flags;
    add.u32 %thread, %thread, 1;
again:
    setp.eq.u32 %p, %left, 0;
    @%p bra done;
    sub.u32 %left, %left, 1;
    bra again;
done:
    fence.acq_rel.sys;
    st.relaxed.sys.global.u32 [%flag], %thread;
    ret;
}";

fn main() -> Result<(), Error> {
    let cuda = Cuda::new();
    let mapping = Gdr::open()?.map_owned(CudaAllocator::new(0)?.allocate(PAGE)?, MapOptions::default())?;
    let memory = mapping.device_address();
    mapping.fill(0)?;
    let words = (0..FLAGS).map(|flag| mapping.word(flag * STRIDE));
    let flags: Words<'_, u32> = words.collect::<Result<_, _>>()?;

    let kernel = cuda.kernel(PTX, "work_and_signal");
    // SAFETY: these are the GPU kernel's parameters, and all flags are inside the memory.
    unsafe { cuda.launch(&kernel, FLAGS as u32, &[memory, STRIDE as u64, 20]) };
    let mut values = [0; FLAGS];
    let mut polls = 0;
    while values.contains(&0) {
        flags.load_all(&mut values);
        polls += 1;
    }
    assert!(values.into_iter().eq(1..=FLAGS as u32));
    println!("{FLAGS} flags are set after {polls} polls of all of them");
    cuda.synchronize();
    Ok(())
}
