//! Finds the size and the alignment that many copies have in common.

/// Three numbers that describe a copy: its offset in the mapping, its host address and its size.
pub(super) type Fields = [usize; 3];

/// Checks copies, from the first on, and may leave the last ones to the caller. Returns the number of copies that it
/// has checked, and the bitwise or of their offsets; `None` if a field is below its lowest or above its highest value.
/// Fields above `isize::MAX` count as negative, so they are below any lowest value.
///
/// # Safety
/// The CPU must have the instructions that the function uses.
pub type CheckFn = unsafe fn(copies: &[Fields], lowest: Fields, highest: Fields) -> Option<(usize, usize)>;

/// The size and the alignment that many copies have in common.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The size of each item in bytes; 0 if sizes differ.
    pub(super) len: usize,
    /// The bitwise or of the mapped addresses of all items: a multiple of a power of two exactly if all of them are.
    pub(super) addresses: usize,
}

impl Shape {
    /// The shape of copies that have nothing in common.
    pub const MIXED: Shape = Shape { len: 0, addresses: 0 };

    /// Returns the shape of copies of `len` bytes each. `addresses` is the bitwise or of their mapped addresses.
    #[inline(always)]
    pub fn new(len: usize, addresses: usize) -> Shape {
        Shape { len, addresses }
    }

    /// Returns whether all copies have `len` bytes and mapped addresses that are aligned to `len`, a power of two.
    #[inline(always)]
    pub(super) fn is(self, len: usize) -> bool {
        self.len == len && self.addresses & (len - 1) == 0
    }
}

/// A [`Shape`], or copies that are checked to find out their shape ([`Alike`]).
pub trait Shaped: Copy {
    /// Returns the shape of all `count` copies; `None` if one of them is invalid. Then callers make none of them.
    ///
    /// # Safety
    /// The CPU must have the instructions of `check`.
    unsafe fn shape(&self, count: usize, check: CheckFn) -> Option<Shape>;
}

impl Shaped for Shape {
    #[inline(always)]
    unsafe fn shape(&self, _: usize, _: CheckFn) -> Option<Shape> {
        Some(*self)
    }
}

/// Copies that must all have the same size and be inside the mapping. `shape` checks that.
#[derive(Clone, Copy, Debug)]
pub struct Alike<'a> {
    /// The offset, host address and size of each copy.
    pub copies: &'a [[usize; 3]],
    /// The CPU address of offset 0, where the mapping begins.
    pub start: usize,
    /// The size that each copy should have. Neither this number nor `last` may be above `isize::MAX`, because
    /// [`CheckFn`] treats larger numbers as negative.
    pub size: usize,
    /// The largest offset at which a copy of `size` bytes is inside the mapping.
    pub last: usize,
}

impl Shaped for Alike<'_> {
    /// Returns `None` if a copy does not have `self.size` bytes, is not inside the mapping, or has a null host address.
    /// May also do so if a host address is above `isize::MAX`.
    #[inline(always)]
    unsafe fn shape(&self, _: usize, check: CheckFn) -> Option<Shape> {
        let lowest = [0, 1, self.size];
        let highest = [self.last, isize::MAX as usize, self.size];
        // SAFETY: contract of this function.
        let (checked, mut addresses) = unsafe { check(self.copies, lowest, highest) }?;
        let is_alike = |&[offset, host, size]: &[usize; 3]| size == self.size && offset <= self.last && host != 0;
        // The second loop checks four copies at a time, which takes fewer instructions per copy.
        let fours = self.copies[checked..].chunks_exact(4);
        for fields in fours.remainder() {
            if !is_alike(fields) {
                return None;
            }
            addresses |= fields[0];
        }
        for four in fours {
            for fields in four {
                if !is_alike(fields) {
                    return None;
                }
                addresses |= fields[0];
            }
        }
        Some(Shape::new(self.size, self.start | addresses))
    }
}
