//! Devices: their number, names and addresses on the PCI bus.

use std::ffi::c_char;

use gdremu_core::gpu::pci;
use gdremu_core::gpu::physical::GPU_BYTES;

use super::attributes;
use crate::args::{In, Out};
use crate::error::{Error, Result};
use crate::gpus;
use gdremu_core::cuda::types::Uuid;

/// The name of every emulated GPU.
pub(crate) const NAME: &str = "gdremu GPU";

pub(crate) fn cuDeviceGetCount(count: Out<i32>) -> Result {
    count.set(gpus::visible().len() as i32)
}

pub(crate) fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> Result {
    device.check()?;
    gpus::by_ordinal(ordinal)?;
    device.set(ordinal)
}

pub(crate) fn cuDeviceGetName(name: Out<c_char>, len: i32, device: i32) -> Result {
    gpus::by_ordinal(device)?;
    name.set_text(NAME, len)
}

pub(crate) fn cuDeviceGetUuid_v2(uuid: Out<Uuid>, device: i32) -> Result {
    uuid.set(gpus::uuid(gpus::by_ordinal(device)?))
}

pub(crate) fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) -> Result {
    gpus::by_ordinal(device)?;
    bytes.set(GPU_BYTES as usize)
}

pub(crate) fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) -> Result {
    value.check()?;
    let gpu = gpus::by_ordinal(device)?;
    value.set(attributes::value(gpu, attribute)?)
}

pub(crate) fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) -> Result {
    let gpu = gpus::by_ordinal(device)?;
    major.set(attributes::value(gpu, attributes::COMPUTE_CAPABILITY_MAJOR)?)?;
    minor.set(attributes::value(gpu, attributes::COMPUTE_CAPABILITY_MINOR)?)
}

pub(crate) fn cuDeviceGetPCIBusId(text: Out<c_char>, len: i32, device: i32) -> Result {
    let address = pci::address(gpus::by_ordinal(device)?);
    if len <= address.len() as i32 {
        return Err(Error::INVALID_VALUE);
    }
    text.set_text(&address, len)
}

pub(crate) fn cuDeviceGetByPCIBusId(device: Out<i32>, text: In<c_char>) -> Result {
    device.check()?;
    let gpu = at_pci_address(text.text()?)?;
    let visible = gpu.map(gpus::ordinal).filter(|&ordinal| ordinal >= 0);
    device.set(visible.ok_or(Error::INVALID_DEVICE)?)
}

/// The GPU at a PCI address, if there is one.
///
/// # Errors
/// INVALID_VALUE if the text is not a PCI address.
pub(crate) fn at_pci_address(text: &str) -> Result<Option<usize>> {
    let wanted = pci_fields(text).ok_or(Error::INVALID_VALUE)?;
    let address = |gpu| ((pci::bus(gpu) >> 8) as u64, (pci::bus(gpu) & 0xff) as u64, 0, 0);
    Ok((0..gpus::count()).find(|&gpu| wanted == address(gpu)))
}

/// Reads `[domain:]bus:device[.function]`, all hexadecimal.
fn pci_fields(text: &str) -> Option<(u64, u64, u64, u64)> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let fields: Vec<u64> = address.split(':').map(hex).collect::<Option<_>>()?;
    match fields[..] {
        [domain, bus, device] => Some((domain, bus, device, hex(function)?)),
        [bus, device] => Some((0, bus, device, hex(function)?)),
        _ => None,
    }
}
