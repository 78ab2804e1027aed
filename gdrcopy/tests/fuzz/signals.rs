//! Flags and counters.
#![forbid(unsafe_code)]

use std::time::Instant;

use gdrcopy::channel::{Counter, CounterWriter, Flag};

use crate::access::Slice;
use crate::isolated::{calling, outcome, panic_outcome};
use crate::memory::Memory;
use crate::ops::{Access, Args};

pub(crate) fn access(slice: Slice<'_>, memory: &Memory, call: Access, args: &Args) {
    let offset = args.sizes[0].of(slice.len);
    let (start, is_flag) = (slice.start.wrapping_add(offset as u64), matches!(call, Access::Flag));
    let size = if is_flag { 4 } else { 8 };
    let is_word = slice.has(offset, size) && slice.is_aligned(offset, size);
    if is_flag {
        calling!("Flag::new({slice}.word({offset:#x}))");
        if let Some(word) = outcome(is_word, slice.mapped.word(offset)) {
            use_flag(Flag::new(word), start, memory, args);
        }
    } else {
        calling!("Counter::new({slice}.word({offset:#x}))");
        if let Some(word) = outcome(is_word, slice.mapped.word(offset)) {
            let counter = Counter::new(word);
            let mut value = use_counter(counter, start, memory);
            use_writer(&mut counter.writer(), &mut value, start, memory, args);
            assert_eq!(use_counter(counter, start, memory), value);
        }
    }
}

pub(crate) fn use_flag(flag: Flag<'_>, start: u64, memory: &Memory, args: &Args) {
    let value = args.data as u32;
    assert_eq!(flag.device_address(), start);
    assert_eq!(flag.get().to_ne_bytes()[..], memory.bytes(start, 4));
    flag.set(value);
    assert_eq!(flag.get(), value);
    assert!(flag.wait(value, None).is_ok());
    assert!(flag.wait(!value, Instant::now()).is_err());
    memory.set(start, &value.to_ne_bytes());
    if args.data >> 32 & 1 == 0 {
        flag.clear();
        memory.set(start, &[0; 4]);
    }
}

/// Reads a counter, whose value it returns.
pub(crate) fn use_counter(counter: Counter<'_>, start: u64, memory: &Memory) -> u64 {
    let model = memory.bytes(start, 8);
    let value = u64::from_ne_bytes(model.try_into().expect("8 bytes"));
    assert_eq!((counter.device_address(), counter.get()), (start, value));
    assert_eq!(counter.wait_for(value, None).ok(), Some(value));
    let is_last = counter.wait_for(u64::MAX, Instant::now()).is_ok();
    assert_eq!(is_last, value == u64::MAX);
    value
}

/// Writes a counter, whose writer has this value.
pub(crate) fn use_writer(writer: &mut CounterWriter<'_>, value: &mut u64, start: u64, memory: &Memory, args: &Args) {
    let [_, next, more] = args.sizes;
    assert_eq!(writer.value(), *value);
    use_counter(writer.counter(), start, memory);
    let (next, more) = (next.of(*value as usize & 0xffff) as u64, more.of(*value as usize & 0xffff) as u64);
    calling!("  at {value:#x}: .publish({next:#x})");
    panic_outcome(next < *value, || writer.publish(next));
    if next >= *value {
        *value = next;
        memory.set(start, &value.to_ne_bytes());
    }
    calling!("  at {value:#x}: .add({more:#x})");
    let sum = value.checked_add(more);
    panic_outcome(sum.is_none(), || {
        assert_eq!(Some(writer.add(more)), sum);
    });
    if let Some(sum) = sum {
        *value = sum;
        memory.set(start, &sum.to_ne_bytes());
    }
    assert_eq!(writer.value(), *value);
}
