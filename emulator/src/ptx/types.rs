//! Types of PTX: of all kinds, only integers are computed with.

/// How wide a value is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// 1 byte.
    W8,
    /// 2 bytes.
    W16,
    /// 4 bytes.
    W32,
    /// 8 bytes.
    W64,
}

impl Width {
    /// Bytes.
    pub fn bytes(self) -> u32 {
        1 << self as u32
    }

    /// Bits.
    pub(super) fn bits(self) -> u32 {
        8 * self.bytes()
    }
}

/// What kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Predicate,
    Bits,
    Unsigned,
    Signed,
    Float,
}

/// A fundamental type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) kind: Kind,
    pub(super) width: Width,
}

impl Type {
    /// The type of this name, such as `u32`.
    pub(super) fn named(name: &str) -> Option<Type> {
        if name == "pred" {
            return Some(Type {
                kind: Kind::Predicate,
                width: Width::W8,
            });
        }
        let kind = match name.as_bytes().first()? {
            b'b' => Kind::Bits,
            b'u' => Kind::Unsigned,
            b's' => Kind::Signed,
            b'f' => Kind::Float,
            _ => return None,
        };
        let width = match &name[1..] {
            "8" => Width::W8,
            "16" => Width::W16,
            "32" => Width::W32,
            "64" => Width::W64,
            _ => return None,
        };
        (kind != Kind::Float || width >= Width::W32).then_some(Type { kind, width })
    }

    pub(super) fn is_signed(self) -> bool {
        self.kind == Kind::Signed
    }

    pub(super) fn is_integer(self) -> bool {
        matches!(self.kind, Kind::Bits | Kind::Unsigned | Kind::Signed)
    }

    /// The value of this type that the low bits hold, as a register keeps it: extended by its sign
    /// if it has one. So a register that is wider than the type holds what PTX says.
    pub(super) fn of(self, bits: u64) -> u64 {
        let unused = 64 - self.width.bits();
        if self.kind == Kind::Predicate {
            bits & 1
        } else if self.is_signed() {
            (((bits << unused) as i64) >> unused) as u64
        } else {
            bits << unused >> unused
        }
    }
}
