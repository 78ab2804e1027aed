//! Options that gdremu's libraries need in the program's process. Each is declared once, for the command line (clap)
//! and for the environment variable in which the launcher passes it on (serde).
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::abi::{Command, MappingType};
use crate::errno::Errno;
use crate::fault::Faults;
use crate::session::Session;
use crate::version::Version;

/// The environment variable in which gdremu passes a [`Config`] to its libraries in the program's process.
pub const VARIABLE: &str = "GDREMU_CONFIG";

/// The first CUDA version in which a dma-buf of GPU memory can be mapped.
const DMABUF_MMAP: u32 = 13030;

// If a field is an option, clap prints the field's documentation as the option's help text.

#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The directory that all processes under one gdremu share (see [`crate::session`]).
    #[arg(skip)]
    pub session: Session,
    /// Make calls fail, as NAME:ERROR[@N[+]],… for every call, the Nth, or all from the Nth on;
    /// COMMAND:FIELD=VALUE[@N[+]] changes a field of the command's result
    #[arg(long = "fault", value_name = "LIST", default_value = "", hide_default_value = true, value_parser = faults)]
    pub faults: String,
    /// Append each driver call to a file, as a line of JSON
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print the names of missing CUDA functions that a program requests from cuGetProcAddress
    #[arg(long)]
    pub log_missing: bool,
    /// When a process launches a GPU kernel that gdremu does not run, print its name and end the process with status N
    /// (exit:N). With "warn", which prints its name, only the launch fails
    #[arg(long, value_name = "ACTION", default_value = "exit:70")]
    pub unsupported: Unsupported,
    #[command(flatten)]
    pub driver: DriverConfig,
    #[command(flatten)]
    pub gpu: GpuConfig,
}

/// Options of the emulated kernel module.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Emulated gdrdrv")]
pub struct DriverConfig {
    /// Version of gdrdrv
    #[arg(long = "driver-version", id = "driver_version", value_name = "X.Y[.Z]", default_value = "2.6")]
    pub version: Version,
    /// Oldest library version that gdrdrv reports as supported
    #[arg(long, value_name = "X.Y", default_value = "2.0")]
    pub min_api_version: Version,
    /// End pins when their memory is freed (always on before driver 2.5)
    #[arg(long)]
    pub traditional: bool,
    /// Default type of mappings
    #[arg(long, value_name = "TYPE", default_value = "wc")]
    pub platform: Platform,
    /// FORCE_PCIE pins succeed on coherent GPUs (errno 524 otherwise)
    #[arg(long, default_value = "yes")]
    pub force_pcie: YesNo,
    /// First handle; decimal, or hexadecimal with 0x
    #[arg(long, value_name = "N", default_value = "0", value_parser = number)]
    pub handle_base: u64,
    /// Emulate the known defects of NVIDIA's gdrdrv
    #[arg(long)]
    pub module_defects: bool,
    /// Do not load gdrdrv, so there is no /dev/gdrdrv
    #[arg(long = "no-gdrdrv", action = ArgAction::SetFalse)]
    pub loaded: bool,
    /// Bind gdrdrv to nv-p2p-dummy instead of NVIDIA's driver, so every pin fails with EINVAL
    #[arg(long = "nv-p2p-dummy")]
    pub p2p_dummy: bool,
    /// Make open("/dev/gdrdrv") fail with ERRNO
    #[arg(long = "gdrdrv-errno", value_name = "ERRNO")]
    pub open_errno: Option<Errno>,
}

impl DriverConfig {
    /// Returns whether the emulated gdrdrv is 2.`minor` or later.
    pub fn since(&self, minor: u16) -> bool {
        self.version >= Version::new(2, minor)
    }

    /// Returns the command with this number if the emulated gdrdrv knows it. A gdrdrv older than 2.0 knows the commands
    /// of 2.0.
    pub fn command(&self, number: u32) -> Result<Command, Errno> {
        match Command::from_number(number) {
            Some(command) if command.since() == 0 || self.since(command.since()) => Ok(command),
            _ => Err(Errno::ENOTTY),
        }
    }

    /// Returns whether pins outlive a free of their memory, as they do by default since 2.5.
    pub fn persistent(&self) -> bool {
        self.since(5) && !self.traditional
    }
}

/// Options of the GPUs, nearly all for emulated ones and the stand-in libcuda.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "GPUs and CUDA")]
pub struct GpuConfig {
    /// GPU memory
    #[arg(long, default_value = "host")]
    pub provider: ProviderKind,
    /// Number of GPUs
    #[arg(long, value_name = "N", default_value = "1")]
    pub gpus: u32,
    /// CUDA version that cuDriverGetVersion returns
    #[arg(long, value_name = "X.Y", default_value = "13.0", value_parser = cuda_version)]
    pub cuda_version: u32,
    /// PCI device id of the GPUs, in /sys and NVML; decimal, or hexadecimal with 0x
    #[arg(long, value_name = "ID", default_value = "0x2331", value_parser = pci_device)]
    pub pci_device: u16,
    /// Emulate GPUs without memory pools
    #[arg(long = "no-mempools", action = ArgAction::SetFalse)]
    pub mempools: bool,
    /// Join CPU and GPU by a coherent link (always on with --platform cached)
    #[arg(long)]
    pub coherent: bool,
    /// GPUDirect RDMA, yes or no, one value per GPU separated by commas; the last applies to the rest
    #[arg(long, value_name = "LIST", default_value = "yes", value_parser = PerGpu::<YesNo>::read_choices)]
    pub rdma: PerGpu<YesNo>,
    /// Bytes of each GPU that can be pinned at a time, with suffix K, M, G or T; a list as in --rdma
    #[arg(long, value_name = "LIST", default_value = "128G", value_parser = |text: &str| PerGpu::read(text, bytes))]
    pub bar1_size: PerGpu<u64>,
    /// GPU memory as dma-bufs, which is auto (by CUDA version), no, export (but not mmap), or mmap; a list as in --rdma
    #[arg(long, value_name = "LIST", default_value = "auto", value_parser = PerGpu::<Dmabuf>::read_choices)]
    pub dmabuf: PerGpu<Dmabuf>,
}

