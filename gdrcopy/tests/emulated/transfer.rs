//! Copies by mapping or copy engine, under gdremu.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::time::Duration;

use gdrcopy::memory::HostMemory;
use gdrcopy::transfer::{Route, TransferOptions};
use gdrcopy::{Backend, Error, Gdr, MapFlag, Mapped, Mapping, PinFlags, Transfer};

use crate::access;
use crate::cuda::Cuda;
use crate::ownership::{PAGE, await_child, fork, leave_child};
use crate::{outside, pattern};

const LEN: usize = 2 * PAGE;

fn mapped(cuda: &Cuda) -> (Mapping, u64) {
    access::mapped(cuda, LEN)
}

/// Small sizes, and a chunk that nothing is a multiple of.
fn options() -> TransferOptions {
    Transfer::options().read_crossover(16 << 10).write_crossover(32 << 10).chunk(10_000)
}

/// A read of all of the memory, checked.
fn read(cuda: &Cuda, transfer: &Transfer, mapping: &Mapping, seed: usize) -> Route {
    let sent = pattern(LEN, seed);
    cuda.write(mapping.device_address(), &sent);
    let mut received = vec![0; LEN];
    let route = transfer.read(mapping.as_slice(), &mut received);
    assert!(received == sent);
    route.expect("inside")
}

/// A write of all of the memory, checked.
fn write(cuda: &Cuda, transfer: &Transfer, mapping: &Mapping, seed: usize) -> Route {
    let sent = pattern(LEN, seed);
    let route = transfer.write(mapping.as_slice(), &sent);
    assert!(cuda.read(mapping.device_address(), LEN) == sent);
    route.expect("inside")
}

