//! Makes calls with views that keep their memory alive. A view can be its last owner. Threads use the views in turn.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread;

use gdrcopy::owned::{OwnedArray, OwnedWord};

use crate::cuda::Cuda;
use crate::isolated::{calling, list, outcome};
use crate::model::Memory;
use crate::ops::Args;
use crate::owners::{Mapped, Owner, any_of, take};
use crate::world::World;
use crate::{arrays, words};

/// A view, with the device address that the test expects of it.
pub(crate) struct OwnedView {
    pub(crate) view: View,
    pub(crate) start: u64,
    /// While this reference exists, the test expects that the view's mapping or buffer still exists. Dropping this
    /// struct drops the reference after the view; `mem::forget` leaks both.
    pub(crate) alive: Arc<()>,
}

pub(crate) enum View {
    Word(OwnedWord<u64>),
    Array(OwnedArray<[u8; 3]>, usize),
}

impl View {
    fn copy(&self) -> View {
        match self {
            View::Word(word) => View::Word(word.clone()),
            View::Array(array, len) => View::Array(array.clone(), *len),
        }
    }
}

impl OwnedView {
    /// Makes calls by the view. Then drops the view in half of the cases, and returns it in the others.
    fn used(self, memory: &Memory, args: &Args) -> Option<OwnedView> {
        // If the view is the last owner of its memory, dropping it makes the test read the memory by CUDA. That needs a
        // context in this thread.
        let _cuda = Cuda::new();
        match &self.view {
            View::Word(word) => words::use_word(word.view(), self.start, memory, args.data),
            View::Array(array, len) => arrays::use_array(array.view(), self.start, *len, memory, args),
        }
        if (args.data >> 2) & 1 == 0 { Some(self) } else { None }
    }
}

impl World {
    /// Makes a view of a part of mapped memory. Returns the view if it is a slice, and otherwise adds it to the list of
    /// views.
    pub(crate) fn own(&mut self, args: &Args) -> Option<Mapped> {
        let mapped = Arc::clone(any_of(&self.mapped, args)?);
        let slice = mapped.slice();
        let offset = args.sizes[0].of(slice.len);
        let len = args.sizes[1].of(64);
        let is_word = slice.has(offset, 8) && slice.is_aligned(offset, 8);
        let is_array = len < 1 << 60 && slice.has(offset, len * 3);
        let start = slice.start.wrapping_add(offset as u64);
        calling!("owned of {slice}, kind {}, {offset:#x}, {len:#x}", args.data % 4);
        let view = match args.data % 4 {
            0 => outcome(is_word, mapped.view(|all| all.word(offset))).map(View::Word),
            1 => outcome(is_array, mapped.view(|all| all.array(offset, len))).map(|array| View::Array(array, len)),
            _ => {
                let is_inside = slice.has(offset, len);
                let end = offset.saturating_add(len);
                let owned = mapped.view(|all| all.slice(offset..end));
                return outcome(is_inside, owned).map(|owned| Mapped {
                    alive: Arc::clone(&mapped.alive),
                    ..Mapped::new(Owner::Slice(owned), start, len)
                });
            }
        };
        self.views.extend(view.map(|view| OwnedView { view, start, alive: Arc::clone(&mapped.alive) }));
        None
    }

    /// Clones an owner of mapped memory if it can be cloned, and returns the clone.
    pub(crate) fn clone_mapped(&mut self, args: &Args) -> Option<Mapped> {
        let mapped = any_of(&self.mapped, args)?;
        let owner = match &mapped.owner {
            Owner::Slice(owned) => Owner::Slice(owned.clone()),
            _ => return None,
        };
        list(format_args!("clone of {}\n", mapped.slice()));
        Some(Mapped { alive: Arc::clone(&mapped.alive), ..Mapped::new(owner, mapped.start, mapped.len) })
    }

    /// Makes calls by a view in this thread or in another one. The thread that makes the calls may also drop the view.
    pub(crate) fn use_view(&mut self, args: &Args) {
        let Some(view) = take(&mut self.views, args) else {
            return;
        };
        list(format_args!("view of {:#x}, use {}\n", view.start, args.data % 8));
        let memory = &self.memory;
        let is_left = match (args.data >> 1) & 1 {
            0 => view.used(memory, args),
            // `join` waits until the thread has destroyed its thread-local variables, so that this is not done during
            // the next calls. The end of the scope does not wait for that.
            _ => thread::scope(|scope| scope.spawn(|| view.used(memory, args)).join().expect("the model agrees")),
        };
        self.views.extend(is_left);
    }

    pub(crate) fn clone_view(&mut self, args: &Args) {
        let Some(OwnedView { view, start, alive }) = any_of(&self.views, args) else {
            return;
        };
        list(format_args!("clone of the view of {start:#x}\n"));
        let copy = OwnedView { view: view.copy(), start: *start, alive: Arc::clone(alive) };
        self.views.push(copy);
    }
}
