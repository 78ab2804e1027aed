//! A gather returns nothing older than an earlier read has returned.
//!
//! A GPU kernel writes 64 words, a fence, and a flag, all in GPU memory. The CPU sees the flag, gathers the words, and
//! lets the kernel go on, by host memory. Nothing but reads of the mapping happens in between. A word that is older
//! than the flag came from a buffer of the CPU, or was loaded too early.

use std::env;

use gdrcopy::memory::{CudaAllocator, DeviceAllocator, DeviceMemory, HostMemory, MapOptions};
use gdrcopy::{Gdr, Mapped, Words};

use crate::gpu::Cuda;
use crate::ownership::PAGE;

const WORDS: usize = 64;
/// The words lie in different lines; the flag lies behind them.
const STRIDE: usize = 192;
const FLAG: usize = WORDS * STRIDE;

/// Words that one gather reads. The lines of small gathers stay in the CPU's buffers until the next one, if nothing
/// empties these.
const GATHERED: [usize; 4] = [WORDS, 1, 4, 11];

/// `GDRCOPY_ROUNDS`, for runs on a GPU. An emulated GPU, which is a CPU, reorders nothing.
pub(crate) fn rounds(default: u32) -> u32 {
    let rounds = env::var("GDRCOPY_ROUNDS").map(|text| text.parse().expect("a number"));
    rounds.unwrap_or(default)
}

#[test]
#[ignore = "freshness_under_gdremu runs it"]
fn gathered_words_are_no_older_than_the_flag() {
    let (cuda, rounds) = (Cuda::new(), rounds(400));
    let memory = CudaAllocator::new(0).and_then(|gpu| gpu.allocate(PAGE)).expect("GPU memory");
    let mapping = Gdr::open().expect("a driver").map_owned(memory, MapOptions::default()).expect("a mapping");
    let memory = mapping.device_address();
    mapping.fill(0).expect("this process");
    let word = |offset| mapping.word::<u32>(offset).expect("aligned");
    let flag: Words<'_, u32> = [word(FLAG)].into_iter().collect();
    let words = GATHERED.map(|count| -> Words<'_, u32> { (0..count).map(|i| word(i * STRIDE)).collect() });
    let acknowledged = HostMemory::alloc(4).expect("host memory");

    let kernel = cuda.kernel(include_str!("produce.ptx"), "produce");
    let (stride, flag_address) = (STRIDE as u64, memory + FLAG as u64);
    let parameters = [memory, stride, flag_address, acknowledged.address(), rounds.into()];
    // SAFETY: the kernel's parameters; it ends before the memory is freed.
    unsafe { cuda.launch(&kernel, WORDS as u32, &parameters) };
    let (mut stale, mut values, mut bytes) = (0_u64, [0; WORDS], [[0; 4]; WORDS]);
    for round in 1..=rounds {
        let mut seen = [0];
        while seen[0] < round {
            flag.load_all(&mut seen);
        }
        assert_eq!(seen[0], round);
        let gather = round as usize / 32 % GATHERED.len();
        let count = GATHERED[gather];
        if round % 2 == 0 {
            words[gather].load_all(&mut values[..count]);
        } else {
            let places = (0..count).map(|i| i * STRIDE);
            let mut items: Vec<(usize, &mut [u8])> = places.zip(bytes.iter_mut().map(|bytes| &mut bytes[..])).collect();
            mapping.read_many(&mut items).expect("inside");
            values = bytes.map(u32::from_ne_bytes);
        }
        let is_stale = values[..count].iter().any(|&value| value != round);
        stale += u64::from(is_stale);
        // SAFETY: 4 bytes of host memory that CUDA allocated; the GPU reads them only.
        unsafe { acknowledged.as_mut_ptr().cast::<u32>().write_volatile(round) };
    }
    cuda.synchronize();
    println!("{rounds} rounds, {stale} stale");
    assert_eq!(stale, 0, "stale gathers of {rounds}");
}
