//! What is checked, a file a topic, in the order of the report.
#![forbid(unsafe_code)]

mod container;
mod cpu;
mod driver;
mod gdrdrv;
mod gpu;
mod libraries;
mod limits;
mod self_test;

use super::Options;
use super::finding::{Report, Section};
use super::system;

/// The ways to GPU memory, and which of them is to be taken here.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ways {
    /// The kernel module answers.
    gdrdrv: bool,
    /// CUDA maps dma-bufs, of one GPU at least.
    dmabuf: bool,
    /// `GDRCOPY_USE_DMABUF_MMAP=1`: the module is not even tried.
    dmabuf_forced: bool,
}

impl Ways {
    /// What the module lacks keeps gdrcopy from working.
    fn need_gdrdrv(self) -> bool {
        !self.dmabuf && !self.dmabuf_forced
    }

    /// What dma-bufs lack keeps gdrcopy from working.
    fn need_dmabuf(self) -> bool {
        self.dmabuf_forced || !self.gdrdrv
    }
}

/// Examines the machine.
pub(super) fn examine(options: &Options) -> Report {
    let module = system::gdrdrv::ask();
    let cuda = system::cuda::ask();
    let nvml = system::nvml::Nvml::load();
    let ways = Ways {
        gdrdrv: gdrdrv::works(&module),
        dmabuf: driver::maps_dmabufs(&cuda),
        dmabuf_forced: std::env::var_os("GDRCOPY_USE_DMABUF_MMAP").is_some_and(|set| set == "1"),
    };
    let container = container::kind();

    let mut sections = vec![
        Section::new(
            "gdrdrv",
            gdrdrv::findings(&module, ways, container.as_deref()),
        ),
        Section::new(
            "GPU driver and CUDA",
            driver::findings(&cuda, nvml.as_ref(), ways),
        ),
    ];
    let gpus = cuda.gpus.as_deref().unwrap_or_default();
    sections.extend(
        gpus.iter()
            .map(|gpu| gpu::section(gpu, nvml.as_ref(), ways)),
    );
    sections.push(Section::new(
        "machine",
        [
            container::findings(container.as_deref()),
            cpu::findings(),
            limits::findings(ways),
        ]
        .concat(),
    ));
    sections.push(Section::new(
        "libgdrapi",
        libraries::findings(options.library.as_deref()),
    ));
    sections.push(Section::new(
        "self-test",
        self_test::findings(options, gpus),
    ));
    Report::of(sections)
}
