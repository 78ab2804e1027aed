//! Opens the GPU and the libraries, makes a buffer for each library, and describes all of these for the results.
#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::fmt::{self, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::Serialize;

use super::method::{Kind, Method};
use super::options::SharedOptions;
use crate::cuda::{Device, Gpu, Memory};
use crate::libgdrapi::{self, Library};
use crate::output::{self, name};
use crate::system::cpu;
use crate::system::files;
use crate::system::interrupt::{Interrupt, SIGNALS};
use crate::system::pci::{self, Link};

/// The reason why the numbers of an emulated GPU are of no use.
pub(crate) const EMULATED: &str = "the GPU is emulated: its memory is host memory; these numbers are meaningless";

#[derive(Debug)]
pub(crate) struct Session {
    /// The methods to measure: first the libraries, and then memcpy or CUDA's own copies.
    pub(crate) methods: Vec<Method>,
    /// The GPU that the buffers are on.
    pub(crate) gpu: &'static Gpu,
    pub(crate) setup: Setup,
    pub(crate) interrupt: Interrupt,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Setup {
    pub(crate) tool: &'static str,
    pub(crate) command: String,
    /// The time of the measurement, in seconds since 1970.
    pub(crate) time: u64,
    pub(crate) gpus: Vec<Device>,
    /// The number of the GPU that is used.
    pub(crate) gpu: i32,
    /// The NUMA node of the GPU.
    pub(crate) gpu_node: Option<usize>,
    /// The driver's CUDA version, 1000 × major + 10 × minor.
    pub(crate) cuda_version: c_int,
    /// The GPU driver's version, such as `580.95.05`.
    pub(crate) gpu_driver: Option<String>,
    pub(crate) pcie: Option<Link>,
    pub(crate) cpu_model: Option<String>,
    /// The CPU on which the tool measures, if the tool may run on only one.
    pub(crate) cpu: Option<usize>,
    pub(crate) libraries: Vec<LibraryInfo>,
}

/// A library, its driver, and its buffer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LibraryInfo {
    pub(crate) label: String,
    file: PathBuf,
    /// The library's release, such as `2.6`.
    version: Option<String>,
    driver_version: Option<String>,
    memory: Memory,
    device_address: u64,
    mapped_address: usize,
    /// The size of all pinned pages in bytes.
    mapped_size: u64,
    /// The size of a page in bytes.
    page_size: u32,
    pub(crate) mapping_type: &'static str,
}

impl SharedOptions {
    /// Opens the GPU, and prepares all methods that are measured: the libraries and `others`. Each method gets a buffer
    /// of at least `len` bytes. Errors say what to do.
    pub(crate) fn open(&self, tool: &'static str, len: usize, others: &[Kind]) -> Result<Session> {
        output::check_writable(self.output.json.as_deref())?;
        let interrupt = Interrupt::at(&SIGNALS)?;
        if let Some(cpus) = &self.cpu {
            cpu::restrict_to(&cpus.0[..1])?;
        }
        // If the library and the GPU are both wrong, the error names the library, which is the more likely mistake.
        let libraries = self.libraries()?;
        let gpu = Gpu::open(self.gpu)?;
        let mut methods = Vec::new();
        for (label, library) in &libraries {
            let label = unique_label(&methods, label);
            methods.push(Method::new(Kind::Library, &label, library, gpu, self, len)?);
        }
        let setup_libraries = methods.iter().map(LibraryInfo::new).collect();
        for &kind in others {
            let label = match kind {
                Kind::Memcpy => "memcpy",
                _ => "cuMemcpy",
            };
            let label = unique_label(&methods, label);
            methods.push(Method::new(kind, &label, libraries[0].1, gpu, self, len)?);
        }
        let pci_address = &gpu.device().pci_address;
        let gpu_node = pci::node(pci_address);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let setup = Setup {
            tool,
            command: std::env::args().collect::<Vec<_>>().join(" "),
            time: now.map_or(0, |since| since.as_secs()),
            gpus: gpu.devices.clone(),
            gpu: self.gpu,
            gpu_node,
            cuda_version: gpu.version,
            gpu_driver: files::text("/sys/module/nvidia/version"),
            pcie: pci::link(pci_address),
            cpu_model: cpu::model(),
            cpu: pinned_cpu(tool, gpu_node),
            libraries: setup_libraries,
        };
        if setup.emulated() {
            eprintln!("gdrcopy {tool}: warning: {EMULATED}");
        }
        Ok(Session { methods, gpu, setup, interrupt })
    }

