//! The instruction set as tables.

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use super::kernel::{Function, LOCAL_WINDOW, SHARED_WINDOW, Space, Type, Update};

/// The type of an operand or result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The integer type that the opcode ends with.
    T,
    /// Any type that the opcode ends with.
    Bits,
    /// An integer with twice the bits.
    Wide,
    U32,
    U64,
    Pred,
}

use Kind::*;

impl Kind {
    /// The type, of an opcode that ends with `of`.
    pub(super) fn resolve(self, of: Type) -> Option<Type> {
        match self {
            T => of.is_integer().then_some(of),
            Bits => Some(of),
            Wide => (of.is_integer() && of.bits <= 32).then_some(Type { bits: of.bits * 2, ..of }),
            U32 => Some(Type::U32),
            U64 => Some(Type::U64),
            Pred => Some(Type::PREDICATE),
        }
    }
}

/// The result, the operands and the function of an opcode.
pub(super) type Computation = (Kind, &'static [Kind], Function);

/// Opcodes that compute, without the type at the end. Operands are numbers by their type; of the result, the
/// lower bits count.
#[rustfmt::skip] // A line for each.
pub(super) const COMPUTATIONS: &[(&str, Computation)] = &[
    ("selp", (Bits, &[Bits, Bits, Pred], |_, &[a, b, p, _]| if p != 0 { a } else { b })),
    ("add", (T, &[T, T], |_, &[a, b, ..]| a + b)),
    ("sub", (T, &[T, T], |_, &[a, b, ..]| a - b)),
    ("neg", (T, &[T], |_, &[a, ..]| -a)),
    ("abs", (T, &[T], |_, &[a, ..]| a.abs())),
    ("min", (T, &[T, T], |_, &[a, b, ..]| a.min(b))),
    ("max", (T, &[T, T], |_, &[a, b, ..]| a.max(b))),
    ("mul.lo", (T, &[T, T], |_, &[a, b, ..]| a.wrapping_mul(b))),
    ("mul.hi", (T, &[T, T], |of, &[a, b, ..]| high(of, a, b))),
    ("mul.wide", (Wide, &[T, T], |_, &[a, b, ..]| a * b)),
    ("mad.lo", (T, &[T, T, T], |_, &[a, b, c, _]| a.wrapping_mul(b).wrapping_add(c))),
    ("mad.hi", (T, &[T, T, T], |of, &[a, b, c, _]| high(of, a, b) + c)),
    ("mad.wide", (Wide, &[T, T, Wide], |_, &[a, b, c, _]| a * b + c)),
    ("div", (T, &[T, T], |_, &[a, b, ..]| a.checked_div(b).unwrap_or(-1))),
    ("rem", (T, &[T, T], |_, &[a, b, ..]| a.checked_rem(b).unwrap_or(a))),
    ("and", (T, &[T, T], |_, &[a, b, ..]| a & b)),
    ("or", (T, &[T, T], |_, &[a, b, ..]| a | b)),
    ("xor", (T, &[T, T], |_, &[a, b, ..]| a ^ b)),
    ("not", (T, &[T], |_, &[a, ..]| !a)),
    ("shl", (T, &[T, U32], |of, &[a, by, ..]| a << by.min(of.bits.into()))),
    ("shr", (T, &[T, U32], |of, &[a, by, ..]| a >> by.min(of.bits.into()))),
    ("shf.l.wrap", (T, &[T, T, U32], |_, &[a, b, by, _]| (b << 32 | a) << (by & 31) >> 32)),
    ("shf.r.wrap", (T, &[T, T, U32], |_, &[a, b, by, _]| (b << 32 | a) >> (by & 31))),
    ("shf.l.clamp", (T, &[T, T, U32], |_, &[a, b, by, _]| (b << 32 | a) << by.min(32) >> 32)),
    ("shf.r.clamp", (T, &[T, T, U32], |_, &[a, b, by, _]| (b << 32 | a) >> by.min(32))),
    ("prmt", (T, &[T, T, T], |_, &[a, b, selectors, _]| {
        let byte = |selector: i128| {
            let byte = (b << 32 | a) >> (8 * (selector & 7)) & 0xff;
            if selector & 8 == 0 { byte } else { (byte >> 7) * 0xff } // Its sign.
        };
        (0..4).fold(0, |result, i| result | byte(selectors >> (4 * i)) << (8 * i))
    })),
    ("popc", (U32, &[T], |_, &[a, ..]| a.count_ones().into())),
    ("clz", (U32, &[T], |of, &[a, ..]| i128::from(a.leading_zeros() + of.bits) - 128)),
    ("brev", (T, &[T], |of, &[a, ..]| ((a as u64).reverse_bits() >> (64 - of.bits)).into())),
    ("setp.eq", (Pred, &[T, T], |_, &[a, b, ..]| (a == b).into())),
    ("setp.ne", (Pred, &[T, T], |_, &[a, b, ..]| (a != b).into())),
    ("setp.lt", (Pred, &[T, T], |_, &[a, b, ..]| (a < b).into())),
    ("setp.le", (Pred, &[T, T], |_, &[a, b, ..]| (a <= b).into())),
    ("setp.gt", (Pred, &[T, T], |_, &[a, b, ..]| (a > b).into())),
    ("setp.ge", (Pred, &[T, T], |_, &[a, b, ..]| (a >= b).into())),
    ("setp.lo", (Pred, &[T, T], |_, &[a, b, ..]| (a < b).into())),
    ("setp.ls", (Pred, &[T, T], |_, &[a, b, ..]| (a <= b).into())),
    ("setp.hi", (Pred, &[T, T], |_, &[a, b, ..]| (a > b).into())),
    ("setp.hs", (Pred, &[T, T], |_, &[a, b, ..]| (a >= b).into())),
    ("cvta.global", (T, &[T], |_, &[a, ..]| a)),
    ("cvta.const", (T, &[T], |_, &[a, ..]| a)),
    ("cvta.shared", (T, &[T], |_, &[a, ..]| a + i128::from(SHARED_WINDOW))),
    ("cvta.local", (T, &[T], |_, &[a, ..]| a + i128::from(LOCAL_WINDOW))),
    ("cvta.to.global", (T, &[T], |_, &[a, ..]| a)),
    ("cvta.to.const", (T, &[T], |_, &[a, ..]| a)),
    ("cvta.to.shared", (T, &[T], |_, &[a, ..]| a - i128::from(SHARED_WINDOW))),
    ("cvta.to.local", (T, &[T], |_, &[a, ..]| a - i128::from(LOCAL_WINDOW))),
    ("isspacep.shared", (Pred, &[U64], |_, &[a, ..]| a >> SHARED_WINDOW.ilog2() & 1)),
    ("isspacep.local", (Pred, &[U64], |_, &[a, ..]| a >> LOCAL_WINDOW.ilog2() & 1)),
];

/// The upper half of a product.
fn high(of: Type, a: i128, b: i128) -> i128 {
    a.wrapping_mul(b) >> of.bits
}

/// Opcodes without a result and a type.
#[derive(Clone, Copy)]
pub(super) enum Control {
    /// `label`
    Branch,
    /// `0`, the only barrier
    Barrier,
    /// `mask`
    WarpBarrier,
    /// `nanoseconds`
    Sleep,
    Trap,
    Exit,
}

pub(super) const CONTROLS: &[(&str, Control)] = &[
    ("bra", Control::Branch),
    ("bra.uni", Control::Branch),
    ("bar.sync", Control::Barrier),
    ("bar.cta.sync", Control::Barrier),
    ("barrier.sync", Control::Barrier),
    ("barrier.sync.aligned", Control::Barrier),
    ("barrier.cta.sync", Control::Barrier),
    ("barrier.cta.sync.aligned", Control::Barrier),
    ("bar.warp.sync", Control::WarpBarrier),
    ("nanosleep.u32", Control::Sleep),
    ("trap", Control::Trap),
    ("exit", Control::Exit),
    ("ret", Control::Exit),
    ("ret.uni", Control::Exit),
];

/// A part of the name of an opcode that accesses memory.
#[derive(Clone, Copy)]
pub(super) enum Part {
    In(Space),
    Ordered(Ordering),
    /// Accesses this number of elements.
    Elements(usize),
    /// An atomic access, with this number of operands.
    Update(usize, Update),
}

use Part::*;

/// Parts of the names of `ld`, `st`, `atom` and `red`.
#[rustfmt::skip] // A line for each.
pub(super) const PARTS: &[(&str, Part)] = &[
    ("global", In(Space::Generic)),
    ("const", In(Space::Generic)),
    ("shared", In(Space::Shared)),
    ("shared::cta", In(Space::Shared)),
    ("local", In(Space::Local)),
    ("param", In(Space::Parameters)),
    ("param::entry", In(Space::Parameters)),
    ("weak", Ordered(Relaxed)),
    ("volatile", Ordered(Relaxed)),
    ("relaxed", Ordered(Relaxed)),
    ("acquire", Ordered(Acquire)),
    ("release", Ordered(Release)),
    ("acq_rel", Ordered(AcqRel)),
    ("v2", Elements(2)),
    ("v4", Elements(4)),
    ("v8", Elements(8)),
    ("add", Update(1, |old, [a, _]| old + a)),
    ("min", Update(1, |old, [a, _]| old.min(a))),
    ("max", Update(1, |old, [a, _]| old.max(a))),
    ("and", Update(1, |old, [a, _]| old & a)),
    ("or", Update(1, |old, [a, _]| old | a)),
    ("xor", Update(1, |old, [a, _]| old ^ a)),
    ("inc", Update(1, |old, [a, _]| if old >= a { 0 } else { old + 1 })),
    ("dec", Update(1, |old, [a, _]| if old == 0 || old > a { a } else { old - 1 })),
    ("exch", Update(1, |_, [a, _]| a)),
    ("cas", Update(2, |old, [expected, new]| if old == expected { new } else { old })),
];

/// Parts of these names without an effect here: scopes, and hints for caches.
pub(super) const NO_EFFECT: &str = "cta cluster gpu sys mmio ca cg cs lu cv wb wt nc L1::evict_normal \
    L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate L2::64B L2::128B L2::256B";

/// What the table has under a name.
pub(super) fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, entry)| *entry)
}