/// Makes CUDA calls fail as `--fault` does.
fn set_faults(list: &str) {
    let list = CString::new(list).expect("no NUL");
    // SAFETY: gdremu's function has this type, and reads a C string.
    let result = unsafe {
        let set = libc::dlsym(libc::RTLD_DEFAULT, c"gdremu_faults_set".as_ptr());
        assert!(!set.is_null());
        let set: extern "C" fn(*const c_char) -> c_int = std::mem::transmute(set);
        set(list.as_ptr())
    };
    assert_eq!(result, 0);
}

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn size_and_direction_choose_the_route() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda);
    let transfer = options().build();
    let sizes = [0, 1, 4096, 16_383, 16_384, 20_000, 20_001, 32_767, 32_768, 65_537, 100_000];
    for (seed, len) in sizes.into_iter().enumerate() {
        let slice = mapping.slice(4099..).expect("inside");
        let route = |crossover| match len < crossover {
            true => Ok(Route::Mapping),
            false => Ok(Route::Buffered),
        };
        cuda.clear(address, LEN);
        let sent = pattern(len, seed);
        assert_eq!(transfer.write(slice, &sent), route(32 << 10), "{len} bytes");
        let written = cuda.read(address + 4098, len + 2);
        assert_eq!((written[0], written[len + 1]), (0, 0), "{len} bytes");
        assert!(written[1..=len] == sent, "{len} bytes");

        let mut received = vec![0xAA; len + 1];
        let read = transfer.read(slice, &mut received[..len]);
        assert_eq!(read, route(16 << 10), "{len} bytes");
        assert!(received[..len] == sent && received[len] == 0xAA);
    }
    let slice = mapping.slice(1..).expect("inside");
    let mut long = vec![0; LEN];
    let refused = outside(0, LEN, LEN - 1);
    assert_eq!(transfer.read(slice, &mut long), Err(refused.clone()));
    assert_eq!(transfer.write(slice, &long), Err(refused));
}

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn registered_memory_is_copied_directly() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda);
    let (slice, transfer) = (mapping.as_slice(), options().build());
    let sent = pattern(LEN, 3);
    cuda.write(address, &sent);
    let mut memory = vec![0_u8; LEN];
    // SAFETY: the signature is that of the CUDA driver API; the memory outlives its registration.
    unsafe {
        let (start, len) = (memory.as_mut_ptr(), LEN - 100);
        cuda.call::<extern "C" fn(*mut u8, usize, c_uint) -> c_int>("cuMemHostRegister_v2", |f| f(start, len, 0));
    }
    let registered = 5..LEN - 100;
    let read = transfer.read(slice, &mut memory[registered.clone()]);
    assert_eq!(read, Ok(Route::Direct));
    assert!(memory[registered] == sent[..LEN - 105]);
    // Not all of it is registered.
    let read = transfer.read(slice, &mut memory);
    assert_eq!(read, Ok(Route::Buffered));
    assert!(memory == sent);

    memory[..LEN - 100].reverse();
    let write = transfer.write(slice, &memory[..LEN - 100]);
    assert_eq!(write, Ok(Route::Direct));
    assert!(cuda.read(address, LEN) == memory);
    assert_eq!(transfer.write(slice, &memory), Ok(Route::Buffered));
    // SAFETY: as above.
    unsafe {
        cuda.call::<extern "C" fn(*mut u8) -> c_int>("cuMemHostUnregister", |f| f(memory.as_mut_ptr()));
    }
}

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn capture_of_another_stream_stays_valid() {
    let cuda = Cuda::new();
    let (mapping, _) = mapped(&cuda);
    let mut stream: *mut c_void = ptr::null_mut();
    let mut graph: *mut c_void = ptr::null_mut();
    let mut bytes = vec![0; LEN];
    // SAFETY: the signatures are those of the CUDA driver API; the outputs are local variables.
    unsafe {
        type Create = extern "C" fn(*mut *mut c_void, c_uint) -> c_int;
        cuda.call::<Create>("cuStreamCreate", |f| f(&mut stream, 0));
        type Begin = extern "C" fn(*mut c_void, c_uint) -> c_int;
        cuda.call::<Begin>("cuStreamBeginCapture_v2", |f| f(stream, 0));
        {
            // Set up, used and dropped during the capture, by this thread and another.
            let transfer = options().build();
            for thread in 0..2 {
                std::thread::scope(|s| {
                    let (transfer, mapping, bytes) = (&transfer, &mapping, &mut bytes);
                    let mut copy = move || {
                        let write = transfer.write(mapping.as_slice(), &pattern(LEN, thread));
                        assert_eq!(write, Ok(Route::Buffered));
                        let read = transfer.read(mapping.as_slice(), bytes);
                        assert_eq!(read, Ok(Route::Buffered));
                    };
                    match thread {
                        0 => copy(),
                        _ => s.spawn(copy).join().expect("copied"),
                    }
                });
                assert!(bytes == pattern(LEN, thread));
            }
        }
        // Fails if the capture has become invalid.
        type End = extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
        cuda.call::<End>("cuStreamEndCapture", |f| f(stream, &mut graph));
        // The thread's mode is restored, so a capture would suffer now.
        let mut mode: c_uint = 0;
        cuda.call::<extern "C" fn(*mut c_uint) -> c_int>("cuThreadExchangeStreamCaptureMode", |f| f(&mut mode));
        assert_eq!(mode, 0);
    }
}

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn thread_without_context_has_none_afterwards() {
    let cuda = Cuda::new();
    let (mapping, _) = mapped(&cuda);
    let transfer = options().build();
    let copy = || {
        let mut context = ptr::null_mut();
        let mut bytes = vec![0; LEN];
        let read = transfer.read(mapping.as_slice(), &mut bytes);
        assert_eq!(read, Ok(Route::Buffered));
        // SAFETY: the signature is that of the CUDA driver API; the output is a local variable.
        unsafe {
            type Get = extern "C" fn(*mut *mut c_void) -> c_int;
            cuda.call::<Get>("cuCtxGetCurrent", |f| f(&mut context));
        }
        context.is_null()
    };
    assert!(std::thread::scope(|s| s.spawn(copy).join().expect("copied")));
    assert!(!copy());
}

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn threads_share_a_transfer() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda);
    let (sent, part) = (pattern(LEN, 9), LEN / 4);
    let transfer = options().write_crossover(1).read_crossover(1).build();
    std::thread::scope(|s| {
        for (i, bytes) in sent.chunks(part).enumerate() {
            let (transfer, mapping) = (&transfer, &mapping);
            s.spawn(move || {
                let slice = mapping.slice(i * part..).expect("inside");
                let mut back = vec![0; part];
                for _ in 0..20 {
                    assert_eq!(transfer.write(slice, bytes), Ok(Route::Buffered));
                    assert_eq!(transfer.read(slice, &mut back), Ok(Route::Buffered));
                    assert!(back == bytes);
                }
            });
        }
    });
    assert!(cuda.read(address, LEN) == sent);
}

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn mapping_finishes_what_cuda_does_not() {
    let cuda = Cuda::new();
    let (mapping, _) = mapped(&cuda);
    for faults in [
        // As in a host callback.
        "cuPointerGetAttribute:800",
        "cuStreamCreate:800",
        "cuMemHostRegister:2",
        "cuMemcpyDtoHAsync:999@2,cuMemcpyHtoDAsync:999@2",
        "cuStreamQuery:719@2",
    ] {
        let transfer = options().build();
        set_faults(faults);
        let read_route = read(&cuda, &transfer, &mapping, 1);
        set_faults(faults);
        let write_route = write(&cuda, &transfer, &mapping, 2);
        set_faults("");
        let routes = (read_route, write_route);
        assert_eq!(routes, (Route::Mapping, Route::Mapping), "{faults}");
        assert_eq!(read(&cuda, &transfer, &mapping, 3), Route::Buffered);
    }
}

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn stalled_copy_engine_is_left_until_it_has_finished() {
    let cuda = Cuda::new();
    let (mapping, _) = mapped(&cuda);
    let transfer = options().patience(Duration::from_millis(1)).build();
    assert_eq!(read(&cuda, &transfer, &mapping, 1), Route::Buffered);
    // NOT_READY.
    set_faults("cuStreamQuery:600");
    assert_eq!(read(&cuda, &transfer, &mapping, 2), Route::Mapping);
    assert_eq!(write(&cuda, &transfer, &mapping, 3), Route::Mapping);
    // The first read asks once and starts no copy, as the buffer is not free; the second one does, and fails.
    set_faults("cuStreamQuery:600@1,cuMemcpyDtoHAsync:999@1");
    let routes = [4, 5, 6].map(|seed| read(&cuda, &transfer, &mapping, seed));
    assert_eq!(routes, [Route::Mapping, Route::Mapping, Route::Buffered]);
    set_faults("cuStreamQuery:600");
    assert_eq!(read(&cuda, &transfer, &mapping, 7), Route::Mapping);
    // A host callback cannot ask.
    set_faults("cuStreamQuery:800@1,cuMemcpyDtoHAsync:999@1");
    let routes = [4, 5, 6].map(|seed| read(&cuda, &transfer, &mapping, seed));
    assert_eq!(routes, [Route::Mapping, Route::Mapping, Route::Buffered]);
    set_faults("");
    assert_eq!(read(&cuda, &transfer, &mapping, 6), Route::Buffered);
    // Dropped while busy, it frees nothing.
    set_faults("cuStreamQuery:600");
    assert_eq!(read(&cuda, &transfer, &mapping, 7), Route::Mapping);
    set_faults("cuStreamQuery:600");
    drop(transfer);
    set_faults("");
}

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn copy_engine_whose_copy_failed_is_kept() {
    let cuda = Cuda::new();
    let (mapping, _) = mapped(&cuda);
    let transfer = options().build();
    assert_eq!(read(&cuda, &transfer, &mapping, 1), Route::Buffered);
    set_faults("cuMemcpyDtoHAsync:999@1,cuStreamCreate:2@1");
    // No new one can be made.
    let routes = [2, 3, 4].map(|seed| read(&cuda, &transfer, &mapping, seed));
    set_faults("");
    assert_eq!(routes, [Route::Mapping, Route::Buffered, Route::Buffered]);
}

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn forked_child_is_refused() {
    let cuda = Cuda::new();
    let (mapping, _) = mapped(&cuda);
    let transfer = options().build();
    assert_eq!(read(&cuda, &transfer, &mapping, 1), Route::Buffered);
    let mut bytes = vec![0; LEN];
    let child = fork();
    if child == 0 {
        let read = transfer.read(mapping.as_slice(), &mut bytes);
        let write = transfer.write(mapping.as_slice(), &bytes);
        drop(transfer);
        let refused = Err(Error::ForkedChild);
        leave_child((read, write) == (refused.clone(), refused))
    }
    await_child(child, "the child was served");
    assert_eq!(read(&cuda, &transfer, &mapping, 2), Route::Buffered);
}

