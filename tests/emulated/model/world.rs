//! The reference model. It records which objects the program has opened, pinned and mapped, and the contents of the
//! memory. From these it derives the result that each call must have.

use std::cell::RefCell;
use std::rc::Rc;

use super::library::Library;
use super::mode::Mode;
use super::ops::{Fault, NamedRange, Op, Owner};
use crate::cuda::Cuda;

const GPU_PAGE: u64 = 1 << 16;
const HOST_PAGE: usize = 4096;
/// The size of each buffer in bytes. CUDA allocates in blocks of this size, so no pin reaches into another buffer.
const BUFFER: usize = 2 << 20;

/// The error describes a disagreement between the library and the model.
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

impl Driver {
    /// Returns the result that `gdr_close` of this driver must have.
    fn close_result(&self) -> Result<(), i32> {
        if self.is_open { Ok(()) } else { Err(libc::EINVAL) }
    }
}

struct Buffer {
    address: u64,
    is_free: bool,
    /// The contents of the buffer. The buffer's pins share them, because a pin keeps the memory after the free.
    bytes: Rc<RefCell<Vec<u8>>>,
}

struct Pin {
    /// The index in `World::gs` of the `gdr_t` that made the pin.
    g: usize,
    buffer: usize,
    address: u64,
    size: u64,
    handle: usize,
    state: State,
    /// True if the pin was made with FORCE_PCIE.
    over_pcie: bool,
    /// True if the pinned memory was freed, and the driver does not keep it alive.
    is_revoked: bool,
    bytes: Rc<RefCell<Vec<u8>>>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Gone,
    Pinned,
    Mapped { va: usize, len: usize, mapping_type: u32 },
}

impl Pin {
    fn first_page(&self) -> u64 {
        self.address & !(GPU_PAGE - 1)
    }

    fn pinned_bytes(&self) -> u64 {
        (self.address + self.size).next_multiple_of(GPU_PAGE) - self.first_page()
    }
}

/// The `gdr_t` that is passed together with a pin's handle.
struct Caller {
    handle: usize,
    /// True if the `gdr_t` is open, and has made the pin.
    is_owner: bool,
}

/// The part of a mapping that a copy touches.
struct Touched {
    va: usize,
    /// The offset of the part in the buffer.
    start: usize,
    len: usize,
}

fn agree<T: PartialEq + std::fmt::Debug>(what: &str, said: T, expected: T) -> Verdict {
    if said == expected { Ok(()) } else { Err(format!("{what}: {said:?}, expected {expected:?}")) }
}

/// Returns the errno of a child's calls with an inherited object. `is_live` says whether the object is live in the
/// parent.
fn refusal_in_child(is_live: bool) -> i32 {
    if is_live { libc::EACCES } else { libc::EINVAL }
}

