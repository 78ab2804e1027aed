//! Generates random operations of a program that uses libgdrapi, valid and invalid ones, for the model test.

use std::ops::Range;

use proptest::prelude::*;
use proptest::sample::select;

/// One operation. An index is taken modulo the number of objects, including those that have ended. So every index stays
/// valid when proptest removes some operations of a sequence.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Open { fault: Option<i32> },
    Close { g: usize, fault: Option<Fault> },
    Alloc,
    Free { buffer: usize },
    Pin { g: usize, buffer: usize, offset: usize, size: usize, flags: Option<u32>, fault: Option<i32> },
    Unpin { pin: usize, owner: Owner, fault: Option<i32> },
    Map { pin: usize, owner: Owner, size: usize, flags: i32, fault: Option<Fault> },
    Unmap { pin: usize, owner: Owner, range: NamedRange, fault: Option<i32> },
    Write { pin: usize, at: usize, len: usize, seed: u8 },
    Read { pin: usize, at: usize, len: usize },
    CudaWrite { buffer: usize, at: usize, len: usize, seed: u8 },
    Info { pin: usize, owner: Owner },
    CallbackFlag { pin: usize, owner: Owner },
    Attribute { g: usize, attribute: u32 },
    Version { g: usize },
    Forged { handle: usize },
    Fork,
}

/// A driver call that fails, and its errno.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) call: &'static str,
    pub(super) errno: i32,
}

/// The `gdr_t` that is passed together with a handle.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// The `gdr_t` that made the pin.
    Right,
    /// The `gdr_t` of this index, which by chance may be the one that made the pin.
    Any(usize),
}

/// The range that is passed to `gdr_unmap`.
#[derive(Clone, Copy, Debug)]
pub(super) enum NamedRange {
    Right,
    /// The device address in place of the CPU address, as in DPDK.
    DeviceAddress,
    Half,
    Nothing,
}

const PAGE: usize = 1 << 16;

/// Generates sequences of operations. Without `faults`, no operation makes a driver call fail.
pub(super) fn ops(faults: bool) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(faults), 1..400)
}

fn op(faults: bool) -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => fault(faults).prop_map(|fault| Op::Open { fault }),
        1 => (index(), fault_of(&["CLOSE", "UNPIN_BUFFER"], faults)).prop_map(|(g, fault)| Op::Close { g, fault }),
        1 => Just(Op::Alloc),
        1 => index().prop_map(|buffer| Op::Free { buffer }),
        12 => (index(), index(), offset(), pin_size(), flags(), fault(faults)).prop_map(
            |(g, buffer, offset, size, flags, fault)| Op::Pin { g, buffer, offset, size, flags, fault }
        ),
        6 => (index(), owner(), fault(faults)).prop_map(|(pin, owner, fault)| Op::Unpin { pin, owner, fault }),
        16 => (index(), owner(), map_size(), map_flags(), fault_of(&["MMAP", "INFO"], faults)).prop_map(
            |(pin, owner, size, flags, fault)| Op::Map { pin, owner, size, flags, fault }
        ),
        8 => (index(), owner(), named_range(), fault(faults)).prop_map(
            |(pin, owner, range, fault)| Op::Unmap { pin, owner, range, fault }
        ),
        18 => (index(), place(), len(), any::<u8>()).prop_map(
            |(pin, at, len, seed)| Op::Write { pin, at, len, seed }
        ),
        18 => (index(), place(), len()).prop_map(|(pin, at, len)| Op::Read { pin, at, len }),
        4 => (index(), place(), len(), any::<u8>()).prop_map(
            |(buffer, at, len, seed)| Op::CudaWrite { buffer, at, len, seed }
        ),
        6 => (index(), owner()).prop_map(|(pin, owner)| Op::Info { pin, owner }),
        3 => (index(), owner()).prop_map(|(pin, owner)| Op::CallbackFlag { pin, owner }),
        2 => (index(), 0..6_u32).prop_map(|(g, attribute)| Op::Attribute { g, attribute }),
        1 => index().prop_map(|g| Op::Version { g }),
        3 => forged().prop_map(|handle| Op::Forged { handle }),
        1 => prop::bool::weighted(0.2).prop_map(|fork| if fork { Op::Fork } else { Op::Alloc }),
    ]
}

fn index() -> Range<usize> {
    0..1000
}

fn errno() -> impl Strategy<Value = i32> {
    select(&[libc::ENOMEM, libc::EINVAL, libc::EINTR, libc::EAGAIN, libc::EIO][..])
}

/// Generates `None` mostly, and otherwise the errno with which the driver call of an operation fails. Without `faults`,
/// generates only `None`.
fn fault(faults: bool) -> impl Strategy<Value = Option<i32>> {
    prop::option::weighted(0.05, errno()).prop_map(move |errno| if faults { errno } else { None })
}

/// Generates `None` mostly, and otherwise a fault of one of these driver calls. Without `faults`, generates no fault.
fn fault_of(calls: &'static [&'static str], faults: bool) -> impl Strategy<Value = Option<Fault>> {
    let fault = (select(calls), errno()).prop_map(|(call, errno)| Fault { call, errno });
    prop::option::weighted(0.05, fault).prop_map(move |fault| if faults { fault } else { None })
}

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![9 => Just(Owner::Right), 1 => index().prop_map(Owner::Any)]
}

fn named_range() -> impl Strategy<Value = NamedRange> {
    prop_oneof![
        5 => Just(NamedRange::Right),
        1 => Just(NamedRange::DeviceAddress),
        1 => Just(NamedRange::Half),
        1 => Just(NamedRange::Nothing),
    ]
}

/// Generates the offset of a pin in its buffer, mostly a multiple of the GPU page size.
fn offset() -> impl Strategy<Value = usize> {
    prop_oneof![8 => (0..31_usize).prop_map(|page| page * PAGE), 1 => 0..2 * PAGE]
}

fn pin_size() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => (1..5_usize).prop_map(|pages| pages * PAGE),
        4 => 1..3 * PAGE,
        1 => Just(0),
        1 => select(&[1 << 40, usize::MAX, usize::MAX - PAGE][..]),
    ]
}

fn flags() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![6 => Just(None), 6 => Just(Some(0)), 1 => (0..4_u32).prop_map(Some)]
}

fn map_size() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => (1..5_usize).prop_map(|pages| pages * PAGE),
        4 => 1..3 * PAGE,
        1 => Just(0),
        1 => select(&[1 << 40, usize::MAX][..]),
    ]
}

fn map_flags() -> impl Strategy<Value = i32> {
    prop_oneof![9 => Just(0), 3 => 1..4_i32, 1 => select(&[-1, 4, i32::MAX][..])]
}

fn place() -> impl Strategy<Value = usize> {
    prop_oneof![(0..4 * PAGE).prop_map(|at| at & !63), 0..4 * PAGE]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![select(&[1, 2, 4, 8][..]), 0..300_usize, 0..3000_usize]
}

/// Generates numbers that a libgdrapi never returns as handles.
fn forged() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(128), any::<usize>().prop_map(|number| number | 1), (1..64_usize).prop_map(|n| n << 12)]
}
