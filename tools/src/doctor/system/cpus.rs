//! The CPUs that this process may run on.
#![forbid(unsafe_code)]

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::numa;

/// The NUMA nodes of these CPUs.
pub(in crate::doctor) fn nodes() -> Option<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let cpus = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
    let mut nodes: Vec<_> = cpus.filter_map(numa::of_cpu).collect();
    nodes.sort_unstable();
    nodes.dedup();
    (!nodes.is_empty()).then_some(nodes)
}
