//! Flags, counters and rings, under gdremu. The other side is CUDA, a GPU kernel that gdremu interprets, or the
//! functions of gdrcopy_device.cuh in a thread.

use std::io::{ErrorKind, Write, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use gdrcopy::channel::{Counter, Flag, Ring, RingReceiver, RingSender};
use gdrcopy::{Error, Mapped, Mapping};
use libloading::Library;

use crate::access::mapped;
use crate::cuda::Cuda;
use crate::freshness::rounds;
use crate::gpu;
use crate::outside;
use crate::ownership::{PAGE, are_refused, await_child, fork, leave_child};

/// Where the second ring of a test begins.
const BACK: usize = PAGE / 2;

/// device.cpp, compiled.
fn device_library() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("libdevice.so")
}

/// Runs before gdremu does. False where there is no C++ compiler.
pub(crate) fn compile_device_library() -> bool {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
    let status = Command::new(&compiler)
        .args(["-std=c++11", "-O2", "-shared", "-fPIC"])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"])
        .arg(device_library())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/emulated/device.cpp"))
        .status();
    if status.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        // Not by eprintln, whose lines are only seen of tests that fail.
        let line = format!("SKIPPED: no {compiler}: gdrcopy_device.cuh is not tested on the CPU\n");
        stderr().write_all(line.as_bytes()).expect("standard error");
        return false;
    }
    assert!(status.expect("a C++ compiler").success(), "device.cpp does not compile");
    true
}

/// Compiles device code that uses all of the header to PTX, where clang can.
pub(crate) fn compile_for_gpu() {
    let targets = Command::new("clang").arg("--print-targets").output();
    let targets = targets.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !targets.is_ok_and(|targets| targets.contains("nvptx64")) {
        println!("no clang for NVIDIA GPUs: the PTX of gdrcopy_device.cuh is not checked");
        return;
    }
    let output = Command::new("clang")
        .args(["-x", "cuda", "-nocudainc", "-nocudalib", "--cuda-device-only"])
        .args(["--cuda-gpu-arch=sm_70", "-O2", "-S", "-Wall", "-Werror", "-o", "-"])
        // CUDA's own headers define these.
        .args(["-D__device__=__attribute__((device))", "-D__inline__=inline"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/emulated/device.cu"))
        .output()
        .expect("clang");
    let ptx = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for instruction in [
        "ld.acquire.sys.global.u32",
        "ld.acquire.sys.global.u64",
        "st.release.sys.global.u32",
        "st.release.sys.global.u64",
        "fence.acq_rel.sys",
    ] {
        assert!(ptx.contains(instruction), "no {instruction} in {ptx}");
    }
}

fn passed() -> Instant {
    Instant::now() - Duration::from_secs(1)
}

#[test]
#[ignore = "channels_under_gdremu runs it"]
fn flag_is_the_word_that_the_gpu_sees() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    let flag = Flag::new(mapping.word(64).expect("aligned"));
    flag.set(0x0102_0304);
    assert_eq!(cuda.read(address + 64, 8), [4, 3, 2, 1, 0, 0, 0, 0]);
    assert_eq!(flag.wait(0x0102_0304, None), Ok(()));
    assert_eq!(flag.wait(5, passed()), Err(Error::TimedOut));
    cuda.write(address + 64, &5_u32.to_ne_bytes());
    assert_eq!(flag.wait(5, passed()), Ok(()));
    flag.clear();
    assert_eq!((flag.get(), flag.word().load()), (0, 0));
    assert_eq!(cuda.read(address + 64, 4), [0; 4]);
}

#[test]
#[ignore = "channels_under_gdremu runs it"]
fn counter_grows_and_is_waited_for() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    cuda.write(address, &(u64::from(u32::MAX) - 1).to_ne_bytes());
    let counter = Counter::new(mapping.word(0).expect("aligned"));
    let mut writer = counter.writer();
    assert_eq!(writer.add(3), (1 << 32) + 1);
    assert_eq!(cuda.read(address, 8), ((1_u64 << 32) + 1).to_ne_bytes());
    writer.publish(1 << 40);
    assert_eq!((writer.value(), counter.get()), (1 << 40, 1 << 40));
    assert_eq!(counter.wait_for(1 << 39, passed()), Ok(1 << 40));
    assert_eq!(counter.wait_for((1 << 40) + 1, passed()), Err(Error::TimedOut));
    assert!(catch_unwind(AssertUnwindSafe(|| writer.publish(7))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| writer.add(u64::MAX))).is_err());
    assert_eq!(counter.get(), 1 << 40);
}

