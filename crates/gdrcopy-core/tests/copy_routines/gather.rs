//! Tests that each routine copies the wanted bytes in batches of writes and of reads (gathers), and changes no others.

use crate::bytes::alignments;
use crate::routines::{self, Alike, Item, Routine, Shape};

const POISON: u8 = 0xff;
/// The number of guard bytes on either side of an item. No copy may change them.
const GUARD: usize = 64;
const MAX_LEN: usize = if cfg!(miri) { 70 } else { 300 };

/// An item, which is one of the copies of a gather or batch: its offset in the device memory, and its size in bytes.
type Place = (usize, usize);

#[repr(align(64))]
struct Arena([u8; Arena::LEN]);

impl Arena {
    const LEN: usize = 1 << 16;

    /// Returns host memory that the tests use as device memory. No byte is `POISON`, and the sequence of bytes repeats
    /// only after 251 × 251 bytes, so that copies of wrong bytes are noticed.
    fn new() -> Box<Arena> {
        let mut arena = Box::new(Arena([0; Arena::LEN]));
        for (at, byte) in arena.0.iter_mut().enumerate() {
            *byte = ((at + at / 251) % 251) as u8;
        }
        arena
    }
}

/// Returns the size and the alignment that these places of `device` have in common, as a `Shape`.
fn shape(device: *const u8, places: &[Place]) -> Shape {
    let Some(&(_, len)) = places.first() else {
        return Shape::MIXED;
    };
    let mut addresses = 0;
    for &(at, len_of_place) in places {
        if len_of_place != len {
            return Shape::MIXED;
        }
        addresses |= device.wrapping_add(at).addr();
    }
    Shape::new(len, addresses)
}

/// Gathers the places from `device` to a new buffer, and checks each byte of the buffer. Then a batch writes these
/// bytes to the same places of other memory, each byte of which is checked, too. `case` is printed on failure.
fn check_places(routine: &Routine, device: &mut Arena, places: &[Place], alignment: usize, case: &str) {
    let mut starts = Vec::with_capacity(places.len());
    let mut end = GUARD + alignment;
    for &(_, len) in places {
        starts.push(end);
        end += len + GUARD;
    }
    let mut host = vec![POISON; end];
    let source = device.0.as_mut_ptr().cast_const(); // Words are read by atomics, which need a mutable pointer.
    let to = host.as_mut_ptr();
    // SAFETY: `device` contains the places and the cache lines around them; `host` has room for all bytes.
    let gathered = unsafe {
        routines::gather(routine, shape(source, places), places.len(), |n| Item {
            dst: to.wrapping_add(starts[n]),
            src: source.wrapping_add(places[n].0),
            len: places[n].1,
        })
    };
    assert!(gathered);

    let mut expected = vec![POISON; end];
    let mut written = Box::new(Arena([POISON; Arena::LEN]));
    for (n, &(from, len)) in places.iter().enumerate() {
        expected[starts[n]..][..len].copy_from_slice(&device.0[from..][..len]);
        written.0[from..][..len].copy_from_slice(&device.0[from..][..len]);
    }
    assert!(host == expected, "{}: {case}", routine.name());

    let mut batch = Box::new(Arena([POISON; Arena::LEN]));
    let to = batch.0.as_mut_ptr();
    let from = host.as_ptr();
    // SAFETY: the places lie in the memory at `to`, and the buffer at `from` contains the bytes to write to each place.
    unsafe {
        routines::write_many_unfenced(routine, shape(to, places), places.len(), |n| Item {
            dst: to.wrapping_add(places[n].0),
            src: from.wrapping_add(starts[n]),
            len: places[n].1,
        });
    }
    routines::after_write();
    assert!(batch.0 == written.0, "{}: written: {case}", routine.name());
}

