//! The files behind the memory of emulated GPUs.
#![forbid(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::address_space::Step;
use super::mmap;
use super::physical::{GPU_BYTES, Object, ObjectId, Run};
use crate::errno::Errno;

/// The files that hold the GPUs' memory. Each change of the allocation metadata is passed on to `carry_out`.
pub(super) trait Backing: Send {
    /// Applies the steps of a metadata change, or none if one fails. The default does nothing, because a file
    /// that holds the whole memory of a GPU needs no change when the program allocates or frees a part of it.
    fn carry_out(&mut self, _steps: &[Step]) -> Result<(), Errno> {
        Ok(())
    }

    fn file(&mut self, gpu: usize) -> Result<BorrowedFd<'_>, Errno>;

    /// Returns the offset in the GPU's file at which an object (a piece of allocated physical memory) starts.
    fn start(&self, _id: ObjectId, object: &Object) -> u64 {
        object.start
    }

    /// Discards the contents of physical memory that was freed.
    fn forget(&mut self, run: Run);

    fn can_fail(&self) -> bool {
        false
    }
}

pub(super) fn opened(
    file: &mut Option<OwnedFd>,
    open: impl FnOnce() -> Result<OwnedFd, Errno>,
) -> Result<BorrowedFd<'_>, Errno> {
    let file: &OwnedFd = match file {
        Some(file) => file,
        None => file.insert(open()?),
    };
    Ok(file.as_fd())
}

pub(super) struct Memfds(pub(super) Vec<Option<OwnedFd>>);

impl Backing for Memfds {
    fn file(&mut self, gpu: usize) -> Result<BorrowedFd<'_>, Errno> {
        opened(&mut self.0[gpu], || {
            let name = CString::new(format!("gdremu-gpu{gpu}")).expect("no NUL");
            let file = mmap::memory_file(&name, GPU_BYTES);
            if let Err(error) = &file {
                eprintln!("gdremu: no memory for GPU {gpu}: {error}");
            }
            file
        })
    }

    fn forget(&mut self, run: Run) {
        if let Some(file) = &self.0[run.gpu] {
            mmap::punch(file.as_fd(), run.offset, run.len);
        }
    }
}
