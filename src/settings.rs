//! The settings of libgdrapi's environment variables.
#![forbid(unsafe_code)]

use gdrcopy_core::options::{Backend, Options};
use gdrcopy_core::variables;

/// The settings for opening the driver. `GDRCOPY_USE_DMABUF_MMAP=1` asks for dma-bufs even if gdrdrv is
/// there, `GDRCOPY_FORCE_PCIE_COMPAT=1` lets an ordinary pin satisfy `FORCE_PCIE`.
pub(crate) fn options() -> Options {
    let backend = match variables::USE_DMABUF_MMAP.is_one() {
        true => Backend::DmaBuf,
        false => Backend::Auto,
    };
    let force_pcie_compat = variables::FORCE_PCIE_COMPAT.is_one();
    Options { backend, device_path: None, force_pcie_compat }
}
