//! The reference model of the program's open, pinned and mapped objects, the contents of the memory, and hence the
//! result of each call.

use std::cell::RefCell;
use std::rc::Rc;

use super::library::Library;
use super::mode::Mode;
use super::ops::{NamedRange, Op, Owner};
use crate::cuda::Cuda;

const GPU_PAGE: u64 = 1 << 16;
const HOST_PAGE: usize = 4096;
/// Bytes of each buffer, one granule of GPU memory, so that pins never reach into another buffer.
const BUFFER: usize = 2 << 20;

/// A disagreement between the library and the model.
type Verdict = Result<(), String>;

pub(super) struct World<'a> {
    library: &'a Library,
    cuda: &'a Cuda,
    mode: &'a Mode,
    gs: Vec<Driver>,
    buffers: Vec<Buffer>,
    pins: Vec<Pin>,
    calls: u64,
}

struct Driver {
    handle: usize,
    is_open: bool,
}

struct Buffer {
    address: u64,
    is_free: bool,
    /// The contents of the memory. Pins keep it after the buffer is freed.
    bytes: Rc<RefCell<Vec<u8>>>,
}

struct Pin {
    /// Index of its driver.
    g: usize,
    buffer: usize,
    address: u64,
    size: u64,
    handle: usize,
    state: State,
    /// FORCE_PCIE.
    over_pcie: bool,
    /// Its memory was freed, and the driver does not keep it.
    is_revoked: bool,
    bytes: Rc<RefCell<Vec<u8>>>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Gone,
    Pinned,
    Mapped { va: usize, len: usize, kind: u32 },
}

impl Pin {
    fn first_page(&self) -> u64 {
        self.address & !(GPU_PAGE - 1)
    }

    fn pinned_bytes(&self) -> u64 {
        (self.address + self.size).next_multiple_of(GPU_PAGE) - self.first_page()
    }
}

fn agree<T: PartialEq + std::fmt::Debug>(what: &str, said: T, expected: T) -> Verdict {
    if said == expected { Ok(()) } else { Err(format!("{what}: {said:?}, expected {expected:?}")) }
}

/// Byte `i` of what is written with this seed.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| seed.wrapping_add((i * 167) as u8).rotate_left((i % 7) as u32)).collect()
}

