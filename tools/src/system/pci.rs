//! A GPU as a PCI device, from sysfs.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::files;

/// The report of sysfs.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Pci {
    /// Size of its largest memory range, which is BAR1.
    pub(crate) bar1: Option<u64>,
    pub(crate) speed: Option<String>,
    /// Lanes.
    pub(crate) width: Option<u32>,
}

/// Returns whether a GPU of NVIDIA is on the bus; `None` if the devices are not listed.
pub(crate) fn has_nvidia_gpu() -> Option<bool> {
    let devices = files::matching(Path::new("/sys/bus/pci/devices"), "");
    if devices.is_empty() {
        return None;
    }
    for device in devices {
        let vendor = files::text(device.join("vendor")).unwrap_or_default();
        let class = files::text(device.join("class")).unwrap_or_default();
        if vendor == "0x10de" && class.starts_with("0x03") {
            return Some(true);
        }
    }
    Some(false)
}

/// A PCIe link as it runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Link {
    generation: u32,
    lanes: u32,
}

impl Pci {
    /// The link, unless sysfs lacks it or its generation is not known.
    pub(crate) fn link(&self) -> Option<Link> {
        let transfers = self.speed.as_ref()?.split(' ').next()?.trim_end_matches(".0");
        let index = GENERATIONS.iter().position(|speed| *speed == transfers)?;
        Some(Link { generation: index as u32 + 1, lanes: self.width? })
    }
}

/// The transfers per second of each generation, in units of 10⁹ as sysfs writes them.
const GENERATIONS: [&str; 6] = ["2.5", "5", "8", "16", "32", "64"];

/// Reads the attributes of the device at this address, which CUDA writes in capitals and sysfs does not.
pub(crate) fn query(address: &str) -> Pci {
    let directory: PathBuf = Path::new("/sys/bus/pci/devices").join(address.to_lowercase());
    Pci {
        bar1: files::text(directory.join("resource")).and_then(|text| largest_memory(&text)),
        speed: files::text(directory.join("current_link_speed")),
        width: files::number(directory.join("current_link_width")),
    }
}

/// The largest memory range in lines of start, end and flags.
fn largest_memory(resource: &str) -> Option<u64> {
    const MEMORY: u64 = 0x200;
    let mut largest = None;
    for line in resource.lines() {
        let mut numbers = Vec::new();
        for word in line.split_whitespace() {
            numbers.push(u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()?);
        }
        if let [start, end, flags] = numbers[..]
            && flags & MEMORY != 0
        {
            largest = largest.max(Some(end - start + 1));
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar1_is_the_largest_memory_range() {
        let resource = "0x00000000d8000000 0x00000000d8ffffff 0x0000000000040200\n\
                        0x0000380000000000 0x000038003fffffff 0x000000000014220c\n\
                        0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                        0x0000000000001000 0x00000fffffffffff 0x0000000000000101\n";
        assert_eq!(largest_memory(resource), Some(1 << 30));
        assert_eq!(largest_memory("0x0 0x0 0x0\n"), None);
        assert_eq!(largest_memory("nonsense"), None);
    }

    #[test]
    fn link_has_the_generation_of_its_speed() {
        let link = |speed: &str, width| Pci { speed: Some(speed.into()), width, ..Pci::default() }.link();
        assert_eq!(link("32.0 GT/s PCIe", Some(16)), Some(Link { generation: 5, lanes: 16 }));
        assert_eq!(link("2.5 GT/s PCIe", Some(1)), Some(Link { generation: 1, lanes: 1 }));
        assert_eq!(link("8 GT/s", Some(1)), Some(Link { generation: 3, lanes: 1 }));
        assert_eq!(link("Unknown", Some(16)), None);
        assert_eq!(link("8 GT/s", None), None);
    }
}
