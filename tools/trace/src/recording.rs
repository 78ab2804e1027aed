//! Counts calls. Copies take no lock, as a thread has an entry of its own.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{compiler_fence, fence};

use gdrcopy_trace_tables::{
    Event, Function, Number, PINS, Pin, Ring, THREADS, Tables, Thread, Wrong, size_class, ticks, ticks_after_loads,
    time_bucket,
};

use crate::process;

/// The longest write of a row.
const SMALL: usize = 64;
/// Places where a thread looks for an entry of its own.
const SEARCHED: usize = 8;

thread_local! {
    /// Set during a call that is no copy. Calls that the library makes itself do not count.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The tables that count this thread.
    static COUNTED_IN: Cell<*const Tables> = const { Cell::new(std::ptr::null()) };
}

/// The entry of this thread, and whether it may add to it without a locked instruction.
struct Entry {
    thread: &'static Thread,
    number: usize,
    exclusive: bool,
}

impl Entry {
    #[inline(always)]
    fn of_this_thread(tables: &'static Tables) -> Entry {
        if COUNTED_IN.get() != tables {
            COUNTED_IN.set(tables);
            tables.process.threads.fetch_add(1, Relaxed);
        }
        let owner = process::thread();
        let first = (owner.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        for i in 0..SEARCHED {
            let number = (first + i) % THREADS;
            let thread = &tables.threads[number];
            let there = thread.owner.load(Relaxed);
            let is_free = || thread.owner.compare_exchange(0, owner, Relaxed, Relaxed).is_ok();
            if there == owner || there == 0 && is_free() {
                // Else a signal handler has interrupted this function.
                if thread.busy.load(Relaxed) == 0 {
                    return Entry { thread, number, exclusive: true };
                }
                break;
            }
        }
        Entry { thread: &tables.threads[THREADS], number: THREADS, exclusive: false }
    }

    #[inline(always)]
    fn add(&self, number: &Number, value: u64) {
        if self.exclusive {
            number.store(number.load(Relaxed) + value, Relaxed);
        } else {
            number.fetch_add(value, Relaxed);
        }
    }

    /// Counts while handlers count elsewhere.
    #[inline(always)]
    fn count(&self, work: impl FnOnce()) {
        if self.exclusive {
            self.thread.busy.store(1, Relaxed);
            compiler_fence(AcqRel);
        }
        work();
        if self.exclusive {
            compiler_fence(AcqRel);
            self.thread.busy.store(0, Relaxed);
        }
    }
}

/// A copy that begins.
pub(crate) struct Copy {
    tables: &'static Tables,
    function: Function,
    pin: Option<usize>,
    address: u64,
    size: usize,
    start: u64,
}

impl Copy {
    /// Finds the pin. Records misuse now, as the copy may end the program.
    #[inline(always)]
    pub(crate) fn begin(
        tables: &'static Tables,
        function: Function,
        handle: u64,
        address: u64,
        size: usize,
        caller: usize,
    ) -> Copy {
        let pin = tables.find(handle);
        let fits = pin.is_some_and(|pin| {
            let pin = &tables.pins[pin];
            let offset = address.wrapping_sub(pin.va.load(Relaxed));
            let end = offset.checked_add(size as u64);
            end.is_some_and(|end| end <= pin.mapped.load(Relaxed))
        });
        let copy = Copy { tables, function, pin, address, size, start: 0 };
        if !fits && size > 0 {
            copy.record_misuse(caller);
        }
        Copy { start: ticks(), ..copy }
    }

    fn direction(&self) -> usize {
        usize::from(self.function == Function::CopyFromMapping)
    }

    #[cold]
    fn record_misuse(&self, caller: usize) {
        let pin = self.pin.map(|pin| &self.tables.pins[pin]);
        let (va, mapped) = pin.map_or((0, 0), |pin| (pin.va.load(Relaxed), pin.mapped.load(Relaxed)));
        let wrong = match pin {
            // It may be one of these.
            None if self.tables.pins_left_out.load(Relaxed) > 0 => return,
            None => Wrong::Unknown,
            Some(pin) if pin.live.load(Relaxed) == 0 => Wrong::Closed,
            Some(_) if mapped == 0 => Wrong::Unmapped,
            Some(_) => Wrong::Outside,
        };
        let key = (caller as u64) << 3 | wrong as u64;
        for misuse in &self.tables.misuses {
            match misuse.key.compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => {
                    misuse.direction.store(self.direction() as u64, Relaxed);
                    misuse.offset.store(self.address.wrapping_sub(va), Relaxed);
                    misuse.size.store(self.size as u64, Relaxed);
                    misuse.mapped.store(mapped, Relaxed);
                    misuse.list.store(process::list_objects(self.tables), Relaxed);
                }
                Err(there) if there == key => {}
                Err(_) => continue,
            }
            misuse.count.fetch_add(1, Relaxed);
            return;
        }
        self.tables.misuses_left_out.fetch_add(1, Relaxed);
    }

