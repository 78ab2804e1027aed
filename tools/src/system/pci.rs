//! Reads from sysfs the properties that a GPU has as a PCI device.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::files;

/// Returns the number of NVIDIA's GPUs on the bus; `None` if the devices are not listed.
pub(crate) fn nvidia_gpus() -> Option<usize> {
    let devices = files::matching(Path::new("/sys/bus/pci/devices"), "");
    if devices.is_empty() {
        return None;
    }
    let mut count = 0;
    for device in devices {
        let vendor = files::text(device.join("vendor")).unwrap_or_default();
        let class = files::text(device.join("class")).unwrap_or_default();
        if vendor == "0x10de" && class.starts_with("0x03") {
            count += 1;
        }
    }
    Some(count)
}

/// The speed and the width at which a PCIe link runs now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Link {
    generation: u32,
    lanes: u32,
}

/// The transfers per second of each generation, in units of 10⁹ as sysfs writes them.
const GENERATIONS: [&str; 6] = ["2.5", "5", "8", "16", "32", "64"];

/// Returns the directory of the device at this address, which CUDA writes in capitals and sysfs does not.
fn directory(address: &str) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(address.to_lowercase())
}

/// Returns the NUMA node of the device.
pub(crate) fn node(address: &str) -> Option<usize> {
    files::number(directory(address).join("numa_node"))
}

/// Returns the PCIe link of the device, unless sysfs lacks it or its generation is not known.
pub(crate) fn link(address: &str) -> Option<Link> {
    let speed = files::text(directory(address).join("current_link_speed"))?;
    Some(Link { generation: generation(&speed)?, lanes: files::number(directory(address).join("current_link_width"))? })
}

fn generation(speed: &str) -> Option<u32> {
    let transfers = speed.split(' ').next()?.trim_end_matches(".0");
    let index = GENERATIONS.iter().position(|speed| *speed == transfers)?;
    Some(index as u32 + 1)
}

/// Returns the size of a GPU's BAR1, which is the largest of its PCI memory ranges.
pub(crate) fn bar1(address: &str) -> Option<u64> {
    largest_memory(&files::text(directory(address).join("resource"))?)
}

/// Returns the size of the largest memory range. Each line of `resource` has a range's start, end and flags.
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
        for (speed, expected) in
            [("32.0 GT/s PCIe", Some(5)), ("2.5 GT/s PCIe", Some(1)), ("8 GT/s", Some(3)), ("Unknown", None)]
        {
            assert_eq!(generation(speed), expected, "{speed}");
        }
    }
}
