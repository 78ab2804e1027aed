//! Tests, under gdremu, the ownership of connections, pins and mappings.

use std::collections::BTreeSet;

use crate::cuda::Cuda;
use crate::under_gdremu::{Test, tests};
use gdrcopy::{Error, Gdr, GdrError, MapFlag, Mapped, MappingType, Pin, PinFlags, Version};
use gdrcopy_core::error::out_of_pin;

pub(crate) const TESTS: &[Test] = tests![
    connection_dropped_in_a_child_closes_the_childs_descriptor_only,
    map_has_the_pinned_bytes_only,
    second_map_is_refused_until_unmapped,
    unpin_waits_for_the_mapping,
    driver_answers_and_refusals_are_reported,
    forked_child_owns_nothing,
];

pub(crate) const PAGE: usize = 1 << 16;

pub(crate) fn pin(gdr: &Gdr, address: u64, len: usize) -> gdrcopy::Result<Pin> {
    // SAFETY: only these tests use the emulated GPU memory, and they never free it.
    unsafe { gdr.pin(address, len, PinFlags::DEFAULT) }
}

pub(crate) fn pinned(cuda: &Cuda, size: usize) -> Pin {
    // One page more is allocated, so that the memory contains `size` bytes from a page boundary on.
    let address = cuda.alloc(size + PAGE).next_multiple_of(PAGE as u64);
    let gdr = Gdr::open().expect("an emulated driver");
    pin(&gdr, address, size).expect("GPU memory")
}

/// Forks the process. The child calls only functions of this crate, and ends by `leave_child`.
pub(crate) fn fork() -> libc::pid_t {
    // SAFETY: tests run one at a time, so no other thread holds a lock that the child needs.
    unsafe { libc::fork() }
}

/// Returns whether each of these calls was refused because it was made in a child.
pub(crate) fn are_refused(errors: &[Option<Error>]) -> bool {
    errors.iter().all(|error| *error == Some(GdrError::ForkedChild.into()))
}

pub(crate) fn leave_child(passed: bool) -> ! {
    // SAFETY: ends the child at once.
    unsafe { libc::_exit(i32::from(!passed)) }
}

/// Waits for a child that ends by `leave_child`.
pub(crate) fn await_child(child: libc::pid_t, failure: &str) {
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "{failure}");
}

/// Returns the open descriptors of this process, including the one that reads the list of them.
fn open_descriptors() -> BTreeSet<i32> {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux has it");
    let names = open.map(|entry| entry.expect("Linux has it").file_name());
    names.map(|name| name.to_str().expect("a number").parse().expect("a number")).collect()
}

fn connection_dropped_in_a_child_closes_the_childs_descriptor_only() {
    let [first, second] = [(); 2].map(|()| Gdr::open().expect("an emulated driver"));
    // SAFETY: duplicates an open descriptor.
    let number = unsafe { libc::dup(0) };
    // SAFETY: closes the descriptor that was just opened.
    unsafe { libc::close(number) };
    let third = Gdr::open().expect("an emulated driver");
    assert!(open_descriptors().contains(&number), "the lowest free one");
    let child = fork();
    if child == 0 {
        let before = open_descriptors();
        // SAFETY: the child owns its copies of all descriptors.
        unsafe { libc::close(number) };
        let own = Gdr::open().expect("an emulated driver");
        let is_reused = open_descriptors() == before;
        drop(third);
        let works = own.is_persistent() == Ok(true);
        drop(first);
        let dropped = open_descriptors().len() == before.len() - 1;
        let closed = second.close() == Ok(()) && open_descriptors().len() == before.len() - 2;
        leave_child(is_reused && works && dropped && closed)
    }
    await_child(child, "the child closed too few descriptors, or too many");
    for gdr in [first, second, third] {
        let answer = gdr.is_persistent();
        assert_eq!(answer, Ok(true), "the parent's connection is as it was");
    }
}