    /// Counts the copy by what the library returned.
    #[inline(always)]
    pub(crate) fn end(self, result: i32) {
        let end = ticks_after_loads();
        let ticks = end.saturating_sub(self.start);
        let (tables, direction) = (self.tables, self.direction());
        let entry = Entry::of_this_thread(tables);
        entry.count(|| {
            let thread = entry.thread;
            thread.last.store(end, Relaxed);
            if result != 0 {
                entry.add(&thread.failed[direction], 1);
                return;
            }
            let size = self.size as u64;
            let class = &thread.copies[direction][size_class(self.size)];
            entry.add(&class.bytes, size);
            entry.add(&class.ticks, ticks);
            entry.add(&class.times[time_bucket(ticks)], 1);
            let Some(pin) = self.pin else {
                return;
            };
            let pin = &thread.pins[pin];
            entry.add(&pin.count[direction], 1);
            entry.add(&pin.bytes[direction], size);
            if direction == 0 {
                let is_small = self.size <= SMALL;
                if is_small && thread.row_end.load(Relaxed) == self.address {
                    entry.add(&pin.in_rows, 1);
                }
                let end = if is_small { self.address.wrapping_add(size) } else { 0 };
                thread.row_end.store(end, Relaxed);
            }
        });
        if let Some(copies) = process::copies(tables)
            && result == 0
            && process::settings().is_some_and(|settings| ticks >= settings.min_ticks)
        {
            let what = what(tables, self.function, entry.number, self.pin);
            push(copies, what, self.start, ticks, self.size as u64);
        }
    }
}

/// The number of an [`Event::what`].
fn what(tables: &Tables, function: Function, thread: usize, pin: Option<usize>) -> u64 {
    let serial = pin.map_or(0, |pin| tables.pins[pin].serial.load(Relaxed));
    function as u64 | (thread as u64) << 8 | serial << 32
}

fn push<const N: usize>(ring: &Ring<N>, what: u64, start: u64, ticks: u64, size: u64) {
    let event: &Event = &ring.events[ring.next.fetch_add(1, Relaxed) as usize % N];
    event.start.store(0, Relaxed);
    fence(Release);
    event.ticks.store(ticks, Relaxed);
    event.what.store(what, Relaxed);
    event.size.store(size, Relaxed);
    event.start.store(start, Release);
}

/// A call that is no copy, and has returned.
pub(crate) struct Call {
    tables: &'static Tables,
    function: Function,
    entry: Entry,
    start: u64,
    end: u64,
}

impl Call {
    /// Makes a call. It is to be recorded unless the library makes it of its own functions.
    pub(crate) fn measure<T>(
        tables: &'static Tables,
        function: Function,
        caller: usize,
        forward: impl FnOnce() -> T,
    ) -> (T, Option<Call>) {
        // A signal handler may have left the library by longjmp; no function of it calls gdr_open.
        if INSIDE.replace(true) && function != Function::Open {
            return (forward(), None);
        }
        if caller != 0 {
            tables.calls[function as usize].caller.store(caller as u64, Relaxed);
        }
        let entry = Entry::of_this_thread(tables);
        let start = ticks();
        let result = forward();
        (result, Some(Call { tables, function, entry, start, end: ticks() }))
    }

    /// Counts the call by its error, 0 for none, and the bytes that it was for.
    pub(crate) fn record(&self, error: i32, bytes: usize, pin: Option<usize>) {
        let ticks = self.end.saturating_sub(self.start);
        self.entry.thread.last.store(self.end, Relaxed);
        INSIDE.set(false);
        let call = &self.tables.calls[self.function as usize];
        call.count.fetch_add(1, Relaxed);
        call.ticks.fetch_add(ticks, Relaxed);
        if error != 0 {
            call.failed.fetch_add(1, Relaxed);
            call.error.store(error as u64, Relaxed);
        } else if bytes != 0 {
            call.bytes.fetch_add(bytes as u64, Relaxed);
            call.largest.fetch_max(bytes as u64, Relaxed);
            call.smallest.fetch_max(!(bytes as u64), Relaxed);
        }
        let what = what(self.tables, self.function, self.entry.number, pin);
        push(&self.tables.steps, what, self.start, ticks, bytes as u64);
    }
}

