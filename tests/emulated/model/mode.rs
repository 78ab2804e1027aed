//! Derives, from gdremu's options, the properties of the emulated system on which the model's results depend.

use crate::under_gdremu;

/// The properties of the driver and the platform on which the results of calls depend.
#[derive(Debug)]
pub(super) struct Mode {
    /// True if pinned memory stays usable after it is freed.
    pub(super) persistent: bool,
    pub(super) driver: (i32, i32),
    /// The default mapping type of the platform.
    pub(super) default_type: u32,
    /// True if the driver is a kernel module. gdremu cannot make the module's calls fail. If a size
    /// exceeds the BARs of all GPUs, the module refuses it without asking the GPU driver.
    pub(super) is_module: bool,
}

impl Mode {
    pub(super) fn of_options() -> Mode {
        let options = under_gdremu::expanded_options();
        let driver = match value_of(&options, "--driver-version") {
            Some(version) => parse_version(version),
            None => (2, 6),
        };
        Mode {
            persistent: !options.contains("--traditional") && driver >= (2, 5),
            driver,
            default_type: match value_of(&options, "--platform") {
                Some("cached") => 2,
                Some("device") => 3,
                _ => 1,
            },
            is_module: value_of(&options, "--provider") == Some("emugpu"),
        }
    }

    /// Returns whether the driver knows PIN_BUFFER_V2 and the other commands of release 2.5.
    pub(super) fn has_flags(&self) -> bool {
        self.driver >= (2, 5)
    }

    /// Returns the type of a mapping that is requested with `flags`, or the errno of its refusal. A pin over PCIe is
    /// never mapped cached.
    pub(super) fn map_type(&self, flags: i32, over_pcie: bool) -> Result<u32, i32> {
        let default_type = if over_pcie { 1 } else { self.default_type };
        let requested = match flags {
            0 => return Ok(default_type),
            1..=3 => flags as u32,
            _ => return Err(libc::EINVAL),
        };
        if requested == default_type {
            return Ok(requested);
        }
        if !self.has_flags() {
            return Err(libc::EINVAL);
        }
        // Coherent memory can also be mapped write-combined.
        if default_type == 2 && requested == 1 {
            return Ok(requested);
        }
        Err(libc::EOPNOTSUPP)
    }

    pub(super) fn attribute(&self, attribute: u32) -> Result<i32, i32> {
        match attribute {
            1 | 2 => Ok(i32::from(self.persistent)),
            3 => Ok(0),
            _ => Err(libc::EINVAL),
        }
    }
}

/// Returns the word after the option's name.
fn value_of<'a>(options: &'a str, name: &str) -> Option<&'a str> {
    let mut words = options.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()
}

fn parse_version(version: &str) -> (i32, i32) {
    let (major, minor) = version.split_once('.').expect("X.Y");
    (major.parse().expect("X"), minor.parse().expect("Y"))
}
