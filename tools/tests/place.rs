//! Which CPU measures, and what is output of it.

mod common;

use std::fs;
use std::io::Write;

use common::{Output, gdrcopy, library, run};

fn copybw(emulated: &[&str], options: &[&str]) -> Output {
    let library = format!("--lib={}", library().display());
    run(gdrcopy(emulated, &["copybw", &library, "-w", "10", "-r", "10"]).args(options))
}

#[test]
fn measuring_cpu_is_reported() {
    let output = copybw(&[], &["--cpu", "0"]);
    assert!(output.stdout.contains("on CPU 0"), "{output:?}");
    assert!(!output.stderr.contains("--cpu"), "{output:?}");
    let output = copybw(&[], &["--cpu", "0", "--format", "json"]);
    assert!(output.stdout.contains("\"cpu\": 0"), "{output:?}");
}

#[test]
fn missing_cpu_is_reported() {
    let output = copybw(&[], &["--cpu", "1023"]);
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.stderr.contains("cannot run on CPU [1023]"), "{output:?}");
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
    let output = copybw(&[&emulated], &["--cpu", "0"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let advice = format!("CPU 0 is on NUMA node {node}, the GPU on node {}", node + 3);
    assert!(output.stderr.contains(&advice), "{output:?}");
    let place = format!("on CPU 0, GPU on NUMA node {}", node + 3);
    assert!(output.stdout.contains(&place), "{output:?}");
}
