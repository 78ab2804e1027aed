//! Copies of every size and alignment, against a byte-wise copy, with guard bytes on both sides.

use crate::subject::Subject;

pub(crate) const MAX_LEN: usize = 1_100;

/// Bytes that must survive on either side of a copy: more than the widest store.
const GUARD: usize = 128;
const POISON: u8 = 0xff;
const ROOM: usize = GUARD + 64 + MAX_LEN + GUARD;

#[repr(align(64))]
struct Arena([u8; ROOM]);

/// Copies from each source alignment to each destination alignment, all sizes.
pub(crate) fn check_writes(subject: Subject, alignments: &[usize]) {
    // SAFETY: `check` passes ranges inside two arenas.
    check(subject.name(), alignments, |dst, src, len| unsafe {
        subject.write(dst, src, len)
    });
}

/// As [`check_writes`]; the lines around a source lie in its arena too.
pub(crate) fn check_reads(subject: Subject, alignments: &[usize]) {
    // SAFETY: `check` passes ranges inside two arenas, which are whole lines.
    check(subject.name(), alignments, |dst, src, len| unsafe {
        subject.read(dst, src, len)
    });
}

fn check(name: &str, alignments: &[usize], copy: impl Fn(*mut u8, *const u8, usize)) {
    let mut dst = Box::new(Arena([POISON; ROOM]));
    let mut src = Box::new(Arena([0; ROOM]));
    for (at, byte) in src.0.iter_mut().enumerate() {
        *byte = (at % 251) as u8; // Never POISON, and no period that the alignments share.
    }

    for len in 0..=MAX_LEN {
        for &to in alignments {
            for &from in alignments {
                let (start, end) = (GUARD + to, GUARD + to + len);
                let wanted = &src.0[GUARD + from..][..len];
                copy(dst.0[start..].as_mut_ptr(), wanted.as_ptr(), len);

                let what = || format!("{name}: {len} bytes from alignment {from} to {to}");
                assert!(dst.0[start..end] == *wanted, "{}: wrong bytes", what());
                let before = &dst.0[start - GUARD..start];
                let after = &dst.0[end..end + GUARD];
                let untouched = [POISON; GUARD];
                assert!(*before == untouched, "{}: bytes before it changed", what());
                assert!(*after == untouched, "{}: bytes after it changed", what());
                dst.0[start..end].fill(POISON);
            }
        }
    }
    assert!(
        dst.0 == [POISON; ROOM],
        "{name}: a copy wrote far outside its range"
    );
}
