//! GPU memory as dma-bufs.

use std::ffi::{c_int, c_ulonglong};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use super::Driver;
use super::context::Place;
use crate::error::Result;

const HANDLE_TYPE_DMA_BUF_FD: c_int = 1;
const RANGE_FLAG_PCIE: c_ulonglong = 1;

impl Driver {
    /// A dma-buf of `len` bytes of memory from `address` on, both multiples of the host's page size.
    pub fn export(&self, place: &Place, address: u64, len: usize, over_pcie: bool) -> Result<OwnedFd> {
        let flags = if over_pcie { RANGE_FLAG_PCIE } else { 0 };
        let export = self.cu.export()?;
        self.in_context(place, || {
            let mut fd: c_int = -1;
            let output = ptr::from_mut(&mut fd).cast();
            // SAFETY: the handle is an int; the range is only looked up.
            let result = unsafe { export(output, address, len, HANDLE_TYPE_DMA_BUF_FD, flags) };
            self.check("cuMemGetHandleForAddressRange", result)?;
            // SAFETY: the descriptor is new and ours.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        })
    }
}