/// The driver maps whole pages, which may contain other memory than the pinned bytes. Calls must not reach that memory.
fn map_has_the_pinned_bytes_only() {
    let cuda = Cuda::new();
    let address = cuda.alloc(2 * PAGE).next_multiple_of(PAGE as u64) + 16;
    let pin = pin(&Gdr::open().expect("a driver"), address, 100).expect("GPU memory");
    for len in [101, 4096, PAGE, usize::MAX] {
        let refused = pin.map(len, MapFlag::Default).err();
        assert_eq!(refused, Some(out_of_pin(len, 100).into()));
    }
    let mapping = pin.map(100, MapFlag::Default).expect("pinned bytes");
    assert!(mapping.write(100, &[1]).is_err());
    assert_eq!(cuda.read(address + 100, 1), [0]);
    mapping.write(0, b"first").expect("inside");
    assert_eq!(cuda.read(address, 5), b"first");
}

fn second_map_is_refused_until_unmapped() {
    let pin = pinned(&Cuda::new(), PAGE);
    let first = pin.map(PAGE, MapFlag::Default).expect("the first");
    assert_eq!(pin.map(PAGE, MapFlag::Default).err(), Some(GdrError::AlreadyMapped.into()));
    assert_eq!(pin.info().expect("an answer").mapping_type, Some(MappingType::WriteCombining));
    first.unmap().expect("nothing against it");
    assert_eq!(pin.info().expect("an answer").mapping_type, None);
    assert_eq!(pin.map(0, MapFlag::Default).err(), Some(GdrError::EmptyRange.into()));
    let too_long = pin.map(2 * PAGE, MapFlag::Default).expect_err("only one page is pinned");
    assert_eq!(too_long.errno(), libc::EINVAL);
    pin.map(PAGE, MapFlag::WriteCombining).expect("failures leave nothing behind");
}

fn unpin_waits_for_the_mapping() {
    let pin = pinned(&Cuda::new(), PAGE);
    let mapping = pin.map(PAGE, MapFlag::Default).expect("an aligned pin");
    pin.unpin().expect("nothing against it");
    mapping.write(0, b"alive").expect("inside");
    let mut seen = [0; 5];
    mapping.read(0, &mut seen).expect("inside");
    assert_eq!(&seen, b"alive");
}

fn driver_answers_and_refusals_are_reported() {
    let gdr = Gdr::open().expect("an emulated driver");
    assert_eq!(gdr.driver_version(), Ok(Version::new(2, 6)));
    assert_eq!(gdr.uses_dma_bufs(), Ok(false));
    assert_eq!(gdr.is_persistent(), Ok(true));
    assert_eq!(pin(&gdr, 0, PAGE).err(), Some(GdrError::EmptyRange.into()));
    assert_eq!(pin(&gdr, 1, usize::MAX).err(), Some(GdrError::RangeOverflow.into()));
    let refused = pin(&gdr, 0x1000, PAGE).expect_err("no GPU memory");
    assert_eq!(refused.errno(), libc::EINVAL);
    gdr.close().expect("nothing against it");
}

fn forked_child_owns_nothing() {
    let pin = pinned(&Cuda::new(), PAGE);
    let mapping = pin.map(PAGE, MapFlag::Default).expect("an aligned pin");
    mapping.write(0, b"parent").expect("inside");
    let child = fork();
    if child == 0 {
        let refused = are_refused(&[
            mapping.write(0, b"child").err(),
            mapping.read(0, &mut [0; 4]).err(),
            pin.info().err(),
            pin.is_revoked().err(),
            mapping.unmap().err().map(|(_, error)| error),
        ]);
        drop(pin);
        let opens = Gdr::open().is_ok();
        leave_child(refused && opens)
    }
    await_child(child, "the child was served, or could not open a driver of its own");
    let mut back = [0; 6];
    mapping.read(0, &mut back).expect("the parent's mapping is as it was");
    assert_eq!(&back, b"parent");
}
