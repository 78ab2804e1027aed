//! Both ends against a queue. Their order in several threads is checked by `loom_tests`.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::Ring;
use super::positions::Positions;
use crate::error::Error;
use crate::testing::{Memory, cases};

proptest! {
    #![proptest_config(cases(256, 8))]

    #[test]
    fn ring_is_a_bounded_queue(
        log_slots in 0_u32..6,
        first in prop_oneof![Just(0_u32), any::<u32>(), u32::MAX - 100..=u32::MAX],
        moves in prop::collection::vec((any::<bool>(), 0_usize..80), 1..100),
    ) {
        let slots = 1 << log_slots;
        let memory = Memory::new(Ring::<[u32; 3]>::bytes(slots));
        let attach = |next: u32| Ring::<[u32; 3]>::attach(memory.slice(), slots, first.wrapping_add(next)).expect("room");
        let ring = Ring::<[u32; 3]>::starting_at(memory.slice(), slots, first).expect("room");
        let (mut receiver, mut sender) = (ring.into_receiver(), attach(0).into_sender());
        let (mut queue, mut next) = (VecDeque::<[u32; 3]>::new(), 0);
        for (sends, count) in moves {
            // A restart of both ends.
            if count % 16 == 15 {
                receiver = attach(next - queue.len() as u32).into_receiver();
                sender = attach(next).into_sender();
            }
            let mut messages: Vec<[u32; 3]> = (next..).map(|n| [n, !n, n << 7]).take(count).collect();
            if sends {
                let sent = sender.try_send(&messages).expect("a sound ring");
                prop_assert_eq!(sent, count.min(slots as usize - queue.len()));
                queue.extend(&messages[..sent]);
                next += sent as u32;
            } else if count == 1 {
                prop_assert_eq!(receiver.pop(), Ok(queue.pop_front()));
            } else {
                let received = receiver.try_receive(&mut messages).expect("a sound ring");
                prop_assert_eq!(received, count.min(queue.len()));
                let expected: Vec<_> = queue.drain(..received).collect();
                prop_assert_eq!(&messages[..received], expected);
            }
            prop_assert_eq!(sender.free(), Ok(slots - queue.len() as u32));
            prop_assert_eq!((sender.capacity(), receiver.capacity()), (slots, slots));
        }
    }

    #[test]
    fn impossible_words_are_noticed(log_slots in 0_u32..6, first in any::<u32>(), off in any::<u32>()) {
        let slots = 1 << log_slots;
        let positions = Positions::new(slots);
        let room = positions.room(first, first.wrapping_add(off));
        prop_assert_eq!(room.is_some(), off.wrapping_neg() <= slots);
        let found = first.wrapping_add(off);
        let sound = found == positions.full(first) || found == positions.empty(first);
        prop_assert_eq!(positions.ready(first, &[found]).is_ok(), sound);
    }
}

#[test]
#[should_panic(expected = "a power of two, not 48")]
fn slots_that_are_no_power_of_two_are_refused() {
    Positions::new(48);
}

#[test]
fn attached_end_changes_nothing_and_knows_nothing() {
    let bytes = Ring::<u32>::bytes(4);
    let memory = Memory::new(bytes);
    let slice = memory.slice();
    let mut sender = Ring::<u32>::new(slice, 4).expect("room").into_sender();
    assert_eq!(sender.try_send(&[1, 2, 3]), Ok(3));
    let before = slice.read_vec(0, bytes);
    let ring = Ring::<u32>::attach(slice, 4, 3).expect("room");
    assert_eq!((ring.capacity(), ring.device_address()), (4, slice.device_address()));
    let mut sender = ring.into_sender();
    assert_eq!(slice.read_vec(0, bytes), before);
    assert_eq!(sender.try_send(&[4, 5]), Ok(1), "an unread message is overwritten");
    let small = Ring::<u32>::attach(slice.slice(..bytes - 1).expect("inside"), 4, 0);
    assert!(matches!(small.err(), Some(Error::OutOfMapping { .. })));
    let unaligned = Ring::<u32>::attach(slice.slice(2..).expect("inside"), 1, 0);
    assert!(matches!(unaligned.err(), Some(Error::UnalignedWord { .. })));
}

#[test]
fn ring_of_more_bytes_than_a_number_has_fits_nowhere() {
    assert_eq!(Ring::<[u32; 1 << 30]>::bytes(1 << 31), (1 << 63) + (1 << 33) + 64);
    const WRAPS: usize = Ring::<[u32; 1 << 31]>::bytes(1 << 31);
    assert_eq!(WRAPS, usize::MAX);
    let memory = Memory::new(4096);
    let ring = Ring::<[u32; 1 << 31]>::new(memory.slice(), 1 << 31);
    assert!(matches!(ring.err(), Some(Error::OutOfMapping { .. })));
}
