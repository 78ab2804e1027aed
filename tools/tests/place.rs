//! Which CPU measures, and what is said of it.

mod common;

use std::io::Write;

use common::{Said, gdrcopy, library, run};
use gdrcopy_tools::numa;

fn copybw(machine: &[&str], options: &[&str]) -> Said {
    let library = format!("--lib={}", library().display());
    run(gdrcopy(machine, &["copybw", &library, "-w", "10", "-r", "10"]).args(options))
}

#[test]
fn the_cpu_that_measures_is_told() {
    let said = copybw(&[], &["--cpu", "0"]);
    assert!(said.stdout.contains("on CPU 0"), "{said:?}");
    assert!(!said.stderr.contains("--cpu"), "{said:?}");
    let said = copybw(&[], &["--cpu", "0", "--format", "json"]);
    assert!(said.stdout.contains("\"cpu\": 0"), "{said:?}");
}

#[test]
fn a_cpu_that_is_not_there_is_told() {
    let said = copybw(&[], &["--cpu", "1023"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(said.stderr.contains("cannot run on CPU [1023]"), "{said:?}");
    for wrong in ["x", "3-1", ""] {
        assert_eq!(copybw(&[], &["--cpu", wrong]).status, Some(2), "{wrong}");
    }
}

#[test]
fn a_cpu_far_from_the_gpu_is_advised_against() {
    let Some(node) = numa::of_cpu(0) else {
        eprintln!("skipped: this kernel does not tell the NUMA nodes of CPUs");
        return;
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{}", node + 3).unwrap();
    let file = file.path().display();
    let machine = format!("--file=/sys/bus/pci/devices/0000:1b:00.0/numa_node={file}");
    let said = copybw(&[&machine], &["--cpu", "0"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let advice = format!("CPU 0 is on NUMA node {node}, the GPU on node {}", node + 3);
    assert!(said.stderr.contains(&advice), "{said:?}");
    let place = format!("on CPU 0, GPU on NUMA node {}", node + 3);
    assert!(said.stdout.contains(&place), "{said:?}");
}
