//! The provider that the configuration chose.
#![forbid(unsafe_code)]

use super::host::Options;
use super::{HostProvider, NvidiaProvider, PageTableId, Provider};
use crate::config::{GpuConfig, ProviderKind};
use crate::errno::Errno;

/// The provider of GPU memory.
#[derive(Debug)]
pub enum Gpu {
    /// Emulated: in memory of the host, or in the test kernel's.
    Host(Box<HostProvider>),
    /// On the NVIDIA GPUs that are there.
    Nvidia(NvidiaProvider),
}

impl Gpu {
    /// Creates the provider of a configuration.
    pub fn new(config: &GpuConfig) -> Gpu {
        let options = || Options {
            gpus: config.gpus as usize,
            coherent: config.coherent,
            rdma: config.rdma.clone(),
            bar1_size: config.bar1_size.clone(),
        };
        match config.provider {
            ProviderKind::Host => Gpu::Host(Box::new(HostProvider::new(options()))),
            ProviderKind::Emugpu => Gpu::Host(Box::new(HostProvider::in_kernel(options()))),
            ProviderKind::Nvidia => Gpu::Nvidia(NvidiaProvider::default()),
        }
    }

    /// The emulated GPUs.
    ///
    /// # Panics
    /// If the GPUs are real. Only the stand-in libcuda calls this, which is not loaded then.
    pub fn host(&mut self) -> &mut HostProvider {
        match self {
            Gpu::Host(provider) => provider,
            Gpu::Nvidia(_) => panic!("the preload library is not the one for --provider nvidia"),
        }
    }

    /// The real GPUs.
    ///
    /// # Panics
    /// If the GPUs are emulated. Only replaced functions of libcuda call this, and there are none then.
    pub fn nvidia(&mut self) -> &mut NvidiaProvider {
        match self {
            Gpu::Nvidia(provider) => provider,
            Gpu::Host(_) => panic!("the preload library is the one for --provider nvidia"),
        }
    }

    /// In a forked child: what is pinned is the parent's.
    pub fn after_fork(&mut self) {
        match self {
            Gpu::Host(_) => {} // Compares process ids.
            Gpu::Nvidia(provider) => provider.after_fork(),
        }
    }

    fn provider(&mut self) -> &mut dyn Provider {
        match self {
            Gpu::Host(provider) => &mut **provider,
            Gpu::Nvidia(provider) => provider,
        }
    }
}

impl Provider for Gpu {
    fn get_pages(
        &mut self,
        va: u64,
        len: u64,
        tokens: (u64, u32),
        persistent: bool,
        force_pcie: bool,
    ) -> Result<PageTableId, Errno> {
        self.provider().get_pages(va, len, tokens, persistent, force_pcie)
    }

    fn put_pages(&mut self, table: PageTableId) {
        self.provider().put_pages(table);
    }

    fn map(&mut self, table: PageTableId, offset: u64, len: usize) -> Result<usize, Errno> {
        self.provider().map(table, offset, len)
    }

    fn zap(&mut self, addr: usize, len: usize) {
        self.provider().zap(addr, len);
    }
}
