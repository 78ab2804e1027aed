//! Devices: their number, names and addresses on the PCI bus.

use gdremu_core::gpu::pci;

use crate::error::{Error, Result, valid};
use crate::gpus;

/// The name of every emulated GPU.
pub(super) const NAME: &str = "gdremu GPU";

/// The CUdevice at a PCI address.
pub(super) fn at_pci_address(text: &str) -> Result<i32> {
    let address = valid(pci_fields(text))?;
    for (ordinal, gpu) in gpus::visible().iter().enumerate() {
        if pci_fields(&pci::address(*gpu)) == Some(address) {
            return Ok(ordinal as i32);
        }
    }
    Err(Error::INVALID_DEVICE)
}

/// Reads `[domain:]bus:device[.function]`, all hexadecimal.
fn pci_fields(text: &str) -> Option<[u32; 4]> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let mut fields = Vec::new();
    for digits in address.split(':').chain([function]) {
        fields.push(u32::from_str_radix(digits, 16).ok()?);
    }
    match fields[..] {
        [domain, bus, device, function] => Some([domain, bus, device, function]),
        [bus, device, function] => Some([0, bus, device, function]),
        _ => None,
    }
}
