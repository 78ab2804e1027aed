//! Arithmetic on integers, in registers of 64 bits.

use std::cmp::Ordering;

use super::instruction::{Binary, Comparison};
use super::types::Type;

/// The result as the type has it.
pub(super) fn binary(what: Binary, kind: Type, a: u64, b: u64) -> u64 {
    let bits = kind.width.bits();
    // Shifts count in 32 bits, whatever they shift.
    let count = b & 0xffff_ffff;
    let (a, b) = (kind.of(a), kind.of(b));
    let signed = kind.is_signed();
    let result = match what {
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::MultiplyLow => a.wrapping_mul(b),
        Binary::MultiplyHigh => (product(kind, a, b) >> bits) as u64,
        Binary::MultiplyWide => return product(kind, a, b) as u64,
        // As on GPUs, a division by zero gives all ones.
        Binary::Divide if b == 0 => u64::MAX,
        Binary::Divide if signed => (a as i64).wrapping_div(b as i64) as u64,
        Binary::Divide => a / b,
        Binary::Remainder if b == 0 => a,
        Binary::Remainder if signed => (a as i64).wrapping_rem(b as i64) as u64,
        Binary::Remainder => a % b,
        Binary::Minimum if order(kind, a, b) == Ordering::Greater => b,
        Binary::Minimum => a,
        Binary::Maximum if order(kind, a, b) == Ordering::Less => b,
        Binary::Maximum => a,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::ShiftLeft if count >= u64::from(bits) => 0,
        Binary::ShiftLeft => a << count,
        Binary::ShiftRight if signed => ((a as i64) >> count.min(63)) as u64,
        Binary::ShiftRight if count >= u64::from(bits) => 0,
        Binary::ShiftRight => a >> count,
    };
    kind.of(result)
}

/// The whole product of two values of the type.
fn product(kind: Type, a: u64, b: u64) -> i128 {
    if kind.is_signed() {
        i128::from(a as i64) * i128::from(b as i64)
    } else {
        (u128::from(a) * u128::from(b)) as i128
    }
}

fn order(kind: Type, a: u64, b: u64) -> Ordering {
    if kind.is_signed() {
        (a as i64).cmp(&(b as i64))
    } else {
        a.cmp(&b)
    }
}

/// Whether the comparison of two values holds.
pub(super) fn compare(what: Comparison, kind: Type, a: u64, b: u64) -> bool {
    let order = order(kind, kind.of(a), kind.of(b));
    match what {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}
