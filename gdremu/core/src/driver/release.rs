//! The features of each release of gdrdrv.
#![forbid(unsafe_code)]

use crate::abi::Command;
use crate::config::DriverConfig;
use crate::version::Version;

impl DriverConfig {
    fn since(&self, minor: u16) -> bool {
        self.version >= Version::new(2, minor)
    }

    /// Releases before 2.0 know what 2.0 knows.
    pub fn knows(&self, command: Command) -> bool {
        command.since() == 0 || self.since(command.since())
    }

    /// Pins outlive a free of their memory, as by default since 2.5.
    pub fn persistent(&self) -> bool {
        self.since(5) && !self.traditional
    }

    /// The module has files below /proc/driver/gdrdrv.
    pub fn has_proc_files(&self) -> bool {
        self.since(5)
    }

    /// The owner of an open device is the thread that opened it, not its process.
    pub(super) fn owner_is_a_thread(&self) -> bool {
        !self.since(1)
    }

    /// The end of a pinned range is not rounded up to a GPU page, before 2.4.2, which reports 2.4 too.
    pub(super) fn pins_ragged_sizes(&self) -> bool {
        self.version < Version { patch: 2, ..Version::new(2, 4) }
    }

    /// A free under a mapped pin leaves the pin marked as mapped.
    pub(super) fn forgets_to_unmark_freed(&self) -> bool {
        !self.since(3)
    }

    /// Pins smaller than a page get the handle of their successor too.
    pub(super) fn repeats_handles_of_small_pins(&self) -> bool {
        !self.since(4)
    }

    /// Looking up a handle that does not exist finds the oldest pin.
    pub(super) fn finds_the_oldest_pin(&self) -> bool {
        self.module_defects
    }

    /// A munmap after the UNPIN looks its pin up by handle, and so marks another one unmapped.
    pub(super) fn looks_up_late_munmaps(&self) -> bool {
        self.module_defects && self.since(4)
    }

    /// A mmap of a mapped pin fails, yet marks the pin unmapped.
    pub(super) fn forgets_the_mapping_on_a_second_mmap(&self) -> bool {
        self.module_defects
    }
}
