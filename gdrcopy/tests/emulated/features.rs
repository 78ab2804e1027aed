//! Results of `features` for emulated machines.

use std::env;
use std::ffi::c_int;

use gdrcopy::Error;
use gdrcopy::features::{Features, Support, features, features_with_cuda};
use libloading::Library;

/// Options of gdremu, and the report before and after CUDA is initialized.
pub(crate) const MACHINES: &[(&str, &str)] = &[
    ("", "2.6 ? 13000<13030 -; 2.6 yes 13000<13030 -"),
    (
        "--profile gdrdrv-2.0 --cuda-version 13.3 --file /sys/module/nvidia_peermem/initstate=Cargo.toml",
        "2.0 ? ? peermem; 2.0 yes yes peermem",
    ),
    ("--profile dmabuf", "2 ? ? -; 2 yes yes -"),
    ("--profile dmabuf-none", "2 ? ? -; 2 yes none of 2 GPUs maps -"),
    ("--profile nv-p2p-dummy --dmabuf no", "19 ? 13000<13030 -; 19 GPU 0 exports not 13000<13030 -"),
    ("--gdrdrv-errno EACCES --cuda-version 11.6", "13 11060<11070 11060<13030 -; 13 11060<11070 11060<13030 -"),
];

fn text(features: Features) -> String {
    let support = |support| match support {
        Support::Yes => "yes".into(),
        Support::Unknown => "?".into(),
        Support::No(Error::CudaTooOld { version, needed }) => format!("{version}<{needed}"),
        Support::No(Error::NoDmaBufExport { gpu }) => format!("GPU {gpu} exports not"),
        Support::No(Error::NoDmaBufGpu { gpus }) => format!("none of {gpus} GPUs maps"),
        other => format!("{other:?}"),
    };
    let gdrdrv = match features.gdrdrv {
        Ok(version) => version.to_string(),
        Err(error) => error.errno().to_string(),
    };
    let (export, mapping) = (support(features.dma_buf_export), support(features.dma_buf_mapping));
    let peermem = match features.nvidia_peermem {
        true => "peermem",
        false => "-",
    };
    format!("{gdrdrv} {export} {mapping} {peermem}")
}

#[test]
#[ignore = "features_are_those_of_the_machine runs it"]
fn report_is_as_expected() {
    let before = text(features());
    // SAFETY: loading a CUDA driver has no preconditions.
    let cuda = unsafe { Library::new("libcuda.so.1") }.expect("a CUDA driver");
    // SAFETY: the signature is that of the CUDA driver API; the output is a local variable.
    let result = unsafe {
        let count = cuda.get::<extern "C" fn(*mut c_int) -> c_int>("cuDeviceGetCount");
        count.expect("known")(&mut 0)
    };
    assert_eq!(result, 3, "CUDA must not be initialized");
    let after = text(features_with_cuda());
    assert_eq!(after, text(features()));
    let expected = env::var("OUTCOME_OF_TEST").expect("set by main.rs");
    assert_eq!(format!("{before}; {after}"), expected);
}
