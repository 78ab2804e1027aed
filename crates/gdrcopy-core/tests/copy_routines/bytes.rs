//! Compares copies of every size and alignment with a byte-wise copy, with guard bytes on both sides.

use std::env;

use crate::routines::Routine;

/// All sizes up to this one are checked; Miri takes too long for more.
pub(crate) const MAX_LEN: usize = if cfg!(miri) { 140 } else { 1_100 };

/// Longer sizes to check. Some are a multiple of a cache line, and some are not.
const LONGER: &[usize] = if cfg!(miri) { &[] } else { &[2_047, 2_048, 2_112, 3_000, 3_072, 4_096, 5_000, LONGEST] };
const LONGEST: usize = if cfg!(miri) { MAX_LEN } else { 9_000 };

/// The number of guard bytes on either side of a copy's destination. It exceeds the size of the widest store.
const GUARD: usize = 128;
const POISON: u8 = 0xff;
const ROOM: usize = GUARD + 64 + LONGEST + GUARD;

#[repr(align(64))]
struct Arena([u8; ROOM]);

/// Alignments at which routines cut copies into different loads and stores.
const DIFFERING: [usize; 10] = [0, 1, 4, 7, 8, 16, 22, 31, 32, 63];

/// Returns the alignments to check. Miri and builds with debug assertions are slow, so they check only some alignments.
pub(crate) fn alignments() -> Vec<usize> {
    if cfg!(miri) {
        vec![0, 1, 36, 63]
    } else if cfg!(debug_assertions) && env::var_os("GDRCOPY_TEST_ALL").is_none() {
        DIFFERING.to_vec()
    } else {
        (0..64).collect()
    }
}

/// Copies all sizes from each source alignment to each destination alignment by `copy`, and checks all bytes.
pub(crate) fn check(routine: &Routine, copy: unsafe fn(&Routine, *mut u8, *const u8, usize)) {
    let name = routine.name();
    let all_alignments = alignments();
    let mut dst = Box::new(Arena([POISON; ROOM]));
    let mut src = Box::new(Arena([0; ROOM]));
    for (at, byte) in src.0.iter_mut().enumerate() {
        *byte = (at % 251) as u8; // The byte is never POISON, and differs from all bytes less than 251 away.
    }

    for len in (0..=MAX_LEN).chain(LONGER.iter().copied()) {
        let alignments = if len > MAX_LEN { &DIFFERING[..] } else { &all_alignments };
        for &to in alignments {
            for &from in alignments {
                let start = GUARD + to;
                // Each pointer may access its whole array, because a read may load bytes around its range. The
                // source is mutable, because words are read by atomic loads, and Rust's atomics need mutable memory.
                let source = src.0.as_mut_ptr().cast_const().wrapping_add(GUARD + from);
                // SAFETY: `src` and `dst` contain the ranges and the cache lines around them.
                unsafe { copy(routine, dst.0.as_mut_ptr().wrapping_add(start), source, len) };

                let case = || format!("{name}: {len} bytes from alignment {from} to {to}");
                let end = start + len;
                assert!(dst.0[start..end] == src.0[GUARD + from..][..len], "{}: wrong bytes", case());
                assert!(dst.0[start - GUARD..start] == [POISON; GUARD], "{}: bytes before it changed", case());
                assert!(dst.0[end..end + GUARD] == [POISON; GUARD], "{}: bytes after it changed", case());
                dst.0[start..end].fill(POISON);
            }
        }
    }
    assert!(dst.0 == [POISON; ROOM], "{name}: a copy wrote far outside its range");
}
