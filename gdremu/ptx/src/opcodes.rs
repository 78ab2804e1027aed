//! The instruction set of PTX, as tables.

use super::kernel::{Class, Function, GRID_WINDOW, LOCAL_WINDOW, SHARED_WINDOW, Special, Type};

/// The type of an operand or result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The type that the opcode ends with, such as `.u32` in `add.u32`. It must be an integer type.
    T,
    /// The type that the opcode ends with, which may also be a floating-point type, such as `.f32` in `selp.f32`.
    Bits,
    /// The integer type with twice the bits of `T`.
    Wide,
    Is(Type),
}

use Kind::*;

const U32: Kind = Is(Type::U32);
const U64: Kind = Is(Type::U64);
const PRED: Kind = Is(Type::PREDICATE);

impl Kind {
    /// Returns the type that this kind means in an opcode that ends with the type `of`. Returns `None` if PTX has no
    /// such opcode.
    pub(super) fn resolve(self, of: Type) -> Option<Type> {
        match self {
            Is(fixed) => Some(fixed),
            Bits => Some(of),
            T if of.is_integer() => Some(of),
            Wide if of.is_integer() && of.bits <= 32 => Some(Type { bits: of.bits * 2, ..of }),
            T | Wide => None,
        }
    }
}

/// An opcode that computes: the types of its result and operands, and a function for each type that the opcode may end
/// with. `Type::index` returns the index of a type's function.
pub(super) struct Computation {
    pub(super) result: Kind,
    pub(super) operands: &'static [Kind],
    pub(super) functions: [Function; 9],
}

/// Calls `function` with the numbers that registers hold. Keeps only the low bits of the result that fit its type.
#[inline(always)]
fn compute(
    of: Type,
    result: Kind,
    operands: &[Kind],
    function: impl Fn(Type, [i128; 3]) -> i128,
    registers: [u64; 3],
) -> u64 {
    let mut numbers = [0; 3];
    for (index, kind) in operands.iter().enumerate() {
        numbers[index] = kind.resolve(of).unwrap_or(of).number(registers[index]);
    }
    result.resolve(of).unwrap_or(of).extend(function(of, numbers) as u64)
}

/// Makes a table of computations, each compiled once per type.
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

/// The opcodes that compute. The names below lack the type at the end, such as the `.u32` of `add.u32`.
#[rustfmt::skip] // Keeps one row per line of text.
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
    ("mul.hi", T, [T, T], |of, [a, b, _]| a.wrapping_mul(b) >> of.bits),
    ("mul.wide", Wide, [T, T], |_, [a, b, _]| a * b),
    ("mad.lo", T, [T, T, T], |_, [a, b, c]| a.wrapping_mul(b).wrapping_add(c)),
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
    ("prmt", T, [T, T, T], |_, [a, b, selectors]| {
        let mut result = 0;
        for i in 0..4 {
            let selector = selectors >> (4 * i);
            let byte = (b << 32 | a) >> (8 * (selector & 7)) & 0xff;
            // If bit 3 of the selector is set, every bit of the result's byte is the sign bit of the selected byte.
            result |= if selector & 8 == 0 { byte } else { (byte >> 7) * 0xff } << (8 * i);
        }
        result
    }),
    ("popc", U32, [T], |_, [a, ..]| a.count_ones().into()),
    ("clz", U32, [T], |of, [a, ..]| i128::from(a.leading_zeros() + of.bits) - 128),
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
    // `mov.b64 %d, {%r0, %r1}`, which puts several elements into one register, runs this step for each element. The
    // step puts the element at bit `at`, beside the earlier ones.
    ("{}", U64, [U64, Bits, U32], |_, [others, element, at]| others | element << at),
    // `bfi`, which inserts a bit field, has two steps: "bits" makes a mask of the field's bits, and "field" replaces
    // these bits of the value.
    ("bits", T, [U32, U32], |_, [at, len, _]| ((1 << len.min(64)) - 1) << at.min(64)),
    ("field", T, [T, T, T], |_, [field, value, bits]| value & !bits | field << bits.trailing_zeros().min(64) & bits),
    // Atomic accesses use these rows and the earlier ones that `UPDATES` names. The first operand is the old value.
    ("inc", T, [T, T], |_, [old, a, _]| if old >= a { 0 } else { old + 1 }),
    ("dec", T, [T, T], |_, [old, a, _]| if old == 0 || old > a { a } else { old - 1 }),
    ("exch", T, [T, T], |_, [_, a, _]| a),
    ("cas", T, [T, T, T], |_, [old, expected, new]| if old == expected { new } else { old }),
];

pub(super) const UPDATES: [&str; 10] = ["add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas"];

/// Parts that the names of `ld`, `st`, `atom` and `red` can have, and that gdremu ignores, such as scopes and cache
/// hints. Every access has the strongest order.
pub(super) const NO_EFFECT: &str = "global const weak volatile relaxed acquire release acq_rel cta cluster gpu sys mmio \
    ca cg cs lu cv wb wt nc L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate \
    L2::64B L2::128B L2::256B";

const LANES: u64 = u32::MAX as u64;

/// PTX's special registers. `%envreg1` and `%envreg2` are the halves of the address of the memory in which
/// `grid.sync()` counts the blocks that have arrived.
#[rustfmt::skip] // Keeps one row per line of text.
pub(super) const SPECIALS: &[(&str, Special)] = &[
    ("%tid.x", |id| id.thread[0]),
    ("%tid.y", |id| id.thread[1]),
    ("%tid.z", |id| id.thread[2]),
    ("%ntid.x", |id| id.launch.block[0].into()),
    ("%ntid.y", |id| id.launch.block[1].into()),
    ("%ntid.z", |id| id.launch.block[2].into()),
    ("%ctaid.x", |id| id.block[0]),
    ("%ctaid.y", |id| id.block[1]),
    ("%ctaid.z", |id| id.block[2]),
    ("%nctaid.x", |id| id.launch.grid[0].into()),
    ("%nctaid.y", |id| id.launch.grid[1].into()),
    ("%nctaid.z", |id| id.launch.grid[2].into()),
    ("%warpid", |id| id.warp),
    ("%laneid", |id| id.lane),
    ("%lanemask_eq", |id| 1 << id.lane),
    ("%lanemask_lt", |id| (1 << id.lane) - 1),
    ("%lanemask_le", |id| (2 << id.lane) - 1),
    ("%lanemask_gt", |id| LANES - ((2 << id.lane) - 1)),
    ("%lanemask_ge", |id| LANES - ((1 << id.lane) - 1)),
    ("%envreg1", |id| if id.launch.cooperative { GRID_WINDOW >> 32 } else { 0 }),
    ("%envreg2", |id| if id.launch.cooperative { GRID_WINDOW & LANES } else { 0 }),
];

pub(super) fn find<'a, T>(table: &'a [(&str, T)], name: &str) -> Option<&'a T> {
    let row = table.iter().find(|(known, _)| *known == name)?;
    Some(&row.1)
}
