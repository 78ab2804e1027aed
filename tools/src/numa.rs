//! Which NUMA nodes a GPU and a CPU are on.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu};
use nix::unistd::Pid;

/// The node of the PCI device at this address, as `0000:17:00.0`; none if it is on none, or the
/// kernel does not tell.
pub fn of_pci_device(address: &str) -> Option<usize> {
    let address = address.to_lowercase();
    let node = fs::read_to_string(format!("/sys/bus/pci/devices/{address}/numa_node")).ok()?;
    node.trim().parse().ok()
}

/// The node of this CPU; none if the kernel does not tell.
pub fn of_cpu(cpu: usize) -> Option<usize> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
    let entries = fs::read_dir(Path::new(&folder)).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| name.strip_prefix("node")?.parse().ok())
        .next()
}

/// The CPU that the calling thread runs on, and whether it cannot move to another.
pub fn this_cpu() -> Option<(usize, bool)> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let count = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    Some((sched_getcpu().ok()?, count.count() == 1))
}

/// What is to be said of a CPU and a GPU on these nodes.
pub fn advice(cpu: usize, cpu_node: Option<usize>, gpu_node: Option<usize>) -> Option<String> {
    let (cpu_node, gpu_node) = (cpu_node?, gpu_node?);
    (cpu_node != gpu_node).then(|| {
        format!(
            "CPU {cpu} is on NUMA node {cpu_node}, the GPU on node {gpu_node}: copies cross between them. \
             Take a CPU of /sys/devices/system/node/node{gpu_node}/cpulist with --cpu"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_where_nodes_differ() {
        let told = advice(9, Some(1), Some(0)).unwrap();
        assert!(told.contains("CPU 9"), "{told}");
        assert!(told.contains("node0/cpulist"), "{told}");
        assert_eq!(advice(9, Some(1), Some(1)), None);
        assert_eq!(advice(9, Some(1), None), None);
        assert_eq!(advice(9, None, Some(0)), None);
    }

    #[test]
    fn this_cpu_is_one_of_the_machine() {
        let (cpu, _) = this_cpu().unwrap();
        assert!(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists());
        assert_eq!(of_pci_device("0000:ff:1f.7"), None);
    }
}
