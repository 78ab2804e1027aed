//! What the machine says of itself. Nothing here is judged; what it does not say is `None`.

pub(super) mod cpus;
pub(super) mod cuda;
pub(super) mod files;
pub(super) mod gdrdrv;
pub(super) mod loader;
pub(super) mod nvml;
pub(super) mod pci;
