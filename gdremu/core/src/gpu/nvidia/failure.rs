//! Why real GPU memory cannot be pinned or mapped.

use std::{fmt, fs};

use crate::errno::Errno;

/// The step that fails when an address is no GPU memory of the process.
pub(super) const NOT_GPU_MEMORY: &str = "the search for the allocation of a device address";

pub(super) struct Failure {
    pub(super) step: &'static str,
    /// The status of CUDA or of the resource manager, if the step called them.
    pub(super) status: u32,
    pub(super) errno: Errno,
}

impl Failure {
    pub(super) fn refused(step: &'static str, status: u32) -> Failure {
        Failure { step, status, errno: Errno::EINVAL }
    }

    pub(super) fn system(step: &'static str, error: std::io::Error) -> Failure {
        Failure { step, status: 0, errno: error.into() }
    }
}

impl From<Failure> for Errno {
    fn from(failure: Failure) -> Errno {
        // CUDA's refusal of an address is the program's mistake, the rest is ours to explain.
        if failure.step != NOT_GPU_MEMORY {
            eprintln!("{failure}");
        }
        failure.errno
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gdremu: nvidia provider: {} failed (status {:#x}, {}); the GPU driver is {}",
            self.step,
            self.status,
            self.errno,
            driver_version()
        )
    }
}

fn driver_version() -> String {
    match fs::read_to_string("/sys/module/nvidia/version") {
        Ok(version) => version.trim().to_owned(),
        Err(_) => "of unknown version".into(),
    }
}
