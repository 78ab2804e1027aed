//! tune: the settings it prints, in the syntax of UCX, and its warning on an emulated GPU.

mod common;

use std::process::Command;

use common::{Output, corrupted, gdrcopy, lib, run};

/// Runs tune with the library of this workspace.
fn tune(options: &[&str]) -> Output {
    run(gdrcopy(&[], &["tune", "--budget=1", &lib()]).args(options))
}

/// The number between `before` and `after`.
fn number(text: &str, before: &str, after: &str) -> f64 {
    let rest = text.split_once(before).expect(text).1;
    let number = rest.split_once(after).expect(text).0;
    number.parse().expect(text)
}

#[test]
fn text_is_a_shell_fragment_with_the_settings() {
    let output = tune(&[]).with_status(0);
    let sourced = Command::new("env")
        .args(["-i", "sh", "-euc"])
        .arg(format!("{}\necho \"$UCX_GDR_COPY_BW $UCX_GDR_COPY_LAT $NCCL_GDRCOPY_ENABLE\"", output.stdout))
        .output();
    let sourced = Output::from(sourced.unwrap());
    assert_eq!(sourced.stderr, "");
    let values: Vec<_> = sourced.stdout.split_whitespace().collect();
    let [bandwidth, latency, "1"] = values[..] else {
        panic!("{sourced:?} of {output:?}");
    };
    assert!(number(bandwidth, "get_dedicated:", "MBs,put_shared:") > 0.0);
    assert!(number(bandwidth, ",put_shared:", "MBs") > 0.0);
    assert!(number(latency, "get:", "us,put:") > 0.0);
    assert!(number(latency, ",put:", "us") > 0.0);
}

#[test]
fn plot_has_what_was_measured_and_what_ucx_expects() {
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("tune.svg");
    tune(&["--plot", plot.to_str().unwrap()]).with_status(0);
    let svg = std::fs::read_to_string(plot).unwrap();
    for text in ["measured, Writes", "measured, Reads", "UCX, tuned, Reads", "UCX, default, Writes"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

#[test]
fn json_has_models_settings_and_measurements() {
    let output = tune(&["--format", "json"]);
    let json = output.json();
    let names = ["UCX_GDR_COPY_BW", "UCX_GDR_COPY_LAT", "NCCL_GDRCOPY_ENABLE"];
    for (setting, name) in json["settings"].as_array().unwrap().iter().zip(names) {
        assert_eq!(setting["name"], name);
    }
    let records = json["records"].as_array().unwrap();
    assert_eq!(records.len(), 12);
    for (direction, model, default) in [("write", "put", 400.0), ("read", "get", 1400.0)] {
        let of_direction = records.iter().filter(|row| row["direction"] == direction);
        let of_direction: Vec<_> = of_direction.collect();
        let smallest = of_direction[0]["p50_ns"].as_f64();
        assert_eq!(json[model]["latency_ns"].as_f64(), smallest);
        let largest = of_direction[5];
        let [measured, tuned] = ["p50_ns", "tuned_ns"].map(|time| largest[time].as_f64().unwrap());
        // The model's line ignores the 8 bytes of the smallest copy.
        assert!((tuned / measured - 1.0).abs() < 1e-3, "{largest}");
        assert!(of_direction[0]["default_ns"].as_f64().unwrap() > default);
    }
}

#[test]
fn emulated_gpu_makes_the_numbers_meaningless() {
    let output = tune(&[]);
    for text in [&output.stdout, &output.stderr] {
        assert!(text.contains("emulated"), "{output:?}");
        assert!(text.contains("meaningless"), "{output:?}");
    }
    let output = tune(&["--format=json"]);
    let json = output.json();
    assert_eq!(json["emulated"], true);
}

#[test]
fn wrong_copies_give_no_settings() {
    let output = corrupted("tune", "wrong", &["--budget=1"]).with_status(1);
    assert_eq!(output.stdout, "");
    output.reports(&["gdr_copy_from_mapping of "]);
}

#[test]
fn second_library_is_refused() {
    tune(&[&lib()]).with_status(2).reports(&["at most 1 librar"]);
}
