//! Rings, with garbage where the GPU's side would write.
#![forbid(unsafe_code)]

use std::any::type_name;
use std::fmt::Debug;
use std::mem;
use std::panic::catch_unwind;
use std::time::Instant;

use bytemuck::{Pod, bytes_of};
use gdrcopy::Error;
use gdrcopy::channel::{Ring, RingReceiver, RingSender};

use crate::access::Slice;
use crate::isolated::{any_outcome, calling, list, outcome_or_panic, panic_outcome};
use crate::memory::Memory;
use crate::ops::{Access, Args};
use crate::ring_model::{Failure, RingModel, bytes_of_ring};
use crate::sizes::Numbers;
use crate::types::{Huge, value};

pub(crate) const SLOTS: [u32; 12] = [0, 1, 2, 3, 4, 16, 64, 256, 1 << 20, (1 << 31) - 1, 1 << 31, u32::MAX];

pub(crate) fn access(slice: Slice<'_>, memory: &Memory, call: Access, args: &Args) {
    let slots = SLOTS[args.data as usize % SLOTS.len()];
    if let Access::RingBytes = call {
        ring_bytes::<u32>(slots);
        ring_bytes::<[u64; 4096]>(slots);
        ring_bytes::<Huge>(slots);
        return;
    }
    match args.data >> 8 & 3 {
        0 => ring::<u32>(slice, memory, slots, args),
        1 => ring::<[u32; 3]>(slice, memory, slots, args),
        2 => ring::<[u64; 2]>(slice, memory, slots, args),
        _ => ring::<[u64; 512]>(slice, memory, slots, args),
    }
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
            assert!(!text.starts_with("attempt to"), "{text}: unchecked arithmetic");
        }
    }
}

/// A ring at the start of a slice, new or as it is, one of its ends, and another writer in its memory.
fn ring<T: Pod + Debug + PartialEq>(slice: Slice<'_>, memory: &Memory, slots: u32, args: &Args) {
    let (next, mut numbers) = ((args.data >> 16) as u32, Numbers(args.data));
    let is_new = args.data >> 12 & 3 > 0;
    let name = if is_new { "starting_at" } else { "attach" };
    calling!("Ring::<{}>::{name}({slice}, {slots}, {next:#x})", type_name::<T>());
    let make = || match is_new {
        true => Ring::<T>::starting_at(slice.mapped, slots, next),
        false => Ring::attach(slice.mapped, slots, next),
    };
    let fits = bytes_of_ring::<T>(slots) <= slice.len as u128 && slice.is_aligned(0, 4);
    let Some(ring) = outcome_or_panic(!slots.is_power_of_two(), fits, make) else {
        return;
    };
    let mut model = RingModel::new::<T>(slice.start, slots, next);
    if is_new {
        model.clear(memory);
    }
    let is_sender = args.which.is_multiple_of(2);
    let mut end = RingEnd::new(ring, model, is_sender);
    for _ in 0..numbers.below(20) {
        if numbers.below(3) == 0 {
            let (offset, bytes) = end.model.garbage(&mut numbers);
            slice.mapped.write(offset, &bytes).expect("inside");
            slice.written(memory, offset, &bytes);
        }
        end.step(memory, &mut numbers);
    }
    match numbers.below(4) {
        0 => mem::forget(end),
        _ => drop(end),
    }
}

enum End<'m, T> {
    Sender(RingSender<'m, T>),
    Receiver(RingReceiver<'m, T>),
}

/// An end of a ring, and its model.
pub(crate) struct RingEnd<'m, T> {
    end: End<'m, T>,
    pub(crate) model: RingModel,
}