impl GpuConfig {
    pub fn exports_dmabufs(&self, gpu: usize) -> bool {
        *self.dmabuf.of(gpu) != Dmabuf::No
    }

    pub fn maps_dmabufs(&self, gpu: usize) -> bool {
        match self.dmabuf.of(gpu) {
            Dmabuf::Auto => self.cuda_version >= DMABUF_MMAP,
            Dmabuf::Mmap => true,
            Dmabuf::No | Dmabuf::Export => false,
        }
    }
}

/// Declares an enum whose variants are the values of an option.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($variants:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($variants)* }
    };
}

choice! {
    /// The platform, by its default type of mapping.
    Platform {
        /// write-combining, and nothing else, as PCIe on x86
        Wc,
        /// cached, write-combining on request, as a coherent link
        Cached,
        /// device memory, and nothing else, as some arm64 platforms
        Device,
    }
}

impl Platform {
    pub fn default_mapping(self) -> MappingType {
        match self {
            Platform::Wc => MappingType::Wc,
            Platform::Cached => MappingType::Caching,
            Platform::Device => MappingType::Device,
        }
    }
}

choice! {
    ProviderKind {
        /// emulated GPUs, in memory of the host
        Host,
        /// this computer's NVIDIA GPUs, with their own libcuda (laboratory tool)
        Nvidia,
        /// emulated GPUs, in the test kernel's emugpu module, with the real gdrdrv
        Emugpu,
    }
}

impl ProviderKind {
    /// Returns whether the GPUs, and hence libcuda, are emulated.
    pub fn emulates_gpus(self) -> bool {
        self != ProviderKind::Nvidia
    }

    /// Returns whether gdrdrv is emulated. If not, programs use the real one.
    pub fn emulates_gdrdrv(self) -> bool {
        self != ProviderKind::Emugpu
    }
}

choice! {
    YesNo {
        /// the GPU can do this
        Yes,
        /// the GPU cannot do this
        No,
    }
}

choice! {
    Dmabuf {
        /// mmap since CUDA 13.3, otherwise export
        Auto,
        /// GPU memory cannot be exported
        No,
        /// it can be exported, but not mapped
        Export,
        /// it can be exported and mapped
        Mmap,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unsupported {
    /// The exit status of a process that launches a GPU kernel which gdremu does not run. If the process is a child of
    /// the program that gdremu has started, and that program succeeds, gdremu exits with this status, too.
    Exit(u8),
    Warn,
}

impl FromStr for Unsupported {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "warn" {
            return Ok(Unsupported::Warn);
        }
        match text.strip_prefix("exit:").unwrap_or_default().parse() {
            Ok(status) => Ok(Unsupported::Exit(status)),
            Err(_) => Err("choose exit:0 to exit:255, or warn".into()),
        }
    }
}

/// A value for each GPU, from the first on. The last value is also for all further GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerGpu<T>(Vec<T>);

impl<T> PerGpu<T> {
    pub fn of(&self, gpu: usize) -> &T {
        let last = self.0.len() - 1;
        &self.0[gpu.min(last)]
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn read<E>(text: &str, read: impl Fn(&str) -> Result<T, E>) -> Result<Self, E> {
        text.split(',').map(read).collect::<Result<_, _>>().map(PerGpu)
    }
}

impl<T: ValueEnum + Send + Sync> PerGpu<T> {
    pub(crate) fn read_choices(text: &str) -> Result<Self, String> {
        let names: Vec<_> = T::value_variants().iter().filter_map(T::to_possible_value).collect();
        let names: Vec<_> = names.iter().map(|value| value.get_name()).collect();
        PerGpu::read(text, |name| T::from_str(name, false)).map_err(|_| format!("choose from: {}", names.join(", ")))
    }
}

fn cuda_version(text: &str) -> Result<u32, String> {
    let Version { major, minor, .. } = text.parse()?;
    Ok(u32::from(major) * 1000 + u32::from(minor) * 10)
}

fn pci_device(text: &str) -> Result<u16, String> {
    u16::try_from(number(text)?).map_err(|error| error.to_string())
}

fn faults(text: &str) -> Result<String, String> {
    text.parse().map(|_: Faults| text.to_owned())
}

fn number(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(|error| error.to_string())
}

fn bytes(text: &str) -> Result<u64, String> {
    let mut digits = text;
    let mut factor = 1;
    for (power, unit) in ["K", "M", "G", "T"].iter().enumerate() {
        if let Some(rest) = text.strip_suffix(unit) {
            digits = rest;
            factor = 1_u64 << (10 * (power + 1));
        }
    }
    let number: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    number.checked_mul(factor).ok_or("too large".into())
}

impl Config {
    pub fn to_variable(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| format!("{error}: choose another --trace file or TMPDIR"))
    }

    pub fn from_variable(text: &str) -> Result<Config, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        config: Config,
    }

    pub(crate) fn parse(line: &str) -> Config {
        Line::parse_from(line.split(' ')).config
    }

    #[test]
    fn paths_that_are_not_utf_8_are_refused() {
        let trace = OsStr::from_bytes(b"/tmp/\xff").into();
        let config = Config { trace: Some(trace), ..parse("gdremu") };
        assert!(config.to_variable().unwrap_err().contains("UTF-8"));
    }
}
