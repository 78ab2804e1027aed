//! Every option of gdremu, and how the launcher passes them to the emulated program: one environment
//! variable.
#![forbid(unsafe_code)]

use std::fmt::{Display, Write};
use std::path::PathBuf;
use std::str::FromStr;

use crate::abi::MappingType;
use crate::errno::Errno;
use crate::fault::Faults;
use crate::per_gpu::PerGpu;
use crate::version::Version;

/// The environment variable that carries a [`Config`].
pub const VARIABLE: &str = "GDREMU_CONFIG";

/// The first CUDA version in which a dma-buf of GPU memory can be mapped.
const DMABUF_MMAP: u32 = 13030;

/// The configuration of an emulated process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The directory that all processes under one gdremu share (see [`crate::session`]).
    pub session: PathBuf,
    /// Receives each driver call as a line of JSON.
    pub trace: Option<PathBuf>,
    /// Names that cuGetProcAddress does not find are printed on stderr.
    pub log_missing: bool,
    /// The consequence of a GPU kernel that gdremu does not run.
    pub unsupported: Unsupported,
    /// Calls that fail or return wrong results on purpose.
    pub faults: Faults,
    /// The kernel module.
    pub driver: DriverConfig,
    /// The GPUs and CUDA.
    pub gpu: GpuConfig,
}

/// Options of the emulated kernel module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverConfig {
    /// The module is loaded: its device node and its files under /proc exist.
    pub loaded: bool,
    /// What opening the device fails with.
    pub open_errno: Option<Errno>,
    /// The module is bound to nv-p2p-dummy: it opens, but no pin succeeds.
    pub p2p_dummy: bool,
    /// The version that the module is of.
    pub version: Version,
    /// The oldest library that it says it serves.
    pub min_api_version: Version,
    /// The third number of 2.4.1 to 2.4.4.
    pub patch: u16,
    /// Pins do not outlive a free of their memory, as before 2.5.
    pub traditional: bool,
    /// Pins outlive a free of their memory, which 2.4.1 and later can do.
    pub persistent_before_2_5: bool,
    /// The GPU driver refuses ranges that are not whole GPU pages, as since its branch 555.
    pub strict_sizes: bool,
    /// The type of mapping that the platform gives.
    pub platform: Platform,
    /// Whether pins can be forced over PCIe.
    pub force_pcie: ForcePcie,
    /// The first handle.
    pub handle_base: u64,
    /// The real module's defects are there, foremost that a wrong handle finds the oldest pin.
    pub module_defects: bool,
}

impl Default for DriverConfig {
    fn default() -> Self {
        DriverConfig {
            loaded: true,
            open_errno: None,
            p2p_dummy: false,
            version: Version::new(2, 6),
            min_api_version: Version::new(2, 0),
            patch: 0,
            traditional: false,
            persistent_before_2_5: false,
            strict_sizes: false,
            platform: Platform::Wc,
            force_pcie: ForcePcie::Yes,
            handle_base: 0,
            module_defects: false,
        }
    }
}

/// Options of the GPUs, nearly all for emulated ones and the stand-in libcuda.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuConfig {
    /// Where GPU memory is.
    pub provider: Provider,
    /// How many GPUs there are.
    pub gpus: u32,
    /// What cuDriverGetVersion returns: 13000 for 13.0.
    pub cuda_version: u32,
    /// The GPUs have memory pools (cuMemAllocAsync).
    pub mempools: bool,
    /// CPU and GPU are joined by a coherent link, as on Grace Hopper.
    pub coherent: bool,
    /// The GPUs serve GPUDirect RDMA: their memory can be pinned.
    pub rdma: PerGpu<YesNo>,
    /// Bytes of each GPU that can be pinned at a time.
    pub bar1_size: PerGpu<u64>,
    /// What can be done with GPU memory as a dma-buf.
    pub dmabuf: PerGpu<Dmabuf>,
}

impl GpuConfig {
    /// Whether memory of this GPU can be exported as a dma-buf.
    pub fn exports_dmabufs(&self, gpu: usize) -> bool {
        *self.dmabuf.of(gpu) != Dmabuf::No
    }

    /// Whether a dma-buf of this GPU's memory can be mapped.
    pub fn maps_dmabufs(&self, gpu: usize) -> bool {
        match self.dmabuf.of(gpu) {
            Dmabuf::Auto => self.cuda_version >= DMABUF_MMAP,
            Dmabuf::Mmap => true,
            Dmabuf::No | Dmabuf::Export => false,
        }
    }
}

impl Default for GpuConfig {
    fn default() -> Self {
        GpuConfig {
            provider: Provider::Host,
            gpus: 1,
            cuda_version: 13000,
            mempools: true,
            coherent: false,
            rdma: PerGpu::all(YesNo::Yes),
            bar1_size: PerGpu::all(1 << 37),
            dmabuf: PerGpu::all(Dmabuf::Auto),
        }
    }
}

