//! Ways to copy.

use std::ffi::c_int;

use anyhow::{Result, ensure};
use nix::errno::Errno;

use super::{Copy, Direction};
use crate::clock::Clock;
use crate::cuda::{CudaError, DeviceBuffer, PinnedBuffer};
use crate::floor;
use crate::library::Mapped;
use crate::subject::Subject;

/// A way to copy between the host and a GPU buffer.
#[derive(Debug)]
pub struct Method<'a> {
    /// What results call it.
    pub label: &'a str,
    /// The GPU buffer, as CUDA sees it.
    pub buffer: &'a DeviceBuffer,
    /// The GPU buffer, as the CPU sees it.
    mapped: &'a Mapped,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Library,
    CuMemcpy,
}

impl<'a> Method<'a> {
    /// The copy functions of the subject's library.
    pub fn library(subject: &'a Subject) -> Method<'a> {
        Method {
            label: &subject.named.label,
            buffer: &subject.buffer,
            mapped: &subject.mapped,
            way: Way::Library,
        }
    }

    /// CUDA's own copies to and from the subject's buffer.
    pub fn cumemcpy(subject: &'a Subject) -> Method<'a> {
        Method {
            label: "cuMemcpy",
            buffer: &subject.buffer,
            mapped: &subject.mapped,
            way: Way::CuMemcpy,
        }
    }

    /// The function that it calls.
    pub fn function(&self, direction: Direction) -> &'static str {
        match (&self.way, direction) {
            (Way::Library, Direction::Write) => "gdr_copy_to_mapping",
            (Way::Library, Direction::Read) => "gdr_copy_from_mapping",
            (Way::CuMemcpy, Direction::Write) => "cuMemcpyHtoD",
            (Way::CuMemcpy, Direction::Read) => "cuMemcpyDtoH",
        }
    }

    /// Waits until what other methods have written has left the CPU: they are not to pay for each other.
    pub fn drain(&self) {
        floor::drain(self.mapped);
    }

    /// Makes so many calls, between the buffer and the host memory at this offset. Nanoseconds that
    /// each takes.
    ///
    /// # Errors
    /// A call fails.
    pub fn time(
        &self,
        copy: Copy,
        host: &mut PinnedBuffer,
        at: usize,
        calls: usize,
        clock: &Clock,
    ) -> Result<f64> {
        let host = host.as_mut_slice()[at..][..copy.size].as_mut_ptr();
        let Copy {
            direction,
            size,
            offset,
        } = copy;
        assert!(offset + size <= self.buffer.len());
        let ns = match (&self.way, direction) {
            (Way::Library, Direction::Write) => {
                let (write, handle) = (self.mapped.copy_to(), self.mapped.handle());
                let device = self.mapped.at(offset).cast();
                // SAFETY: both ranges were checked above, and the host's is borrowed mutably.
                let call = || unsafe { write(handle, device, host.cast(), size) };
                self.timed(direction, calls, clock, call)?
            }
            (Way::Library, Direction::Read) => {
                let (read, handle) = (self.mapped.copy_from(), self.mapped.handle());
                let device = self.mapped.at(offset).cast();
                // SAFETY: as above.
                let call = || unsafe { read(handle, host.cast(), device, size) };
                self.timed(direction, calls, clock, call)?
            }
            (Way::CuMemcpy, Direction::Write) => {
                // SAFETY: as above.
                let call = || unsafe { code(self.buffer.copy_in(host, offset, size)) };
                self.timed(direction, calls, clock, call)?
            }
            (Way::CuMemcpy, Direction::Read) => {
                // SAFETY: as above.
                let call = || unsafe { code(self.buffer.copy_out(host, offset, size)) };
                self.timed(direction, calls, clock, call)?
            }
        };
        Ok(ns / calls as f64)
    }

    /// Nanoseconds of all calls, which must all answer 0.
    #[inline(always)]
    fn timed(
        &self,
        direction: Direction,
        calls: usize,
        clock: &Clock,
        call: impl Fn() -> c_int,
    ) -> Result<f64> {
        let mut answers = 0;
        let ns = clock.time(|| {
            for _ in 0..calls {
                answers |= call();
            }
        });
        let function = self.function(direction);
        match self.way {
            Way::Library => ensure!(answers == 0, "{function}: {}", Errno::from_raw(answers)),
            Way::CuMemcpy => ensure!(answers == 0, "{function}: error {answers}"),
        }
        Ok(ns)
    }
}

/// The number of a result, 0 for success.
fn code(result: Result<(), CudaError>) -> c_int {
    result.err().map_or(0, |error| error.code)
}
