//! Every byte of a copy, and those around it, against CUDA's view.
#![forbid(unsafe_code)]

use std::ops::Range;

use anyhow::Result;
use gdrcopy_tools::cuda::{DeviceBuffer, PinnedBuffer};
use gdrcopy_tools::verify::{difference, pattern};

use crate::options::Direction;
use crate::plan::{GUARD, Point};

/// What host memory holds before a read.
const POISON: u8 = 0xee;

/// What both sides hold before the copies of a point, and must hold after them.
#[derive(Debug)]
pub(crate) struct Checker {
    point: Point,
    /// The device buffer before the copies.
    device: Vec<u8>,
    /// The source of writes: the host buffer.
    source: Vec<u8>,
    /// Room for CUDA's view of the device buffer.
    seen: Vec<u8>,
}

impl Checker {
    pub(crate) fn new(point: Point) -> Checker {
        Checker {
            point,
            device: pattern(point.device_len(), 1),
            source: pattern(point.host_len(), 2),
            seen: vec![0; point.device_len()],
        }
    }

    /// Fills both sides, by CUDA and by the CPU.
    pub(crate) fn prepare(&self, device: &DeviceBuffer, host: &mut PinnedBuffer) -> Result<()> {
        device.write(&self.device)?;
        self.prepare_host(host);
        Ok(())
    }

    /// Fills the host's side.
    pub(crate) fn prepare_host(&self, host: &mut PinnedBuffer) {
        let host = &mut host.as_mut_slice()[..self.point.host_len()];
        match self.point.direction {
            Direction::To => host.copy_from_slice(&self.source),
            Direction::From => host.fill(POISON),
        }
    }

    /// What is wrong after a write to the windows of these indices, which may be none of them.
    pub(crate) fn written(
        &mut self,
        device: &DeviceBuffer,
        indices: Range<usize>,
    ) -> Result<Option<String>> {
        device.read(&mut self.seen)?;
        let (point, host_offset) = (self.point, self.point.host_offset());
        let source = &self.source[host_offset..][..point.size];
        let mut untouched_from = 0;
        for index in indices {
            let at = point.device_offset(index);
            let wrong = self
                .device_differs(untouched_from..at)
                .or_else(|| difference(&self.seen[at..][..point.size], source, "device byte"));
            if wrong.is_some() {
                return Ok(wrong);
            }
            untouched_from = at + point.size;
        }
        Ok(self.device_differs(untouched_from..self.device.len()))
    }

    /// What is wrong with bytes of the device buffer that nobody was to touch.
    fn device_differs(&self, range: Range<usize>) -> Option<String> {
        let (seen, wanted) = (&self.seen[range.clone()], &self.device[range]);
        difference(seen, wanted, "device byte outside the range,")
    }

    /// What is wrong with the host's side after a read from the window of this index.
    pub(crate) fn read(&self, host: &PinnedBuffer, index: usize) -> Option<String> {
        let (point, at) = (self.point, self.point.host_offset());
        let host = &host.as_slice()[..point.host_len()];
        let wanted = &self.device[point.device_offset(index)..][..point.size];
        let poison = vec![POISON; at.max(GUARD)];
        difference(&host[at..][..point.size], wanted, "host byte")
            .or_else(|| difference(&host[..at], &poison[..at], "host byte before the range,"))
            .or_else(|| {
                difference(
                    &host[at + point.size..],
                    &poison[..GUARD],
                    "host byte after the range,",
                )
            })
    }
}
