//! A way to copy, with a device buffer of its own.

use std::ffi::c_int;

use anyhow::{Context, Result};
use gdrcopy_tools::clock::Clock;
use gdrcopy_tools::cuda::{DeviceBuffer, Gpu, Memory};
use gdrcopy_tools::floor;
use gdrcopy_tools::library::{Handle, Library, Mapped, MappingType};
use gdrcopy_tools::stats::Times;

use crate::environment::Environment;
use crate::options::Direction;
use crate::plan::{GUARD, Point};

/// A way to copy between the host buffer and its device buffer.
#[derive(Debug)]
pub(crate) struct Method {
    /// What reports call it.
    pub(crate) label: String,
    // Dropped in this order: unmapped and unpinned first, then freed.
    way: Way,
    pub(crate) device: DeviceBuffer,
}

#[derive(Debug)]
enum Way {
    Library(Mapped),
    Memcpy(Mapped),
    CuMemcpy,
}

/// Most calls that are timed together.
const MAX_BATCH: usize = 16;

impl Method {
    /// The copy functions of a library, loaded and used once under this environment.
    ///
    /// # Safety
    /// No other thread may read or write the environment meanwhile.
    pub(crate) unsafe fn library(
        label: String,
        gpu: &'static Gpu,
        len: usize,
        environment: &Environment,
        load: impl FnOnce() -> Result<&'static Library>,
    ) -> Result<Method> {
        let make = || -> Result<Method> {
            let device = DeviceBuffer::alloc(gpu, Memory::Alloc, len)?;
            let way = Way::Library(Mapped::new(load()?, &device, MappingType::Default)?);
            let method = Method {
                label: label.clone(),
                way,
                device,
            };
            method.settle();
            Ok(method)
        };
        // SAFETY: the caller vouches for the other threads.
        unsafe { environment.during(make) }.with_context(|| label.clone())
    }

    /// The C library's memcpy, on a mapping that this library makes.
    pub(crate) fn memcpy(
        gpu: &'static Gpu,
        len: usize,
        library: &'static Library,
    ) -> Result<Method> {
        let device = DeviceBuffer::alloc(gpu, Memory::Alloc, len)?;
        let way = Way::Memcpy(Mapped::new(library, &device, MappingType::Default)?);
        Ok(Method {
            label: "memcpy".into(),
            way,
            device,
        })
    }

    /// CUDA's synchronous copies.
    pub(crate) fn cumemcpy(gpu: &'static Gpu, len: usize) -> Result<Method> {
        let device = DeviceBuffer::alloc(gpu, Memory::Alloc, len)?;
        Ok(Method {
            label: "cuMemcpy".into(),
            way: Way::CuMemcpy,
            device,
        })
    }

    /// Has the library choose its kernel, and start its threads if it has any: both happen at the
    /// first copy that needs them.
    fn settle(&self) {
        let mut host = vec![0_u8; self.device.len()];
        let len = host.len() - GUARD;
        for direction in [Direction::From, Direction::To] {
            // SAFETY: the vector and the device buffer are longer than the copy.
            unsafe { self.copy(direction, host.as_mut_ptr(), 0, len) };
        }
    }

