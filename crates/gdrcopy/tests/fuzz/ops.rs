//! The calls of which random sequences consist, and how they are chosen.
#![forbid(unsafe_code)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::sizes::{Size, sizes};

/// The kinds of owners. An owner is a value that releases something when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gdr,
    Pin,
    Mapped,
    Pool,
    View,
}

pub(crate) const KINDS: [Kind; 5] = [Kind::Gdr, Kind::Pin, Kind::Mapped, Kind::Pool, Kind::View];

/// Calls that make, use or end a connection, a pin, mapped memory, a pool or a view. After a call that maps memory, the
/// accesses that follow can use a slice of this memory, until the call `Leave`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Open,
    CloneGdr,
    Pin,
    Map,
    Info,
    Export,
    Unpin,
    MapOwned,
    Unmap,
    CloneMapped,
    Own,
    PoolView,
    UseView,
    CloneView,
    NewPool,
    PoolOfMemory,
    Alloc,
    AllocZeroed,
    Trim,
    PoolReport,
    Check,
    Leave,
    Drop(Kind),
    Forget(Kind),
}

/// Calls with a slice of mapped memory. Any thread can make them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Slice,
    SplitAt,
    Write,
    Read,
    Word,
    LoadAll,
    Array,
    ReadMany,
    WriteMany,
    ReadVec,
    Fill,
    Flush,
    BeginBatch,
    BatchWrite,
    BatchStore,
    EndBatch,
}

/// Arguments for any call. `which` selects an object by its number modulo the number of objects that exist, so that the
/// call finds one even after proptest has removed calls from the sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    pub(crate) which: usize,
    pub(crate) sizes: [Size; 3],
    /// Selects what a call does, and the bytes that it writes.
    pub(crate) data: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Call(Call, Args),
    Access(Access, Args),
    /// The calls of two threads. Each thread gets one part of a slice.
    Threads(Args, [Vec<(Access, Args)>; 2]),
}

#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) ops: Vec<Op>,
    /// True if the allocator of GPU memory is made before any driver is opened.
    pub(crate) allocator_first: bool,
    /// At the end, the values that are left are dropped kind by kind, in this order.
    pub(crate) end: Vec<Kind>,
}

fn args() -> impl Strategy<Value = Args> {
    let sizes = [sizes(), sizes(), sizes()];
    let args = (0_usize..8, sizes, prop_oneof![1 => 0_u64..16, 2 => any::<u64>()]);
    args.prop_map(|(which, sizes, data)| Args { which, sizes, data })
}

fn calls() -> impl Strategy<Value = Call> {
    use Call::*;
    prop_oneof![
        8 => Just(Pin),
        10 => Just(Map),
        8 => Just(Alloc),
        8 => select(&[MapOwned, MapOwned, CloneMapped]),
        14 => select(&[Own, Own, Own, PoolView, PoolView, UseView, UseView, UseView, CloneView]),
        8 => select(&[NewPool, PoolOfMemory]),
        4 => select(&[Open, CloneGdr]),
        6 => select(&[Info, Export, Unpin, AllocZeroed, Trim, PoolReport]),
        3 => select(&[Unmap, Leave, Leave]),
        1 => Just(Check),
        8 => select(&KINDS).prop_map(Drop),
        3 => select(&KINDS).prop_map(Forget),
    ]
}

fn accesses() -> impl Strategy<Value = Access> {
    use Access::*;
    prop_oneof![
        4 => select(&[Slice, SplitAt, Flush]),
        9 => select(&[Write, Read, Array, Array, ReadMany, WriteMany, Word, LoadAll, ReadVec, Fill]),
        8 => select(&[BeginBatch, BatchWrite, BatchWrite, BatchWrite, BatchStore, BatchStore, EndBatch]),
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let threads = [vec((accesses(), args()), 0..6), vec((accesses(), args()), 0..6)];
    prop_oneof![
        10 => (calls(), args()).prop_map(|(call, args)| Op::Call(call, args)),
        10 => (accesses(), args()).prop_map(|(access, args)| Op::Access(access, args)),
        1 => (args(), threads).prop_map(|(args, threads)| Op::Threads(args, threads)),
    ]
}

pub(crate) fn sequences() -> impl Strategy<Value = Sequence> {
    let end = Just(KINDS.to_vec()).prop_shuffle();
    let parts = (vec(ops(), 1..150), any::<bool>(), end);
    parts.prop_map(|(ops, allocator_first, end)| Sequence { ops, allocator_first, end })
}
