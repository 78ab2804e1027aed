//! The instruction set as tables.

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use super::kernel::{Class, Function, LOCAL_WINDOW, SHARED_WINDOW, Space, Type};

/// The type of an operand or result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The integer type that the opcode ends with.
    T,
    /// Any type that the opcode ends with.
    Bits,
    /// An integer with twice the bits.
    Wide,
    Is(Type),
}

use Kind::*;

const U32: Kind = Is(Type::U32);
const U64: Kind = Is(Type::U64);
const PRED: Kind = Is(Type::PREDICATE);

impl Kind {
    /// The type, of an opcode that ends with `of`.
    pub(super) fn resolve(self, of: Type) -> Option<Type> {
        match self {
            T => of.is_integer().then_some(of),
            Bits => Some(of),
            Wide => (of.is_integer() && of.bits <= 32).then_some(Type { bits: of.bits * 2, ..of }),
            Is(found) => Some(found),
        }
    }
}

/// An opcode that computes, with the types of the result and the operands, and the functions by
/// `Type::index`.
#[derive(Clone, Copy)]
pub(super) struct Computation {
    pub(super) result: Kind,
    pub(super) operands: &'static [Kind],
    pub(super) functions: [Function; 9],
}

/// Computes with numbers. The lower bits of the result count.
#[inline(always)]
fn compute(
    of: Type,
    result: Kind,
    operands: &[Kind],
    function: impl Fn(Type, [i128; 3]) -> i128,
    registers: [u64; 3],
) -> u64 {
    let as_type = |kind: Kind| kind.resolve(of).unwrap_or(of);
    let mut numbers = [0; 3];
    for (index, kind) in operands.iter().enumerate() {
        numbers[index] = as_type(*kind).number(registers[index]);
    }
    as_type(result).extend(function(of, numbers) as u64)
}

/// A table of computations, each compiled once per type.
macro_rules! computations {
    ($(($name:literal, $result:expr, [$($kind:expr),+], $function:expr),)+) => {
        &[$(($name, {
            fn typed<const SIGNED: bool, const BITS: u32>(a: u64, b: u64, c: u64) -> u64 {
                let class = if SIGNED { Class::Signed } else { Class::Unsigned };
                compute(Type { class, bits: BITS }, $result, &[$($kind),+], $function, [a, b, c])
            }
            Computation {
                result: $result,
                operands: &[$($kind),+],
                functions: [
                    typed::<false, 1>,
                    typed::<false, 8>, typed::<true, 8>, typed::<false, 16>, typed::<true, 16>,
                    typed::<false, 32>, typed::<true, 32>, typed::<false, 64>, typed::<true, 64>,
                ],
            }
        }),)+]
    };
}

