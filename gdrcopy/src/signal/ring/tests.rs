//! Both ends against a queue. Their order in several threads is checked by `loom_tests`.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::Ring;
use super::positions::Positions;
use crate::testing::Memory;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn ring_is_a_bounded_queue(
        log_slots in 0_u32..6,
        first in prop_oneof![Just(0_u32), any::<u32>(), u32::MAX - 100..=u32::MAX],
        moves in prop::collection::vec((any::<bool>(), 0_usize..80), 1..100),
    ) {
        let slots = 1 << log_slots;
        let memory = Memory::new(Ring::<[u32; 3]>::bytes(slots));
        let ring = || Ring::<[u32; 3]>::starting_at(memory.slice(), slots, first).expect("room");
        let (mut receiver, mut sender) = (ring().into_receiver(), ring().into_sender());
        let (mut queue, mut next) = (VecDeque::<[u32; 3]>::new(), 0);
        for (sends, count) in moves {
            let mut messages: Vec<[u32; 3]> = (next..).map(|n| [n, !n, n << 7]).take(count).collect();
            if sends {
                let sent = sender.try_send(&messages).expect("a sound ring");
                prop_assert_eq!(sent, count.min(slots as usize - queue.len()));
                queue.extend(&messages[..sent]);
                next += sent as u32;
            } else {
                let received = receiver.try_receive(&mut messages).expect("a sound ring");
                prop_assert_eq!(received, count.min(queue.len()));
                let expected: Vec<_> = queue.drain(..received).collect();
                prop_assert_eq!(&messages[..received], expected);
            }
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
