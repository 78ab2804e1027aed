//! Which machines `Gdr::open` accepts, and by which backend.

use std::env;

use gdrcopy::{Attribute, Gdr};

/// What opening must come to: a backend, or an errno.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    Gdrdrv,
    DmaBuf,
    Refused(i32),
}

impl Outcome {
    /// As text, from the test that starts gdremu to the one under it.
    pub(crate) fn to_code(self) -> String {
        match self {
            Outcome::Gdrdrv => "0".into(),
            Outcome::DmaBuf => "-1".into(),
            Outcome::Refused(errno) => errno.to_string(),
        }
    }
}

/// Options of gdremu, and what opening then comes to.
pub(crate) const MACHINES: &[(&str, Outcome)] = &[
    ("--driver-version 2.0", Outcome::Gdrdrv),
    ("--driver-version 2.99", Outcome::Gdrdrv),
    (
        "--driver-version 1.9",
        Outcome::Refused(libc::EPROTONOSUPPORT),
    ),
    ("--min-api-version 2.6", Outcome::Gdrdrv),
    (
        "--min-api-version 3.0",
        Outcome::Refused(libc::EPROTONOSUPPORT),
    ),
    ("--fault GET_VERSION:EIO", Outcome::Refused(libc::EIO)),
    ("--fault GET_VERSION:EINTR@1", Outcome::Gdrdrv),
    ("--fault OPEN:EINTR@1", Outcome::Gdrdrv),
    ("--gdrdrv-errno EACCES", Outcome::Refused(libc::EACCES)),
    ("--gdrdrv-errno EMFILE", Outcome::Refused(libc::EMFILE)),
    (
        "--no-gdrdrv --cuda-version 13.2",
        Outcome::Refused(libc::ENOENT),
    ),
    ("--no-gdrdrv --cuda-version 13.3", Outcome::DmaBuf),
    // Opening asks no GPU, which would take a cuInit: what each can do, its pins tell.
    (
        "--no-gdrdrv --cuda-version 13.5 --gpus 2 --dmabuf no,mmap",
        Outcome::DmaBuf,
    ),
    (
        "--no-gdrdrv --cuda-version 13.5 --dmabuf no",
        Outcome::DmaBuf,
    ),
    ("--driver-version 1.9 --cuda-version 13.3", Outcome::DmaBuf),
    ("--gdrdrv-errno EACCES --cuda-version 13.3", Outcome::DmaBuf),
    ("--cuda-version 13.3", Outcome::Gdrdrv),
];

#[test]
#[ignore = "gates runs it, on each machine"]
fn opens_as_expected() {
    let outcome = match Gdr::open() {
        Err(error) => Outcome::Refused(error.errno()),
        Ok(gdr) => match gdr.attribute(Attribute::UsingDmaBufMmap).expect("known") {
            0 => Outcome::Gdrdrv,
            _ => Outcome::DmaBuf,
        },
    };
    let expected = env::var("OUTCOME_OF_TEST").expect("set by `gates`");
    assert_eq!(outcome.to_code(), expected, "{outcome:?}");
}
