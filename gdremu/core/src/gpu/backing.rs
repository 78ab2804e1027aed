//! The files behind the memory of emulated GPUs.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::mmap;
use super::physical::{GPU_BYTES, Object, ObjectId, Run};
use super::step::Step;
use crate::errno::Errno;

/// The files of the GPUs' memory, kept in step with the allocation metadata.
pub(super) trait Backing: Send {
    /// Applies the steps of a metadata change, or none if one fails. Nothing to do where only the metadata records what
    /// is mapped where.
    fn carry_out(&mut self, _steps: &[Step]) -> Result<(), Errno> {
        Ok(())
    }

    /// The file with a GPU's memory.
    fn file(&mut self, gpu: usize) -> Result<BorrowedFd<'_>, Errno>;

    /// Where a live object starts in that file.
    fn start(&self, _id: ObjectId, object: &Object) -> u64 {
        object.start
    }

    /// Discards the memory of a removed object.
    fn forget(&mut self, run: Run);

    /// Returns whether steps can fail.
    fn can_fail(&self) -> bool {
        false
    }
}

/// Memory of the host, a memfd per GPU.
pub(super) struct Memfds {
    /// Created on first use.
    files: Vec<Option<OwnedFd>>,
}

impl Memfds {
    pub(super) fn new(gpus: usize) -> Memfds {
        Memfds { files: (0..gpus).map(|_| None).collect() }
    }
}

impl Backing for Memfds {
    fn file(&mut self, gpu: usize) -> Result<BorrowedFd<'_>, Errno> {
        if self.files[gpu].is_none() {
            let name = CString::new(format!("gdremu-gpu{gpu}")).map_err(|_| Errno::EINVAL)?;
            match mmap::memory_file(&name, GPU_BYTES) {
                Ok(file) => self.files[gpu] = Some(file),
                Err(error) => {
                    eprintln!("gdremu: no memory for GPU {gpu}: {error}");
                    return Err(error);
                }
            }
        }
        self.files[gpu].as_ref().map(AsFd::as_fd).ok_or(Errno::ENODEV)
    }

    fn forget(&mut self, run: Run) {
        if let Some(file) = &self.files[run.gpu] {
            mmap::punch(file.as_fd(), run.offset, run.len);
        }
    }
}
