//! The arithmetic against a queue, and the order of both ends' accesses in every interleaving.

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::Positions;

/// The memory of a ring whose messages are numbers.
struct Memory {
    sequences: Vec<u32>,
    messages: Vec<u64>,
    consumed: u32,
}

impl Memory {
    fn new(positions: Positions, first: u32) -> Memory {
        let slots = positions.slots();
        let mut sequences = vec![0; slots as usize];
        for position in (0..slots).map(|ahead| first.wrapping_add(ahead)) {
            sequences[positions.slot(position)] = positions.empty(position);
        }
        Memory {
            sequences,
            messages: vec![u64::MAX; slots as usize],
            consumed: first,
        }
    }
}

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
        let positions = Positions::new(1 << log_slots);
        let mut memory = Memory::new(positions, first);
        let mut queue = VecDeque::new();
        let (mut sent, mut received, mut next) = (first, first, 0_u64);
        for (sends, wanted) in moves {
            if sends {
                let room = positions.room(sent, memory.consumed).expect("a sound ring");
                prop_assert_eq!(room as usize, (1 << log_slots) - queue.len());
                let count = wanted.min(room as usize);
                for slot in positions.runs(sent, count).into_iter().flatten() {
                    memory.messages[slot] = next;
                    memory.sequences[slot] = positions.full(sent);
                    queue.push_back(next);
                    (sent, next) = (sent.wrapping_add(1), next + 1);
                }
            } else {
                let polled = wanted.min(1 << log_slots);
                let slots = positions.runs(received, polled).into_iter().flatten();
                let sequences: Vec<u32> = slots.map(|slot| memory.sequences[slot]).collect();
                let ready = positions.ready(received, &sequences).expect("a sound ring") as usize;
                prop_assert_eq!(ready, polled.min(queue.len()));
                for slot in positions.runs(received, ready).into_iter().flatten() {
                    prop_assert_eq!(Some(memory.messages[slot]), queue.pop_front());
                    received = received.wrapping_add(1);
                }
                memory.consumed = received;
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

const SLOTS: u32 = 2;
const FIRST: u32 = u32::MAX - 2;
const MESSAGES: u32 = 4;

/// What an end does for each message.
#[derive(Clone, Copy)]
enum Access {
    /// Goes on once there is room.
    AwaitRoom,
    /// Goes on once the sequence word is full.
    AwaitSequence,
    WriteMessage,
    WriteSequence,
    /// Goes on once the stores have arrived; until there, they arrive in any order.
    PushOut,
    ReadMessage,
    CheckMessage,
    WriteConsumed,
}
use Access::*;

const PRODUCER: &[Access] = &[AwaitRoom, WriteMessage, PushOut, WriteSequence];
const CONSUMER: &[Access] = &[AwaitSequence, ReadMessage, CheckMessage, WriteConsumed];

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    sequences: [u32; SLOTS as usize],
    messages: [u32; SLOTS as usize],
    consumed: u32,
    /// Index of each end's next access, and its position.
    ends: [(usize, u32); 2],
    /// The producer's stores that have not arrived.
    message_on_its_way: Option<u32>,
    sequence_on_its_way: Option<u32>,
    /// What the consumer has read.
    read: u32,
}

impl State {
    fn new(positions: Positions) -> State {
        let memory = Memory::new(positions, FIRST);
        State {
            sequences: memory.sequences.try_into().expect("2 slots"),
            messages: [0; SLOTS as usize],
            consumed: FIRST,
            ends: [(0, FIRST); 2],
            message_on_its_way: None,
            sequence_on_its_way: None,
            read: 0,
        }
    }

    /// The state after the next access of one end. `None` if it waits.
    fn after(&self, positions: Positions, end: usize, access: Access) -> Result<Option<State>, ()> {
        let mut next = self.clone();
        let position = self.ends[end].1;
        let slot = positions.slot(position);
        let goes_on = match access {
            AwaitRoom => positions.room(position, self.consumed) > Some(0),
            AwaitSequence => positions.ready(position, &self.sequences[slot..=slot]) == Ok(1),
            PushOut => self.message_on_its_way.is_none() && self.sequence_on_its_way.is_none(),
            WriteMessage => next.message_on_its_way.replace(position).is_none(),
            WriteSequence => next.sequence_on_its_way.replace(position).is_none(),
            ReadMessage => {
                next.read = self.messages[slot];
                true
            }
            CheckMessage if self.read == position => true,
            CheckMessage => return Err(()),
            WriteConsumed => {
                next.consumed = position.wrapping_add(1);
                true
            }
        };
        Ok(goes_on.then_some(next))
    }

    /// The states in which one more store has arrived.
    fn arrivals(&self, positions: Positions) -> Vec<State> {
        let (mut message, mut sequence) = (self.clone(), self.clone());
        let mut states = Vec::new();
        if let Some(position) = message.message_on_its_way.take() {
            message.messages[positions.slot(position)] = position;
            states.push(message);
        }
        if let Some(position) = sequence.sequence_on_its_way.take() {
            sequence.sequences[positions.slot(position)] = positions.full(position);
            states.push(sequence);
        }
        states
    }
}

/// Whether every interleaving passes all messages on, each as it was sent.
fn is_sound(programs: [&[Access]; 2]) -> bool {
    let positions = Positions::new(SLOTS);
    let last = FIRST.wrapping_add(MESSAGES);
    let mut open = vec![State::new(positions)];
    let mut seen = HashSet::new();
    while let Some(state) = open.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        let mut following = state.arrivals(positions);
        for (end, program) in programs.into_iter().enumerate() {
            let (index, position) = state.ends[end];
            if position == last {
                continue;
            }
            let Ok(next) = state.after(positions, end, program[index]) else {
                return false;
            };
            following.extend(next.map(|mut next| {
                next.ends[end] = match index + 1 {
                    end_of_program if end_of_program == program.len() => {
                        (0, position.wrapping_add(1))
                    }
                    index => (index, position),
                };
                next
            }));
        }
        if following.is_empty() && state.ends.iter().any(|&(_, position)| position != last) {
            return false;
        }
        open.extend(following);
    }
    true
}

#[test]
fn each_interleaving_passes_messages_on_and_only_this_order_does() {
    assert!(is_sound([PRODUCER, CONSUMER]));
    for (defect, programs) in [
        (
            "no fence between message and sequence word",
            [&[AwaitRoom, WriteMessage, WriteSequence], CONSUMER],
        ),
        (
            "sequence word before the message",
            [
                &[AwaitRoom, WriteSequence, PushOut, WriteMessage][..],
                CONSUMER,
            ],
        ),
        (
            "no look at the consumer",
            [&[WriteMessage, PushOut, WriteSequence], CONSUMER],
        ),
        (
            "message read before the sequence word",
            [
                PRODUCER,
                &[ReadMessage, AwaitSequence, CheckMessage, WriteConsumed],
            ],
        ),
        (
            "slot released before it is read",
            [
                PRODUCER,
                &[AwaitSequence, WriteConsumed, ReadMessage, CheckMessage],
            ],
        ),
    ] {
        assert!(!is_sound(programs), "{defect} is not noticed");
    }
}