/// Declares an enum whose variants have a name on the command line.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($name::$variant => $text),* })
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok($name::$variant),)*
                    _ => Err(format!("\"{text}\" is none of {}", [$($text),*].join(", "))),
                }
            }
        }
    };
}

choice! {
    /// The platform, by its default type of mapping.
    Platform {
        /// GPU memory behind PCIe on x86: write-combining, and nothing else.
        Wc = "wc",
        /// GPU memory behind a coherent link: cached, write-combining on demand.
        Cached = "cached",
        /// Some arm64 platforms: device memory, and nothing else.
        Device = "device",
    }
}

impl Platform {
    /// The type of a mapping that asks for none.
    pub fn default_mapping(self) -> MappingType {
        match self {
            Platform::Wc => MappingType::Wc,
            Platform::Cached => MappingType::Caching,
            Platform::Device => MappingType::Device,
        }
    }
}

choice! {
    /// What becomes of a pin with the flag FORCE_PCIE.
    ForcePcie {
        /// Module and GPU driver know it: it works on coherent GPUs.
        Yes = "yes",
        /// The GPU driver refuses it on every GPU.
        No = "no",
        /// The module was built for a GPU driver that does not know it.
        NotBuilt = "not-built",
    }
}

choice! {
    /// Where GPU memory is.
    Provider {
        /// In memory of the host, with a stand-in libcuda.
        Host = "host",
        /// On this computer's NVIDIA GPUs, with their own libcuda.
        Nvidia = "nvidia",
        /// In the test kernel's emugpu module, with a stand-in libcuda and the real gdrdrv.
        Emugpu = "emugpu",
    }
}

impl Provider {
    /// Whether the GPUs are emulated, and hence libcuda, too.
    pub fn emulates_gpus(self) -> bool {
        self != Provider::Nvidia
    }

    /// Whether gdrdrv is emulated; otherwise programs use the real one.
    pub fn emulates_gdrdrv(self) -> bool {
        self != Provider::Emugpu
    }
}

choice! {
    /// Whether a GPU can do something.
    YesNo {
        /// It can.
        Yes = "yes",
        /// It cannot.
        No = "no",
    }
}

choice! {
    /// What can be done with a dma-buf of GPU memory.
    Dmabuf {
        /// What the CUDA version of the configuration has: mmap from 13.3 on.
        Auto = "auto",
        /// GPU memory cannot be exported.
        No = "no",
        /// It can be exported, but not mapped.
        Export = "export",
        /// It can be exported and mapped.
        Mmap = "mmap",
    }
}

/// The consequence of a GPU kernel that gdremu does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// A line on stderr, and gdremu's exit status if the program itself succeeds.
    Exit(u8),
    /// A line on stderr.
    Warn,
    /// None: the program only gets the error of the launch.
    Ignore,
}

impl Default for Unsupported {
    /// The exit status that `timeout` has for a program that it ended.
    fn default() -> Self {
        Unsupported::Exit(124)
    }
}

impl Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unsupported::Exit(status) => write!(f, "exit:{status}"),
            Unsupported::Warn => f.write_str("warn"),
            Unsupported::Ignore => f.write_str("ignore"),
        }
    }
}

impl FromStr for Unsupported {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let status = || text.strip_prefix("exit:")?.parse().ok();
        match text {
            "warn" => Ok(Unsupported::Warn),
            "ignore" => Ok(Unsupported::Ignore),
            _ => status()
                .map(Unsupported::Exit)
                .ok_or_else(|| format!("\"{text}\" is none of exit:0 to exit:255, warn, ignore")),
        }
    }
}

impl Config {
    /// The value of [`VARIABLE`]: `key=value` pairs between semicolons.
    pub fn to_variable(&self) -> String {
        let mut text = String::new();
        let mut put = |key: &str, value: &dyn Display| {
            let value = value.to_string().replace('%', "%25").replace(';', "%3B");
            write!(text, "{key}={value};").expect("a String takes everything");
        };
        put("session", &self.session.display());
        if let Some(trace) = &self.trace {
            put("trace", &trace.display());
        }
        put("log_missing", &self.log_missing);
        put("unsupported", &self.unsupported);
        put("faults", &self.faults);
        put("loaded", &self.driver.loaded);
        if let Some(errno) = self.driver.open_errno {
            put("open_errno", &errno);
        }
        put("p2p_dummy", &self.driver.p2p_dummy);
        put("version", &self.driver.version);
        put("min_api_version", &self.driver.min_api_version);
        put("patch", &self.driver.patch);
        put("traditional", &self.driver.traditional);
        put("persistent_before_2_5", &self.driver.persistent_before_2_5);
        put("strict_sizes", &self.driver.strict_sizes);
        put("platform", &self.driver.platform);
        put("force_pcie", &self.driver.force_pcie);
        put("handle_base", &self.driver.handle_base);
        put("module_defects", &self.driver.module_defects);
        put("provider", &self.gpu.provider);
        put("gpus", &self.gpu.gpus);
        put("cuda_version", &self.gpu.cuda_version);
        put("mempools", &self.gpu.mempools);
        put("coherent", &self.gpu.coherent);
        put("rdma", &self.gpu.rdma);
        put("bar1_size", &self.gpu.bar1_size);
        put("dmabuf", &self.gpu.dmabuf);
        text
    }

