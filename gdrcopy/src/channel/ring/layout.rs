//! Offsets of a ring's parts in bytes, the same on both sides.
//!
//! The consumer's word and the sequence words have lines of their own. The sequence words are dense, so that one
//! line has those of 16 slots, and so are the messages.
#![forbid(unsafe_code)]

/// A cache line, and what the CPU reads from the GPU at a time.
pub(super) const LINE: usize = 64;

/// `u32`: the number of the message that the consumer takes next.
pub(super) const CONSUMED: usize = 0;

/// `[u32; slots]`: whether a slot's message is there.
pub(super) const SEQUENCES: usize = LINE;

/// `[T; slots]`.
pub(super) const fn messages(slots: u32) -> usize {
    SEQUENCES + (slots as usize * size_of::<u32>()).next_multiple_of(LINE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::DEVICE_HEADER;

    /// The value of a macro of the header.
    fn constant(name: &str) -> usize {
        let define = format!("#define {name} ");
        let value = DEVICE_HEADER.lines().find_map(|line| line.strip_prefix(&define));
        value.expect("defined").parse().expect("a number")
    }

    #[test]
    fn header_has_the_same_layout() {
        assert_eq!(constant("GDRCOPY_LINE"), LINE);
        assert_eq!(constant("GDRCOPY_RING_CONSUMED"), CONSUMED);
        assert_eq!(constant("GDRCOPY_RING_SEQUENCES"), SEQUENCES);
        assert_eq!([1, 16, 17].map(messages), [128, 128, 192]);
    }
}