/// A new pin's number; none if all places are taken by pins that exist.
pub(crate) fn pinned(
    tables: &'static Tables,
    gdr: u64,
    handle: u64,
    address: u64,
    size: u64,
    caller: usize,
) -> Option<usize> {
    let caller = caller as u64;
    let list = process::list_new_objects(tables);
    locked(tables, || {
        let is_live = |&pin: &usize| tables.pins[pin].live.load(Relaxed) == 1;
        let idle = || (0..PINS).filter(|pin| !is_live(pin));
        let key = [address, size, caller];
        let is_same = |&pin: &usize| {
            let pin = &tables.pins[pin];
            key == [&pin.address, &pin.size, &pin.caller].map(|number| number.load(Relaxed))
        };
        let is_unused = |&pin: &usize| tables.pins[pin].handle.load(Relaxed) == 0;
        let same = idle().find(is_same);
        let found = same.or_else(|| idle().find(is_unused));
        let number = found.or_else(|| {
            let number = idle().min_by_key(|&pin| copies_of(tables, pin))?;
            forget(tables, number);
            Some(number)
        });
        let number = number.filter(|&number| {
            let pin = &tables.pins[number];
            tables.remove(pin.handle.load(Relaxed), number);
            for (field, value) in
                [(&pin.gdr, gdr), (&pin.address, address), (&pin.size, size), (&pin.caller, caller), (&pin.list, list)]
            {
                field.store(value, Relaxed);
            }
            pin.mapped.store(0, Relaxed);
            pin.handle.store(handle, Relaxed);
            pin.pins.fetch_add(1, Relaxed);
            pin.serial.store(tables.process.pins.fetch_add(1, Relaxed) + 1, Relaxed);
            let has_place = tables.insert(handle, number);
            pin.live.store(has_place.into(), Release);
            has_place
        });
        if number.is_none() {
            tables.pins_left_out.fetch_add(1, Relaxed);
        }
        number
    })
}

fn copies_of(tables: &Tables, pin: usize) -> u64 {
    let counts = tables.threads.iter().flat_map(|thread| &thread.pins[pin].count);
    counts.map(|count| count.load(Relaxed)).sum()
}

/// Makes room for another pin. Copies of this one count in the sums only.
fn forget(tables: &Tables, pin: usize) {
    for thread in &tables.threads {
        let copies = &thread.pins[pin];
        for number in copies.count.iter().chain(&copies.bytes).chain([&copies.in_rows]) {
            number.store(0, Relaxed);
        }
    }
    for number in [&tables.pins[pin].pins, &tables.pins[pin].maps] {
        number.store(0, Relaxed);
    }
    tables.pins_forgotten.fetch_add(1, Relaxed);
}

/// A pin is mapped at this address, with this type and from this device address on, if they are known.
pub(crate) fn mapped(tables: &Tables, handle: u64, va: usize, size: usize, info: (u32, u64)) -> Option<usize> {
    let mapping_type = info.0 as usize % tables.mapping_types.len();
    tables.mapping_types[mapping_type].fetch_add(1, Relaxed);
    let number = tables.find(handle)?;
    let pin = &tables.pins[number];
    pin.va.store(va as u64, Relaxed);
    pin.mapping_type.store(mapping_type as u64, Relaxed);
    pin.maps.fetch_add(1, Relaxed);
    // A pin may begin inside a page; the size counts from there.
    let head = pin.address.load(Relaxed).saturating_sub(info.1) as usize;
    pin.mapped.store((head + size).next_multiple_of(process::page_size()) as u64, Release);
    Some(number)
}

/// A pin is about to be unmapped, as another thread may map it before the call returns. Returns its number and the mapped
/// bytes.
pub(crate) fn unmapping(tables: &Tables, handle: u64) -> Option<(usize, u64)> {
    let pin = tables.find(handle)?;
    Some((pin, tables.pins[pin].mapped.swap(0, Relaxed)))
}

/// A pin has not been unmapped.
pub(crate) fn stays_mapped(tables: &Tables, pin: usize, mapped: u64) {
    tables.pins[pin].mapped.store(mapped, Relaxed);
}

/// Pins are about to end. One that another thread gets before [`ended`] is not one of them.
pub(crate) fn ending(tables: &Tables, is_meant: impl Fn(&Pin) -> bool) {
    locked(tables, || {
        for pin in tables.pins.iter().filter(|pin| pin.live.load(Relaxed) == 1 && is_meant(pin)) {
            pin.live.store(2, Relaxed);
        }
    });
}

/// These pins no longer exist, or have not ended. Returns the number of one.
pub(crate) fn ended(tables: &Tables, is_meant: impl Fn(&Pin) -> bool, succeeded: bool) -> Option<usize> {
    locked(tables, || {
        let is_ending = |pin: &Pin| pin.live.load(Relaxed) == 2 && is_meant(pin);
        let of_it = tables.pins.iter().enumerate().filter(|(_, pin)| is_ending(pin));
        of_it.fold(None, |_, (number, pin)| {
            if succeeded {
                pin.mapped.store(0, Relaxed);
            }
            pin.live.store((!succeeded).into(), Relaxed);
            Some(number)
        })
    })
}

/// Does some work while no other thread changes pins.
fn locked<T>(tables: &Tables, work: impl FnOnce() -> T) -> T {
    process::uninterrupted(|| {
        while tables.lock.swap(1, Acquire) == 1 {
            std::thread::yield_now();
        }
        let result = work();
        tables.lock.store(0, Release);
        result
    })
}