    /// The type of its mapping; none if it has no mapping.
    pub(crate) fn mapping_type(&self) -> Option<&'static str> {
        match &self.way {
            Way::Library(mapped) | Way::Memcpy(mapped) => Some(mapped.mapping_type()),
            Way::CuMemcpy => None,
        }
    }

    /// Nanoseconds of plain loads from its mapping; none if it has no mapping.
    pub(crate) fn loads(&self, clock: &Clock) -> Option<Times> {
        match &self.way {
            Way::Library(mapped) | Way::Memcpy(mapped) => Some(floor::loads(mapped, clock)),
            Way::CuMemcpy => None,
        }
    }

    /// Copies `len` bytes between host memory and this offset of the device buffer.
    ///
    /// # Safety
    /// `host` must be valid for `len` bytes, and nothing else use them meanwhile.
    pub(crate) unsafe fn copy(&self, direction: Direction, host: *mut u8, at: usize, len: usize) {
        // SAFETY: passed on from the caller.
        unsafe { self.copy_each(direction, host, &[at], len, |work| work()) }
    }

    /// Nanoseconds that each of the point's calls takes, from the `first` one on.
    ///
    /// # Safety
    /// As for [`Method::copy`], with `host` where the point's copies are in the host buffer.
    pub(crate) unsafe fn time(
        &self,
        clock: &Clock,
        point: &Point,
        host: *mut u8,
        first: usize,
    ) -> f64 {
        let batch = point.batch();
        let mut offsets = [0; MAX_BATCH];
        for (i, offset) in offsets[..batch].iter_mut().enumerate() {
            *offset = point.device_offset(first + i);
        }
        if let Way::Library(mapped) | Way::Memcpy(mapped) = &self.way {
            floor::drain(mapped);
        }
        let mut ns = 0.0;
        // SAFETY: passed on from the caller.
        unsafe {
            let timed = |work: &mut dyn FnMut()| ns = clock.time(work);
            self.copy_each(point.direction, host, &offsets[..batch], point.size, timed);
        }
        ns / batch as f64
    }

    /// Copies between the same host memory and each of these offsets; `run` is given the work.
    ///
    /// # Safety
    /// As for [`Method::copy`].
    unsafe fn copy_each(
        &self,
        direction: Direction,
        host: *mut u8,
        offsets: &[usize],
        len: usize,
        run: impl FnOnce(&mut dyn FnMut()),
    ) {
        // What is looked up stands outside the work, which is a loop of calls.
        let mut addresses = [std::ptr::null_mut::<u8>(); MAX_BATCH];
        let addresses = &mut addresses[..offsets.len()];
        if let Way::Library(mapped) | Way::Memcpy(mapped) = &self.way {
            for (address, offset) in addresses.iter_mut().zip(offsets) {
                assert!(offset + len <= self.device.len());
                *address = mapped.at(*offset);
            }
        }
        match (&self.way, direction) {
            (Way::Library(mapped), Direction::To) => {
                let (copy, handle) = (mapped.copy_to(), mapped.handle());
                // SAFETY: the range lies in the mapping; the caller vouches for the host side.
                let call = |to: *mut u8| unsafe { copy(handle, to.cast(), host.cast(), len) };
                run(&mut || check(addresses.iter().map(|&to| call(to)), handle));
            }
            (Way::Library(mapped), Direction::From) => {
                let (copy, handle) = (mapped.copy_from(), mapped.handle());
                // SAFETY: as above.
                let call = |from: *mut u8| unsafe { copy(handle, host.cast(), from.cast(), len) };
                run(&mut || check(addresses.iter().map(|&from| call(from)), handle));
            }
            (Way::Memcpy(_), Direction::To) => run(&mut || {
                for &to in &*addresses {
                    // SAFETY: as above.
                    unsafe { to.copy_from_nonoverlapping(host, len) };
                    store_fence();
                }
            }),
            (Way::Memcpy(_), Direction::From) => run(&mut || {
                for &from in &*addresses {
                    // SAFETY: as above.
                    unsafe { host.copy_from_nonoverlapping(from, len) };
                }
            }),
            (Way::CuMemcpy, Direction::To) => run(&mut || {
                for &at in offsets {
                    // SAFETY: as above.
                    let copied = unsafe { self.device.copy_in(host, at, len) };
                    copied.expect("cuMemcpyHtoD succeeds");
                }
            }),
            (Way::CuMemcpy, Direction::From) => run(&mut || {
                for &at in offsets {
                    // SAFETY: as above.
                    let copied = unsafe { self.device.copy_out(host, at, len) };
                    copied.expect("cuMemcpyDtoH succeeds");
                }
            }),
        }
    }
}

/// Makes the calls, which must all succeed.
#[inline(always)]
fn check(calls: impl Iterator<Item = c_int>, handle: Handle) {
    let errno = calls.fold(0, |errno, answer| errno | answer);
    assert_eq!(errno, 0, "a copy with {handle:?} failed");
}

/// Pushes out what memcpy has stored, without which it could stay in the CPU for any time.
#[inline(always)]
fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SFENCE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
