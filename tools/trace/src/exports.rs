//! The 17 symbols of libgdrapi, as functions that the loader calls to get an address (STT_GNU_IFUNC). So lookups are
//! seen, and find no function that the real library lacks.

use std::arch::{global_asm, naked_asm};
use std::ffi::c_void;

use gdrcopy_trace_tables::Function;

use crate::{calls, process};

macro_rules! exported {
    ($($name:ident: $function:ident => $target:path;)*) => {$(
        /// The address that the loader gives for this name.
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *const c_void {
            process::note_lookup();
            // Loads nothing, as the loader may be relocating an object, even the real library. Before the
            // initialization a linked program looks up what it has.
            let is_there = process::settings().is_none_or(|settings| settings.has(Function::$function));
            if is_there { $target as *const c_void } else { std::ptr::null() }
        }

        global_asm!(concat!(".type ", stringify!($name), ", %gnu_indirect_function"));
    )*};
}

exported! {
    gdr_open: Open => calls::open;
    gdr_close: Close => calls::close;
    gdr_pin_buffer: PinBuffer => pin_buffer;
    gdr_pin_buffer_v2: PinBufferV2 => pin_buffer_v2;
    gdr_unpin_buffer: UnpinBuffer => calls::unpin_buffer;
    gdr_get_callback_flag: GetCallbackFlag => calls::get_callback_flag;
    gdr_get_info: GetInfo => get_info;
    gdr_get_info_v2: GetInfoV2 => get_info_v2;
    gdr_map: Map => calls::map;
    gdr_map_v2: MapV2 => calls::map_v2;
    gdr_unmap: Unmap => calls::unmap;
    gdr_copy_to_mapping: CopyToMapping => copy_to_mapping;
    gdr_copy_from_mapping: CopyFromMapping => copy_from_mapping;
    gdr_runtime_get_version: RuntimeGetVersion => calls::runtime_get_version;
    gdr_driver_get_version: DriverGetVersion => calls::driver_get_version;
    gdr_get_attribute: GetAttribute => calls::get_attribute;
    gdr_get_mapping_type_string: GetMappingTypeString => calls::get_mapping_type_string;
}

/// Passes on all arguments, and after them the address to which the call returns.
macro_rules! with_caller {
    ($($name:ident [$($line:literal),*])*) => {$(
        #[unsafe(naked)]
        extern "C" fn $name() {
            // With what the unwinding that ends a canceled thread needs.
            naked_asm!(".cfi_startproc", $($line,)* ".cfi_endproc", target = sym calls::$name)
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
with_caller! {
    copy_to_mapping ["mov r8, [rsp]", "jmp {target}"]
    copy_from_mapping ["mov r8, [rsp]", "jmp {target}"]
    get_info ["mov r8, [rsp]", "jmp {target}"]
    get_info_v2 ["mov r8, [rsp]", "jmp {target}"]
    pin_buffer_v2 ["mov r9, [rsp]", "jmp {target}"]
    // The seventh argument is on the stack.
    pin_buffer [
        "push qword ptr [rsp]",
        ".cfi_adjust_cfa_offset 8",
        "call {target}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret"
    ]
}

#[cfg(target_arch = "aarch64")]
with_caller! {
    copy_to_mapping ["mov x4, x30", "b {target}"]
    copy_from_mapping ["mov x4, x30", "b {target}"]
    get_info ["mov x4, x30", "b {target}"]
    get_info_v2 ["mov x4, x30", "b {target}"]
    pin_buffer_v2 ["mov x5, x30", "b {target}"]
    pin_buffer ["mov x6, x30", "b {target}"]
}
