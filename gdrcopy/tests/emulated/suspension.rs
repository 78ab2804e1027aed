//! `suspend` and `resume`, under gdremu.

use gdrcopy::{Error, Gdr, MapFlag, Mapped, PinFlags, resume, suspend};

use crate::cuda::Cuda;
use crate::ownership::{PAGE, pin, pinned};

#[test]
#[ignore = "suspension_under_gdremu runs it"]
fn everything_comes_back_at_the_same_addresses() {
    let cuda = Cuda::new();
    let (whole, whole_address) = pinned(&cuda, 2 * PAGE);
    let (part, part_address) = pinned(&cuda, 2 * PAGE);
    let unmapped = pinned(&cuda, PAGE).0;
    let mappings =
        [whole.map(2 * PAGE, MapFlag::Default).expect("pinned"), part.map(100, MapFlag::Default).expect("pinned")];
    let addresses = mappings.each_ref().map(|mapping| mapping.as_mut_ptr());
    for round in 1..=3 {
        for (mapping, address) in mappings.iter().zip([whole_address, part_address]) {
            mapping.write(90, &[round]).expect("inside");
            assert_eq!(cuda.read(address + 90, 1), [round]);
        }
        assert_eq!((suspend(), suspend()), (Ok(()), Ok(())));
        assert_eq!(whole.info().err(), Some(Error::Suspended));
        assert_eq!(unmapped.map(PAGE, MapFlag::Default).err(), Some(Error::Suspended));
        assert_eq!(Gdr::open().err(), Some(Error::Suspended));
        cuda.write(whole_address, &[round]);
        assert_eq!((resume(), resume()), (Ok(0), Ok(0)));
        assert_eq!(mappings[0].read_vec(0, 1), Ok(vec![round]));
    }
    assert_eq!(mappings.each_ref().map(|mapping| mapping.as_mut_ptr()), addresses);
    unmapped.map(PAGE, MapFlag::Default).expect("pinned again");
}

#[test]
#[ignore = "suspension_under_gdremu runs it"]
fn what_is_dropped_in_between_does_not_come_back() {
    let cuda = Cuda::new();
    let gdr = Gdr::open().expect("an emulated driver");
    let address = cuda.alloc(2 * PAGE).next_multiple_of(PAGE as u64);
    let mapped = pin(&gdr, address, PAGE).expect("GPU memory");
    let mapping = mapped.map(PAGE, MapFlag::Default).expect("pinned");
    assert_eq!(suspend(), Ok(()));
    // SAFETY: nothing is pinned.
    let refused = unsafe { gdr.pin(address, PAGE, PinFlags::DEFAULT) };
    assert_eq!(refused.err(), Some(Error::Suspended));
    drop(mapping);
    assert!(mapped.unpin().is_ok());
    assert_eq!(resume(), Ok(0));
    pin(&gdr, address, PAGE).expect("GPU memory");
}

#[test]
#[ignore = "suspension_under_gdremu runs it"]
fn pin_of_freed_memory_is_lost() {
    let cuda = Cuda::new();
    let memory = cuda.alloc(PAGE);
    let gdr = Gdr::open().expect("an emulated driver");
    let lost = pin(&gdr, memory, PAGE).expect("GPU memory");
    let (kept, address) = pinned(&cuda, PAGE);
    let mapping = kept.map(PAGE, MapFlag::Default).expect("pinned");
    assert_eq!(suspend(), Ok(()));
    cuda.free(memory);
    cuda.write(address, &[7]);
    assert_eq!(resume(), Ok(1));
    assert_eq!(lost.info().err(), Some(Error::NotRestored));
    assert!(lost.unpin().is_ok());
    assert_eq!(mapping.read_vec(0, 1), Ok(vec![7]));
}
