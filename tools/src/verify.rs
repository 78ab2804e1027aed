//! Bytes to copy, and what is wrong with those that arrived.
#![forbid(unsafe_code)]

/// The first byte that is not as it should be; `what` names the bytes.
pub fn difference(seen: &[u8], wanted: &[u8], what: &str) -> Option<String> {
    // Slices compare by the fast memcmp; where they differ, the place is worth a slow search.
    if seen == wanted {
        return None;
    }
    let at = seen
        .iter()
        .zip(wanted)
        .position(|(seen, wanted)| seen != wanted)?;
    Some(format!(
        "{what} {at} is {:#04x}, not {:#04x}",
        seen[at], wanted[at]
    ))
}

/// Bytes that differ from their neighbors, and from those of another seed.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len.next_multiple_of(8)];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in bytes.chunks_exact_mut(8) {
        // An xorshift generator.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told() {
        assert_eq!(difference(&[1, 2], &[1, 2], "byte"), None);
        let told = difference(&[1, 9, 9], &[1, 2, 3], "byte").unwrap();
        assert_eq!(told, "byte 1 is 0x09, not 0x02");
    }

    #[test]
    fn patterns_tell_places_and_seeds_apart() {
        let (a, b) = (pattern(4099, 1), pattern(4099, 2));
        assert_eq!(a.len(), 4099);
        let equal = |(x, y): (&u8, &u8)| usize::from(x == y);
        assert!(a.iter().zip(&b).map(equal).sum::<usize>() < 64);
        assert!(a.iter().zip(&a[64..]).map(equal).sum::<usize>() < 64);
    }
}