/// Checks one or three items of each size and alignment, and then more items than a gather copies at a time.
pub(crate) fn check(routine: &Routine) {
    let mut device = Arena::new();
    for len in 0..=MAX_LEN {
        for at in alignments() {
            for count in [1, 3] {
                let places: Vec<Place> = (0..count).map(|n| (64 * (7 * n % 64) + at, len)).collect();
                let case = format!("{count} items of {len} bytes at {at}");
                check_places(routine, &mut device, &places, len + at, &case);
            }
        }
    }
    let counts: &[usize] = if cfg!(miri) { &[0, 17] } else { &[0, 15, 16, 17, 255, 256, 257, 511, 512, 513, 1_500] };
    for &count in counts {
        for len in [0, 1, 2, 4, 8, 16, 63, 64, 65, 129] {
            for unit in [1, 8, 64] {
                let places: Vec<Place> =
                    (0..count).map(|n| (n * 613 % (Arena::LEN - 200) / unit * unit, len)).collect();
                let case = format!("{count} items of {len} bytes, aligned to {unit}");
                check_places(routine, &mut device, &places, 0, &case);
            }
        }
        let mut places = Vec::new();
        // Adds large items, of many cache lines, and small items in turn, up to the end of the memory.
        for n in 0..count.min(100) {
            let len = [3, 0, 2_000, 64, 2_048, 9_000, 1, 2_049, 20_000][n * n % 9];
            places.push((n * 6_131 % (Arena::LEN - len + 1), len));
        }
        check_places(routine, &mut device, &places, 1, &format!("{count} items of mixed sizes"));
    }
}

/// Makes the copies as writes by a batch, then as reads by a gather. Returns whether batch and gather were made.
///
/// # Safety
/// Valid copies lie in the mapping that starts at `device`, and `host` has room for each.
unsafe fn write_and_read(routine: &Routine, shape: Alike<'_>, device: *mut u8, host: *mut u8) -> [bool; 2] {
    let Alike { copies, size: len, .. } = shape;
    // SAFETY: contract of this function.
    let are_made = unsafe {
        [
            routines::write_many_unfenced(routine, shape, copies.len(), |n| Item {
                dst: device.wrapping_add(copies[n][0]),
                src: host,
                len,
            }),
            routines::gather(routine, shape, copies.len(), |n| Item {
                dst: host,
                src: device.wrapping_add(copies[n][0]),
                len,
            }),
        ]
    };
    routines::after_write();
    are_made
}

/// Checks that batches and gathers of one size are made only if each copy's offset, host address and size are valid.
pub(crate) fn check_fields(routine: &Routine) {
    const ROOM: usize = 4096;
    const LEN: usize = 8;
    const LAST: usize = ROOM - LEN;
    let mut host = [1_u8; LEN];
    let host = host.as_mut_ptr();
    let mut device = Arena::new();
    let device = device.0.as_mut_ptr();
    let valid = [[0, host.addr(), LEN], [LAST, host.addr(), LEN], [LAST - 3, host.addr(), LEN]];
    let refused = [
        [LAST + 1, host.addr(), LEN],
        [usize::MAX, host.addr(), LEN],
        [isize::MAX as usize + 1, host.addr(), LEN],
        [0, 0, LEN],
        [0, host.addr(), LEN + 1],
        [0, host.addr(), LEN - 1],
        [0, host.addr(), usize::MAX],
    ];
    let are_made = |copies: &[[usize; 3]]| {
        let shape = Alike { copies, start: device.addr(), size: LEN, last: LAST };
        // SAFETY: the valid copies lie in the memory at `device`, and fit into the bytes at `host`.
        unsafe { write_and_read(routine, shape, device, host) }
    };
    for count in [1, 2, 7, 8, 9, 31, 32, 33, 47] {
        let mut copies: Vec<[usize; 3]> = (0..count).map(|n| valid[n % 3]).collect();
        assert_eq!(are_made(&copies), [true; 2], "{}: {count} copies", routine.name());
        for at in 0..count {
            for fields in refused {
                let kept = copies[at];
                copies[at] = fields;
                assert_eq!(are_made(&copies), [false; 2], "{}: {fields:?} at {at} of {count}", routine.name());
                copies[at] = kept;
            }
        }
    }
}
