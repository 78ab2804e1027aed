//! What the memory of emulated GPUs is made of.

use std::ffi::CString;
use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::mmap;
use super::physical::{GPU_BYTES, Object, ObjectId, Run};
use super::step::Step;
use crate::errno::Errno;

/// Files that hold the GPUs' memory, and whoever keeps them in step with the books.
pub(super) trait Backing: Debug + Send {
    /// Does what a change of the books asks for: all of it, or nothing if it fails.
    ///
    /// # Errors
    /// `ENOMEM`, and whatever a device answers.
    fn carry_out(&mut self, steps: &[Step]) -> Result<(), Errno>;

    /// The file with a GPU's memory.
    ///
    /// # Errors
    /// What making or opening it answers.
    fn file(&mut self, gpu: usize) -> Result<BorrowedFd<'_>, Errno>;

    /// Where a live object starts in that file.
    fn start(&self, id: ObjectId, object: &Object) -> u64;

    /// An object is no more: nobody reads this memory again.
    fn forget(&mut self, run: Run);

    /// Whether memory is pinned that the books do not know to be. They cannot tell then what of a
    /// shared block may be overwritten.
    fn pins_by_itself(&self) -> bool;
}

/// Memory of the host: a memfd per GPU.
#[derive(Debug)]
pub(super) struct Memfds {
    /// From the first use of each on.
    files: Vec<Option<OwnedFd>>,
}

impl Memfds {
    pub(super) fn new(gpus: usize) -> Memfds {
        Memfds {
            files: (0..gpus).map(|_| None).collect(),
        }
    }
}

impl Backing for Memfds {
    /// What is mapped where, the books alone need to know.
    fn carry_out(&mut self, _steps: &[Step]) -> Result<(), Errno> {
        Ok(())
    }

    fn file(&mut self, gpu: usize) -> Result<BorrowedFd<'_>, Errno> {
        if self.files[gpu].is_none() {
            let name = CString::new(format!("gdremu-gpu{gpu}")).map_err(|_| Errno::EINVAL)?;
            self.files[gpu] = Some(mmap::memory_file(&name, GPU_BYTES)?);
        }
        self.files[gpu]
            .as_ref()
            .map(AsFd::as_fd)
            .ok_or(Errno::ENODEV)
    }

    fn start(&self, _id: ObjectId, object: &Object) -> u64 {
        object.start
    }

    fn forget(&mut self, run: Run) {
        if let Some(file) = &self.files[run.gpu] {
            mmap::punch(file.as_fd(), run.offset, run.len);
        }
    }

    fn pins_by_itself(&self) -> bool {
        false
    }
}
