//! The CPUs that a thread may run on, and their NUMA nodes.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use super::files;

/// A list of at least one CPU number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CpuList(pub(crate) Vec<usize>);

impl CpuList {
    /// Returns a CPU for each of two processes that work together: the first two of this list. If it has only one, the
    /// second is one of `others`, if possible not the CPU with the next number, because both can share a core.
    pub(crate) fn two(&self, others: &[usize]) -> [usize; 2] {
        let first = self.0[0];
        if let Some(&second) = self.0.get(1) {
            return [first, second];
        }
        let later = others.iter().copied().find(|&cpu| cpu > first + 1);
        let other = later.or(others.iter().copied().find(|&cpu| cpu != first));
        [first, other.unwrap_or(first)]
    }
}

/// Lets the calling thread, and threads and processes that it starts later, run only on these CPUs.
pub(crate) fn restrict_to(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu).with_context(|| format!("CPU {cpu}"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot run on CPU {cpus:?}"))
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cpus = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                Some((first, last)) => cpus.extend(number(first)?..=number(last)?),
                None => cpus.push(number(part)?),
            }
        }
        if cpus.is_empty() {
            return Err("the range contains no CPU".into());
        }
        Ok(CpuList(cpus))
    }
}

fn number(digits: &str) -> Result<usize, String> {
    digits.parse::<usize>().map_err(|error| error.to_string())
}

/// Returns the CPUs that the calling thread may run on.
pub(crate) fn allowed() -> Option<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let mut cpus = Vec::new();
    for cpu in 0..CpuSet::count() {
        if set.is_set(cpu) == Ok(true) {
            cpus.push(cpu);
        }
    }
    Some(cpus)
}

/// Returns the CPU that the calling thread runs on, and whether it is pinned there.
pub(crate) fn current() -> Option<(usize, bool)> {
    Some((sched_getcpu().ok()?, allowed()?.len() == 1))
}

/// Returns the name that the CPU has in /proc/cpuinfo.
pub(crate) fn model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    files::field(&text, "model name").map(str::to_owned)
}

/// Returns the NUMA node of a CPU.
pub(crate) fn node_of_cpu(cpu: usize) -> Option<usize> {
    let links = files::matching(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")), "node");
    links.first()?.file_name()?.to_str()?.strip_prefix("node")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_get_two_cpus_of_different_cores() {
        let two = |list: &str, others: &[usize]| list.parse::<CpuList>().unwrap().two(others);
        assert_eq!(two("4,6,8", &[1]), [4, 6]);
        assert_eq!(two("4", &[0, 4, 5, 6]), [4, 6]);
        assert_eq!(two("1", &[0, 1]), [1, 0]);
        assert_eq!(two("0", &[0]), [0, 0]);
    }

    #[test]
    fn cpu_lists_contain_numbers_and_ranges() {
        assert_eq!("4".parse(), Ok(CpuList(vec![4])));
        assert_eq!("2-4,9".parse(), Ok(CpuList(vec![2, 3, 4, 9])));
        for wrong in ["", "a", "4-2", "1,"] {
            assert!(wrong.parse::<CpuList>().is_err(), "{wrong}");
        }
    }
}
