//! The instruction set: each opcode with all its suffixes.

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed};

use super::kernel::{Function, Width};

/// Which operands an instruction has, and what it does with them.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// `register, value, …`, with this number of values
    Compute(usize, Function),
    /// `register, [parameter]`
    LoadParameter(Width),
    /// `register, [shared variable]`
    LoadShared,
    /// `[shared variable], value`
    StoreShared,
    /// `register, [address]`
    Load(Ordering),
    /// `[address], value`
    Store(Ordering),
    /// `register, [address], value`; the register gets the old value
    AtomicAdd(Ordering),
    /// `[address], value`
    ReductionAdd(Ordering),
    /// `label`
    Branch,
    /// `0`, the only barrier
    Barrier,
    Fence,
    Exit,
}

use Form::*;

/// Registers have 64 bits; 32-bit results have zeros in the upper half.
pub(super) const OPCODES: &[(&str, Form)] = &[
    ("mov.u32", Compute(1, |a, _, _| low(a))),
    ("add.u32", Compute(2, |a, b, _| low(a.wrapping_add(b)))),
    ("add.u64", Compute(2, |a, b, _| a.wrapping_add(b))),
    ("sub.u32", Compute(2, |a, b, _| low(a.wrapping_sub(b)))),
    ("mul.lo.u32", Compute(2, |a, b, _| low(a.wrapping_mul(b)))),
    ("mul.wide.u32", Compute(2, |a, b, _| low(a) * low(b))),
    (
        "mad.lo.u32",
        Compute(3, |a, b, c| low(a.wrapping_mul(b).wrapping_add(c))),
    ),
    (
        "mad.wide.u32",
        Compute(3, |a, b, c| (low(a) * low(b)).wrapping_add(c)),
    ),
    ("and.b32", Compute(2, |a, b, _| low(a & b))),
    ("xor.b32", Compute(2, |a, b, _| low(a ^ b))),
    (
        "setp.eq.u32",
        Compute(2, |a, b, _| (low(a) == low(b)).into()),
    ),
    (
        "setp.ne.u32",
        Compute(2, |a, b, _| (low(a) != low(b)).into()),
    ),
    (
        "setp.lt.u32",
        Compute(2, |a, b, _| (low(a) < low(b)).into()),
    ),
    (
        "setp.le.u32",
        Compute(2, |a, b, _| (low(a) <= low(b)).into()),
    ),
    (
        "setp.ge.u32",
        Compute(2, |a, b, _| (low(a) >= low(b)).into()),
    ),
    ("ld.param.u32", LoadParameter(Width::U32)),
    ("ld.param.u64", LoadParameter(Width::U64)),
    ("ld.shared.u32", LoadShared),
    ("ld.volatile.global.u32", Load(Relaxed)),
    ("ld.relaxed.sys.global.u32", Load(Relaxed)),
    ("ld.acquire.sys.global.u32", Load(Acquire)),
    ("st.shared.u32", StoreShared),
    ("st.volatile.global.u32", Store(Relaxed)),
    ("st.relaxed.sys.global.u32", Store(Relaxed)),
    ("atom.acq_rel.gpu.global.add.u32", AtomicAdd(AcqRel)),
    ("red.global.add.u32", ReductionAdd(Relaxed)),
    ("fence.acq_rel.sys", Fence),
    ("bar.sync", Barrier),
    ("bra", Branch),
    ("ret", Exit),
];

/// The lower 32 bits.
fn low(value: u64) -> u64 {
    value & 0xffff_ffff
}
