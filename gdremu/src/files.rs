//! Emulated files below /proc and /sys: those of the GPUs' PCI devices and of gdrdrv, those that the option `--file`
//! adds, and a directory by which programs see that gdrdrv uses nv-p2p-dummy.
#![forbid(unsafe_code)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fs, io};

use gdremu_core::config::{Config, DriverConfig};
use gdremu_core::gpu::pci;

/// A file that replaces another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// The path that the program opens.
    path: PathBuf,
    /// The file that the program gets instead.
    file: PathBuf,
}

impl FromStr for StandIn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((path, file)) = text.split_once('=') else {
            return Err("not PATH=FILE".into());
        };
        let below = path.strip_prefix("/proc/").or(path.strip_prefix("/sys/"));
        if below.unwrap_or("").split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(format!("{path} is not a plain path below /proc or /sys"));
        }
        let file = fs::canonicalize(file).map_err(|error| format!("{file}: {error}"))?;
        Ok(StandIn { path: path.into(), file })
    }
}

/// Writes all emulated files into the directory that all processes under this gdremu share. The hooks of
/// open in these processes look there first.
pub fn install(config: &Config, files: &[StandIn]) -> io::Result<()> {
    let session = &config.session;
    if config.gpu.provider.emulates_gpus() {
        fs::create_dir_all(session.stand_in(Path::new("/sys/bus/pci/drivers/nvidia"))?)?;
        for gpu in 0..config.gpu.gpus as usize {
            let device = Path::new(pci::DEVICES).join(pci::address(gpu).to_lowercase());
            for (name, text) in pci_device(config, gpu) {
                fs::write(session.stand_in(&device.join(name))?, text)?;
            }
            symlink("../../../../bus/pci/drivers/nvidia", session.stand_in(&device.join("driver"))?)?;
        }
    }
    if config.driver.loaded && config.driver.p2p_dummy {
        fs::create_dir(session.stand_in(Path::new("/sys/module/nv_p2p_dummy/holders/gdrdrv"))?)?;
    }
    for StandIn { path, file } in files {
        // These files are written after the GPUs' files, because `--file` may replace one of those.
        fs::copy(file, session.stand_in(path)?)?;
    }
    if config.driver.loaded && config.driver.since(5) && config.gpu.provider.emulates_gdrdrv() {
        // A program that reads nv_get_pages_refcount gets the current number of pins with memory instead of this text.
        for (name, text) in [("params", params(&config.driver)), ("nv_get_pages_refcount", "0\n".into())] {
            let place = session.stand_in(&Path::new("/proc/driver/gdrdrv").join(name))?;
            fs::write(&place, text)?;
            fs::set_permissions(&place, fs::Permissions::from_mode(0o444))?;
        }
    }
    Ok(())
}

fn params(driver: &DriverConfig) -> String {
    let persistent = if driver.persistent() { "yes" } else { "no" };
    format!(
        "Version: {}\n\
         Built for NVIDIA driver flavor: opensource\n\
         Use persistent mapping: {persistent}\n\
         dbg_enabled: 1\n\
         info_enabled: 0\n",
        driver.version
    )
}

fn pci_device(config: &Config, gpu: usize) -> [(&'static str, String); 11] {
    let vendor = format!("{:#06x}\n", pci::VENDOR);
    [
        ("vendor", vendor.clone()),
        ("device", format!("{:#06x}\n", config.gpu.pci_device)),
        ("subsystem_vendor", vendor),
        ("subsystem_device", format!("{:#06x}\n", pci::SUBSYSTEM)),
        ("class", "0x030200\n".to_owned()), // This is the class of 3D controllers.
        ("resource", resource(gpu, *config.gpu.bar1_size.of(gpu))),
        ("numa_node", "0\n".to_owned()),
        ("current_link_speed", "32.0 GT/s PCIe\n".to_owned()),
        ("max_link_speed", "32.0 GT/s PCIe\n".to_owned()),
        ("current_link_width", "16\n".to_owned()),
        ("max_link_width", "16\n".to_owned()),
    ]
}

/// Returns the text of Linux's file `resource`: the start, end and flags of three PCI resources. As on recent GPUs,
/// their addresses have 64 bits, so each takes two lines, of which the second is unused. The first resource is the
/// registers, the second GPU memory, which NVIDIA calls BAR1.
fn resource(gpu: usize, bar1_size: u64) -> String {
    const PREFETCHABLE_64_BIT_MEMORY: u64 = 0x14_220c;
    let unused = format!("{0:#018x} {0:#018x} {0:#018x}\n", 0);
    let mut start = (gpu as u64 + 1) << 46;
    let mut text = String::new();
    for len in [16 << 20, bar1_size.next_power_of_two(), 32 << 20] {
        start = start.next_multiple_of(len);
        let end = start + len - 1;
        text += &format!("{start:#018x} {end:#018x} {PREFETCHABLE_64_BIT_MEMORY:#018x}\n{unused}");
        start += len;
    }
    text + &unused.repeat(13 - 6)
}