    /// Loads the libraries that the user names, or else the one that the loader finds.
    fn libraries(&self) -> Result<Vec<(String, &'static Library)>> {
        if self.libraries.is_empty() {
            return Ok(vec![("libgdrapi.so.2".into(), libgdrapi::load_default()?)]);
        }
        let mut libraries = Vec::new();
        for (label, file) in &self.libraries {
            libraries.push((label.clone(), libgdrapi::load(file)?));
        }
        Ok(libraries)
    }
}

/// Returns a label that no method has, because results with the same label would count as one method's.
fn unique_label(methods: &[Method], label: &str) -> String {
    let mut unique = label.to_owned();
    let mut number = 1;
    while methods.iter().any(|method| method.label == unique) {
        number += 1;
        unique = format!("{label} ({number})");
    }
    unique
}

/// Returns the CPU that this thread is pinned to, if any. Warns if there is none, or if the CPU is far from the GPU.
fn pinned_cpu(tool: &str, gpu_node: Option<usize>) -> Option<usize> {
    let (cpu, is_pinned) = cpu::current()?;
    match (cpu::node_of_cpu(cpu), gpu_node) {
        (Some(node), Some(gpu_node)) if node != gpu_node => eprintln!(
            "gdrcopy {tool}: warning: CPU {cpu} is on NUMA node {node}, the GPU on node {gpu_node}: copies cross between \
             them. Choose a CPU of /sys/devices/system/node/node{gpu_node}/cpulist with --cpu"
        ),
        _ if !is_pinned => {
            eprintln!("gdrcopy {tool}: warning: not pinned to a CPU; timings can vary by 3x (use --cpu)");
        }
        _ => {}
    }
    if is_pinned { Some(cpu) } else { None }
}

impl LibraryInfo {
    fn new(method: &Method) -> LibraryInfo {
        let Method { label, library, mapped, buffer, .. } = method;
        LibraryInfo {
            label: label.clone(),
            file: library.file.clone(),
            version: library.version().map(version),
            driver_version: mapped.connection().driver_version().map(version),
            memory: buffer.memory(),
            device_address: buffer.address(),
            mapped_address: mapped.at(0) as usize,
            mapped_size: mapped.info.mapped_size,
            page_size: mapped.info.page_size,
            mapping_type: mapped.mapping_type(),
        }
    }
}

fn version((major, minor): (c_int, c_int)) -> String {
    format!("{major}.{minor}")
}

impl Setup {
    /// Returns whether the GPU that is used is gdremu's. Then the measured times are meaningless.
    pub(crate) fn emulated(&self) -> bool {
        self.gpus.iter().any(|gpu| gpu.number == self.gpu && gpu.name == "gdremu GPU")
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        for gpu in &self.gpus {
            let used = if gpu.number == self.gpu { " (used)" } else { "" };
            let Device { number, name, pci_address, .. } = gpu;
            writeln!(out, "GPU {number}: {name}, {pci_address}{used}")?;
        }
        let mut place = match self.cpu {
            Some(cpu) => format!("CPU {cpu}"),
            None => "no CPU in particular".into(),
        };
        if let Some(node) = self.gpu_node {
            write!(place, ", GPU on NUMA node {node}")?;
        }
        writeln!(out, "CUDA {}.{}; on {place}", self.cuda_version / 1000, self.cuda_version % 1000 / 10)?;
        if let Some(model) = &self.cpu_model {
            writeln!(out, "{model}")?;
        }
        for library in &self.libraries {
            write!(out, "{library}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LibraryInfo {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let version = self.version.as_deref().unwrap_or("unknown");
        let driver = self.driver_version.as_deref().unwrap_or("unknown");
        writeln!(out, "{}: {} (release {version}, driver {driver})", self.label, self.file.display())?;
        writeln!(
            out,
            "  buffer from {}: device {:#x}, mapped at {:#x},\n  {} bytes in pages of {}, {} mapping",
            name(self.memory),
            self.device_address,
            self.mapped_address,
            self.mapped_size,
            self.page_size,
            self.mapping_type
        )
    }
}
