//! Devices: their number, names and addresses on the PCI bus.

use gdremu_core::gpu::pci;

use crate::error::{Error, Result};
use crate::gpus;

/// The name of every emulated GPU.
pub(crate) const NAME: &str = "gdremu GPU";

/// The GPU at a PCI address, if there is one.
pub(crate) fn at_pci_address(text: &str) -> Result<Option<usize>> {
    let Some((domain, bus, device, function)) = pci_fields(text) else {
        return Err(Error::INVALID_VALUE);
    };
    if device != 0 || function != 0 {
        return Ok(None);
    }
    Ok((0..gpus::count()).find(|&gpu| (pci::bus(gpu) as u64) >> 8 == domain && pci::bus(gpu) as u64 & 0xff == bus))
}

/// Reads `[domain:]bus:device[.function]`, all hexadecimal.
fn pci_fields(text: &str) -> Option<(u64, u64, u64, u64)> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let mut fields = Vec::new();
    for digits in address.split(':').chain([function]) {
        fields.push(u64::from(u32::from_str_radix(digits, 16).ok()?));
    }
    match fields[..] {
        [domain, bus, device, function] => Some((domain, bus, device, function)),
        [bus, device, function] => Some((0, bus, device, function)),
        _ => None,
    }
}