/// Opcodes that compute, without the type at the end.
#[rustfmt::skip] // A line for each.
pub(super) const COMPUTATIONS: &[(&str, Computation)] = computations![
    ("cvt.u8", Is(Type::unsigned(8)), [T], |_, [a, ..]| a),
    ("cvt.s8", Is(Type::signed(8)), [T], |_, [a, ..]| a),
    ("cvt.u16", Is(Type::unsigned(16)), [T], |_, [a, ..]| a),
    ("cvt.s16", Is(Type::signed(16)), [T], |_, [a, ..]| a),
    ("cvt.u32", U32, [T], |_, [a, ..]| a),
    ("cvt.s32", Is(Type::signed(32)), [T], |_, [a, ..]| a),
    ("cvt.u64", U64, [T], |_, [a, ..]| a),
    ("cvt.s64", U64, [T], |_, [a, ..]| a),
    ("selp", Bits, [Bits, Bits, PRED], |_, [a, b, p]| if p != 0 { a } else { b }),
    ("add", T, [T, T], |_, [a, b, _]| a + b),
    ("sub", T, [T, T], |_, [a, b, _]| a - b),
    ("neg", T, [T], |_, [a, ..]| -a),
    ("abs", T, [T], |_, [a, ..]| a.abs()),
    ("min", T, [T, T], |_, [a, b, _]| a.min(b)),
    ("max", T, [T, T], |_, [a, b, _]| a.max(b)),
    ("mul.lo", T, [T, T], |_, [a, b, _]| a.wrapping_mul(b)),
    ("mul.hi", T, [T, T], |of, [a, b, _]| high(of, a, b)),
    ("mul.wide", Wide, [T, T], |_, [a, b, _]| a * b),
    ("mad.lo", T, [T, T, T], |_, [a, b, c]| a.wrapping_mul(b).wrapping_add(c)),
    ("mad.hi", T, [T, T, T], |of, [a, b, c]| high(of, a, b) + c),
    ("mad.wide", Wide, [T, T, Wide], |_, [a, b, c]| a * b + c),
    ("div", T, [T, T], |_, [a, b, _]| a.checked_div(b).unwrap_or(-1)),
    ("rem", T, [T, T], |_, [a, b, _]| a.checked_rem(b).unwrap_or(a)),
    ("and", T, [T, T], |_, [a, b, _]| a & b),
    ("or", T, [T, T], |_, [a, b, _]| a | b),
    ("xor", T, [T, T], |_, [a, b, _]| a ^ b),
    ("not", T, [T], |_, [a, ..]| !a),
    ("shl", T, [T, U32], |of, [a, by, _]| a << by.min(of.bits.into())),
    ("shr", T, [T, U32], |of, [a, by, _]| a >> by.min(of.bits.into())),
    ("shf.l.wrap", T, [T, T, U32], |_, [a, b, by]| (b << 32 | a) << (by & 31) >> 32),
    ("shf.r.wrap", T, [T, T, U32], |_, [a, b, by]| (b << 32 | a) >> (by & 31)),
    ("shf.l.clamp", T, [T, T, U32], |_, [a, b, by]| (b << 32 | a) << by.min(32) >> 32),
    ("shf.r.clamp", T, [T, T, U32], |_, [a, b, by]| (b << 32 | a) >> by.min(32)),
    ("prmt", T, [T, T, T], |_, [a, b, selectors]| {
        let byte = |selector: i128| {
            let byte = (b << 32 | a) >> (8 * (selector & 7)) & 0xff;
            if selector & 8 == 0 { byte } else { (byte >> 7) * 0xff } // Its sign.
        };
        (0..4).fold(0, |result, i| result | byte(selectors >> (4 * i)) << (8 * i))
    }),
    ("popc", U32, [T], |_, [a, ..]| a.count_ones().into()),
    ("clz", U32, [T], |of, [a, ..]| i128::from(a.leading_zeros() + of.bits) - 128),
    ("brev", T, [T], |of, [a, ..]| ((a as u64).reverse_bits() >> (64 - of.bits)).into()),
    ("setp.eq", PRED, [T, T], |_, [a, b, _]| (a == b).into()),
    ("setp.ne", PRED, [T, T], |_, [a, b, _]| (a != b).into()),
    ("setp.lt", PRED, [T, T], |_, [a, b, _]| (a < b).into()),
    ("setp.le", PRED, [T, T], |_, [a, b, _]| (a <= b).into()),
    ("setp.gt", PRED, [T, T], |_, [a, b, _]| (a > b).into()),
    ("setp.ge", PRED, [T, T], |_, [a, b, _]| (a >= b).into()),
    ("setp.lo", PRED, [T, T], |_, [a, b, _]| (a < b).into()),
    ("setp.ls", PRED, [T, T], |_, [a, b, _]| (a <= b).into()),
    ("setp.hi", PRED, [T, T], |_, [a, b, _]| (a > b).into()),
    ("setp.hs", PRED, [T, T], |_, [a, b, _]| (a >= b).into()),
    ("cvta.global", T, [T], |_, [a, ..]| a),
    ("cvta.const", T, [T], |_, [a, ..]| a),
    ("cvta.shared", T, [T], |_, [a, ..]| a + i128::from(SHARED_WINDOW)),
    ("cvta.local", T, [T], |_, [a, ..]| a + i128::from(LOCAL_WINDOW)),
    ("cvta.to.global", T, [T], |_, [a, ..]| a),
    ("cvta.to.const", T, [T], |_, [a, ..]| a),
    ("cvta.to.shared", T, [T], |_, [a, ..]| a - i128::from(SHARED_WINDOW)),
    ("cvta.to.local", T, [T], |_, [a, ..]| a - i128::from(LOCAL_WINDOW)),
    ("isspacep.shared", PRED, [U64], |_, [a, ..]| a >> SHARED_WINDOW.ilog2() & 1),
    ("isspacep.local", PRED, [U64], |_, [a, ..]| a >> LOCAL_WINDOW.ilog2() & 1),
    // A step of `mov` from elements, which adds one to others.
    ("{}", U64, [U64, Bits, U32], |_, [others, element, at]| others | element << at),
    // Steps of `bfi`, a value without the bits of a field, and the field at its place.
    ("bfi.rest", T, [T, U32, U32], |_, [value, at, len]| value & !(ones(len) << at.min(64))),
    ("bfi.field", T, [T, U32, U32], |_, [field, at, len]| (field & ones(len)) << at.min(64)),
    // Atomic accesses besides `UPDATES`, from the old value and operands.
    ("atom.inc", T, [T, T], |_, [old, a, _]| if old >= a { 0 } else { old + 1 }),
    ("atom.dec", T, [T, T], |_, [old, a, _]| if old == 0 || old > a { a } else { old - 1 }),
    ("atom.exch", T, [T, T], |_, [_, a, _]| a),
    ("atom.cas", T, [T, T, T], |_, [old, expected, new]| if old == expected { new } else { old }),
];

/// Computations that are also atomic accesses, from the old value and an operand.
pub(super) const UPDATES: &[&str] = &["add", "min", "max", "and", "or", "xor"];

/// This number of ones, at most 64.
fn ones(count: i128) -> i128 {
    (1 << count.min(64)) - 1
}

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
    /// Work of a stream is in order, so nothing is to be waited for.
    OtherGrids,
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
    ("griddepcontrol.wait", Control::OtherGrids),
    ("griddepcontrol.launch_dependents", Control::OtherGrids),
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
];

/// Parts of these names without an effect here, such as scopes, and hints for caches.
pub(super) const NO_EFFECT: &str = "cta cluster gpu sys mmio ca cg cs lu cv wb wt nc L1::evict_normal \
    L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate L2::64B L2::128B L2::256B";

pub(super) fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, entry)| *entry)
}
