//! What measuring tools begin with: the GPU, the libraries with their buffers, and a description of
//! both that belongs to every result.
#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::fmt::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::cuda::{Gpu, Memory};
use crate::interrupt::Interrupt;
use crate::library::Connection;
use crate::numa;
use crate::options::Target;
use crate::subject::{self, Subject};

/// Everything that is needed to measure.
#[derive(Debug)]
pub struct Session {
    /// The libraries, one or two, each with a mapped buffer of its own.
    pub subjects: Vec<Subject>,
    /// The GPU that the buffers are on.
    pub gpu: &'static Gpu,
    /// What results tell of the above.
    pub setup: Setup,
    /// Says when to end.
    pub interrupt: Interrupt,
}

/// Where it was measured, and what.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// The tool's name.
    pub tool: &'static str,
    /// The command line.
    pub command: String,
    /// All GPUs.
    pub gpus: Vec<GpuInfo>,
    /// The number of the one that is used.
    pub gpu: i32,
    /// Its NUMA node.
    pub gpu_node: Option<usize>,
    /// The CUDA version that the driver serves: 1000 times the major version, and 10 times the minor.
    pub cuda_version: c_int,
    /// The CPU that measures, if it is tied to one.
    pub cpu: Option<usize>,
    /// The libraries.
    pub libraries: Vec<LibraryInfo>,
}

/// A GPU.
#[derive(Clone, Debug, Serialize)]
pub struct GpuInfo {
    /// Its number.
    pub number: i32,
    /// Its name.
    pub name: String,
    /// Its PCI address.
    pub pci_address: String,
}

/// A library, its driver, and its buffer.
#[derive(Clone, Debug, Serialize)]
pub struct LibraryInfo {
    /// What results call it.
    pub label: String,
    /// Its file.
    pub file: PathBuf,
    /// Its release, as `2.6`.
    pub version: Option<String>,
    /// That of the driver beneath it.
    pub driver_version: Option<String>,
    /// Where the buffer comes from.
    pub memory: Memory,
    /// The buffer's device address.
    pub device_address: u64,
    /// The address at which the CPU sees it.
    pub mapped_address: usize,
    /// Bytes pinned.
    pub mapped_size: u64,
    /// Bytes of a page.
    pub page_size: u32,
    /// Whether the mapping is write-combining.
    pub wc_mapping: bool,
    /// The mapping's type.
    pub mapping_type: &'static str,
}

impl Session {
    /// Opens the GPU and the libraries, and has each pin and map a buffer of `len` bytes at least.
    ///
    /// # Errors
    /// One of these fails; the message says what to do.
    pub fn open(tool: &'static str, target: &Target, len: usize) -> Result<Session> {
        let interrupt = Interrupt::listen()?;
        if let Some(cpus) = &target.cpu {
            cpus.allow_all()?;
        }
        // Before the GPU is opened: wrong libraries are the user's first mistake.
        let libraries = subject::libraries(target)?;
        let gpu = Gpu::open(target.gpu)?;
        let subjects = libraries
            .iter()
            .map(|named| Subject::new(named, gpu, target, len))
            .collect::<Result<Vec<_>>>()?;
        if let Some(cpus) = &target.cpu {
            cpus.settle_on_first()?;
        }
        let gpu_node = numa::of_pci_device(&gpu.device().pci_address);
        let cpu = place(tool, gpu_node);
        let devices = gpu.devices.iter().map(|device| GpuInfo {
            number: device.number,
            name: device.name.clone(),
            pci_address: device.pci_address.clone(),
        });
        let setup = Setup {
            tool,
            command: std::env::args().collect::<Vec<_>>().join(" "),
            gpus: devices.collect(),
            gpu: target.gpu,
            gpu_node,
            cuda_version: gpu.version,
            cpu,
            libraries: subjects.iter().map(LibraryInfo::of).collect(),
        };
        Ok(Session {
            subjects,
            gpu,
            setup,
            interrupt,
        })
    }
}

/// The CPU that this thread is tied to. Says what is to be said of its place.
fn place(tool: &str, gpu_node: Option<usize>) -> Option<usize> {
    let (cpu, is_tied) = numa::this_cpu()?;
    if let Some(advice) = numa::advice(cpu, numa::of_cpu(cpu), gpu_node) {
        eprintln!("gdrcopy {tool}: {advice}");
    } else if !is_tied {
        eprintln!("gdrcopy {tool}: not tied to a CPU (--cpu): times may vary threefold");
    }
    is_tied.then_some(cpu)
}

impl LibraryInfo {
    fn of(subject: &Subject) -> LibraryInfo {
        let Subject {
            named,
            mapped,
            buffer,
        } = subject;
        let connection: &Connection = mapped.connection();
        LibraryInfo {
            label: named.label.clone(),
            file: named.library.file.clone(),
            version: named.library.version().map(version),
            driver_version: connection.driver_version().map(version),
            memory: buffer.memory(),
            device_address: buffer.address(),
            mapped_address: mapped.at(0) as usize,
            mapped_size: mapped.info.mapped_size,
            page_size: mapped.info.page_size,
            wc_mapping: mapped.info.wc_mapping(),
            mapping_type: mapped.mapping_type(),
        }
    }
}

fn version((major, minor): (c_int, c_int)) -> String {
    format!("{major}.{minor}")
}

impl Setup {
    /// The name of the GPU that is used.
    pub fn gpu_name(&self) -> &str {
        let used = self.gpus.iter().find(|gpu| gpu.number == self.gpu);
        used.map_or("GPU", |gpu| &gpu.name)
    }

    /// What stands above a chart.
    pub fn title(&self) -> String {
        let mapping = self.libraries.first().map(|library| library.mapping_type);
        format!("{}, {} mapping", self.gpu_name(), mapping.unwrap_or("no"))
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        for gpu in &self.gpus {
            let used = if gpu.number == self.gpu {
                " (used)"
            } else {
                ""
            };
            let GpuInfo {
                number,
                name,
                pci_address,
            } = gpu;
            writeln!(out, "GPU {number}: {name}, {pci_address}{used}")?;
        }
        let (major, minor) = (self.cuda_version / 1000, self.cuda_version % 1000 / 10);
        let mut place = match self.cpu {
            Some(cpu) => format!("CPU {cpu}"),
            None => "no CPU in particular".into(),
        };
        if let Some(node) = self.gpu_node {
            write!(place, ", GPU on NUMA node {node}")?;
        }
        writeln!(out, "CUDA {major}.{minor}; on {place}")?;
        for library in &self.libraries {
            write!(out, "{library}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LibraryInfo {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let unknown = || "unknown".to_owned();
        let version = self.version.clone().unwrap_or_else(unknown);
        let driver = self.driver_version.clone().unwrap_or_else(unknown);
        let memory = serde_json::to_value(self.memory).unwrap_or_default();
        writeln!(
            out,
            "{}: {} (release {version}, driver {driver})",
            self.label,
            self.file.display()
        )?;
        writeln!(
            out,
            "  buffer from {}: device {:#x}, mapped at {:#x}, {} bytes in pages of {}, {} mapping",
            memory.as_str().unwrap_or_default(),
            self.device_address,
            self.mapped_address,
            self.mapped_size,
            self.page_size,
            self.mapping_type
        )
    }
}
