//! Why real GPU memory cannot be pinned or mapped.

use std::{fmt, fs};

use crate::errno::Errno;

/// A failed step of accessing the GPU.
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

/// The version of the running GPU driver, for messages.
fn driver_version() -> String {
    fs::read_to_string("/sys/module/nvidia/version")
        .map_or_else(|_| "of unknown version".into(), |version| version.trim().to_owned())
}
