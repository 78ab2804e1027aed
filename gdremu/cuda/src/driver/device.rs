//! Devices: their number, names and addresses on the PCI bus.

use gdremu_core::gpu::pci;

use crate::error::{Error, Result};
use crate::gpus;

/// The name of every emulated GPU.
pub(crate) const NAME: &str = "gdremu GPU";

/// The GPU at a PCI address, if there is one.
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
