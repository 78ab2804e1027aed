//! Modules: GPU kernels that gdremu-ptx interprets, and variables.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_char;

use gdremu_core::gpu::address_space::Access;
use gdremu_ptx as ptx;
use gdremu_ptx::fatbin::{self, Problem};

use super::state::{self, Function, Module, ModuleHandle, State};
use super::{buffer, copy, device, work};
use crate::args::In;
use crate::error::{Error, Result, ensure};
use crate::gpus;

/// The first bytes of images that are not PTX text: machine code, which is refused, and fat binaries.
const ELF: [u8; 4] = *b"\x7fELF";
const FATBIN: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
/// The first bytes of nvcc's wrapper of a fat binary: a magic number, a version and a pointer to the binary.
const FATBIN_WRAPPER: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();

/// An image that cannot be read, such as a text that is not UTF-8, is malformed.
impl From<Error> for Problem {
    fn from(_: Error) -> Problem {
        Problem::Malformed
    }
}

/// Compares byte by byte up to the first difference, because a text may have fewer than 4 bytes.
fn begins_with(image: In<u8>, magic: [u8; 4]) -> bool {
    (0..4).all(|index| image.at(index) == Ok(magic[index]))
}

fn text(image: In<u8>, capability: u32) -> std::result::Result<String, Problem> {
    if begins_with(image, FATBIN) {
        let len = fatbin::len(image.bytes(fatbin::HEADER)?)?;
        return fatbin::ptx(image.bytes(len)?, capability);
    }
    ensure(!begins_with(image, ELF), Problem::NoPtx)?;
    Ok(image.of::<c_char>().text()?.to_owned())
}

pub(super) fn load(call: &str, mut image: In<u8>) -> Result<ModuleHandle> {
    ensure(!image.is_null(), Error::INVALID_VALUE)?;
    let gpu = state::lock().current()?.gpu;
    let capability = device::capability(gpu)?;
    if begins_with(image, FATBIN_WRAPPER) {
        image = image.of::<In<u8>>().at(1)?;
    }
    let text = text(image, capability).map_err(|problem| {
        eprintln!("gdremu: {call}: {problem}");
        match problem {
            Problem::Malformed => Error::INVALID_IMAGE,
            Problem::NoPtx => Error::NO_BINARY_FOR_GPU,
        }
    })?;
    let parsed = ptx::parse(&text).map_err(|error| {
        eprintln!("gdremu: {call}: {error}");
        Error::INVALID_PTX
    })?;
    add(&mut state::lock(), parsed)
}

pub(super) fn cuModuleUnload(module: ModuleHandle) -> Result {
    let state = state::lock();
    let owner = state.modules.get(module)?.context;
    let mut state = work::finish(state, Some(owner))?;
    let module = state.modules.remove(module)?;
    for function in module.functions.into_values() {
        state.functions.remove(function)?;
    }
    match module.memory {
        0 => Ok(()),
        memory => buffer::free(&mut state, memory),
    }
}

fn add(state: &mut State, parsed: ptx::Module) -> Result<ModuleHandle> {
    let current = state.current()?;
    let mut base = 0;
    if !parsed.memory.is_empty() {
        let len = parsed.memory.len();
        base = buffer::cuMemAlloc_v2(state, current, len)?;
        let spans = gpus::with(|gpu| gpu.spans(base, len as u64, Access::ReadWrite))?;
        copy::write(spans, &parsed.memory);
    }
    let mut module =
        Module { context: current.context, functions: BTreeMap::new(), variables: BTreeMap::new(), memory: base };
    for (name, (offset, size)) in parsed.variables {
        module.variables.insert(name, (base + offset as u64, size));
    }
    for (name, kernel) in parsed.kernels {
        let function = state.functions.add(Function {
            context: current.context,
            name: name.clone(),
            kernel: kernel.map_err(|error| error.to_string()),
            variables: base,
            target: parsed.target,
        });
        module.functions.insert(name, function);
    }
    Ok(state.modules.add(module))
}
