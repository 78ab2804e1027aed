//! Views that keep a buffer of a pool.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytemuck::bytes_of;
use gdrcopy::Result;

use crate::isolated::{calling, list, outcome};
use crate::ops::Args;
use crate::owned::{Message, OwnedView, View};
use crate::pools::PoolOf;
use crate::ring_model::{RingModel, bytes_of_ring};
use crate::rings::{RingEnd, SLOTS};
use crate::types::value;
use crate::world::World;

/// Bytes that every ordinary pool can have.
const LITTLE: u128 = 2 << 20;

/// Bytes that no pool can have.
const MUCH: u128 = 32 << 20;

/// A view, where it is, and what is there.
type Made = (View, u64, Vec<u8>);

impl PoolOf {
    /// The result of a call for that many bytes.
    #[track_caller]
    fn outcome<T>(&self, bytes: u128, result: Result<T>) -> Option<T> {
        let is_impossible = bytes == 0 || bytes > MUCH;
        let is_known = self.is_ordinary && bytes <= LITTLE || is_impossible;
        outcome(is_known.then_some(!is_impossible), result)
    }

    fn view(&self, args: &Args) -> Option<Made> {
        let (len, kind) = (args.sizes[0].of(5000), args.data % 4);
        calling!("pool {}: view, kind {kind}, {len:#x}", self.number);
        Some(match kind {
            0 => {
                let number: u64 = value(args.data);
                let word = self.outcome(8, self.pool.word(number))?;
                let start = word.view().device_address();
                (View::Word(word), start, bytes_of(&number).to_vec())
            }
            1 => {
                let flag = self.outcome(4, self.pool.flag())?;
                let start = flag.view().device_address();
                (View::Flag(flag), start, vec![0; 4])
            }
            2 => {
                let counter = self.outcome(8, self.pool.counter())?;
                let start = counter.view().device_address();
                let view = match args.data >> 32 & 1 {
                    0 => View::Counter(counter),
                    _ => View::Writer(counter.into_writer(), 0),
                };
                (view, start, vec![0; 8])
            }
            _ => {
                let array = self.outcome(len as u128 * 3, self.pool.array(len))?;
                let start = array.view().as_bytes().device_address();
                (View::Array(array, len), start, vec![0; len * 3])
            }
        })
    }

    fn ring(&self, slots: u32, is_sender: bool) -> Option<RingEnd<'static, Message>> {
        calling!("pool {}: ring of {slots}, sends: {is_sender}", self.number);
        let model = |start| RingModel::new::<Message>(start, slots, 0);
        let make = || match is_sender {
            true => self.pool.ring_to_gpu(slots).map(|sender| {
                let start = sender.device_address();
                RingEnd::sender(sender, model(start))
            }),
            false => self.pool.ring_from_gpu(slots).map(|receiver| {
                let start = receiver.device_address();
                RingEnd::receiver(receiver, model(start))
            }),
        };
        let Ok(result) = catch_unwind(AssertUnwindSafe(make)) else {
            list(format_args!(" = panic\n"));
            assert!(!slots.is_power_of_two());
            return None;
        };
        let end = self.outcome(bytes_of_ring::<Message>(slots), result);
        assert!(end.is_none() || slots.is_power_of_two(), "a panic is predicted");
        end
    }
}

impl World {
    pub(crate) fn pool_view(&mut self, args: &Args) {
        let pool = self.pool(args);
        let number = pool.number;
        if let Some((view, start, bytes)) = pool.view(args) {
            self.keep(view, start, bytes.len(), number);
            self.memory.set(start, &bytes);
        }
    }

    pub(crate) fn pool_ring(&mut self, args: &Args) {
        let slots = SLOTS[args.sizes[0].of(1000) % SLOTS.len()];
        let pool = self.pool(args);
        let number = pool.number;
        if let Some(mut end) = pool.ring(slots, args.data >> 8 & 1 == 0) {
            let (start, bytes) = (end.model.start, bytes_of_ring::<Message>(slots));
            end.model.clear(&self.memory);
            self.keep(View::Ring(end), start, bytes as usize, number);
        }
    }

    /// Checks that the memory is the pool's, and no other buffer's.
    fn keep(&mut self, view: View, start: u64, len: usize, pool: usize) {
        assert!(start.is_multiple_of(64), "{start:#x} shares a line");
        let alive = Some(self.claim(start, len, pool));
        self.views.push(OwnedView { view, start, alive });
    }
}
