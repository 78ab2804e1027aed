//! Tests that each write of the crate, of libgdrapi and of libgdrx ends with a fence, and each read begins with one.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;

use gdrcopy::{Mapped, Words};
use libloading::Library;

use crate::access::mapped;
use crate::cuda::Cuda;
use crate::ownership::PAGE;
use crate::steps::{Event, assert_read_is_fenced, assert_write_is_fenced, stepped};
use crate::under_gdremu::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![accesses_of_the_crate_are_fenced, copies_of_the_c_libraries_are_fenced,];

const LEN: usize = 200;

/// Checks that a write of the page at `page` is fenced.
fn check_write(name: &str, page: *mut u8, write: impl FnOnce()) {
    assert_write_is_fenced(name, &stepped(name, page, PAGE, write));
}

/// Checks that a read of the page at `page` is fenced.
fn check_read(name: &str, page: *mut u8, read: impl FnOnce()) {
    assert_read_is_fenced(name, &stepped(name, page, PAGE, read));
}

fn accesses_of_the_crate_are_fenced() {
    let mapping = mapped(&Cuda::new(), PAGE);
    let page = mapping.as_mut_ptr();
    let bytes = [1; LEN];
    let slice = mapping.slice(64..64 + LEN).expect("inside");
    let word = mapping.word::<u32>(8).expect("aligned");
    let array = mapping.array::<u64>(64, 16).expect("aligned");
    check_write("write", page, || mapping.write(3, &bytes).expect("inside"));
    check_write("fill", page, || slice.fill(7).expect("inside"));
    check_write("store", page, || word.store(5));
    check_write("scatter", page, || array.scatter(&[1, 5, 9], &[1, 2, 3]).expect("inside"));
    check_write("batch", page, || {
        let mut batch = mapping.batch().expect("this process");
        batch.write(100, &bytes).expect("inside");
        batch.store(word, 6);
        batch.commit();
    });
    check_write("write_many", page, || {
        mapping.write_many(&[(3, &bytes), (300, &bytes[..9])]).expect("inside");
    });
    check_write("batch that is dropped", page, || {
        let mut batch = mapping.batch().expect("this process");
        batch.store(word, 7);
    });

    let words: Words<'_, u32> = [word].into_iter().collect();
    let mut seen = [0; LEN];
    check_read("read", page, || mapping.read(3, &mut seen).expect("inside"));
    check_read("load", page, || assert_eq!(word.load(), 7));
    check_read("load_all", page, || words.load_all(&mut [0]));
    check_read("gather", page, || array.gather(&[1, 5], &mut [0; 2]).expect("inside"));
    check_read("read_many", page, || {
        mapping.read_many(&mut [(3, &mut seen), (300, &mut [0; 9])]).expect("inside");
    });
}

/// Room for the 40 bytes of the C header's `struct gdrx_map`, and some bytes more.
type Map = [u64; 6];

/// `struct gdrx_copy` of the C header.
#[repr(C)]
struct Copy {
    offset: usize,
    host: *mut u8,
    size: usize,
}

fn copies_of_the_c_libraries_are_fenced() {
    let address = Cuda::new().alloc(2 * PAGE).next_multiple_of(PAGE as u64);
    // SAFETY: the types are those of the headers, the arguments are valid, and the libraries stay loaded.
    unsafe {
        let [gdrapi, gdrx] = crate::libraries().map(|file| Box::leak(Box::new(Library::new(file).expect("a library"))));
        let open: extern "C" fn() -> usize = *gdrapi.get("gdr_open").expect("exported");
        let pin: extern "C" fn(usize, c_ulong, usize, u64, u32, *mut c_ulong) -> c_int =
            *gdrapi.get("gdr_pin_buffer").expect("exported");
        let map: extern "C" fn(usize, c_ulong, *mut *mut u8, usize) -> c_int =
            *gdrapi.get("gdr_map").expect("exported");
        let close: extern "C" fn(usize) -> c_int = *gdrapi.get("gdr_close").expect("exported");
        let write: extern "C" fn(c_ulong, *mut u8, *const u8, usize) -> c_int =
            *gdrapi.get("gdr_copy_to_mapping").expect("exported");
        let read: extern "C" fn(c_ulong, *mut u8, *const u8, usize) -> c_int =
            *gdrapi.get("gdr_copy_from_mapping").expect("exported");
        let attach: extern "C" fn(*mut Map, u32, u64, *mut c_void, usize) -> c_int =
            *gdrx.get("gdrx_attach_mapping").expect("exported");
        let write_many: extern "C" fn(*const Map, *const Copy, usize) -> c_int =
            *gdrx.get("gdrx_write_many").expect("exported");
        let read_many: extern "C" fn(*const Map, *const Copy, usize) -> c_int =
            *gdrx.get("gdrx_read_many").expect("exported");

        let g = open();
        let mut handle = 0;
        let mut page = ptr::null_mut();
        let mut attached = Map::default();
        assert_eq!(pin(g, address, PAGE, 0, 0, &mut handle), 0);
        assert_eq!(map(g, handle, &mut page, PAGE), 0);
        assert_eq!(attach(&mut attached, 1, PAGE as u64, page.cast(), PAGE), 0);
        let mut host = [0_u8; LEN];
        let host = host.as_mut_ptr();
        for size in [8, LEN] {
            for offset in [64, 67] {
                let copies = [Copy { offset, host, size }, Copy { offset: offset + 512, host, size }];
                let name = format!("{size} bytes at {offset}");
                let at = page.add(offset);
                check_write(&name, page, || assert_eq!(write(handle, at, host, size), 0));
                check_read(&name, page, || assert_eq!(read(handle, host, at, size), 0));
                check_write(&name, page, || assert_eq!(write_many(&attached, copies.as_ptr(), 2), 0));
                check_read(&name, page, || assert_eq!(read_many(&attached, copies.as_ptr(), 2), 0));
            }
        }

        // The first mapping has type 1 (write-combining), and this one has type 3 (device). Once the process has
        // attached mappings of two types to libgdrx, each access ends with a full fence.
        assert_eq!(attach(&mut attached, 3, PAGE as u64, page.cast(), PAGE), 0);
        let copies = [Copy { offset: 64, host, size: 8 }];
        let written = stepped("write", page, PAGE, || assert_eq!(write_many(&attached, copies.as_ptr(), 1), 0));
        assert_eq!(written.last(), Some(&Event::FullFence));
        let read = stepped("read", page, PAGE, || assert_eq!(read_many(&attached, copies.as_ptr(), 1), 0));
        assert_eq!(read.last(), Some(&Event::FullFence));
        assert_eq!(close(g), 0);
    }
}
