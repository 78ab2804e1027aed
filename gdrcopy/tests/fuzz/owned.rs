//! Views that keep their memory, which outlive all else, and which threads have in turn.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread;

use gdrcopy::channel::{Counter, CounterWriter, Flag, Ring};
use gdrcopy::owned::{OwnedArray, OwnedCounter, OwnedFlag, OwnedSlice, OwnedWord};
use gdrcopy::{Owned, Result};

use crate::cuda::Cuda;
use crate::isolated::{calling, list, outcome, outcome_or_panic};
use crate::memory::Memory;
use crate::ops::Args;
use crate::owners::{Mapped, Owner, any_of, take};
use crate::ring_model::{RingModel, bytes_of_ring};
use crate::rings::{RingEnd, SLOTS};
use crate::sizes::Numbers;
use crate::world::World;
use crate::{arrays, signals, words};

/// The messages of the rings.
pub(crate) type Message = [u64; 2];

/// A view, and where the model says that it is.
pub(crate) struct OwnedView {
    pub(crate) view: View,
    pub(crate) start: u64,
    /// By which a pool's model knows that this still exists, though forgotten. Dropped after the view.
    pub(crate) alive: Option<Arc<()>>,
}

pub(crate) enum View {
    Word(OwnedWord<u64>),
    Array(OwnedArray<[u8; 3]>, usize),
    Flag(OwnedFlag),
    Counter(OwnedCounter),
    Writer(CounterWriter<'static>, u64),
    Ring(RingEnd<'static, Message>),
}

impl View {
    /// A counter, or the writer that it becomes.
    fn counter(counter: OwnedCounter, start: u64, memory: &Memory, args: &Args) -> View {
        match args.data >> 32 & 1 {
            0 => View::Counter(counter),
            _ => {
                let value = signals::use_counter(counter.view(), start, memory);
                View::Writer(counter.into_writer(), value)
            }
        }
    }

    fn copy(&self) -> Option<View> {
        Some(match self {
            View::Word(word) => View::Word(word.clone()),
            View::Array(array, len) => View::Array(array.clone(), *len),
            View::Flag(flag) => View::Flag(flag.clone()),
            View::Counter(counter) => View::Counter(counter.clone()),
            View::Writer(..) | View::Ring(_) => return None,
        })
    }
}

impl OwnedView {
    fn access(&mut self, memory: &Memory, args: &Args) {
        let start = self.start;
        match &mut self.view {
            View::Word(word) => words::use_word(word.view(), start, memory, args.data),
            View::Array(array, len) => arrays::use_array(array.view(), start, *len, memory, args),
            View::Flag(flag) => signals::use_flag(flag.view(), start, memory, args),
            View::Counter(counter) => {
                signals::use_counter(counter.view(), start, memory);
            }
            View::Writer(writer, value) => {
                signals::use_writer(writer, value, start, memory, args);
            }
            View::Ring(end) => {
                let mut numbers = Numbers(args.data);
                (0..numbers.below(8)).for_each(|_| end.step(memory, &mut numbers));
            }
        }
    }
}

impl World {
    /// A view of a part of what is mapped.
    pub(crate) fn own(&mut self, args: &Args) -> Option<Mapped> {
        let mapped = Arc::clone(any_of(&self.mapped, args)?);
        let slice = mapped.slice();
        let (offset, len) = (args.sizes[0].of(slice.len), args.sizes[1].of(64));
        let is_word = |size| slice.has(offset, size) && slice.is_aligned(offset, size);
        let is_array = len < 1 << 60 && slice.has(offset, len * 3);
        let start = slice.start.wrapping_add(offset as u64);
        let kept = Arc::clone(&mapped);
        calling!("owned of {slice}, kind {}, {offset:#x}, {len:#x}", args.data % 8);
        let view = match args.data % 8 {
            0 => outcome(is_word(8), Owned::new(kept, |all| all.word(offset))).map(View::Word),
            1 => outcome(is_array, Owned::new(kept, |all| all.array(offset, len))).map(|array| View::Array(array, len)),
            2 => {
                let flag = Owned::new(kept, |all| Ok(Flag::new(all.word(offset)?)));
                outcome(is_word(4), flag).map(View::Flag)
            }
            3 => {
                let counter = Owned::new(kept, |all| Ok(Counter::new(all.word(offset)?)));
                outcome(is_word(8), counter).map(|counter| View::counter(counter, start, &self.memory, args))
            }
            4 => {
                let (slots, next) = (SLOTS[args.which], (args.data >> 16) as u32);
                let bytes = bytes_of_ring::<Message>(slots);
                let is_inside = bytes <= slice.len as u128 && slice.has(offset, bytes as usize);
                let make = || -> Result<Owned<Ring<'static, Message>>> {
                    Owned::new(kept, |all| Ring::attach(all.slice(offset..)?, slots, next))
                };
                // A range outside is not sliced first.
                let panics = !slots.is_power_of_two() && slice.has(offset, 0);
                let ring = outcome_or_panic(panics, is_inside && is_word(4), make);
                let model = RingModel::new::<Message>(start, slots, next);
                ring.map(|ring| match args.data >> 48 & 1 {
                    0 => View::Ring(RingEnd::sender(ring.into_sender(), model)),
                    _ => View::Ring(RingEnd::receiver(ring.into_receiver(), model)),
                })
            }
            _ => {
                let is_inside = slice.has(offset, len);
                let end = offset.saturating_add(len);
                let owned = OwnedSlice::new(kept, |all| all.slice(offset..end));
                return outcome(is_inside, owned).map(|owned| Mapped::new(Owner::Slice(owned), start, len));
            }
        };
        self.views.extend(view.map(|view| OwnedView { view, start, alive: None }));
        None
    }

    /// A clone of what can be cloned, and is mapped.
    pub(crate) fn clone_mapped(&mut self, args: &Args) -> Option<Mapped> {
        let mapped = any_of(&self.mapped, args)?;
        let owner = match &mapped.owner {
            Owner::Slice(owned) => Owner::Slice(owned.clone()),
            _ => return None,
        };
        list(format_args!("clone of {}\n", mapped.slice()));
        Some(Mapped::new(owner, mapped.start, mapped.len))
    }

    /// Calls by a view, in this thread or another one, which may be the one to drop it.
    pub(crate) fn use_view(&mut self, args: &Args) {
        let Some(mut view) = take(&mut self.views, args) else {
            return;
        };
        list(format_args!("view of {:#x}, use {}\n", view.start, args.data % 8));
        if let View::Ring(end) = &view.view
            && args.data & 1 == 0
        {
            let (offset, bytes) = end.model.garbage(&mut Numbers(args.data));
            self.memory.write(view.start + offset as u64, &bytes);
        }
        let memory = &self.memory;
        let is_left = match (args.data >> 1) % 4 {
            0 => {
                view.access(memory, args);
                Some(view)
            }
            // The scope waits until the thread is joined, not until its locals are gone.
            1 => thread::scope(|scope| {
                let used = scope.spawn(move || {
                    view.access(memory, args);
                    Some(view)
                });
                used.join().expect("the model agrees")
            }),
            2 => thread::scope(|scope| {
                let used = scope.spawn(move || {
                    // The model reads memory by CUDA before that is freed.
                    let _cuda = Cuda::new();
                    view.access(memory, args);
                    drop(view);
                });
                used.join().expect("the model agrees");
                None
            }),
            _ => {
                view.access(memory, args);
                None
            }
        };
        self.views.extend(is_left);
    }

    /// Clones a view; what cannot be cloned stays.
    pub(crate) fn clone_view(&mut self, args: &Args) {
        let Some(OwnedView { view, start, alive }) = any_of(&self.views, args) else {
            return;
        };
        let Some(view) = view.copy() else {
            return;
        };
        list(format_args!("clone of the view of {start:#x}\n"));
        let view = match view {
            View::Counter(counter) => View::counter(counter, *start, &self.memory, args),
            view => view,
        };
        let (start, alive) = (*start, alive.clone());
        self.views.push(OwnedView { view, start, alive });
    }
}
