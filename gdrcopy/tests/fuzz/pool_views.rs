//! Views that keep a buffer of a pool.
#![forbid(unsafe_code)]

use bytemuck::bytes_of;
use gdrcopy::Result;

use crate::isolated::{calling, outcome};
use crate::ops::Args;
use crate::owned::{OwnedView, View};
use crate::pools::PoolOf;
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
        let (len, kind) = (args.sizes[0].of(5000), args.data % 2);
        calling!("pool {}: view, kind {kind}, {len:#x}", self.number);
        Some(match kind {
            0 => {
                let number: u64 = value(args.data);
                let word = self.outcome(8, self.pool.word(number))?;
                let start = word.view().device_address();
                (View::Word(word), start, bytes_of(&number).to_vec())
            }
            _ => {
                let array = self.outcome(len as u128 * 3, self.pool.array(len))?;
                let start = array.view().as_bytes().device_address();
                (View::Array(array, len), start, vec![0; len * 3])
            }
        })
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

    /// Checks that the memory is the pool's, and no other buffer's.
    fn keep(&mut self, view: View, start: u64, len: usize, pool: usize) {
        assert!(start.is_multiple_of(64), "{start:#x} shares a line");
        let alive = self.claim(start, len, pool);
        self.views.push(OwnedView { view, start, alive, host: None });
    }
}
