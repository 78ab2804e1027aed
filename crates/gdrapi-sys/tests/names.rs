//! Uses the functions, types and constants of gdrapi.h by the names that bindgen generates for them. The test runs
//! under gdremu, which emulates a GPU.

#[path = "../../../tests/built/mod.rs"]
mod built;
#[path = "../../../tests/under_gdremu/mod.rs"]
mod under_gdremu;

use std::ptr;

use gdrapi_sys::*;
use gdrcopy::memory::{CudaAllocator, DeviceAllocator, DeviceMemory, MapOptions};
use gdrcopy::{Gdr, Mapped};
use under_gdremu::{Runner, tests};

fn main() {
    let mut runner = Runner::new("sys");
    runner.add(tests![pins_maps_and_copies], &[""]);
    runner.run();
}

fn pins_maps_and_copies() {
    let size = GPU_PAGE_SIZE as usize;
    let memory = CudaAllocator::new(0).expect("an emulated GPU").allocate(2 * size).expect("memory");
    let address = (memory.address() + GPU_PAGE_OFFSET) & GPU_PAGE_MASK;
    let mut handle = gdr_mh_t::default();
    let mut info = gdr_info_t::default();
    let (mut va, mut back) = (ptr::null_mut(), [0_u8; 5]);
    let (mut persistent, mut major, mut minor) = (0, 0, 0);
    // SAFETY: outputs are local variables; the mapping has `size` bytes; the emulated memory is used here only.
    unsafe {
        let g: gdr_t = gdr_open();
        assert!(!g.is_null());
        gdr_runtime_get_version(&mut major, &mut minor);
        assert_eq!((major as u32, minor as u32), (GDR_API_MAJOR_VERSION, GDR_API_MINOR_VERSION));
        let attribute = gdr_attr_GDR_ATTR_USE_PERSISTENT_MAPPING;
        assert_eq!(gdr_get_attribute(g, attribute, &mut persistent), 0);
        assert_eq!(persistent, 1);
        assert_eq!(gdr_pin_buffer_v2(g, address, size, GDR_PIN_FLAG_DEFAULT, &mut handle), 0);
        assert_eq!(gdr_map(g, handle, &mut va, size), 0);
        assert_eq!(gdr_get_info_v2(g, handle, &mut info), 0);
        assert_eq!((info.va, info.mapped(), info.wc_mapping()), (address, 1, 1));
        assert_eq!(info.mapping_type, gdr_mapping_type_GDR_MAPPING_TYPE_WC);
        assert_eq!(gdr_copy_to_mapping(handle, va, b"hello".as_ptr().cast(), 5), 0);
        assert_eq!(gdr_copy_from_mapping(handle, back.as_mut_ptr().cast(), va, 5), 0);
        assert_eq!(&back, b"hello");
        assert_eq!(gdr_unmap(g, handle, va, size), 0);
        assert_eq!(gdr_get_info_v2(g, handle, &mut info), 0);
        assert_eq!((info.mapped(), info.wc_mapping()), (0, 0));
        assert_eq!(gdr_unpin_buffer(g, gdr_mh_s { h: handle.h }), 0);
        assert_eq!(gdr_close(g), 0);
    }
    // The crate gdrcopy must also work in a program that uses this crate.
    let offset = (address - memory.address()) as usize;
    let mapping = Gdr::open().expect("a driver").map_owned(memory, MapOptions::default()).expect("a mapping");
    assert_eq!(mapping.read_vec(offset, 5).expect("within"), b"hello");
}