#[test]
#[ignore = "channels_under_gdremu runs it"]
fn header_answers_flags_and_counters() {
    type Answer = extern "C" fn(*mut u8, *mut u8, *mut u8);
    let (mapping, _) = mapped(&Cuda::new(), PAGE);
    let flag = Flag::new(mapping.word(0).expect("aligned"));
    let mut begun = Counter::new(mapping.word(64).expect("aligned")).writer();
    let done = Counter::new(mapping.word(128).expect("aligned"));
    thread::scope(|s| {
        s.spawn(|| {
            let place = |offset| mapping.as_slice().as_mut_ptr().wrapping_add(offset);
            // SAFETY: the library has no initializers, the function this type. The words are mapped.
            unsafe {
                let library = Library::new(device_library()).expect("compiled");
                let answer = library.get::<Answer>("answer").expect("exported");
                answer(place(0), place(64), place(128));
            }
        });
        flag.set(1);
        assert_eq!(flag.wait(2, None), Ok(()));
        begun.publish(1 << 33);
        assert_eq!(done.wait_for(1 << 33, None), Ok(1 << 33));
    });
}

/// Rings to the other side and back in one mapping.
fn rings<T: Pod>(mapping: &Mapping, slots: u32, first: u32) -> (RingSender<'_, T>, RingReceiver<'_, T>) {
    let (to, back) = mapping.as_slice().split_at(BACK).expect("inside");
    let ring = |memory| Ring::starting_at(memory, slots, first).expect("room");
    (ring(to).into_sender(), ring(back).into_receiver())
}

/// Word `word` of message `number`. No two messages that are near have one in common.
fn content<const WORDS: usize>(number: u32) -> [u32; WORDS] {
    std::array::from_fn(|word| number.wrapping_mul(0x9e37_79b1).wrapping_add(word as u32))
}

/// Sends messages in groups of different sizes, and checks that each comes back `copies` times, in order.
fn exchange<const WORDS: usize>(
    (mut sender, mut receiver): (RingSender<'_, [u32; WORDS]>, RingReceiver<'_, [u32; WORDS]>),
    count: u32,
    copies: u32,
) where
    [u32; WORDS]: Pod,
{
    let messages: Vec<[u32; WORDS]> = (0..count).map(content).collect();
    let mut unsent = &messages[..];
    let mut received = [[0; WORDS]; 19];
    let (mut next, mut wrong) = (0, 0);
    while next < count * copies {
        let group = unsent.len().min(1 + next as usize % 23);
        let sent = or_exit(sender.try_send(&unsent[..group]));
        unsent = &unsent[sent..];
        let wanted = 1 + next as usize % 19;
        let back = or_exit(receiver.try_receive(&mut received[..wanted]));
        for message in &received[..back] {
            wrong += u32::from(*message != content(next / copies));
            next += 1;
        }
        if sent + back == 0 {
            thread::yield_now();
        }
    }
    // Only now, because the other side waits for all messages.
    assert_eq!(wrong, 0, "messages that are wrong or out of order");
    assert_eq!(receiver.try_receive(&mut received), Ok(0));
    assert_eq!(sender.wait_consumed(None), Ok(()));
}

/// Ends the tests on an error. A panic would wait for the other side, which waits for messages.
fn or_exit(result: gdrcopy::Result<usize>) -> usize {
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    })
}

#[test]
#[ignore = "channels_under_gdremu runs it"]
fn gpu_kernel_echoes_all_messages_across_the_wrap_around() {
    let count = rounds(2000);
    let gpu = gpu::Cuda::new();
    let kernel = gpu.kernel(include_str!("../../examples/echo.ptx"), "echo");
    for (slots, first) in [(8, u32::MAX - count / 2), (64, 0)] {
        let (mapping, address) = mapped(&Cuda::new(), PAGE);
        let ends = rings::<[u32; 4]>(&mapping, slots, first);
        let parameters = [address, address + BACK as u64, slots.into(), first.into(), count.into()];
        // SAFETY: the kernel's parameters; both rings are mapped until it ends.
        unsafe { gpu.launch(&kernel, 1, &parameters) };
        exchange(ends, count, 1);
        gpu.synchronize();
    }
}

fn header_echoes<const WORDS: usize>(slots: u32, first: u32, count: u32)
where
    [u32; WORDS]: Pod,
{
    type Echo = extern "C" fn(*mut u8, *mut u8, u32, u32, u32, u32, *mut u32);
    let (mapping, _) = mapped(&Cuda::new(), PAGE);
    let ends = rings::<[u32; WORDS]>(&mapping, slots, first);
    thread::scope(|s| {
        s.spawn(|| {
            let start = mapping.as_slice().as_mut_ptr();
            let (back, size) = (start.wrapping_add(BACK), size_of::<[u32; WORDS]>() as u32);
            // SAFETY: the library has no initializers, the function this type. Both rings are mapped.
            unsafe {
                let library = Library::new(device_library()).expect("compiled");
                let echo = library.get::<Echo>("echo").expect("exported");
                echo(start, back, slots, size, first, count, [0; WORDS].as_mut_ptr());
            }
        });
        exchange(ends, count, 1);
    });
}

#[test]
#[ignore = "channels_under_gdremu runs it"]
fn header_echoes_all_messages_across_the_wrap_around() {
    header_echoes::<1>(1, u32::MAX - 5, 10_000);
    header_echoes::<5>(1, 0, 10_000);
    header_echoes::<5>(16, u32::MAX - 50_000, 100_000);
    header_echoes::<29>(128, 12_345, 100_000);
}