#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn host_memory_is_copied_by_the_cpu() {
    let cuda = Cuda::new();
    let memory = HostMemory::alloc(LEN).expect("room");
    let gdr = Gdr::options().backend(Backend::HostMemory).open();
    // SAFETY: the memory outlives the pin, and only this test uses it.
    let pin = unsafe {
        let gdr = gdr.expect("CUDA");
        gdr.pin(memory.device_address(), LEN, PinFlags::DEFAULT)
    };
    let mapping = pin.expect("host memory").map(LEN, MapFlag::Default);
    let (mapping, transfer) = (mapping.expect("host memory"), options().build());
    assert_eq!(read(&cuda, &transfer, &mapping, 1), Route::Mapping);
    assert_eq!(write(&cuda, &transfer, &mapping, 2), Route::Mapping);
}

/// By the profile whose mappings the CPU caches.
#[test]
#[ignore = "transfer_under_gdremu runs it"]
fn cached_memory_is_copied_by_the_cpu() {
    let cuda = Cuda::new();
    let (mapping, _) = mapped(&cuda);
    let transfer = options().build();
    assert_eq!(read(&cuda, &transfer, &mapping, 1), Route::Mapping);
    assert_eq!(write(&cuda, &transfer, &mapping, 2), Route::Mapping);
}
