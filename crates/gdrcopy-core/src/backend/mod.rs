//! The sources of GPU memory: the kernel module gdrdrv, CUDA's dma-bufs, or host memory that stands in for GPU memory.

pub mod dmabuf;
pub mod gdrdrv;
mod host;
mod source;

use dmabuf::DmaBuf;
use gdrdrv::Gdrdrv;
use host::Host;
pub(crate) use source::MappingGuard;
pub use source::{PinRequest, PinState, Source, SourcePin};

use std::sync::Arc;

use crate::error::Result;
use crate::heap;
use crate::options::{self, Options};

/// Opens the backend that the options name. `Auto` stands for gdrdrv, or for dma-bufs if gdrdrv does not work.
pub fn open(options: &Options) -> Result<Arc<dyn Source>> {
    match options.backend {
        options::Backend::Gdrdrv => return Ok(heap::shared(Gdrdrv::open(options)?)?),
        options::Backend::DmaBuf => return Ok(heap::shared(DmaBuf::open(options)?)?),
        options::Backend::HostMemory => return Ok(heap::shared(Host::open()?)?),
        options::Backend::Auto => {}
    }
    let no_gdrdrv = match Gdrdrv::open(options) {
        Ok(gdrdrv) => return Ok(heap::shared(gdrdrv)?),
        Err(error) => error,
    };
    // gdrdrv may work in spite of these errors, which a process gets while it lacks memory or descriptors, or if it is
    // interrupted. If dma-bufs were opened instead, the process would keep using them.
    if [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EINTR].contains(&no_gdrdrv.errno()) {
        return Err(no_gdrdrv);
    }
    match DmaBuf::open(options) {
        Ok(dmabuf) => {
            log::info!("backend gdrdrv is not usable: {no_gdrdrv}");
            Ok(heap::shared(dmabuf)?)
        }
        Err(no_dmabuf) => {
            log::error!("backend dma-buf is not usable either: {no_dmabuf}");
            Err(no_gdrdrv)
        }
    }
}