impl<'m, T: Pod + Debug + PartialEq> RingEnd<'m, T> {
    pub(crate) fn new(ring: Ring<'m, T>, model: RingModel, is_sender: bool) -> RingEnd<'m, T> {
        assert_eq!((ring.device_address(), ring.capacity()), (model.start, model.slots));
        match is_sender {
            true => RingEnd::sender(ring.into_sender(), model),
            false => RingEnd::receiver(ring.into_receiver(), model),
        }
    }

    pub(crate) fn sender(sender: RingSender<'m, T>, model: RingModel) -> RingEnd<'m, T> {
        let end = End::Sender(sender);
        RingEnd { end, model }
    }

    pub(crate) fn receiver(receiver: RingReceiver<'m, T>, model: RingModel) -> RingEnd<'m, T> {
        let end = End::Receiver(receiver);
        RingEnd { end, model }
    }

    /// Makes one call. Its writes are in the model.
    pub(crate) fn step(&mut self, memory: &Memory, numbers: &mut Numbers) {
        let model = &mut self.model;
        let count = numbers.below(300).min((1 << 17) / size_of::<T>());
        match &mut self.end {
            End::Sender(sender) => {
                let place = (sender.device_address(), sender.capacity());
                assert_eq!(place, (model.start, model.slots));
                let seed = numbers.next();
                match numbers.below(4) {
                    0 => {
                        calling!("  .wait_consumed()");
                        let done = match model.update_room(memory) {
                            Ok(room) if room < model.slots => Err(Failure::TimedOut),
                            room => room.map(|_| ()),
                        };
                        agree(sender.wait_consumed(Instant::now()), done);
                    }
                    1 => {
                        calling!("  .send()");
                        let sent = model.send::<T>(memory, &[value(seed)]);
                        let sent = sent.and_then(|sent| [Err(Failure::TimedOut), Ok(())][sent]);
                        agree(sender.send(&value(seed), Instant::now()), sent);
                    }
                    2 => {
                        calling!("  .free()");
                        agree(sender.free(), model.update_room(memory));
                    }
                    _ => {
                        calling!("  .try_send({count})");
                        let some: [T; 3] = [1, 2, 3].map(|more| value(seed.wrapping_add(more)));
                        let messages: Vec<T> = (0..count).map(|n| some[n % 3]).collect();
                        agree(sender.try_send(&messages), model.send(memory, &messages));
                    }
                }
            }
            End::Receiver(receiver) => {
                let place = (receiver.device_address(), receiver.capacity());
                assert_eq!(place, (model.start, model.slots));
                receive(receiver, model, count, memory, numbers);
            }
        }
    }
}

fn receive<T: Pod + Debug + PartialEq>(
    receiver: &mut RingReceiver<'_, T>,
    model: &mut RingModel,
    count: usize,
    memory: &Memory,
    numbers: &mut Numbers,
) {
    let mut messages = vec![T::zeroed(); count];
    let found = match numbers.below(3) {
        0 if count == 0 => {
            calling!("  .receive(none)");
            panic_outcome(true, || {
                let _ = receiver.receive(&mut [], Instant::now());
            });
            return;
        }
        0 => {
            calling!("  .receive({count})");
            let found = model.receive(memory, count);
            let received = found.as_ref().map(Vec::len).map_err(|&failure| failure);
            let waited = received.and_then(|received| match received {
                0 => Err(Failure::TimedOut),
                received => Ok(received),
            });
            agree(receiver.receive(&mut messages, Instant::now()), waited);
            found
        }
        1 => {
            calling!("  .pop()");
            let found = model.receive(memory, 1);
            let popped = found.as_ref().map(|found| !found.is_empty());
            let result = receiver.pop();
            messages = vec![T::zeroed(); 2];
            if let Ok(Some(message)) = result {
                messages[0] = message;
            }
            agree(result.map(|message| message.is_some()), popped.map_err(|&failure| failure));
            found
        }
        _ => {
            calling!("  .try_receive({count})");
            let found = model.receive(memory, count);
            let received = found.as_ref().map(Vec::len).map_err(|&failure| failure);
            agree(receiver.try_receive(&mut messages), received);
            found
        }
    };
    let found = found.unwrap_or_default();
    for (message, found) in messages.iter().zip(&found) {
        assert!(bytes_of(message) == found, "not the message");
    }
    let rest = &messages[found.len()..];
    assert!(rest.iter().all(|message| *message == T::zeroed()));
}

/// Garbage may only make calls report it, or wait; and nothing else may.
#[track_caller]
fn agree<T: PartialEq + Debug>(result: gdrcopy::Result<T>, model: Result<T, Failure>) {
    let failure = match &result {
        Ok(_) => None,
        Err(Error::RingCorrupted { .. }) => Some(Failure::Corrupted),
        Err(Error::TimedOut) => Some(Failure::TimedOut),
        Err(error) => panic!("{error:?}"),
    };
    let value = any_outcome(result);
    assert_eq!(value.ok_or(failure), model.map_err(Some));
}
