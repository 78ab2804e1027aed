//! Profiles: sets of options, each with a name. Options on the command line override those of a profile.
#![forbid(unsafe_code)]

use std::ffi::OsString;

#[rustfmt::skip] // Keeps one profile per line of text.
const PROFILES: &[(&str, &str)] = &[
    ("default", ""), // gdrdrv 2.6, persistent write-combining mappings, one GPU
    ("traditional", "--traditional"), // pins end when their memory is freed
    // This profile has the defects of NVIDIA's gdrdrv. The handles of its pins have more than 32 bits.
    ("defects", "--module-defects --handle-base 0x100000000"),
    ("high-handles", "--handle-base 0x123456789"), // the handles of pins have more than 32 bits

    // ---- Mapping types ----
    ("cached", "--platform cached"), // a coherent platform, such as Grace Hopper
    ("cached-traditional", "--platform cached --traditional"),
    ("no-force-pcie", "--platform cached --force-pcie no"), // a coherent platform whose gdrdrv refuses FORCE_PCIE
    ("device", "--platform device"),

    // ---- Versions of gdrdrv ----
    ("gdrdrv-2.5", "--driver-version 2.5"),
    ("gdrdrv-2.4.4", "--driver-version 2.4.4"), // rounds pins out to GPU pages, as all releases since 2.4.2 do
    ("gdrdrv-2.4", "--driver-version 2.4"), // does not round pins out
    ("gdrdrv-2.3", "--driver-version 2.3 --cuda-version 12.4"), // CUDA 12.4's GPU driver pins parts of GPU pages
    ("gdrdrv-2.0", "--driver-version 2.0"),

    // ---- Without a usable gdrdrv ----
    ("dmabuf", "--no-gdrdrv --cuda-version 13.3"), // CUDA 13.3 is the first whose dma-bufs can be mapped
    ("dmabuf-3gpus", "--no-gdrdrv --cuda-version 13.3 --gpus 3"),
    ("dmabuf-coherent", "--no-gdrdrv --cuda-version 13.3 --coherent"),
    // Two of the four GPUs have no dma-bufs that the CPU can map.
    ("dmabuf-mixed", "--no-gdrdrv --cuda-version 13.5 --gpus 4 --dmabuf no,mmap,export,mmap"),
    // Here no GPU has dma-bufs that the CPU can map. CUDA 13.5 reports this as a device attribute.
    ("dmabuf-none", "--no-gdrdrv --cuda-version 13.5 --gpus 2 --dmabuf no,export"),
    // Here no GPU has dma-bufs that the CPU can map, but CUDA 13.3 has no device attribute that reports this.
    ("dmabuf-export", "--no-gdrdrv --cuda-version 13.3 --dmabuf export"),
    ("dmabuf-no", "--no-gdrdrv --cuda-version 13.3 --dmabuf no"), // the GPU cannot export dma-bufs
    ("dmabuf-no-gpu", "--no-gdrdrv --cuda-version 13.3 --gpus 0"),
    ("nv-p2p-dummy", "--nv-p2p-dummy"), // gdrdrv is bound to nv-p2p-dummy and cannot pin
    ("nv-p2p-dummy-dmabuf", "--nv-p2p-dummy --cuda-version 13.3"),

    // ---- GPUs ----
    ("two-gpus", "--gpus 2"),
];

/// Returns the names of all profiles.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|(name, _)| *name)
}

/// Returns the options of a profile, as the command line takes them.
pub fn options(name: &str) -> Vec<OsString> {
    let profile = PROFILES.iter().find(|(profile, _)| *profile == name);
    let (_, options) = profile.expect("one of `names`");
    options.split_whitespace().map(OsString::from).collect()
}

/// Returns a line of text for each profile, with its name and options.
pub fn list() -> String {
    let mut list = String::new();
    for (name, options) in PROFILES {
        list += format!("{name:<20} {options}").trim_end();
        list.push('\n');
    }
    list
}
