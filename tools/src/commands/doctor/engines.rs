//! The names and versions of libgdrapi that engines need. An engine is a library or program such as NCCL or UCX.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use gdrcopy::Version;

use super::gdrdrv;
use super::libraries;
use super::probe::{Failure, Loaded};
use super::remedies::{Advice, Remedy};
use super::report::Finding;
use super::settings::{PLUGIN, Settings};
use crate::libgdrapi::search::{self, PLAIN_NAME, SONAME};

/// A library or program that loads libgdrapi, such as NCCL.
#[derive(Debug, PartialEq)]
pub(super) struct Engine {
    /// The engine's name on doctor's command line (`--for`).
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    /// The names by which the engine asks the loader for libgdrapi, one after the other.
    libraries: &'static [&'static str],
    /// The environment variable with libgdrapi's directory, for an engine that does not leave the search to the loader.
    directory: Option<&'static str>,
    /// The oldest releases of the library and of the kernel module that the engine accepts.
    oldest: [Version; 2],
    /// True if the engine uses libgdrapi only when the kernel module gdrdrv works.
    pub(super) module_only: bool,
    /// True if the engine can use GDRCopy by UCX's plugin. UCX uses GDRCopy only by the plugin, NIXL also without it.
    pub(super) has_plugin: bool,
}

const fn engine(id: &'static str, name: &'static str, libraries: &'static [&'static str], oldest: Version) -> Engine {
    Engine { id, name, libraries, directory: None, oldest: [oldest; 2], module_only: false, has_plugin: false }
}

const ANY: Version = Version::OLDEST_GDRDRV;

/// A function that libgdrapi has since 2.4. Engines that were built with the header of 2.4 or later call it.
const INFO_V2: &str = "gdr_get_info_v2";

const WITH_INFO_V2: [Version; 2] = [Version::new(2, 4), ANY];

/// The name that the report gives to the finding about UCX's plugin for GDRCopy.
pub(super) const PLUGIN_SUBJECT: &str = "plugin";

pub(super) static ENGINES: [Engine; 9] = [
    engine("nccl", "NCCL", &[PLAIN_NAME], Version::new(2, 1)),
    Engine { has_plugin: true, oldest: WITH_INFO_V2, ..engine("ucx", "UCX", &[SONAME], ANY) },
    engine("nvshmem", "NVSHMEM", &[SONAME], ANY),
    engine("libfabric", "libfabric", &[PLAIN_NAME, SONAME], ANY),
    // Only the GPU-initiated networking of aws-ofi-nccl uses libgdrapi.
    engine("aws-ofi-nccl", "aws-ofi-nccl", &[PLAIN_NAME], Version::new(2, 5)),
    Engine { module_only: true, ..engine("mscclpp", "MSCCL++", &[SONAME], Version::new(2, 5)) },
    Engine { has_plugin: true, oldest: WITH_INFO_V2, ..engine("nixl", "NIXL", &[SONAME, PLAIN_NAME], ANY) },
    engine("tensorrt-llm", "TensorRT-LLM", &[PLAIN_NAME], ANY),
    Engine { directory: Some(libraries::DIRECTORY_OF_DPDK), ..engine("dpdk", "DPDK", &[PLAIN_NAME], ANY) },
];

impl Engine {
    /// Checks the requirements of the engine. Returns the library that it loads, and the findings.
    pub(super) fn needs(&self, module: Option<Version>, settings: &Settings) -> (Option<Loaded>, Vec<Finding>) {
        let mut library = None;
        let mut findings = Vec::new();
        let mut asked_for = "";
        let mut directory = None;
        if let Some(variable) = self.directory {
            directory = settings.environment.get(variable);
        }
        for &name in self.libraries {
            let mut file = PathBuf::from(name);
            if let Some(directory) = directory {
                file = format!("{directory}/{name}").into();
            }
            match libraries::load(file) {
                Ok(loaded) => {
                    findings = vec![Finding::ok(name, libraries::describe(&loaded))];
                    library = Some(loaded);
                    asked_for = name;
                    break;
                }
                Err(why) => findings.push(not_loaded(name, directory, &why)),
            }
        }
        let [mut oldest, oldest_module] = self.oldest;
        if self.has_plugin
            && let (_, Some(plugin)) = settings.plugin()
            && !search::contains(&plugin, INFO_V2)
        {
            oldest = ANY;
        }
        if let Some(library) = &library
            && let Some(version) = library.release()
            && version < oldest
        {
            let mut advice = Remedy::LibraryUpdate.with("oldest", oldest).with("file", library.file.display());
            if let Some(newer) = libraries::newer_first(asked_for, library) {
                advice = newer;
            }
            findings.push(self.too_old("libgdrapi", version, oldest, advice));
        }
        if let Some(version) = module
            && version < oldest_module
        {
            let mut advice = Remedy::EngineModule.with("engine", self.name).with("oldest", oldest_module);
            if let Some(reload) = gdrdrv::reload(version, oldest_module) {
                advice = reload;
            }
            findings.push(self.too_old("gdrdrv", version, oldest_module, advice));
        }
        if self.has_plugin {
            findings.push(rate_plugin(settings).only_if(self.id == "ucx"));
        }
        (library, findings)
    }

    fn too_old(&self, part: &str, version: Version, oldest: Version, advice: Advice) -> Finding {
        Finding::problem("version", format!("{part} {version}, and {} needs {oldest}", self.name), advice)
    }
}

/// Returns the finding that libgdrapi cannot be loaded by this name. `directory` is set only for DPDK, which looks for
/// libgdrapi nowhere else.
fn not_loaded(name: &'static str, directory: Option<&String>, why: &Failure) -> Finding {
    if let Some(directory) = directory
        && let Some(finding) = libraries::directory_of_dpdk(directory)
    {
        return finding;
    }
    why.finding(name, libraries::missing(name))
}

fn rate_plugin(settings: &Settings) -> Finding {
    match settings.plugin() {
        (_, Some(file)) => Finding::ok(PLUGIN_SUBJECT, file.display().to_string()),
        (Some(directory), None) => {
            let value = format!("the UCX that the loader finds has no {PLUGIN} in {}", directory.display());
            Finding::problem(PLUGIN_SUBJECT, value, Remedy::UcxPlugin)
        }
        (None, None) => {
            let value = "not examined, as the loader finds no libucs: UCX needs libuct_cuda_gdrcopy.so, which PyPI's wheels lack; \
                         `ucx_info -d | grep gdr_copy` shows it";
            Finding::unknown(PLUGIN_SUBJECT, value)
        }
    }
}
