//! On which emulated machines `Gdr::open` succeeds, and with which backend.

use std::env;

use gdrcopy::Gdr;

/// The result of opening, a backend or an errno.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    Gdrdrv,
    DmaBuf,
    Refused(i32),
}

impl Outcome {
    /// As text, for the test under gdremu.
    pub(crate) fn to_code(self) -> String {
        match self {
            Outcome::Gdrdrv => "0".into(),
            Outcome::DmaBuf => "-1".into(),
            Outcome::Refused(errno) => errno.to_string(),
        }
    }
}

/// Options of gdremu, and the result of opening.
pub(crate) const GATES: &[(&str, Outcome)] = &[
    ("--profile gdrdrv-2.0", Outcome::Gdrdrv),
    ("--driver-version 2.99", Outcome::Gdrdrv),
    ("--driver-version 1.9", Outcome::Refused(libc::EPROTONOSUPPORT)),
    ("--min-api-version 2.6", Outcome::Gdrdrv),
    ("--min-api-version 3.0", Outcome::Refused(libc::EPROTONOSUPPORT)),
    ("--fault GET_VERSION:EIO", Outcome::Refused(libc::EIO)),
    ("--fault GET_VERSION:EINTR@1", Outcome::Gdrdrv),
    ("--fault OPEN:EINTR@1", Outcome::Gdrdrv),
    ("--gdrdrv-errno EACCES", Outcome::Refused(libc::EACCES)),
    ("--gdrdrv-errno EMFILE", Outcome::Refused(libc::EMFILE)),
    ("--no-gdrdrv --cuda-version 13.2", Outcome::Refused(libc::ENOENT)),
    ("--profile dmabuf", Outcome::DmaBuf),
    // Opening does not query GPUs, which would take a cuInit.
    ("--profile dmabuf-mixed", Outcome::DmaBuf),
    ("--profile dmabuf-none", Outcome::DmaBuf),
    ("--driver-version 1.9 --cuda-version 13.3", Outcome::DmaBuf),
    ("--gdrdrv-errno EACCES --cuda-version 13.3", Outcome::DmaBuf),
    ("--cuda-version 13.3", Outcome::Gdrdrv),
];

#[test]
#[ignore = "open_succeeds_where_it_should runs it"]
fn opens_as_expected() {
    let outcome = match Gdr::open() {
        Err(error) => Outcome::Refused(error.errno()),
        Ok(gdr) => match gdr.uses_dma_bufs().expect("known") {
            false => Outcome::Gdrdrv,
            true => Outcome::DmaBuf,
        },
    };
    let expected = env::var("OUTCOME_OF_TEST").expect("set by main.rs");
    assert_eq!(outcome.to_code(), expected, "{outcome:?}");
}
