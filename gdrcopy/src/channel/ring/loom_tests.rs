//! Both ends, in the interleavings and orders of accesses that loom finds (`make loom`).

use loom::model::Builder;
use loom::thread;

use super::Ring;
use crate::testing::Memory;

/// Two words, so that a message can be seen in part.
type Message = [u32; 2];

/// Has no word in common with the messages near it.
fn message(number: u32) -> Message {
    [number + 1, !number]
}

/// Sends messages in these groups and receives at most `most` at a time. The ring numbers the last one 0.
fn pass(slots: u32, groups: &'static [u32], most: usize) {
    let count: u32 = groups.iter().sum();
    let mut builder = Builder::new();
    // With more, executions grow tenfold.
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let memory = Box::leak(Box::new(Memory::new(Ring::<Message>::bytes(slots))));
        let ring = || Ring::<Message>::starting_at(memory.slice(), slots, 1_u32.wrapping_sub(count));
        let mut receiver = ring().expect("room").into_receiver();
        let mut sender = ring().expect("room").into_sender();
        let producer = thread::spawn(move || {
            let messages: Vec<Message> = (0..count).map(message).collect();
            let mut rest = &messages[..];
            for &group in groups {
                let (mut unsent, later) = rest.split_at(group as usize);
                while !unsent.is_empty() {
                    match sender.try_send(unsent).expect("a sound ring") {
                        0 => thread::yield_now(),
                        sent => unsent = &unsent[sent..],
                    }
                }
                rest = later;
            }
            sender.wait_consumed(None).expect("a sound ring");
        });
        let mut next = 0;
        while next < count {
            let mut messages = vec![[0; 2]; most];
            let received = receiver.receive(&mut messages, None).expect("a sound ring");
            for found in &messages[..received] {
                assert_eq!(*found, message(next));
                next += 1;
            }
        }
        producer.join().expect("no panic");
    });
}

#[test]
fn slot_is_used_again_once_its_message_is_read() {
    pass(1, &[1, 1], 1);
}

#[test]
fn messages_pass_in_groups_over_the_last_slot() {
    pass(2, &[1, 2], 2);
}
