//! The options of the gdremu command.
#![forbid(unsafe_code)]

use std::ffi::OsString;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use gdremu_core::config::{Config, GpuConfig, Platform, ProviderKind};
use gdremu_core::session::Session;

use crate::files::StandIn;
use crate::profiles;

/// Runs a program with an emulated /dev/gdrdrv and emulated CUDA GPUs
///
/// Needs no GPU, no kernel module and no privileges. The program is linked dynamically and finds gdremu's libcuda,
/// libcudart and libnvidia-ml; so do those that it starts. GPU memory is host memory, so times are meaningless.
#[derive(Debug, Parser)]
#[command(version, args_override_self = true, after_long_help = AFTER_HELP)]
pub struct Options {
    /// Start from the options of a profile; options on the command line override them
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    #[arg(value_parser = PossibleValuesParser::new(profiles::names()))]
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

    /// The options that gdremu's libraries need in the program's process.
    #[command(flatten)]
    pub config: Config,
}

/// The text after the help. Paragraphs of the form `Title: text` become sections of the man page.
const AFTER_HELP: &str = "\
Examples:
  gdremu -- program argument
  gdremu --profile gdrdrv-2.4 -- program
  gdremu --fault MMAP:EAGAIN@1 --trace calls.json -- program

Exit status: the program's, or its signal; 70 if it or a child launched a GPU kernel that gdremu does not run; N of \
--leak-exit N if a process ended with pins; 125 if gdremu failed, 126 if the program cannot be run, 127 if it was \
not found.";

impl Options {
    /// Reads a command line. If it names a profile, the profile's options come first, and the others override them.
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

    /// Returns the configuration that the options describe. Fails if options contradict each other. The session is the
    /// directory that all processes under this gdremu share.
    pub fn checked_config(&self, session: Session) -> Result<Config, String> {
        let mut config = Config { session, ..self.config.clone() };
        if let Some(trace) = &mut config.trace {
            // The path is made absolute, because each driver call opens the file again, and the program may change its
            // working directory in between.
            let absolute = std::path::absolute(&*trace);
            *trace = absolute.map_err(|error| format!("--trace: {error}"))?;
        }
        config.gpu.coherent |= config.driver.platform == Platform::Cached;
        self.check_provider(&config)?;
        check_lists(&config.gpu)?;
        Ok(config)
    }

    /// Refuses options without effect for this `--provider`, such as options of emulated GPUs if the GPUs are real.
    fn check_provider(&self, config: &Config) -> Result<(), &'static str> {
        let GpuConfig { provider, .. } = config.gpu;
        let mut default = Options::parse_from(["gdremu", "true"]).config;
        default.gpu.provider = provider;
        match provider {
            ProviderKind::Host => {}
            ProviderKind::Nvidia => {
                if config.gpu != default.gpu || config.driver.platform != Platform::Wc || config.log_missing {
                    return Err(NOT_EMULATED_GPUS);
                }
            }
            ProviderKind::Emugpu => {
                if config.driver != default.driver || config.trace.is_some() || self.leak_exit.is_some() {
                    return Err(NOT_EMULATED_GDRDRV);
                }
                let GpuConfig { gpus, coherent, rdma, bar1_size, .. } = default.gpu;
                if config.gpu != (GpuConfig { gpus, coherent, rdma, bar1_size, ..config.gpu.clone() }) {
                    return Err("--provider emugpu has one GPU: remove --gpus, --coherent, --rdma and --bar1-size");
                }
            }
        }
        Ok(())
    }
}

const NOT_EMULATED_GPUS: &str =
    "--provider nvidia has this computer's GPUs: remove --platform, --log-missing and options under \"GPUs and CUDA\"";
const NOT_EMULATED_GDRDRV: &str = "--provider emugpu has the kernel's gdrdrv: remove --trace, --leak-exit and options \
                                   under \"Emulated gdrdrv\", and set module parameters instead";

