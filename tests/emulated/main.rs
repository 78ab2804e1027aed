//! Compares the results of libgdrapi with those of a reference model (model/world.rs), under gdremu.

#[path = "../built/mod.rs"]
mod built;
#[path = "../../crates/gdrcopy/examples/cuda/mod.rs"]
mod cuda;
mod model;

#[path = "../under_gdremu/mod.rs"]
mod under_gdremu;

use under_gdremu::Runner;

/// gdremu's options for each run of the tests. Some results of libgdrapi differ between these profiles.
const PROFILES: &[&str] = &[
    "",
    "--profile traditional",
    "--profile defects",
    "--profile high-handles",
    "--profile cached",
    "--profile device",
    "--profile gdrdrv-2.4",
    "--profile gdrdrv-2.3",
    "--profile gdrdrv-2.0",
];

fn main() {
    let mut runner = Runner::new("model");
    runner.add(model::TESTS, PROFILES);
    runner.run();
}
