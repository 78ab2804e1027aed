//! Flags, counters and rings, with garbage where the GPU's side would write.
#![forbid(unsafe_code)]

use std::any::type_name;
use std::fmt::Debug;
use std::panic::catch_unwind;
use std::time::Instant;

use bytemuck::Pod;
use gdrcopy::Error;
use gdrcopy::signal::{Counter, Flag, Ring, RingReceiver, RingSender};

use crate::access::Slice;
use crate::isolated::{any_outcome, calling, list, outcome, panic_outcome};
use crate::memory::Memory;
use crate::ops::{Access, Args};
use crate::sizes::Numbers;

/// A message that no memory can hold two billion of.
type Huge = [[[[u64; 4096]; 4096]; 4096]; 4];

const SLOTS: [u32; 12] = [
    0,
    1,
    2,
    3,
    4,
    16,
    64,
    256,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX,
];

pub(crate) fn access(slice: Slice<'_>, memory: &Memory, call: Access, args: &Args) {
    let slots = SLOTS[args.data as usize % SLOTS.len()];
    match call {
        Access::Flag => flag(slice, memory, args),
        Access::Counter => counter(slice, memory, args),
        Access::RingBytes => {
            ring_bytes::<u32>(slots);
            ring_bytes::<[u64; 4096]>(slots);
            ring_bytes::<Huge>(slots);
        }
        _ => match args.data >> 8 & 3 {
            0 => ring::<u32>(slice, memory, slots, args),
            1 => ring::<[u32; 3]>(slice, memory, slots, args),
            2 => ring::<[u64; 2]>(slice, memory, slots, args),
            _ => ring::<[u64; 512]>(slice, memory, slots, args),
        },
    }
}

fn flag(slice: Slice<'_>, memory: &Memory, args: &Args) {
    let (offset, value) = (args.sizes[0].of(slice.len), args.data as u32);
    calling!("Flag::new({slice}.word({offset:#x}))");
    let is_word = slice.has(offset, 4) && slice.is_aligned(offset, 4);
    let Some(word) = outcome(is_word, slice.mapped.word(offset)) else {
        return;
    };
    let flag = Flag::new(word);
    flag.set(value);
    assert_eq!(flag.get(), value);
    assert!(flag.wait(value, None).is_ok());
    assert!(flag.wait(!value, Instant::now()).is_err());
    slice.written(memory, offset, &value.to_ne_bytes());
    if args.data >> 32 & 1 == 0 {
        flag.clear();
        slice.written(memory, offset, &[0; 4]);
    }
}

fn counter(slice: Slice<'_>, memory: &Memory, args: &Args) {
    let [at, next, more] = args.sizes;
    let offset = at.of(slice.len);
    calling!("Counter::new({slice}.word({offset:#x}))");
    let is_word = slice.has(offset, 8) && slice.is_aligned(offset, 8);
    let Some(word) = outcome(is_word, slice.mapped.word(offset)) else {
        return;
    };
    let counter = Counter::new(word);
    let model = slice.model(memory, offset, 8);
    let mut value = u64::from_ne_bytes(model.try_into().expect("8 bytes"));
    let mut writer = counter.writer();
    assert_eq!((writer.value(), counter.get()), (value, value));
    let (next, more) = (
        next.of(value as usize & 0xffff) as u64,
        more.of(value as usize & 0xffff) as u64,
    );
    calling!("  at {value:#x}: .publish({next:#x})");
    panic_outcome(next < value, || writer.publish(next));
    value = value.max(next);
    calling!("  at {value:#x}: .add({more:#x})");
    panic_outcome(value.checked_add(more).is_none(), || {
        writer.add(more);
    });
    value = value.checked_add(more).unwrap_or(value);
    assert_eq!((writer.value(), counter.get()), (value, value));
    assert_eq!(counter.wait_for(value, None).ok(), Some(value));
    assert_eq!(
        counter.wait_for(u64::MAX, Instant::now()).is_ok(),
        value == u64::MAX
    );
    slice.written(memory, offset, &value.to_ne_bytes());
}

/// Bytes of a ring, as its documentation and its header have it: a line, the words in whole lines, the messages.
fn bytes_of_ring<T>(slots: u32) -> u128 {
    64 + (u128::from(slots) * 4).next_multiple_of(64) + u128::from(slots) * size_of::<T>() as u128
}