impl<'a> World<'a> {
    pub(super) fn new(library: &'a Library, cuda: &'a Cuda, mode: &'a Mode) -> World<'a> {
        let mut world = World { library, cuda, mode, gs: vec![], buffers: vec![], pins: vec![], calls: 0 };
        world.alloc();
        world.gs.push(Driver { handle: library.open(), is_open: true });
        world
    }

    /// Calls of the library made so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Closes and frees everything; nothing may stay pinned.
    pub(super) fn end(&mut self) -> Verdict {
        self.library.set_faults("");
        for g in &self.gs {
            let closed = self.library.close(g.handle);
            agree("last close", closed, if g.is_open { Ok(()) } else { Err(libc::EINVAL) })?;
        }
        for buffer in self.buffers.iter().filter(|buffer| !buffer.is_free) {
            self.cuda.free(buffer.address);
        }
        agree("page tables still pinned", self.library.pins(), 0)
    }

    /// Makes the call, and compares.
    pub(super) fn step(&mut self, op: &Op) -> Verdict {
        self.calls += 1;
        let verdict = match *op {
            Op::Open { fault } => self.open(fault),
            Op::Close { g, fault } => self.close(g % self.gs.len(), fault),
            Op::Alloc => {
                if self.buffers.iter().filter(|buffer| !buffer.is_free).count() < 3 {
                    self.alloc();
                }
                Ok(())
            }
            Op::Free { buffer } => self.free(buffer % self.buffers.len()),
            Op::Pin { g, buffer, offset, size, flags, fault } => {
                self.pin(g % self.gs.len(), buffer % self.buffers.len(), offset, size, flags, fault)
            }
            Op::Attribute { g, attribute } => self.attribute(g % self.gs.len(), attribute),
            Op::Version { g } => self.version(g % self.gs.len()),
            Op::CudaWrite { buffer, at, len, seed } => self.cuda_write(buffer % self.buffers.len(), at, len, seed),
            Op::Forged { handle } => self.forged(handle),
            Op::Fork => self.fork(),
            _ if self.pins.is_empty() => Ok(()),
            Op::Unpin { pin, owner, fault } => self.unpin(pin % self.pins.len(), owner, fault),
            Op::Map { pin, owner, size, flags, fault } => self.map(pin % self.pins.len(), owner, size, flags, fault),
            Op::Unmap { pin, owner, range, fault } => self.unmap(pin % self.pins.len(), owner, range, fault),
            Op::Write { pin, at, len, seed } => self.write(pin % self.pins.len(), at, len, seed),
            Op::Read { pin, at, len } => self.read(pin % self.pins.len(), at, len),
            Op::Info { pin, owner } => self.info(pin % self.pins.len(), owner),
            Op::CallbackFlag { pin, owner } => self.callback_flag(pin % self.pins.len(), owner),
        };
        verdict.map_err(|why| format!("{op:?}: {why}"))
    }

    /// Makes a call while the driver's next `call` fails with `errno`.
    fn with_fault<T>(&self, call: &str, errno: Option<i32>, work: impl FnOnce(&Library) -> T) -> T {
        let Some(errno) = errno else {
            return work(self.library);
        };
        self.library.set_faults(&format!("{call}:{errno}@1"));
        let result = work(self.library);
        self.library.set_faults("");
        result
    }

    /// The `gdr_t` to pass with a pin, and whether it is a live one and the pin's own.
    fn owner(&self, pin: usize, owner: Owner) -> (usize, bool) {
        let right = self.pins[pin].g;
        let g = match owner {
            Owner::Right => right,
            Owner::Any(g) => g % self.gs.len(),
        };
        (self.gs[g].handle, g == right && self.gs[g].is_open)
    }

    fn alloc(&mut self) {
        let address = self.cuda.alloc(BUFFER);
        self.cuda.clear(address, BUFFER);
        let bytes = Rc::new(RefCell::new(vec![0; BUFFER]));
        self.buffers.push(Buffer { address, is_free: false, bytes });
    }

    fn free(&mut self, buffer: usize) -> Verdict {
        if !self.buffers[buffer].is_free {
            self.cuda.free(self.buffers[buffer].address);
            self.buffers[buffer].is_free = true;
            if !self.mode.persistent {
                for pin in self.pins.iter_mut().filter(|pin| pin.buffer == buffer) {
                    pin.is_revoked = true;
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, fault: Option<i32>) -> Verdict {
        let handle = self.with_fault("OPEN", fault, Library::open);
        // Interrupted calls are made again.
        let opens = matches!(fault, None | Some(libc::EINTR));
        agree("opened", handle != 0, opens)?;
        if opens {
            self.gs.push(Driver { handle, is_open: true });
        }
        Ok(())
    }

    fn close(&mut self, g: usize, fault: Option<(&str, i32)>) -> Verdict {
        let (call, errno) = fault.unzip();
        let call = call.unwrap_or("CLOSE");
        let handle = self.gs[g].handle;
        let said = self.with_fault(call, errno, |library| library.close(handle));
        let mut expected = if self.gs[g].is_open { Ok(()) } else { Err(libc::EINVAL) };
        let own = |pin: &&mut Pin| pin.g == g && pin.state != State::Gone;
        if let (Ok(()), Some(errno)) = (expected, errno) {
            let unpins = self.pins.iter_mut().filter(own).count() > 0;
            let is_repeated = call != "CLOSE" && errno == libc::EINTR;
            if (call == "CLOSE" || unpins) && !is_repeated {
                expected = Err(errno);
            }
        }
        agree("close", said, expected)?;
        self.gs[g].is_open = false;
        self.pins.iter_mut().filter(own).for_each(|pin| pin.state = State::Gone);
        Ok(())
    }

    fn pin(
        &mut self,
        g: usize,
        buffer: usize,
        offset: usize,
        size: usize,
        flags: Option<u32>,
        fault: Option<i32>,
    ) -> Verdict {
        let Buffer { address, is_free, ref bytes } = self.buffers[buffer];
        let (address, bytes) = (address + offset as u64, Rc::clone(bytes));
        // Behind the buffer may lie another one, so a range that does not fit must not fit anywhere.
        let fits = |size: &usize| offset.checked_add(*size).is_some_and(|end| end <= BUFFER);
        let size = if fits(&size) { size } else { size.max(1 << 40) };
        let call = if self.mode.has_flags() { "PIN_BUFFER_V2" } else { "PIN_BUFFER" };
        let handle = self.gs[g].handle;
        let said = self.with_fault(call, fault, |library| library.pin(handle, address, size, flags));

        let flags = flags.unwrap_or(0);
        let is_served = self.gs[g].is_open
            && address.checked_add(size as u64).is_some_and(|end| end <= u64::MAX - GPU_PAGE)
            && (self.mode.has_flags() || flags == 0);
        let is_empty = size == 0 && address.is_multiple_of(GPU_PAGE);
        let fits = !is_free && fits(&size);
        let refusal = match fault {
            _ if !is_served => Some(libc::EINVAL),
            Some(errno) if errno != libc::EINTR => Some(errno),
            _ if is_empty => Some(libc::EINVAL),
            _ if self.mode.is_module && size >= 1 << 40 => Some(libc::EINVAL),
            // FORCE_PCIE: a coherent GPU can, others answer that they cannot.
            _ if flags & 1 != 0 && !self.mode.persistent => Some(libc::EINVAL),
            _ if flags & 1 != 0 && self.mode.default_type != 2 => Some(libc::EOPNOTSUPP),
            _ if !fits => Some(libc::EINVAL),
            _ => None,
        };
        // Freed addresses may belong to a new buffer by now.
        if is_free && said.is_ok() && self.buffers.iter().any(|other| !other.is_free) {
            return agree("unpin", self.library.unpin(handle, said.unwrap_or(0)), Ok(()));
        }
        agree("pin", said.map(|_| ()), refusal.map_or(Ok(()), Err))?;
        if let Ok(handle) = said {
            let size = size as u64;
            let (state, over_pcie, is_revoked) = (State::Pinned, flags & 1 != 0, false);
            self.pins.push(Pin { g, buffer, address, size, handle, state, over_pcie, is_revoked, bytes });
        }
        Ok(())
    }

    fn unpin(&mut self, pin: usize, owner: Owner, fault: Option<i32>) -> Verdict {
        let (g, is_owner) = self.owner(pin, owner);
        let handle = self.pins[pin].handle;
        let said = self.with_fault("UNPIN_BUFFER", fault, |library| library.unpin(g, handle));
        if !is_owner || self.pins[pin].state == State::Gone {
            return agree("unpin", said, Err(libc::EINVAL));
        }
        let refusal = fault.filter(|errno| *errno != libc::EINTR);
        // If the driver refuses, the handle stays valid; the mapping is gone in any case.
        self.pins[pin].state = refusal.map_or(State::Gone, |_| State::Pinned);
        agree("unpin", said, refusal.map_or(Ok(()), Err))
    }

    fn map(&mut self, pin: usize, owner: Owner, size: usize, flags: i32, fault: Option<(&str, i32)>) -> Verdict {
        let (g, is_owner) = self.owner(pin, owner);
        let handle = self.pins[pin].handle;
        let (call, errno) = fault.unzip();
        let call = match call {
            Some("INFO") if self.mode.driver >= (2, 4) => "GET_INFO_V2",
            Some("INFO") => "GET_INFO",
            _ => "MMAP",
        };
        let said = self.with_fault(call, errno, |library| library.map(g, handle, size, flags));

        let target = &self.pins[pin];
        let pages = size.checked_next_multiple_of(HOST_PAGE);
        let mapped = match target.state {
            _ if !(0..4).contains(&flags) => Err(libc::EINVAL),
            _ if !is_owner => Err(libc::EINVAL),
            State::Gone => Err(libc::EINVAL),
            State::Mapped { .. } => Err(libc::EAGAIN),
            State::Pinned if size == 0 || pages.is_none() => Err(libc::EINVAL),
            State::Pinned if !target.address.is_multiple_of(GPU_PAGE) => Err(libc::EINVAL),
            State::Pinned => self.map_pinned(target, pages.unwrap_or(0), flags, call, errno),
        };
        agree("map", said.map(|_| ()), mapped.map(|_| ()))?;
        if let (Ok(va), Ok((len, kind))) = (said, mapped) {
            self.pins[pin].state = State::Mapped { va, len, kind };
            return self.info(pin, Owner::Right);
        }
        Ok(())
    }

    /// The result of a map once nothing but the driver can refuse it, as length and type, or the refusal.
    fn map_pinned(
        &self,
        pin: &Pin,
        len: usize,
        flags: i32,
        call: &str,
        fault: Option<i32>,
    ) -> Result<(usize, u32), i32> {
        let kind = self.mode.map_type(flags, pin.over_pcie);
        if self.mode.has_flags() {
            kind?;
        }
        match fault {
            Some(errno) if call == "MMAP" => return Err(errno),
            _ if pin.is_revoked || len as u64 > pin.pinned_bytes() => return Err(libc::EINVAL),
            Some(errno) if errno != libc::EINTR => return Err(errno),
            _ => (),
        }
        Ok((len, kind?))
    }

    fn unmap(&mut self, pin: usize, owner: Owner, range: NamedRange, fault: Option<i32>) -> Verdict {
        let (g, is_owner) = self.owner(pin, owner);
        let target = &self.pins[pin];
        let (mapped, len) = match target.state {
            State::Mapped { va, len, .. } => (va, len),
            _ => (0x1000, HOST_PAGE),
        };
        let (va, size) = match range {
            NamedRange::Right => (mapped, len),
            NamedRange::DeviceAddress => (target.address as usize, len),
            NamedRange::Half => (mapped, len / 2),
            NamedRange::Nothing => (0, 0),
        };
        let handle = target.handle;
        let said = self.with_fault("MUNMAP", fault, |library| library.unmap(g, handle, va, size));
        match self.pins[pin].state {
            State::Mapped { .. } if is_owner => {
                agree("unmap", said, fault.map_or(Ok(()), Err))?;
                if fault.is_none() {
                    self.pins[pin].state = State::Pinned;
                }
                Ok(())
            }
            _ => agree("unmap", said, Err(libc::EINVAL)),
        }
    }

    /// The mapped range that a copy of `len` bytes at `at` touches, clipped to the mapping, as address in the mapping,
    /// offset in the buffer, bytes. `None` where the copy must be refused.
    fn touched(&self, pin: &Pin, at: usize, len: usize) -> Option<(usize, usize, usize)> {
        let State::Mapped { va, len: mapped, .. } = pin.state else {
            return None;
        };
        let at = at % mapped;
        let in_buffer = (pin.first_page() - self.buffers[pin.buffer].address) as usize + at;
        Some((va + at, in_buffer, len.min(mapped - at)))
    }

    fn write(&mut self, pin: usize, at: usize, len: usize, seed: u8) -> Verdict {
        let target = &self.pins[pin];
        let Some((va, start, len)) = self.touched(target, at, len) else {
            let said = self.library.write(target.handle, 0x1000, &pattern(seed, len));
            return agree("write", said, Err(libc::EINVAL));
        };
        if target.is_revoked {
            return Ok(()); // A touch would fault.
        }
        let bytes = pattern(seed, len);
        agree("write", self.library.write(target.handle, va, &bytes), Ok(()))?;
        target.bytes.borrow_mut()[start..start + len].copy_from_slice(&bytes);
        if self.buffers[target.buffer].is_free {
            return Ok(()); // CUDA has no view of it any more.
        }
        // CUDA's view, with a margin on both sides.
        let (first, last) = (start.saturating_sub(64), (start + len + 64).min(BUFFER));
        let seen = self.cuda.read(self.buffers[target.buffer].address + first as u64, last - first);
        agree("CUDA's view", seen == target.bytes.borrow()[first..last], true)
    }

    fn read(&self, pin: usize, at: usize, len: usize) -> Verdict {
        const MARGIN: usize = 16;
        let target = &self.pins[pin];
        let Some((va, start, len)) = self.touched(target, at, len) else {
            let said = self.library.read(target.handle, 0x1000, &mut vec![0; len]);
            return agree("read", said, Err(libc::EINVAL));
        };
        if target.is_revoked {
            return Ok(());
        }
        let mut seen = vec![0xee; len + 2 * MARGIN];
        let said = self.library.read(target.handle, va, &mut seen[MARGIN..MARGIN + len]);
        agree("read", said, Ok(()))?;
        let inside = seen[MARGIN..MARGIN + len] == target.bytes.borrow()[start..start + len];
        agree("bytes read", inside, true)?;
        let margins = [&seen[..MARGIN], &seen[MARGIN + len..]].concat();
        agree("bytes beside", margins, vec![0xee; 2 * MARGIN])
    }

    fn cuda_write(&self, buffer: usize, at: usize, len: usize, seed: u8) -> Verdict {
        let Buffer { address, is_free, bytes } = &self.buffers[buffer];
        if !is_free {
            let pattern = pattern(seed, len);
            self.cuda.write(address + at as u64, &pattern);
            bytes.borrow_mut()[at..at + len].copy_from_slice(&pattern);
        }
        Ok(())
    }

    fn info(&mut self, pin: usize, owner: Owner) -> Verdict {
        self.calls += 1; // Two functions answer.
        let (g, is_owner) = self.owner(pin, owner);
        let target = &self.pins[pin];
        let said = self.library.info(g, target.handle);
        if !is_owner || target.state == State::Gone {
            return agree("info", said.map(|_| ()), Err(libc::EINVAL));
        }
        let info = said.map_err(|errno| format!("info: {errno}"))?;
        agree("va", info.v1.va, target.first_page())?;
        agree("mapped_size", info.v1.mapped_size, target.pinned_bytes())?;
        agree("page_size", info.v1.page_size, GPU_PAGE as u32)?;
        let kind = match target.state {
            // gdrdrv 2.0 to 2.2 describe a mapping that was taken away as before.
            State::Mapped { .. } if target.is_revoked && self.mode.driver >= (2, 3) => 0,
            State::Mapped { kind, .. } => kind,
            _ => 0,
        };
        agree("mapping_type", info.mapping_type, kind)?;
        agree("mapped and wc_mapping", info.v1.bits & 3, u32::from(kind != 0) | u32::from(kind == 1) << 1)
    }

    fn callback_flag(&self, pin: usize, owner: Owner) -> Verdict {
        let (g, is_owner) = self.owner(pin, owner);
        let target = &self.pins[pin];
        let said = self.library.callback_flag(g, target.handle);
        let is_live = is_owner && target.state != State::Gone;
        let flag = if is_live { Ok(i32::from(target.is_revoked)) } else { Err(libc::EINVAL) };
        agree("callback flag", said, flag)
    }

    fn attribute(&self, g: usize, attribute: u32) -> Verdict {
        let said = self.library.attribute(self.gs[g].handle, attribute);
        let value = if self.gs[g].is_open { self.mode.attribute(attribute) } else { Err(libc::EINVAL) };
        agree("attribute", said, value)
    }

    fn version(&self, g: usize) -> Verdict {
        let version = if self.gs[g].is_open { Ok(self.mode.driver) } else { Err(libc::EINVAL) };
        agree("version", self.library.version(self.gs[g].handle), version)
    }

    /// Every function with a handle that no call returned, and with one of the wrong kind.
    fn forged(&mut self, handle: usize) -> Verdict {
        let g = self.gs[0].handle;
        agree("forged handles", self.answers(g, handle), [libc::EINVAL; 5])?;
        agree("copies with a forged handle", self.copies(handle), [libc::EINVAL; 2])?;
        let pin = self.pins.first().map_or(0, |pin| pin.handle);
        agree("a forged gdr_t", self.answers(handle, pin), [libc::EINVAL; 5])?;
        agree("handles the wrong way round", self.answers(pin, g), [libc::EINVAL; 5])?;
        agree("copies with a gdr_t", self.copies(g), [libc::EINVAL; 2])?;
        agree("close of a forged gdr_t", self.library.close(handle), Err(libc::EINVAL))?;
        agree("close of a pin", self.library.close(pin), Err(libc::EINVAL))?;
        self.calls += 22;
        Ok(())
    }

    /// The results of the functions that take a `gdr_t` and a handle.
    fn answers(&self, g: usize, handle: usize) -> [i32; 5] {
        let library = self.library;
        [
            library.info(g, handle).map(drop),
            library.callback_flag(g, handle).map(drop),
            library.unmap(g, handle, 0x1000, HOST_PAGE),
            library.map(g, handle, HOST_PAGE, 0).map(drop),
            library.unpin(g, handle),
        ]
        .map(|answer| answer.err().unwrap_or(0))
    }

    /// The results of copies for a handle that is not mapped.
    fn copies(&self, handle: usize) -> [i32; 2] {
        [self.library.write(handle, 0x1000, b"beef"), self.library.read(handle, 0x1000, &mut [0; 4])]
            .map(|answer| answer.err().unwrap_or(0))
    }

    /// In a forked child, every inherited handle is refused and can be closed, and the parent's mappings stay as they are.
    fn fork(&mut self) -> Verdict {
        // SAFETY: the child calls the library only, and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refusal = |is_live| match is_live {
                true => libc::EACCES,
                false => libc::EINVAL,
            };
            let refused = self.pins.iter().all(|pin| {
                let (g, is_pinned) = (&self.gs[pin.g], pin.state != State::Gone);
                self.answers(g.handle, pin.handle) == [refusal(g.is_open); 5]
                    && self.copies(pin.handle) == [refusal(is_pinned); 2]
            });
            let closed = self.gs.iter().all(|g| match g.is_open {
                true => self.library.close(g.handle) == Ok(()),
                false => self.library.close(g.handle) == Err(libc::EINVAL),
            });
            let forgotten = self.pins.iter().all(|pin| {
                let g = self.gs[pin.g].handle;
                self.answers(g, pin.handle) == [libc::EINVAL; 5]
                    && self.copies(pin.handle) == [libc::EINVAL; 2]
                    && self.library.close(g) == Err(libc::EINVAL)
            });
            let own = self.library.open();
            let is_served = own != 0 && self.library.close(own) == Ok(());
            let right = refused && closed && forgotten && is_served;
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!right)) }
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        agree("child", (waited, status), (child, 0))
    }
}