#[test]
#[ignore = "channels_under_gdremu runs it"]
fn header_moves_messages_in_place() {
    type DoubleEach = extern "C" fn(*mut u8, *mut u8, u32, u32, u32);
    let (mapping, _) = mapped(&Cuda::new(), PAGE);
    let ends = rings::<[u32; 6]>(&mapping, 32, 0);
    thread::scope(|s| {
        s.spawn(|| {
            let start = mapping.as_slice().as_mut_ptr();
            // SAFETY: the library has no initializers, the function this type. Both rings are mapped.
            unsafe {
                let library = Library::new(device_library()).expect("compiled");
                let double = library.get::<DoubleEach>("double_each").expect("exported");
                double(start, start.wrapping_add(BACK), 32, 24, 10_000);
            }
        });
        exchange(ends, 10_000, 2);
    });
}

#[test]
#[ignore = "channels_under_gdremu runs it"]
fn ring_takes_no_more_memory_than_it_says() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    cuda.write(address, &[0xaa; 1024]);
    let bytes = Ring::<[u32; 3]>::bytes(32);
    assert_eq!(bytes, 64 + 128 + 32 * 12);
    let make = |len| Ring::<[u32; 3]>::new(mapping.slice(64..64 + len).expect("inside"), 32);
    assert_eq!(make(bytes - 1).err(), Some(outside(64 + 128, 32 * 12, bytes - 1)));
    let mut sender = make(bytes).expect("room").into_sender();
    assert_eq!(sender.try_send(&[[u32::MAX; 3]; 33]), Ok(32));
    assert_eq!(sender.try_send(&[[u32::MAX; 3]]), Ok(0));
    let around = cuda.read(address, 1024);
    assert_eq!((&around[..64], &around[64 + bytes..]), (&[0xaa; 64][..], &[0xaa; 384][..]));
    assert!(!around[64 + 192..64 + bytes].contains(&0xaa));

    let unaligned = mapping.slice(2..).expect("inside");
    let refused = Ring::<u32>::new(unaligned, 2).err();
    assert_eq!(refused, Some(Error::UnalignedWord { offset: 0, size: 4 }));
    for slots in [0, 3, 48] {
        let ring = || Ring::<u32>::new(mapping.as_slice(), slots);
        assert!(catch_unwind(AssertUnwindSafe(ring)).is_err());
    }
}

#[test]
#[ignore = "channels_under_gdremu runs it"]
fn consumer_is_looked_at_only_without_room() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    let mut sender = Ring::<u32>::new(mapping.as_slice(), 4).expect("room").into_sender();
    cuda.write(address, &77_u32.to_ne_bytes());
    for message in 0..4 {
        assert_eq!(sender.try_send(&[message]), Ok(1));
    }
    let corrupted = Error::RingCorrupted { position: 4, found: 77 };
    assert_eq!(sender.try_send(&[4]), Err(corrupted.clone()));
    assert_eq!(sender.wait_consumed(None), Err(corrupted.clone()));
    assert!(corrupted.to_string().contains("check that the GPU kernel"), "{corrupted}");
    cuda.write(address, &1_u32.to_ne_bytes());
    assert_eq!(sender.send(&4, passed()), Ok(()));
    assert_eq!(sender.send(&5, passed()), Err(Error::TimedOut));
    assert_eq!(sender.wait_consumed(passed()), Err(Error::TimedOut));
}

#[test]
#[ignore = "channels_under_gdremu runs it"]
fn sequence_word_of_another_ring_is_reported() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    let mut receiver = Ring::<u32>::new(mapping.as_slice(), 4).expect("room").into_receiver();
    let mut message = [0];
    assert_eq!(receiver.receive(&mut message, passed()), Err(Error::TimedOut));
    cuda.write(address + 64, &9_u32.to_ne_bytes());
    let corrupted = Error::RingCorrupted { position: 0, found: 9 };
    assert_eq!(receiver.try_receive(&mut message), Err(corrupted));
    cuda.write(address + 128, &1234_u32.to_ne_bytes());
    cuda.write(address + 64, &1_u32.to_ne_bytes());
    assert_eq!((receiver.receive(&mut message, None), message), (Ok(1), [1234]));
    assert_eq!(cuda.read(address, 4), 1_u32.to_ne_bytes());
}

#[test]
#[ignore = "channels_under_gdremu runs it"]
fn forked_child_is_refused_at_both_ends_of_a_ring() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    let (mut sender, mut receiver) = rings::<u32>(&mapping, 4, 0);
    let child = fork();
    if child == 0 {
        leave_child(are_refused(&[
            sender.try_send(&[1]).err(),
            sender.wait_consumed(None).err(),
            receiver.try_receive(&mut [0]).err(),
            Ring::<u32>::new(mapping.as_slice(), 4).err(),
        ]))
    }
    await_child(child, "the child was served");
    assert_eq!(sender.try_send(&[7]), Ok(1));
    assert_eq!(cuda.read(address + 128, 4), 7_u32.to_ne_bytes());
}