fn check_lists(gpu: &GpuConfig) -> Result<(), String> {
    let lists =
        [("--rdma", gpu.rdma.count()), ("--bar1-size", gpu.bar1_size.count()), ("--dmabuf", gpu.dmabuf.count())];
    let longest = (gpu.gpus as usize).max(1);
    for (option, values) in lists {
        if values > longest {
            return Err(format!("{option} has {values} values for {longest} GPUs: give fewer values or raise --gpus"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gdremu_core::errno::Errno;

    use super::*;

    fn config(line: &str) -> Config {
        let words = ["gdremu"].into_iter().chain(line.split_whitespace()).chain(["--", "true"]);
        Options::read(words.map(OsString::from)).unwrap().checked_config(Session::default()).unwrap()
    }

    #[test]
    fn profile_is_a_set_of_options() {
        assert_eq!(config("--profile default"), config(""));
        assert_eq!(config("--profile=defects"), config("--module-defects --handle-base 0x100000000"));
        for line in ["--profile dmabuf-3gpus --gpus 2", "--gpus 2 --profile dmabuf-3gpus"] {
            assert_eq!(config(line), config("--no-gdrdrv --cuda-version 13.3 --gpus 2"), "options override it");
        }
    }

    #[test]
    fn every_profile_is_valid_and_differs_from_the_others() {
        let configs: Vec<_> = profiles::names().map(|name| (name, config(&format!("--profile {name}")))).collect();
        for (at, (name, config)) in configs.iter().enumerate() {
            let same = configs[..at].iter().find(|(_, other)| other == config);
            assert_eq!(same.map(|(other, _)| other), None, "{name}");
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        for (option, values) in [
            ("--bar1-size", "99999999T ,"),
            ("--driver-version", "2 2.x 2.4. 2.4.x 2.4.4.4"),
            ("--fault", "MMAP MREMAP:EIO PIN:EIO MMAP:EWHAT MMAP:EIO@0 MMAP:EIO@x MMAP:MAPPING_TYPE=1"),
            ("--fault", "GET_INFO:MAPPING_TYPE=1 GET_INFO_V2:MAPPING_TYPE=wc"),
            ("--file", "/proc/modules /proc/modules=/no/such/file /proc/=/dev/null"),
            ("--file", "/etc/passwd=/dev/null proc/modules=/dev/null /proc/../etc/passwd=/dev/null"),
            ("--gdrdrv-errno", "EWHAT 0 -5"),
            ("--pci-device", "0x10000"),
            ("--platform", "wet"),
            ("--unsupported", "exit:256"),
        ] {
            for value in values.split(' ') {
                let line = format!("{option}={value}");
                assert!(Options::try_parse_from(["gdremu", &line, "true"]).is_err(), "{line}");
            }
        }
        for line in ["--file=/proc/modules=/dev/null", "--fault=mmap:EIO,CUINIT:100,cuInit:1,Get_Version:EIO"] {
            assert!(Options::try_parse_from(["gdremu", line, "true"]).is_ok(), "{line}");
        }
    }

    #[test]
    fn errors_are_names_or_numbers() {
        for (name, number) in [("enotsupp", 524), ("EPROTO", 71), ("777", 777)] {
            assert_eq!(config(&format!("--gdrdrv-errno {name}")).driver.open_errno, Some(Errno(number)));
        }
    }

    fn refused(line: &str) -> Option<String> {
        let line = line.split(' ').chain(["--", "true"]);
        let options = Options::try_parse_from(["gdremu"].into_iter().chain(line)).unwrap();
        options.checked_config(Session::default()).err()
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for (line, why) in [
            ("--gpus 2 --rdma no,yes,no", "--rdma has 3 values for 2 GPUs"),
            ("--provider nvidia --gpus 2", "GPUs and CUDA"),
            ("--provider nvidia --platform device", "--platform"),
            ("--provider nvidia --platform cached", "--platform"),
            ("--provider nvidia --log-missing", "--log-missing"),
            ("--provider emugpu --gpus 2", "--gpus"),
            ("--provider emugpu --leak-exit 1", "--leak-exit"),
            ("--provider emugpu --trace calls.json", "--trace"),
            ("--provider emugpu --traditional", "module parameters"),
        ] {
            assert!(refused(line).unwrap().contains(why), "{line}");
        }
        assert_eq!(refused("--provider nvidia --traditional"), None);
        assert_eq!(refused("--provider emugpu --cuda-version 13.3"), None);
    }

    #[test]
    fn lists_set_each_gpu_and_the_last_value_repeats() {
        let gpu = config("--gpus 3 --dmabuf mmap,no --bar1-size 1G,2M,4K").gpu;
        assert_eq!([0, 1, 2].map(|i| gpu.maps_dmabufs(i)), [true, false, false]);
        assert_eq!([0, 1, 2].map(|i| *gpu.bar1_size.of(i)), [1 << 30, 2 << 20, 4 << 10]);
    }

    #[test]
    fn options_after_the_program_are_passed_to_it() {
        let options = Options::try_parse_from(["gdremu", "prog", "--gpus", "x"]).unwrap();
        assert_eq!(options.program, ["prog", "--gpus", "x"]);
    }
}
