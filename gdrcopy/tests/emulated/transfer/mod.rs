//! Copies by mapping or copy engine, under gdremu.

mod cached;
mod uncached;

use gdrcopy::transfer::{Route, TransferOptions};
use gdrcopy::{MapFlag, Mapped, Mapping, Transfer};

use crate::cuda::Cuda;
use crate::ownership::{PAGE, pinned};

const LEN: usize = 2 * PAGE;

fn mapped(cuda: &Cuda) -> (Mapping, u64) {
    let (pin, address) = pinned(cuda, LEN);
    let mapping = pin.map(LEN, MapFlag::Default).expect("an aligned pin");
    (mapping, address)
}

/// Small sizes, and a chunk that nothing is a multiple of.
fn options() -> TransferOptions {
    Transfer::options().read_crossover(16 << 10).write_crossover(32 << 10).chunk(10_000)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256 + seed) as u8).collect()
}

/// A read of all of the memory, checked.
fn read(cuda: &Cuda, transfer: &Transfer, mapping: &Mapping, seed: usize) -> Route {
    let sent = pattern(LEN, seed);
    cuda.write(mapping.device_address(), &sent);
    let mut received = vec![0; LEN];
    let route = transfer.read(mapping.as_slice(), &mut received);
    assert!(received == sent);
    route.expect("inside")
}

/// A write of all of the memory, checked.
fn write(cuda: &Cuda, transfer: &Transfer, mapping: &Mapping, seed: usize) -> Route {
    let sent = pattern(LEN, seed);
    let route = transfer.write(mapping.as_slice(), &sent);
    assert!(cuda.read(mapping.device_address(), LEN) == sent);
    route.expect("inside")
}
