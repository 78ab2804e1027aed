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

    /// Returns whether this is 2.4.`patch` or later. All of them report 2.4.
    fn since_patch_of_2_4(&self, patch: u16) -> bool {
        self.version >= Version { patch, ..Version::new(2, 4) }
    }

    /// Pins outlive a free of their memory, the default since 2.5, and a parameter since 2.4.1.
    pub fn persistent(&self) -> bool {
        if self.since(5) { !self.traditional } else { self.persistent_before_2_5 && self.can_persist() }
    }

    /// The module has the parameter use_persistent_mapping.
    pub fn can_persist(&self) -> bool {
        self.since_patch_of_2_4(1)
    }

    /// The module has files below /proc/driver/gdrdrv.
    pub fn has_proc_files(&self) -> bool {
        self.since(5)
    }

    /// The owner of an open device is the thread that opened it, not its process.
    pub(super) fn owner_is_a_thread(&self) -> bool {
        !self.since(1)
    }

    /// The end of a pinned range is not rounded up to a GPU page.
    pub(super) fn pins_ragged_sizes(&self) -> bool {
        !self.since_patch_of_2_4(2)
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