/// Returns `len` bytes to write, which depend on the seed.
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

    /// Returns the number of calls of the library made so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Closes and frees everything. Nothing may stay pinned.
    pub(super) fn end(&mut self) -> Verdict {
        self.library.set_faults("");
        for g in &self.gs {
            agree("last close", self.library.close(g.handle), g.close_result())?;
        }
        for buffer in &self.buffers {
            if !buffer.is_free {
                self.cuda.free(buffer.address);
            }
        }
        agree("page tables still pinned", self.library.pins(), 0)
    }

    /// Makes the call of an operation, and compares its result with the model's.
    pub(super) fn step(&mut self, op: &Op) -> Verdict {
        self.calls += 1;
        let verdict = match *op {
            Op::Open { fault } => self.open(fault),
            Op::Close { g, fault } => self.close(g % self.gs.len(), fault),
            Op::Alloc => {
                if self.buffers_in_use() < 3 {
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

    /// Calls `work`, in which the first driver call of this kind fails, unless `errno` is `None`.
    fn with_fault<T>(&self, call: &'static str, errno: Option<i32>, work: impl FnOnce(&Library) -> T) -> T {
        self.with_fault_of(errno.map(|errno| Fault { call, errno }), work)
    }

    /// Calls `work`, in which the first driver call of the fault's kind fails.
    fn with_fault_of<T>(&self, fault: Option<Fault>, work: impl FnOnce(&Library) -> T) -> T {
        let Some(Fault { call, errno }) = fault else {
            return work(self.library);
        };
        self.library.set_faults(&format!("{call}:{errno}@1"));
        let result = work(self.library);
        self.library.set_faults("");
        result
    }

    fn caller(&self, pin: usize, owner: Owner) -> Caller {
        let right = self.pins[pin].g;
        let g = match owner {
            Owner::Right => right,
            Owner::Any(g) => g % self.gs.len(),
        };
        Caller { handle: self.gs[g].handle, is_owner: g == right && self.gs[g].is_open }
    }

    fn buffers_in_use(&self) -> usize {
        self.buffers.iter().filter(|buffer| !buffer.is_free).count()
    }

    fn alloc(&mut self) {
        let address = self.cuda.alloc(BUFFER);
        self.cuda.clear(address, BUFFER);
        let bytes = Rc::new(RefCell::new(vec![0; BUFFER]));
        self.buffers.push(Buffer { address, is_free: false, bytes });
    }

    fn free(&mut self, buffer: usize) -> Verdict {
        if self.buffers[buffer].is_free {
            return Ok(());
        }
        self.cuda.free(self.buffers[buffer].address);
        self.buffers[buffer].is_free = true;
        for pin in &mut self.pins {
            if pin.buffer == buffer && !self.mode.persistent {
                pin.is_revoked = true;
            }
        }
        Ok(())
    }

    fn open(&mut self, fault: Option<i32>) -> Verdict {
        let handle = self.with_fault("OPEN", fault, Library::open);
        // The library repeats an interrupted call.
        let opens = matches!(fault, None | Some(libc::EINTR));
        agree("opened", handle != 0, opens)?;
        if opens {
            self.gs.push(Driver { handle, is_open: true });
        }
        Ok(())
    }

    fn close(&mut self, g: usize, fault: Option<Fault>) -> Verdict {
        let handle = self.gs[g].handle;
        let said = self.with_fault_of(fault, |library| library.close(handle));
        let expected = match fault {
            Some(fault) if self.gs[g].is_open && self.close_fails(g, fault) => Err(fault.errno),
            _ => self.gs[g].close_result(),
        };
        agree("close", said, expected)?;
        self.gs[g].is_open = false;
        for pin in &mut self.pins {
            if pin.g == g {
                pin.state = State::Gone;
            }
        }
        Ok(())
    }

    /// Returns whether the fault makes `gdr_close` fail. `gdr_close` repeats an unpin after EINTR, but not a close.
    fn close_fails(&self, g: usize, fault: Fault) -> bool {
        if fault.call == "CLOSE" {
            return true;
        }
        let unpins = self.pins.iter().any(|pin| pin.g == g && pin.state != State::Gone);
        unpins && fault.errno != libc::EINTR
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
        let address = self.buffers[buffer].address + offset as u64;
        let is_free = self.buffers[buffer].is_free;
        let fits = offset.saturating_add(size) <= BUFFER;
        // A range that does not fit could end in the next buffer. So it is made longer than any GPU's memory.
        let size = if fits { size } else { size.max(1 << 40) };
        let call = if self.mode.has_flags() { "PIN_BUFFER_V2" } else { "PIN_BUFFER" };
        let handle = self.gs[g].handle;
        let said = self.with_fault(call, fault, |library| library.pin(handle, address, size, flags));

        let flags = flags.unwrap_or(0);
        let is_served = self.gs[g].is_open
            && address.saturating_add(size as u64) <= u64::MAX - GPU_PAGE
            && (self.mode.has_flags() || flags == 0);
        let is_empty = size == 0 && address.is_multiple_of(GPU_PAGE);
        let over_pcie = flags & 1 != 0;
        let expected = match fault {
            _ if !is_served => Err(libc::EINVAL),
            Some(errno) if errno != libc::EINTR => Err(errno),
            _ if is_empty => Err(libc::EINVAL),
            _ if self.mode.is_module && size >= 1 << 40 => Err(libc::EINVAL),
            // FORCE_PCIE needs persistent pins and a coherent GPU, whose default mapping type is 2 (cached).
            _ if over_pcie && !self.mode.persistent => Err(libc::EINVAL),
            _ if over_pcie && self.mode.default_type != 2 => Err(libc::EOPNOTSUPP),
            _ if is_free || !fits => Err(libc::EINVAL),
            _ => Ok(()),
        };
        // If a new buffer has the addresses of the freed one, the pin may succeed.
        if let Ok(pinned) = said
            && is_free
            && self.buffers_in_use() > 0
        {
            return agree("unpin", self.library.unpin(handle, pinned), Ok(()));
        }
        agree("pin", said.map(drop), expected)?;
        if let Ok(handle) = said {
            let bytes = Rc::clone(&self.buffers[buffer].bytes);
            self.pins.push(Pin {
                g,
                buffer,
                address,
                size: size as u64,
                handle,
                state: State::Pinned,
                over_pcie,
                is_revoked: false,
                bytes,
            });
        }
        Ok(())
    }

    fn unpin(&mut self, pin: usize, owner: Owner, fault: Option<i32>) -> Verdict {
        let caller = self.caller(pin, owner);
        let handle = self.pins[pin].handle;
        let said = self.with_fault("UNPIN_BUFFER", fault, |library| library.unpin(caller.handle, handle));
        let target = &mut self.pins[pin];
        if !caller.is_owner || target.state == State::Gone {
            return agree("unpin", said, Err(libc::EINVAL));
        }
        // If the driver refuses the unpin, the handle stays valid. The mapping has ended in any case.
        if let Some(errno) = fault
            && errno != libc::EINTR
        {
            target.state = State::Pinned;
            return agree("unpin", said, Err(errno));
        }
        target.state = State::Gone;
        agree("unpin", said, Ok(()))
    }

    fn map(&mut self, pin: usize, owner: Owner, size: usize, flags: i32, mut fault: Option<Fault>) -> Verdict {
        if let Some(fault) = &mut fault
            && fault.call == "INFO"
        {
            fault.call = if self.mode.driver >= (2, 4) { "GET_INFO_V2" } else { "GET_INFO" };
        }
        let caller = self.caller(pin, owner);
        let target = &self.pins[pin];
        let said = self.with_fault_of(fault, |library| library.map(caller.handle, target.handle, size, flags));

        let len = size.checked_next_multiple_of(HOST_PAGE).unwrap_or(0);
        let expected = match target.state {
            _ if !(0..4).contains(&flags) => Err(libc::EINVAL),
            _ if !caller.is_owner => Err(libc::EINVAL),
            State::Gone => Err(libc::EINVAL),
            State::Mapped { .. } => Err(libc::EAGAIN),
            State::Pinned if len == 0 => Err(libc::EINVAL),
            State::Pinned if !target.address.is_multiple_of(GPU_PAGE) => Err(libc::EINVAL),
            State::Pinned => self.map_pinned(target, len, flags, fault),
        };
        agree("map", said.map(drop), expected.map(drop))?;
        if let (Ok(va), Ok(mapping_type)) = (said, expected) {
            self.pins[pin].state = State::Mapped { va, len, mapping_type };
            return self.info(pin, Owner::Right);
        }
        Ok(())
    }

    /// Returns the mapping type that `gdr_map_v2` must choose for a pin in the state `Pinned`, or its errno.
    fn map_pinned(&self, pin: &Pin, len: usize, flags: i32, fault: Option<Fault>) -> Result<u32, i32> {
        let mapping_type = self.mode.map_type(flags, pin.over_pcie);
        if self.mode.has_flags() {
            mapping_type?;
        }
        match fault {
            Some(Fault { call: "MMAP", errno }) => Err(errno),
            _ if pin.is_revoked || len as u64 > pin.pinned_bytes() => Err(libc::EINVAL),
            Some(fault) if fault.errno != libc::EINTR => Err(fault.errno),
            _ => mapping_type,
        }
    }

    fn unmap(&mut self, pin: usize, owner: Owner, range: NamedRange, fault: Option<i32>) -> Verdict {
        let caller = self.caller(pin, owner);
        let target = &self.pins[pin];
        let mut va = 0x1000;
        let mut size = HOST_PAGE;
        if let State::Mapped { va: mapped, len, .. } = target.state {
            va = mapped;
            size = len;
        }
        match range {
            NamedRange::Right => {}
            NamedRange::DeviceAddress => va = target.address as usize,
            NamedRange::Half => size /= 2,
            NamedRange::Nothing => {
                va = 0;
                size = 0;
            }
        }
        let said = self.with_fault("MUNMAP", fault, |library| library.unmap(caller.handle, target.handle, va, size));
        let is_mapped = matches!(target.state, State::Mapped { .. });
        if !is_mapped || !caller.is_owner {
            return agree("unmap", said, Err(libc::EINVAL));
        }
        if let Some(errno) = fault {
            return agree("unmap", said, Err(errno));
        }
        agree("unmap", said, Ok(()))?;
        self.pins[pin].state = State::Pinned;
        Ok(())
    }

    /// Returns the part of the mapping that a copy of up to `len` bytes at `at` touches, or `None` if the copy must be
    /// refused.
    fn touched(&self, pin: &Pin, at: usize, len: usize) -> Option<Touched> {
        let State::Mapped { va, len: mapped, .. } = pin.state else {
            return None;
        };
        let at = at % mapped;
        let start = (pin.first_page() - self.buffers[pin.buffer].address) as usize + at;
        Some(Touched { va: va + at, start, len: len.min(mapped - at) })
    }

    fn write(&mut self, pin: usize, at: usize, len: usize, seed: u8) -> Verdict {
        let target = &self.pins[pin];
        let Some(Touched { va, start, len }) = self.touched(target, at, len) else {
            let said = self.library.write(target.handle, 0x1000, &pattern(seed, len));
            return agree("write", said, Err(libc::EINVAL));
        };
        if target.is_revoked {
            return Ok(()); // An access would fault.
        }
        let bytes = pattern(seed, len);
        agree("write", self.library.write(target.handle, va, &bytes), Ok(()))?;
        target.bytes.borrow_mut()[start..start + len].copy_from_slice(&bytes);
        if self.buffers[target.buffer].is_free {
            return Ok(()); // CUDA cannot read freed memory.
        }
        // CUDA must see the written bytes, and the 64 bytes before and after them unchanged.
        let first = start.saturating_sub(64);
        let end = (start + len + 64).min(BUFFER);
        let seen = self.cuda.read(self.buffers[target.buffer].address + first as u64, end - first);
        agree("CUDA's view", seen == target.bytes.borrow()[first..end], true)
    }

    fn read(&self, pin: usize, at: usize, len: usize) -> Verdict {
        const MARGIN: usize = 16;
        let target = &self.pins[pin];
        let Some(Touched { va, start, len }) = self.touched(target, at, len) else {
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
        let target = &self.buffers[buffer];
        if !target.is_free {
            let bytes = pattern(seed, len);
            self.cuda.write(target.address + at as u64, &bytes);
            target.bytes.borrow_mut()[at..at + len].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn info(&mut self, pin: usize, owner: Owner) -> Verdict {
        self.calls += 1; // `Library::info` makes two calls.
        let caller = self.caller(pin, owner);
        let target = &self.pins[pin];
        let said = self.library.info(caller.handle, target.handle);
        if !caller.is_owner || target.state == State::Gone {
            return agree("info", said.map(drop), Err(libc::EINVAL));
        }
        let info = said.map_err(|errno| format!("info: {errno}"))?;
        agree("va", info.v1.va, target.first_page())?;
        agree("mapped_size", info.v1.mapped_size, target.pinned_bytes())?;
        agree("page_size", info.v1.page_size, GPU_PAGE as u32)?;
        let mapping_type = match target.state {
            // gdrdrv 2.0 to 2.2 still report the mapping after a free has ended it.
            State::Mapped { .. } if target.is_revoked && self.mode.driver >= (2, 3) => 0,
            State::Mapped { mapping_type, .. } => mapping_type,
            _ => 0,
        };
        agree("mapping_type", info.mapping_type, mapping_type)?;
        let bits = u32::from(mapping_type != 0) | u32::from(mapping_type == 1) << 1;
        agree("mapped and wc_mapping", info.v1.bits & 3, bits)
    }

    fn callback_flag(&self, pin: usize, owner: Owner) -> Verdict {
        let caller = self.caller(pin, owner);
        let target = &self.pins[pin];
        let said = self.library.callback_flag(caller.handle, target.handle);
        let is_live = caller.is_owner && target.state != State::Gone;
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

    /// Calls every function with a handle that no call has returned, and with handles of the wrong kind.
    fn forged(&mut self, handle: usize) -> Verdict {
        let g = self.gs[0].handle;
        agree("forged handles", self.answers(g, handle), [libc::EINVAL; 5])?;
        agree("copies with a forged handle", self.copies(handle), [libc::EINVAL; 2])?;
        let pin = match self.pins.first() {
            Some(pin) => pin.handle,
            None => 0,
        };
        agree("a forged gdr_t", self.answers(handle, pin), [libc::EINVAL; 5])?;
        agree("handles the wrong way round", self.answers(pin, g), [libc::EINVAL; 5])?;
        agree("copies with a gdr_t", self.copies(g), [libc::EINVAL; 2])?;
        agree("close of a forged gdr_t", self.library.close(handle), Err(libc::EINVAL))?;
        agree("close of a pin", self.library.close(pin), Err(libc::EINVAL))?;
        self.calls += 22;
        Ok(())
    }

    /// Returns the errnos, or 0 for success, of the functions that take a `gdr_t` and a handle.
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

    /// Returns the errnos of copies for a handle that is not mapped.
    fn copies(&self, handle: usize) -> [i32; 2] {
        [self.library.write(handle, 0x1000, b"beef"), self.library.read(handle, 0x1000, &mut [0; 4])]
            .map(|answer| answer.err().unwrap_or(0))
    }

    /// Checks that a forked child can close the handles that it inherited, and cannot use them otherwise. Later steps
    /// check that the child has not changed the parent's objects.
    fn fork(&mut self) -> Verdict {
        // SAFETY: the child calls only the library, and ends by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let verdict = self.check_in_child();
            if let Err(why) = &verdict {
                eprintln!("in the child: {why}");
            }
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(verdict.is_err())) }
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        agree("child", (waited, status), (child, 0))
    }

    /// Makes the calls of the forked child and compares their results with the model's.
    fn check_in_child(&self) -> Verdict {
        for pin in &self.pins {
            let g = &self.gs[pin.g];
            let is_pinned = pin.state != State::Gone;
            agree("inherited handles", self.answers(g.handle, pin.handle), [refusal_in_child(g.is_open); 5])?;
            agree("inherited mappings", self.copies(pin.handle), [refusal_in_child(is_pinned); 2])?;
        }
        for g in &self.gs {
            agree("close", self.library.close(g.handle), g.close_result())?;
        }
        for pin in &self.pins {
            let g = self.gs[pin.g].handle;
            agree("handles after close", self.answers(g, pin.handle), [libc::EINVAL; 5])?;
            agree("mappings after close", self.copies(pin.handle), [libc::EINVAL; 2])?;
            agree("second close", self.library.close(g), Err(libc::EINVAL))?;
        }
        let own = self.library.open();
        agree("opened", own != 0, true)?;
        agree("close of its own", self.library.close(own), Ok(()))
    }
}
