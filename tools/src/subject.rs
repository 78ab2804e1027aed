//! What is measured: a library, and a GPU buffer that it has pinned and mapped.
#![forbid(unsafe_code)]

use anyhow::{Context, Error, Result, anyhow};
use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED as POOLS;
use nix::errno::Errno;

use crate::cuda::{DeviceBuffer, Gpu, Memory};
use crate::failure::Usage;
use crate::library::{CallError, Library, Loader, Mapped};
use crate::options::Target;

/// A library, and what results call it.
#[derive(Clone, Debug)]
pub struct Named {
    /// The name.
    pub label: String,
    /// The library.
    pub library: &'static Library,
}

/// A library with a mapped buffer of its own.
#[derive(Debug)]
pub struct Subject {
    /// The library.
    pub named: Named,
    // Dropped in this order: unmapped and unpinned first, then freed.
    /// The buffer as the CPU sees it.
    pub mapped: Mapped,
    /// The buffer as CUDA sees it.
    pub buffer: DeviceBuffer,
}

/// Loads the libraries that the options name, one or two; without any, the loader's choice.
///
/// # Errors
/// One cannot be loaded. More than two are wrong usage.
pub fn libraries(target: &Target) -> Result<Vec<Named>> {
    let mut loader = Loader::default();
    if target.libraries.is_empty() {
        let library = loader.load_default()?;
        let label = "libgdrapi.so.2".into();
        return Ok(vec![Named { label, library }]);
    }
    if target.libraries.len() > 2 {
        return Err(Usage("--lib: two libraries can be compared, not more".into()).into());
    }
    let mut named: Vec<Named> = Vec::new();
    for wanted in &target.libraries {
        let library = loader.load(&wanted.file)?;
        let taken = named.iter().any(|other| other.label == wanted.label);
        let label = match taken {
            true => format!("{} (2)", wanted.label),
            false => wanted.label.clone(),
        };
        named.push(Named { label, library });
    }
    Ok(named)
}

impl Subject {
    /// Allocates `len` bytes at least, and has the library pin and map them.
    ///
    /// # Errors
    /// There is no such memory, or it cannot be pinned or mapped: what to do is part of the message.
    pub fn new(named: &Named, gpu: &'static Gpu, target: &Target, len: usize) -> Result<Subject> {
        let mut refused = None;
        for &memory in target.memory.candidates() {
            let memory = available(gpu, memory);
            let buffer = DeviceBuffer::alloc(gpu, memory, len)?;
            match Mapped::new(named.library, &buffer, target.mapping) {
                Ok(mapped) => {
                    return Ok(Subject {
                        named: named.clone(),
                        mapped,
                        buffer,
                    });
                }
                Err(error) => refused = Some(explain(error, memory)),
            }
        }
        let error = refused.context("no kind of memory to try")?;
        Err(error.context(named.label.clone()))
    }
}

/// The kind of memory that there is instead of this one, which is said.
fn available(gpu: &Gpu, memory: Memory) -> Memory {
    if memory == Memory::Pool && gpu.attribute(POOLS) != Some(1) {
        eprintln!("gdrcopy: this GPU has no memory pools; the buffer comes from cuMemAlloc");
        return Memory::Alloc;
    }
    memory
}

/// Adds what to do about a failing pin or map.
fn explain(error: Error, memory: Memory) -> Error {
    let Some(&CallError { call, errno }) = error.downcast_ref() else {
        return error;
    };
    let advice = match (call, errno) {
        ("gdr_pin_buffer", Errno::EINVAL) if memory == Memory::Pool => {
            "Memory of this pool cannot be pinned: CUDA makes pools for GPUDirect RDMA from 13.3 on. Use -a cuMemAlloc"
        }
        ("gdr_pin_buffer", Errno::EINVAL) => {
            "This memory cannot be pinned. Try the other of -a cuMemAlloc and -a cuMemCreate"
        }
        ("gdr_pin_buffer", Errno::ENOMEM) => {
            "The GPU's BAR1 has no room left. Take a smaller -s, or end programs that hold pins"
        }
        ("gdr_pin_buffer", Errno::EMFILE) => "No file descriptor left. Raise `ulimit -n`",
        ("gdr_pin_buffer", Errno::EOPNOTSUPP) => {
            "This GPU, or its driver, does not let its memory be pinned"
        }
        ("gdr_map_v2", Errno::ENOSYS) => "This library is older than mapping types. Leave out -M",
        ("gdr_map_v2", Errno::EOPNOTSUPP) => "This machine has no such mapping. Leave out -M",
        _ => "GDRCOPY_ENABLE_LOGGING=1 says why",
    };
    anyhow!("{error:#}. {advice}. `gdrcopy doctor` tells more")
}
