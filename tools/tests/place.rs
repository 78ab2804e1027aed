//! Which CPU measures, and what is output of it.

mod common;

use std::fs;
use std::io::Write;

use common::{Output, gdrcopy, lib, run};

fn copybw(emulated: &[&str], options: &[&str]) -> Output {
    run(gdrcopy(emulated, &["copybw", &lib(), "-w", "10", "-r", "10"]).args(options))
}

#[test]
fn measuring_cpu_is_reported() {
    let output = copybw(&[], &["--cpu", "0"]);
    output.prints(&["on CPU 0"]);
    assert!(!output.stderr.contains("--cpu"), "{output:?}");
    copybw(&[], &["--cpu", "0", "--format", "json"]).prints(&["\"cpu\": 0"]);
}

#[test]
fn missing_cpu_is_reported() {
    copybw(&[], &["--cpu", "1023"]).with_status(1).reports(&["cannot run on CPU [1023]"]);
    for wrong in ["x", "3-1", ""] {
        assert_eq!(copybw(&[], &["--cpu", wrong]).status, Some(2), "{wrong}");
    }
}

fn node_of_cpu_0() -> Option<usize> {
    let entries = fs::read_dir("/sys/devices/system/cpu/cpu0").ok()?;
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.find_map(|name| name.strip_prefix("node")?.parse().ok())
}

#[test]
fn cpu_on_another_node_gives_a_warning() {
    let Some(node) = node_of_cpu_0() else {
        eprintln!("skipped: the kernel does not report the NUMA nodes of CPUs");
        return;
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{}", node + 3).unwrap();
    let file = file.path().display();
    let emulated = format!("--file=/sys/bus/pci/devices/0000:1b:00.0/numa_node={file}");
    let output = copybw(&[&emulated], &["--cpu", "0"]).with_status(0);
    let advice = format!("CPU 0 is on NUMA node {node}, the GPU on node {}", node + 3);
    output.reports(&[&advice]);
    let place = format!("on CPU 0, GPU on NUMA node {}", node + 3);
    output.prints(&[&place]);
}