fn ring_bytes<T: Pod>(slots: u32) {
    calling!("Ring::<{}>::bytes({slots})", type_name::<T>());
    let model = bytes_of_ring::<T>(slots);
    match catch_unwind(|| Ring::<T>::bytes(slots)) {
        Ok(bytes) => {
            list(format_args!(" = Ok({bytes:#x})\n"));
            let most = usize::try_from(model).unwrap_or(usize::MAX);
            assert_eq!(bytes, most, "the ring's {model:#x} bytes");
        }
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
            assert!(usize::try_from(model).is_err(), "they fit");
            assert!(
                !text.starts_with("attempt to"),
                "{text}: unchecked arithmetic"
            );
        }
    }
}

/// A ring at the start of a slice, one of its ends, and another writer in its memory.
fn ring<T: Pod + Debug + PartialEq>(slice: Slice<'_>, memory: &Memory, slots: u32, args: &Args) {
    let (first, mut numbers) = ((args.data >> 16) as u32, Numbers(args.data));
    calling!(
        "Ring::<{}>::starting_at({slice}, {slots}, {first:#x})",
        type_name::<T>()
    );
    let create = || Ring::<T>::starting_at(slice.mapped, slots, first);
    if !slots.is_power_of_two() {
        panic_outcome(true, || drop(create()));
        return;
    }
    let bytes = bytes_of_ring::<T>(slots);
    let fits = bytes <= slice.len as u128 && slice.is_aligned(0, 4);
    let Some(ring) = outcome(fits, create()) else {
        return;
    };
    let mut end = match args.which % 2 {
        0 => End::Sender(ring.into_sender()),
        _ => End::Receiver(ring.into_receiver()),
    };
    for _ in 0..numbers.below(20) {
        if numbers.below(3) == 0 {
            let (words, values) = (
                bytes as usize / 4,
                [0, 1, slots, first, u32::MAX, numbers.next() as u32],
            );
            // Most of what decides is near the start.
            let span = [64, words][numbers.below(2)].min(words);
            let word = numbers.below(span);
            let value = values[numbers.below(6)].wrapping_add(numbers.below(3) as u32);
            slice
                .mapped
                .write(4 * word, &value.to_ne_bytes())
                .expect("inside");
        }
        end.step(&mut numbers);
    }
    match numbers.below(4) {
        0 => std::mem::forget(end),
        _ => drop(end),
    }
    // The ring may write all of its bytes, and no others.
    let mut now = vec![0; bytes as usize];
    slice.mapped.read(0, &mut now).expect("inside");
    slice.written(memory, 0, &now);
}

enum End<'m, T> {
    Sender(RingSender<'m, T>),
    Receiver(RingReceiver<'m, T>),
}

impl<T: Pod + Debug + PartialEq> End<'_, T> {
    fn step(&mut self, numbers: &mut Numbers) {
        let mut messages = vec![T::zeroed(); numbers.below(300)];
        let count = messages.len();
        match (self, numbers.below(3)) {
            (End::Sender(sender), 0) => {
                calling!("  .wait_consumed()");
                any(sender.wait_consumed(Instant::now()));
            }
            (End::Sender(sender), 1) => {
                calling!("  .send()");
                any(sender.send(&T::zeroed(), Instant::now()));
            }
            (End::Sender(sender), _) => {
                calling!("  .try_send({count})");
                let sent = any(sender.try_send(&messages));
                assert!(sent.is_none_or(|sent| sent <= count));
            }
            (End::Receiver(receiver), 0) if count == 0 => {
                calling!("  .receive(none)");
                panic_outcome(true, || {
                    let _ = receiver.receive(&mut [], Instant::now());
                });
            }
            (End::Receiver(receiver), 0) => {
                calling!("  .receive({count})");
                let received = any(receiver.receive(&mut messages, Instant::now()));
                assert!(received.is_none_or(|received| (1..=count).contains(&received)));
            }
            (End::Receiver(receiver), _) => {
                calling!("  .try_receive({count})");
                let received = any(receiver.try_receive(&mut messages)).unwrap_or(0);
                assert!(received <= count);
                assert!(
                    messages[received..]
                        .iter()
                        .all(|message| *message == T::zeroed())
                );
            }
        }
    }
}

/// Garbage may only make calls report it, or wait.
#[track_caller]
fn any<T>(result: gdrcopy::Result<T>) -> Option<T> {
    if let Err(error) = &result {
        let is_expected = matches!(error, Error::RingCorrupted { .. } | Error::TimedOut);
        assert!(is_expected, "{error:?}");
    }
    any_outcome(result)
}
