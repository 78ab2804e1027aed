//! GPU memory from the kernel module `gdrdrv-c/emugpu`, which stands in for NVIDIA's GPU driver in test VMs. Its device
//! is `/dev/emugpu`, and `emugpu_uapi.h` describes the commands. A real gdrdrv in the kernel pins this memory, so the
//! allocation metadata in this process does not list the pins.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::address_space::Step;
use super::backing::{Backing, opened};
use super::mmap;
use super::physical::{GPU_PAGE, Object, ObjectId, Run};
use crate::errno::Errno;

pub const DEVICE: &str = "/dev/emugpu";

const RDMA: u32 = 1;

#[repr(C)]
struct Create {
    size: u64,
    flags: u32,
    handle: u32,
}

#[repr(C)]
struct Map {
    va: u64,
    size: u64,
    offset: u64,
    handle: u32,
    padding: u32,
}

#[repr(C)]
struct Range {
    va: u64,
    size: u64,
}

const WRITE: u32 = 1;
const READ: u32 = 2;

const fn command<T>(direction: u32, number: u32) -> u32 {
    direction << 30 | (size_of::<T>() as u32) << 16 | (b'e' as u32) << 8 | number
}

const CREATE: u32 = command::<Create>(READ | WRITE, 1);
const MAP: u32 = command::<Map>(WRITE, 2);
const UNMAP: u32 = command::<Range>(WRITE, 3);
const RELEASE: u32 = command::<u32>(WRITE, 4);
const RENEW: u32 = command::<Range>(WRITE, 5);

#[derive(Default)]
pub(super) struct Emugpu {
    /// The open device. It is opened on first use, by the process that owns the memory.
    device: Option<OwnedFd>,
    handles: BTreeMap<ObjectId, u32>,
}

impl Emugpu {
    fn device(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        opened(&mut self.device, || {
            let file = OpenOptions::new().read(true).write(true).open(DEVICE)?;
            Ok(mmap::out_of_the_way(file.into()))
        })
    }

    fn call<T>(&mut self, command: u32, argument: &mut T) -> Result<(), Errno> {
        let device = self.device()?;
        // SAFETY: the command's number was made from the type `T`, and Linux accesses no more than the size of `T`.
        let result = unsafe { libc::ioctl(device.as_raw_fd(), command.into(), argument) };
        if result == 0 { Ok(()) } else { Err(Errno::last()) }
    }

    fn step(&mut self, step: &Step) -> Result<(), Errno> {
        match *step {
            Step::Created { object, len, rdma } => {
                let flags = if rdma { RDMA } else { 0 };
                let mut create = Create { size: len, flags, handle: 0 };
                self.call(CREATE, &mut create)?;
                self.handles.insert(object, create.handle);
                Ok(())
            }
            Step::Mapped { va, len, object } => {
                let handle = self.handles[&object];
                self.call(MAP, &mut Map { va, size: len, offset: 0, handle, padding: 0 })
            }
            Step::Unmapped { va, len } => self.call(UNMAP, &mut Range { va, size: len }),
            Step::Emptied { va, len } => {
                for va in (va..va + len).step_by(GPU_PAGE as usize) {
                    match self.call(RENEW, &mut Range { va, size: GPU_PAGE }) {
                        // ENOMEM: the module has no new page to replace one that is still pinned. The next buffer at
                        // this address then shares the old page with the pin, as can happen on a real GPU.
                        Ok(()) | Err(Errno::ENOMEM) => {}
                        refused => return refused,
                    }
                }
                Ok(())
            }
            Step::Removed(_) => Ok(()),
        }
    }

    fn release(&mut self, object: ObjectId) -> Result<(), Errno> {
        let mut handle = self.handles.remove(&object).expect("created");
        self.call(RELEASE, &mut handle)
    }

    /// Reverts a step, because a later step failed. Only steps that create or map memory can come before a failed one.
    fn undo(&mut self, step: &Step) {
        let undone = match *step {
            Step::Created { object, .. } => self.release(object),
            Step::Mapped { va, len, .. } => self.call(UNMAP, &mut Range { va, size: len }),
            _ => Ok(()),
        };
        debug_assert_eq!(undone, Ok(()), "{step:?}");
    }
}

impl Backing for Emugpu {
    fn carry_out(&mut self, steps: &[Step]) -> Result<(), Errno> {
        for (i, step) in steps.iter().enumerate() {
            if let Err(error) = self.step(step) {
                steps[..i].iter().rev().for_each(|done| self.undo(done));
                return Err(error);
            }
        }
        Ok(())
    }

    fn file(&mut self, _gpu: usize) -> Result<BorrowedFd<'_>, Errno> {
        self.device()
    }

    fn start(&self, id: ObjectId, _object: &Object) -> u64 {
        let handle = self.handles.get(&id).copied().unwrap_or_default();
        u64::from(handle) << 32
    }

    fn forget(&mut self, run: Run) {
        let released = self.release(run.object);
        debug_assert_eq!(released, Ok(()), "{run:?}");
    }

    fn can_fail(&self) -> bool {
        true
    }
}
