//! The environment variables, all read here.
#![forbid(unsafe_code)]

use std::env;

use gdrcopy_core::copy::{self, MAX_THREADS};
use gdrcopy_core::options::{Backend, Options};
use log::LevelFilter;

/// How to open the driver: `GDRCOPY_USE_DMABUF_MMAP=1` asks for dma-bufs even if gdrdrv is there,
/// `GDRCOPY_FORCE_PCIE_COMPAT=1` lets an ordinary pin satisfy `FORCE_PCIE`.
pub(crate) fn options() -> Options {
    let backend = match is_one("GDRCOPY_USE_DMABUF_MMAP") {
        true => Backend::DmaBuf,
        false => Backend::Auto,
    };
    Options { backend, device_path: None, force_pcie_compat: is_one("GDRCOPY_FORCE_PCIE_COMPAT") }
}

/// `GDRCOPY_ALLOW_UNALIGNED_MAP=1`: addresses that do not start a page can be mapped.
pub(crate) fn allow_unaligned_map() -> bool {
    is_one("GDRCOPY_ALLOW_UNALIGNED_MAP")
}

/// Sets how copies are made: by the routine that `GDRCOPY_ISA` names, and by `GDRCOPY_THREADS` threads.
pub(crate) fn apply_to_copies() {
    let request = env::var_os("GDRCOPY_ISA");
    let used = copy::select_routine(request.as_deref());
    if let Some(request) = request.filter(|request| request != used) {
        let request = request.display();
        log::warn!("GDRCOPY_ISA={request}: not supported by this CPU; using {used}");
    }
    copy::set_threads(threads());
}

/// `GDRCOPY_DMA_READ`: bytes from which CUDA's copy engine makes reads.
pub(crate) fn dma_reads() -> Option<usize> {
    let request = env::var_os("GDRCOPY_DMA_READ")?;
    let bytes = request.to_str().and_then(|text| text.trim().parse().ok());
    if bytes.is_none() {
        log::warn!(
            "GDRCOPY_DMA_READ={request:?} is not a number of bytes; reads go through the mapping"
        );
    }
    bytes.filter(|&bytes| bytes > 0)
}

fn threads() -> usize {
    let Some(request) = env::var_os("GDRCOPY_THREADS") else {
        return 1;
    };
    let number = request.to_str().and_then(|text| text.trim().parse().ok());
    let number = number.filter(|number| (1..=MAX_THREADS).contains(number));
    number.unwrap_or_else(|| {
        log::warn!("GDRCOPY_THREADS={request:?} is not a number from 1 to {MAX_THREADS}; using 1");
        1
    })
}

/// The least important lines that are printed: `GDRCOPY_LOG_LEVEL`, 4 (errors) by default, where
/// `GDRCOPY_ENABLE_LOGGING` is set.
pub(crate) fn log_level() -> LevelFilter {
    if env::var_os("GDRCOPY_ENABLE_LOGGING").is_none() {
        return LevelFilter::Off;
    }
    let level = env::var("GDRCOPY_LOG_LEVEL").ok();
    let level = level.and_then(|text| text.trim().parse::<i64>().ok());
    match level.unwrap_or(4) {
        ..=1 => LevelFilter::Debug,
        2 => LevelFilter::Info,
        3 => LevelFilter::Warn,
        4 => LevelFilter::Error,
        5.. => LevelFilter::Off,
    }
}

/// Exactly `1` switches on, as in NVIDIA's libgdrapi.
fn is_one(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| value == "1")
}
