//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use gdremu_core::config::{Config, DriverConfig, GpuConfig, Platform, ProviderKind};

use crate::files::StandIn;
use crate::profiles;

/// Runs a program with an emulated /dev/gdrdrv and emulated CUDA GPUs
///
/// Needs no GPU, no kernel module and no privileges. The program is linked dynamically and finds gdremu's libcuda,
/// libcudart and libnvidia-ml; those that it starts do, too. GPU memory is host memory: times are meaningless.
#[derive(Debug, Parser)]
#[command(version, args_override_self = true, after_long_help = AFTER_HELP)]
pub struct Options {
    /// Start from the options of a profile; options on the command line override them
    #[arg(long, value_name = "NAME", value_parser = profiles::known)]
    profile: Option<String>,

    /// Print each profile's name and options
    #[arg(long, exclusive = true)]
    pub list_profiles: bool,

    /// Exit with N if a process ended with pins
    #[arg(long, value_name = "N")]
    pub leak_exit: Option<u8>,

    /// Show the program a copy of FILE at PATH, which is below /proc or /sys; may be repeated
    #[arg(long = "file", value_name = "PATH=FILE")]
    pub files: Vec<StandIn>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,

    /// What the program needs to know.
    #[command(flatten)]
    pub config: Config,
}

/// Paragraphs of this form become sections of the man page.
const AFTER_HELP: &str = "\
Examples:
  gdremu -- program argument
  gdremu --profile gdrdrv-2.4 -- program
  gdremu --fault MMAP:EAGAIN@1 --trace calls.json -- program

Exit status: the program's, or its signal; 124 if it exited with 0 but a GPU kernel of it was not run; N of \
--leak-exit N if a process ended with pins; 125 if gdremu failed, 126 if the program cannot be run, 127 if it was \
not found.";

impl Options {
    /// Reads a command line, with the options of its profile in front of its own.
    ///
    /// # Errors
    /// A text that names the mistake, or the text of `--help` or `--version`.
    pub fn read(line: impl IntoIterator<Item = OsString>) -> Result<Options, clap::Error> {
        let line: Vec<_> = line.into_iter().collect();
        let options = Options::try_parse_from(&line)?;
        let Some(profile) = &options.profile else {
            return Ok(options);
        };
        let (name, given) = line.split_at(1);
        let profile = profiles::options(profile);
        Options::try_parse_from(name.iter().chain(&profile).chain(given))
    }

    /// The configuration that the options describe, for a session.
    ///
    /// # Errors
    /// A text that names the invalid option.
    pub fn checked_config(&self, session: PathBuf) -> Result<Config, String> {
        let mut config = Config { session, ..self.config.clone() };
        if let Some(trace) = &mut config.trace {
            // The program may change its working directory before it first uses the device.
            let absolute = std::path::absolute(&*trace);
            *trace = absolute.map_err(|error| format!("--trace: {error}"))?;
        }
        config.gpu.coherent |= config.driver.platform == Platform::Cached;
        if config.driver.persistent_before_2_5 && !config.driver.can_persist() {
            return Err("--persistent needs --driver-version 2.4.1 or later".into());
        }
        check_emulated(&config)?;
        self.check_kernel(&config)?;
        check_lists(&config.gpu)?;
        Ok(config)
    }

    /// Refuses options that describe an emulated gdrdrv or PCI device if the kernel has real ones.
    fn check_kernel(&self, config: &Config) -> Result<(), String> {
        let (gpu, emulated) = (&config.gpu, GpuConfig::default());
        let meaningless = [
            ("--trace", config.trace.is_some()),
            ("--leak-exit", self.leak_exit.is_some()),
            ("--gpus", gpu.gpus != emulated.gpus),
            ("--coherent", gpu.coherent != emulated.coherent),
            ("--rdma", gpu.rdma != emulated.rdma),
            ("--bar1-size", gpu.bar1_size != emulated.bar1_size),
        ];
        if gpu.provider != ProviderKind::Emugpu {
            return Ok(());
        }
        if config.driver != DriverConfig::default() {
            return Err(
                "--provider emugpu uses the kernel's gdrdrv: set its module parameters instead"
                    .into(),
            );
        }
        match meaningless.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(format!(
                "{option} has no effect with --provider emugpu, which uses the kernel's gdrdrv and GPU: remove it"
            )),
            None => Ok(()),
        }
    }
}

