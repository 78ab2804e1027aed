//! Copies by the mapping or by CUDA's copy engine, with any options.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use gdrcopy::Transfer;

use crate::access::{Context, Slice};
use crate::isolated::{calling, list, outcome};
use crate::memory::noise;
use crate::ops::{Access, Args};
use crate::sizes::HUGE;
use crate::world::{ARENA, World};

impl World {
    pub(crate) fn new_transfer(&mut self, args: &Args) {
        // Where the copy engine takes few copies, its buffer is no matter.
        let crossovers = [0, 1, 4096, args.sizes[0].of(ARENA)];
        let [read, write] = [4, 6].map(|bit| crossovers[(args.data >> bit) as usize % 4]);
        let chunks = [args.sizes[1].of(ARENA), args.sizes[2].of(ARENA), HUGE[args.which]];
        let chunk = chunks[(args.data >> 8) as usize % 3];
        let patience = [0, 1, 1000, u64::MAX][args.data as usize % 4];
        let is_direct = args.data & 4 == 0;
        list(format_args!(
            "transfers[{}] = read_crossover({read:#x}).write_crossover({write:#x}).chunk({chunk:#x})\
             .patience({patience} ms).direct({is_direct})\n",
            self.transfers.len()
        ));
        let options = Transfer::options().read_crossover(read).write_crossover(write).chunk(chunk);
        let options = options.patience(Duration::from_millis(patience)).direct(is_direct);
        self.transfers.push(Arc::new(options.build()));
    }
}

pub(crate) fn access(slice: Slice<'_>, context: &mut Context<'_>, call: Access, args: &Args) {
    let number = args.data as usize % context.transfers.len().max(1);
    let Some(transfer) = context.transfers.get(number) else {
        return;
    };
    let len = args.sizes[1].of(slice.len).min(context.host.room());
    let has = slice.has(0, len);
    if let Access::TransferRead = call {
        calling!("transfers[{number}].read({slice}, {len:#x} bytes)");
        let found = has.then(|| slice.model(context.memory, 0, len));
        let place = args.data >> 8;
        context.host.receive(place, len, found, |part| transfer.read(slice.mapped, part));
    } else {
        calling!("transfers[{number}].write({slice}, {len:#x} bytes)");
        let bytes = noise(args.data, len);
        if outcome(has, transfer.write(slice.mapped, &bytes)).is_some() {
            slice.written(context.memory, 0, &bytes);
        }
    }
}
