//! The library against a model of its contract. The tests run themselves again under gdremu, on each profile that
//! matters.

#[path = "../built/mod.rs"]
mod built;
#[path = "../../crates/gdrcopy/examples/cuda/mod.rs"]
mod cuda;
mod model;

use std::process::Command;

/// Runs the model on a profile; pins that it leaves behind are a failure.
fn model_on(profile: &str) {
    let gdremu = built::built("gdremu");
    let list = Command::new(&gdremu).arg("--list-profiles").output();
    let list = String::from_utf8(list.expect("gdremu starts").stdout).expect("text");
    let tests = std::env::current_exe().expect("a path");
    let status = Command::new(gdremu)
        .args(["--profile", profile, "--leak-exit", "9", "--"])
        .arg(&tests)
        .args(["--ignored", "--nocapture", "--test-threads=1", "model::"])
        .env("GDREMU_OPTIONS_OF_TEST", options_of(profile, &list))
        .status()
        .expect("gdremu starts");
    assert!(status.success(), "gdremu --profile {profile}");
}

/// The profile's options in the list that gdremu prints.
fn options_of<'a>(profile: &str, list: &'a str) -> &'a str {
    for line in list.lines() {
        match line.split_once(' ') {
            Some((name, options)) if name == profile => return options,
            None if line == profile => return "",
            _ => {}
        }
    }
    panic!("no profile {profile}")
}

macro_rules! model_on {
    ($($test:ident: $profile:literal;)+) => {
        $(#[test]
        fn $test() {
            model_on($profile);
        })+
    };
}

model_on! {
    model_default: "default";
    model_traditional: "traditional";
    model_defects: "defects";
    model_high_handles: "high-handles";
    model_cached: "cached";
    model_device: "device";
    model_gdrdrv_2_4: "gdrdrv-2.4";
    model_gdrdrv_2_3: "gdrdrv-2.3";
    model_gdrdrv_2_0: "gdrdrv-2.0";
}
