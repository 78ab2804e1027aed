//! Shares GPU memory, except memory from pools, with other processes. A handle contains the id of a process, the number
//! of one of that process's file descriptors, and the id of a buffer. The descriptor's file contains the memory.
#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::state::{self, Allocation, State};
use super::work;
use crate::error::{Error, Result, ensure, valid};
use crate::gpus;
use gdremu_core::cuda::types::IpcHandle;
use gdremu_core::gpu::physical::GPU_BYTES;

/// Returns whether cuIpcGetMemHandle accepts an allocation. It accepts only memory from cuMemAlloc.
pub(super) fn is_capable(allocation: Option<&Allocation>) -> bool {
    matches!(allocation, Some(Allocation { pool: None, .. }))
}

pub(super) fn handle_of(state: &mut State, address: u64) -> Result<IpcHandle> {
    let place = valid(gpus::place(address))?;
    ensure(is_capable(state.allocations.get(&place.base)), Error::INVALID_VALUE)?;
    let memory = gpus::with(|gpu| gpu.share(place.base))?;
    let shared = IpcHandle { process: std::process::id().into(), id: place.id, memory, unused: 0 };
    mark(&shared, true).map_err(|_| Error::OPERATING_SYSTEM)?;
    valid(state.allocations.get_mut(&place.base))?.shared = Some(shared);
    Ok(shared)
}

/// Marks a shared buffer as alive or freed, for other processes. A file contains the GPU's memory. The mark is a byte
/// of this file, after the memory.
pub(super) fn mark(buffer: &IpcHandle, alive: bool) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", buffer.memory.descriptor);
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&[u8::from(alive)], mark_of(buffer))
}

/// Returns the offset of a buffer's mark, a byte in the file with the GPU's memory. Each process has its own such file,
/// in which the low 32 bits of a buffer's id are unique.
fn mark_of(buffer: &IpcHandle) -> u64 {
    GPU_BYTES + (buffer.id & 0xffff_ffff)
}

fn is_alive(buffer: &IpcHandle, file: &File) -> bool {
    let mut mark = [0];
    file.read_exact_at(&mut mark, mark_of(buffer)).is_ok() && mark == [1]
}

pub(super) fn open(state: &mut State, handle: IpcHandle, flags: u32) -> Result<u64> {
    /// The flag CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.
    const LAZY_PEER_ACCESS: u32 = 1;

    ensure(flags == LAZY_PEER_ACCESS && handle.process != 0, Error::INVALID_VALUE)?;
    // NVIDIA's driver, too, refuses to open a handle in the process that made it.
    ensure(handle.process != u64::from(std::process::id()), Error::INVALID_CONTEXT)?;
    for (address, import) in &mut state.imports {
        if import.0 == handle {
            import.1 += 1;
            return Ok(*address);
        }
    }
    let file = memory_of(&handle).ok_or(Error::MAP_FAILED)?;
    ensure(is_alive(&handle, &file), Error::INVALID_VALUE)?;
    let imported = gpus::import(&handle.memory, handle.id, file.as_fd())?;
    state.imports.insert(imported, (handle, 1));
    Ok(imported)
}

/// Returns the file that a handle names. Fails unless the file is the memory of an emulated GPU. Also fails if the
/// process that made the handle has ended, has a different user or is not visible in /proc.
fn memory_of(handle: &IpcHandle) -> Option<File> {
    let path = format!("/proc/{}/fd/{}", handle.process, handle.memory.descriptor);
    let name = fs::read_link(&path).ok()?;
    if !name.to_str()?.starts_with("/memfd:gdremu-gpu") {
        return None;
    }
    OpenOptions::new().read(true).write(true).open(&path).ok()
}

pub(super) fn cuIpcCloseMemHandle(address: u64) -> Result {
    let mut state = work::finish(state::lock(), None)?;
    let import = valid(state.imports.get_mut(&address))?;
    import.1 -= 1;
    if import.1 > 0 {
        return Ok(());
    }
    state.imports.remove(&address);
    gpus::take_away(|memory| memory.free(address))
}
