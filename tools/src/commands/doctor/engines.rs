//! The names and versions of libgdrapi that engines need.
#![forbid(unsafe_code)]

use gdrcopy::Version;

use super::libraries::{self, Environment};
use super::probe::{Loaded, Wanted};
use super::remedies::{Advice, Remedy};
use super::report::Finding;
use crate::libgdrapi::search::{self, PLAIN_NAME, SONAME};

/// A program that loads libgdrapi.
#[derive(Debug, PartialEq)]
pub(super) struct Engine {
    /// On the command line.
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    /// The names that it asks the loader for, one after the other.
    libraries: &'static [&'static str],
    /// The oldest library and module that it accepts.
    oldest: Version,
    /// A variable with the directory of the library, instead of the loader's.
    directory: Option<&'static str>,
    /// It does without libgdrapi where the module does not work.
    pub(super) module_only: bool,
    /// Another requirement, which doctor cannot see.
    pub(super) unseen: Option<(&'static str, &'static str)>,
}

const fn engine(id: &'static str, name: &'static str, libraries: &'static [&'static str], oldest: Version) -> Engine {
    Engine { id, name, libraries, oldest, directory: None, module_only: false, unseen: None }
}

const ANY: Version = Version::OLDEST_GDRDRV;
const PLUGIN: (&str, &str) = (
    "plugin",
    "not examined: UCX needs its plugin libuct_cuda_gdrcopy.so, which PyPI's wheels lack; `ucx_info -d | grep gdr_copy` shows it",
);

pub(super) static ENGINES: [Engine; 9] = [
    engine("nccl", "NCCL", &[PLAIN_NAME], Version::new(2, 1)),
    Engine { unseen: Some(PLUGIN), ..engine("ucx", "UCX", &[SONAME], ANY) },
    engine("nvshmem", "NVSHMEM", &[SONAME], ANY),
    engine("libfabric", "libfabric", &[PLAIN_NAME, SONAME], ANY),
    // Its GPU-initiated networking.
    engine("aws-ofi-nccl", "aws-ofi-nccl", &[PLAIN_NAME], Version::new(2, 5)),
    Engine { module_only: true, ..engine("mscclpp", "MSCCL++", &[SONAME], Version::new(2, 5)) },
    Engine { unseen: Some(PLUGIN), ..engine("nixl", "NIXL", &[SONAME, PLAIN_NAME], ANY) },
    engine("tensorrt-llm", "TensorRT-LLM", &[PLAIN_NAME], ANY),
    Engine { directory: Some("GDRCOPY_PATH_L"), ..engine("dpdk", "DPDK", &[PLAIN_NAME], ANY) },
];

impl Engine {
    /// The engine of this name on the command line.
    pub(super) fn find(id: &str) -> Option<&'static Engine> {
        ENGINES.iter().find(|engine| engine.id == id)
    }

    /// Checks the requirements. Returns the file of its library.
    pub(super) fn needs(&self, environment: &Environment, module: Option<Version>) -> (Option<Loaded>, Vec<Finding>) {
        let (library, mut findings) = self.library(environment);
        let of_library = library.as_ref().and_then(|library| library.version);
        let of_library = of_library.map(|(major, minor)| Version::new(major as u32, minor as u32));
        for (part, version) in [("libgdrapi", of_library), ("gdrdrv", module)] {
            let Some(version) = version.filter(|version| *version < self.oldest) else {
                continue;
            };
            let advice = match part {
                "gdrdrv" => Remedy::EngineModule.with("engine", self.name),
                _ => Remedy::LibraryUpdate.into(),
            };
            let value = format!("{part} {version}, and {} needs {}", self.name, self.oldest);
            findings.push(Finding::problem("version", value, advice.with("oldest", self.oldest)));
        }
        findings.extend(self.unseen.map(|(subject, text)| Finding::unknown(subject, text)));
        (library, findings)
    }

    /// How to have the engine load this project's library, if it loads another one by a name.
    pub(super) fn instead(&self, environment: &Environment) -> Option<Advice> {
        let by_path = self.directory.is_some_and(|variable| environment.contains_key(variable));
        if by_path { None } else { libraries::instead(self.libraries) }
    }

    /// The library that the engine loads.
    fn library(&self, environment: &Environment) -> (Option<Loaded>, Vec<Finding>) {
        let mut findings = Vec::new();
        if let Some(variable) = self.directory
            && let Some(directory) = environment.get(variable)
        {
            let file = format!("{directory}/{PLAIN_NAME}");
            return match libraries::load(&Wanted::File(file.into())) {
                Ok(library) => {
                    findings.push(Finding::ok(variable, libraries::describe(&library)));
                    (Some(library), findings)
                }
                Err(why) => {
                    let or = format!(", or have it name the directory of {PLAIN_NAME}");
                    findings.push(why.finding(variable, || Remedy::SettingUnset.with("name", variable).with("or", or)));
                    (None, findings)
                }
            };
        }
        for &name in self.libraries {
            match libraries::load(&Wanted::Name(name.into())) {
                Ok(library) => {
                    let finding = libraries::rate(name, &library, &search::candidates());
                    return (Some(library), vec![finding]);
                }
                Err(why) => findings.push(why.finding(name, || libraries::missing(name))),
            }
        }
        (None, findings)
    }
}