    /// Reads what [`Config::to_variable`] wrote. Keys that are absent keep their defaults.
    ///
    /// # Errors
    /// A text that names the key that is unknown or whose value is wrong.
    pub fn from_variable(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("\"{pair}\": no value"))?;
            let value = value.replace("%3B", ";").replace("%25", "%");
            config
                .set(key, &value)
                .map_err(|why| format!("{key}: {why}"))?;
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let driver = &mut self.driver;
        let gpu = &mut self.gpu;
        match key {
            "session" => self.session = value.into(),
            "trace" => self.trace = Some(value.into()),
            "log_missing" => self.log_missing = read(value)?,
            "unsupported" => self.unsupported = value.parse()?,
            "faults" => self.faults = value.parse()?,
            "loaded" => driver.loaded = read(value)?,
            "open_errno" => {
                driver.open_errno = Some(Errno::parse(value).ok_or("no errno")?);
            }
            "p2p_dummy" => driver.p2p_dummy = read(value)?,
            "version" => driver.version = value.parse()?,
            "min_api_version" => driver.min_api_version = value.parse()?,
            "patch" => driver.patch = read(value)?,
            "traditional" => driver.traditional = read(value)?,
            "persistent_before_2_5" => driver.persistent_before_2_5 = read(value)?,
            "strict_sizes" => driver.strict_sizes = read(value)?,
            "platform" => driver.platform = value.parse()?,
            "force_pcie" => driver.force_pcie = value.parse()?,
            "handle_base" => driver.handle_base = read(value)?,
            "module_defects" => driver.module_defects = read(value)?,
            "provider" => gpu.provider = value.parse()?,
            "gpus" => gpu.gpus = read(value)?,
            "cuda_version" => gpu.cuda_version = read(value)?,
            "mempools" => gpu.mempools = read(value)?,
            "coherent" => gpu.coherent = read(value)?,
            "rdma" => gpu.rdma = value.parse()?,
            "bar1_size" => gpu.bar1_size = read(value)?,
            "dmabuf" => gpu.dmabuf = value.parse()?,
            _ => return Err("unknown".into()),
        }
        Ok(())
    }
}

/// A value of one of the standard types.
fn read<T: FromStr>(value: &str) -> Result<T, String>
where
    T::Err: Display,
{
    value.parse().map_err(|why: T::Err| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_survives_the_way_through_the_environment() {
        let config = Config {
            session: "/tmp/a;b=c%3B d".into(),
            trace: Some("/tmp/trace".into()),
            log_missing: true,
            unsupported: Unsupported::Exit(3),
            faults: "MMAP:EAGAIN@1,OPEN:EMFILE".parse().unwrap(),
            driver: DriverConfig {
                loaded: false,
                open_errno: Some(Errno::ENXIO),
                p2p_dummy: true,
                version: Version::new(2, 3),
                min_api_version: Version::new(3, 0),
                patch: 4,
                traditional: true,
                persistent_before_2_5: true,
                strict_sizes: true,
                platform: Platform::Device,
                force_pcie: ForcePcie::NotBuilt,
                handle_base: 1 << 33,
                module_defects: true,
            },
            gpu: GpuConfig {
                provider: Provider::Nvidia,
                gpus: 8,
                cuda_version: 13030,
                mempools: false,
                coherent: true,
                rdma: "no,yes".parse().unwrap(),
                bar1_size: "268435456,1024".parse().unwrap(),
                dmabuf: "export,no,auto".parse().unwrap(),
            },
        };
        assert_eq!(Config::from_variable(&config.to_variable()), Ok(config));
        let default = Config::default();
        assert_eq!(Config::from_variable(&default.to_variable()), Ok(default));
    }

    #[test]
    fn mistakes_name_the_key() {
        assert!(
            Config::from_variable("color=red")
                .unwrap_err()
                .contains("color")
        );
        assert!(
            Config::from_variable("gpus=many")
                .unwrap_err()
                .contains("gpus")
        );
        assert!(
            Config::from_variable("platform=wet")
                .unwrap_err()
                .contains("cached")
        );
    }
}