/// Refuses options that describe emulated GPUs if the GPUs are real.
fn check_emulated(config: &Config) -> Result<(), String> {
    let (gpu, emulated) = (&config.gpu, GpuConfig::default());
    let meaningless = [
        ("--platform", config.driver.platform != Platform::Wc),
        ("--gpus", gpu.gpus != emulated.gpus),
        ("--pci-device", gpu.pci_device != emulated.pci_device),
        ("--cuda-version", gpu.cuda_version != emulated.cuda_version),
        ("--no-mempools", gpu.mempools != emulated.mempools),
        ("--coherent", gpu.coherent != emulated.coherent),
        ("--rdma", gpu.rdma != emulated.rdma),
        ("--bar1-size", gpu.bar1_size != emulated.bar1_size),
        ("--dmabuf", gpu.dmabuf != emulated.dmabuf),
        ("--log-missing", config.log_missing),
    ];
    match meaningless.iter().find(|(_, given)| *given) {
        Some((option, _)) if gpu.provider == ProviderKind::Nvidia => {
            Err(format!("{option} only applies to emulated GPUs: remove it or --provider nvidia"))
        }
        _ => Ok(()),
    }
}

/// Refuses lists with more values than GPUs.
fn check_lists(gpu: &GpuConfig) -> Result<(), String> {
    let lists = [
        ("--rdma", gpu.rdma.count()),
        ("--bar1-size", gpu.bar1_size.count()),
        ("--dmabuf", gpu.dmabuf.count()),
    ];
    let longest = (gpu.gpus as usize).max(1);
    match lists.iter().find(|(_, values)| *values > longest) {
        Some((option, values)) => Err(format!(
            "{option} has {values} values for {longest} GPUs: give fewer values or raise --gpus"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(arguments: &[&str]) -> Config {
        let all = ["gdremu"].iter().chain(arguments).chain(&["--", "true"]);
        Options::read(all.map(OsString::from)).unwrap().checked_config("/s".into()).unwrap()
    }

    #[test]
    fn no_options_give_the_default_config() {
        assert_eq!(config(&[]), Config { session: "/s".into(), ..Config::default() });
    }

    #[test]
    fn profile_is_a_set_of_options() {
        assert_eq!(config(&["--profile", "default"]), config(&[]));
        assert_eq!(
            config(&["--profile=defects"]),
            config(&["--module-defects", "--handle-base", "0x100000000"])
        );
        assert_eq!(
            config(&["--profile", "dmabuf-3gpus"]),
            config(&["--no-gdrdrv", "--cuda-version", "13.3", "--gpus", "3"])
        );
    }

    #[test]
    fn every_profile_is_valid_and_differs_from_the_others() {
        let configs = profiles::names().into_iter().map(|name| {
            let config = config(&["--profile", &name]);
            (name, config)
        });
        let configs: Vec<_> = configs.collect();
        assert_eq!(configs.len(), profiles::list().lines().count());
        for (at, (name, config)) in configs.iter().enumerate() {
            let same = configs[..at].iter().find(|(_, other)| other == config);
            assert_eq!(same.map(|(other, _)| other), None, "{name}");
        }
    }

    #[test]
    fn options_override_those_of_the_profile() {
        for line in [
            ["--profile", "dmabuf-3gpus", "--gpus", "2"],
            ["--gpus", "2", "--profile", "dmabuf-3gpus"],
        ] {
            let config = config(&line);
            assert_eq!(config.gpu.gpus, 2);
            assert!(!config.driver.loaded);
        }
    }

    #[test]
    fn unknown_profile_is_refused_with_a_list_of_names() {
        let line = ["gdremu", "--profile", "toaster", "true"];
        let refused = Options::read(line.map(OsString::from)).unwrap_err().to_string();
        assert!(refused.contains("gdrdrv-2.4"), "{refused}");
    }

    #[test]
    fn list_profiles_needs_no_program() {
        let line = ["gdremu", "--list-profiles"];
        assert!(Options::read(line.map(OsString::from)).unwrap().list_profiles);
        let defects = "defects              --module-defects --handle-base 0x100000000";
        assert!(profiles::list().lines().any(|line| line == defects));
    }

    #[test]
    fn pins_can_persist_since_2_4_1() {
        let driver = |line: &[&str]| config(line).driver;
        assert!(driver(&[]).persistent());
        assert!(driver(&["--persistent"]).persistent());
        assert!(!driver(&["--driver-version", "2.4.4"]).persistent());
        assert!(driver(&["--driver-version", "2.4.1", "--persistent"]).persistent());
        let line = ["gdremu", "--driver-version", "2.4", "--persistent", "true"];
        let options = Options::try_parse_from(line).unwrap();
        let refused = options.checked_config("/s".into()).unwrap_err();
        assert!(refused.contains("2.4.1"), "{refused}");
    }

    #[test]
    fn cached_platform_is_coherent() {
        assert!(config(&["--platform", "cached"]).gpu.coherent);
        assert!(!config(&["--platform", "device"]).gpu.coherent);
    }

    #[test]
    fn lists_set_each_gpu_and_the_last_value_repeats() {
        let gpu = config(&["--gpus", "3", "--dmabuf", "mmap,no", "--bar1-size", "1G,2M,4K"]).gpu;
        assert_eq!([0, 1, 2].map(|i| gpu.maps_dmabufs(i)), [true, false, false]);
        assert_eq!([0, 1, 2].map(|i| *gpu.bar1_size.of(i)), [1 << 30, 2 << 20, 4 << 10]);
        let all = ["gdremu", "--gpus", "2", "--rdma", "no,yes,no", "--", "true"];
        let options = Options::try_parse_from(all).unwrap();
        let refused = options.checked_config("/s".into()).unwrap_err();
        assert!(refused.starts_with("--rdma has 3 values for 2 GPUs"), "{refused}");
    }

    #[test]
    fn nvidia_provider_refuses_options_of_emulated_gpus() {
        let refused = |option: &[&str]| {
            let all = ["gdremu", "--provider", "nvidia"];
            let all = all.iter().chain(option).chain(&["--", "true"]);
            let options = Options::try_parse_from(all).unwrap();
            options.checked_config("/s".into()).err()
        };
        assert_eq!(refused(&["--traditional"]), None);
        for option in [
            &["--gpus", "2"] as &[&str],
            &["--pci-device", "0x20b5"],
            &["--cuda-version", "13.3"],
            &["--no-mempools"],
            &["--coherent"],
            &["--rdma", "no"],
            &["--bar1-size", "1G"],
            &["--dmabuf", "no"],
            &["--platform", "device"],
            &["--log-missing"],
        ] {
            assert!(refused(option).unwrap().starts_with(option[0]));
        }
        let cached = refused(&["--platform", "cached"]).unwrap();
        assert!(cached.starts_with("--platform"), "{cached}");
    }

    #[test]
    fn emugpu_provider_refuses_options_of_emulated_gdrdrv() {
        let refused = |option: &[&str]| {
            let all = ["gdremu", "--provider", "emugpu"];
            let all = all.iter().chain(option).chain(&["--", "true"]);
            let options = Options::try_parse_from(all).unwrap();
            options.checked_config("/s".into()).err()
        };
        assert_eq!(refused(&["--cuda-version", "13.3"]), None);
        for option in [
            &["--gpus", "2"] as &[&str],
            &["--leak-exit", "1"],
            &["--trace", "calls.json"],
            &["--bar1-size", "1G"],
        ] {
            assert!(refused(option).unwrap().starts_with(option[0]));
        }
        for option in [&["--traditional"] as &[&str], &["--handle-base", "1"]] {
            assert!(refused(option).unwrap().contains("module parameters"));
        }
    }

    #[test]
    fn options_after_the_program_are_passed_to_it() {
        let options = Options::try_parse_from(["gdremu", "prog", "--gpus", "x"]).unwrap();
        assert_eq!(options.program, ["prog", "--gpus", "x"]);
    }

    #[test]
    fn invalid_values_are_refused() {
        for wrong in [&["--gdrdrv-errno", "EWHAT"], &["--fault", "MMAP"], &["--platform", "wet"]] {
            let all = ["gdremu"].iter().chain(wrong).chain(&["--", "true"]);
            assert!(Options::try_parse_from(all).is_err(), "{wrong:?}");
        }
    }
}
