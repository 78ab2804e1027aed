//! Tests, under gdremu, that a forked child cannot access mapped memory, and that the error for a missing device file
//! mentions the device path.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gdrcopy::{Gdr, GdrOptions, MapFlag, Mapped, Mapping, Words};

use crate::cuda::Cuda;
use crate::ownership::{PAGE, are_refused, await_child, fork, leave_child, pinned};
use crate::under_gdremu::{Test, tests};

pub(crate) const TESTS: &[Test] =
    tests![forked_child_is_refused_at_every_access, device_path_that_does_not_exist_is_named_in_the_error];

pub(crate) fn mapped(cuda: &Cuda, len: usize) -> Mapping {
    pinned(cuda, len).map(len, MapFlag::Default).expect("an aligned pin")
}

fn forked_child_is_refused_at_every_access() {
    let mapping = mapped(&Cuda::new(), PAGE);
    let slice = mapping.as_slice();
    let word = mapping.word::<u32>(0).expect("aligned");
    let words: Words<'_, u32> = [word].into_iter().collect();
    let array = mapping.array::<u32>(0, 1).expect("inside");
    let mut batch = mapping.batch().expect("this process");
    let child = fork();
    if child == 0 {
        let refused = are_refused(&[
            slice.write(0, &[1]).err(),
            slice.read(0, &mut [1]).err(),
            slice.read_many(&mut [(0, &mut [1])]).err(),
            slice.write_many(&[(0, &[1])]).err(),
            slice.flush().err(),
            slice.batch().err(),
            batch.write(0, &[1]).err(),
            slice.fill(1).err(),
            slice.read_vec(0, 1).err(),
            array.gather(&[0], &mut [1]).err(),
            array.scatter(&[0], &[1]).err(),
        ]);
        std::panic::set_hook(Box::new(|_| {}));
        let panics = [
            catch_unwind(|| word.store(1)).is_err(),
            catch_unwind(|| word.load() == 0).is_err(),
            catch_unwind(|| words.load_all(&mut [0])).is_err(),
            catch_unwind(AssertUnwindSafe(|| batch.store(word, 1))).is_err(),
        ];
        leave_child(refused && panics == [true; 4])
    }
    await_child(child, "the child was served");
    assert_eq!(word.load(), 0);
}

fn device_path_that_does_not_exist_is_named_in_the_error() {
    let options: GdrOptions = Gdr::options().backend(gdrcopy::Backend::Gdrdrv);
    let error = options.device_path("/dev/no-such-gdrdrv").open().expect_err("no such file");
    assert_eq!(error.errno(), libc::ENOENT);
    let io = std::io::Error::from(error);
    assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
    assert!(io.to_string().contains("device path"), "{io}");
}
