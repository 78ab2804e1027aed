//! Which CPUs the process runs on.
#![forbid(unsafe_code)]

use std::str::FromStr;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// CPU numbers, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// Lets the calling thread, and those that it starts from now on, run on all of them.
    pub fn allow_all(&self) -> Result<()> {
        restrict_to(&self.0)
    }

    /// Ties the calling thread to the first of them.
    pub fn settle_on_first(&self) -> Result<()> {
        restrict_to(&self.0[..1])
    }

    /// The CPU that measures.
    pub fn first(&self) -> usize {
        self.0[0]
    }
}

fn restrict_to(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu).with_context(|| format!("CPU {cpu}"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot run on CPU {cpus:?}"))
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse::<usize>().map_err(|error| error.to_string());
        let mut cpus = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                Some((first, last)) => cpus.extend(number(first)?..=number(last)?),
                None => cpus.push(number(part)?),
            }
        }
        if cpus.is_empty() {
            return Err("the range has no CPU in it".into());
        }
        Ok(CpuList(cpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        assert_eq!("4".parse(), Ok(CpuList(vec![4])));
        assert_eq!("2-4,9".parse(), Ok(CpuList(vec![2, 3, 4, 9])));
        for wrong in ["", "a", "4-2", "1,"] {
            assert!(wrong.parse::<CpuList>().is_err(), "{wrong}");
        }
    }
}
