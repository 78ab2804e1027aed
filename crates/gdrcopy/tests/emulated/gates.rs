//! Tests which backend `Gdr::open` uses, or which error it returns, for different options of gdremu.

use crate::under_gdremu::{Test, options, tests};
use gdrcopy::Gdr;

pub(crate) const TESTS: &[Test] = tests![opens_as_expected,];

/// The options of gdremu for each run, with the backend that `Gdr::open` must open, or the errno of its error.
pub(crate) const GATES: &[(&str, Result<&str, i32>)] = &[
    ("--profile gdrdrv-2.0", Ok("gdrdrv")),
    ("--driver-version 2.99", Ok("gdrdrv")),
    ("--driver-version 1.9", Err(libc::EPROTONOSUPPORT)),
    ("--min-api-version 2.6", Ok("gdrdrv")),
    ("--min-api-version 3.0", Err(libc::EPROTONOSUPPORT)),
    ("--fault GET_VERSION:EIO", Err(libc::EIO)),
    ("--fault GET_VERSION:EINTR@1", Ok("gdrdrv")),
    ("--fault OPEN:EINTR@1", Ok("gdrdrv")),
    ("--gdrdrv-errno EACCES", Err(libc::EACCES)),
    ("--gdrdrv-errno EMFILE", Err(libc::EMFILE)),
    ("--no-gdrdrv --cuda-version 13.2", Err(libc::ENOENT)),
    ("--profile dmabuf", Ok("dma-bufs")),
    // Some or all GPUs of these two profiles cannot map dma-bufs. CUDA is not initialized, so opening cannot check.
    ("--profile dmabuf-mixed", Ok("dma-bufs")),
    ("--profile dmabuf-none", Ok("dma-bufs")),
    ("--driver-version 1.9 --cuda-version 13.3", Ok("dma-bufs")),
    ("--gdrdrv-errno EACCES --cuda-version 13.3", Ok("dma-bufs")),
    // With these errors of opening gdrdrv, the driver may be there and work later, so dma-bufs must not replace it.
    ("--gdrdrv-errno EMFILE --cuda-version 13.3", Err(libc::EMFILE)),
    ("--gdrdrv-errno ENFILE --cuda-version 13.3", Err(libc::ENFILE)),
    ("--gdrdrv-errno ENOMEM --cuda-version 13.3", Err(libc::ENOMEM)),
    ("--fault OPEN:EINTR --cuda-version 13.3", Err(libc::EINTR)),
    ("--cuda-version 13.3", Ok("gdrdrv")),
];

fn opens_as_expected() {
    let outcome = match Gdr::open() {
        Err(error) => Err(error.errno()),
        Ok(gdr) if gdr.uses_dma_bufs().expect("known") => Ok("dma-bufs"),
        Ok(_) => Ok("gdrdrv"),
    };
    let options = options();
    let gate = GATES.iter().find(|(gate, _)| *gate == options);
    assert_eq!(outcome, gate.expect("options of a gate").1);
}
