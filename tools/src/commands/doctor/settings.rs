//! The variables that keep engines such as NCCL from using libgdrapi, in the environment and in configuration files.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

use super::libraries::Environment;
use super::remedies::Remedy;
use super::report::Finding;
use crate::libgdrapi::search;
use crate::system::files;

/// A variable that decides whether an engine uses libgdrapi. The fields are the identifiers of the engines, the
/// variable's name, the software that reads it, the rule for the values with which libgdrapi is used, and one such
/// value.
struct Switch(&'static [&'static str], &'static str, &'static str, Rule, &'static str);

/// The values with which a variable makes an engine, such as UCX or NCCL, use libgdrapi.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// A list of transports that contains gdr_copy.
    Transports,
    /// A list of UCX's plugins that contains both cuda and gdrcopy.
    Modules,
    /// A directory that contains UCX's plugin for GDRCopy. UCX searches this directory besides its own.
    Plugins,
    /// A list with at least one of these names, or a list that begins with ^ (all but these) and omits at least one.
    OneOf(&'static [&'static str]),
    /// The variable's value is this number. A text that is not a number counts as 0. NCCL uses GDRCopy only if
    /// NCCL_GDRCOPY_ENABLE is 1 (seen with NCCL 2.28.9).
    Number(i64),
    /// The variable has a word or number for true, or is not set.
    Yes,
    /// The variable has a word or number for false, or is not set.
    No,
}

/// The variables that doctor checks, in the order in which it reports them.
const SWITCHES: [Switch; 10] = [
    Switch(&["ucx", "nixl"], "UCX_TLS", "UCX", Rule::Transports, "all"),
    Switch(&["ucx", "nixl"], "UCX_MODULES", "UCX", Rule::Modules, "all"),
    Switch(&["ucx", "nixl"], "UCX_MODULE_DIR", "UCX", Rule::Plugins, ""),
    Switch(&["nccl"], "NCCL_GDRCOPY_ENABLE", "NCCL", Rule::Number(1), "1"),
    Switch(&["nccl"], "NCCL_GDRCOPY_USE_INTERNAL_DMABUF", "NCCL", Rule::Number(0), "0"),
    Switch(&["nvshmem"], "NVSHMEM_DISABLE_GDRCOPY", "NVSHMEM", Rule::No, "0"),
    Switch(&["nvshmem"], "NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF", "NVSHMEM", Rule::No, "0"),
    Switch(&["libfabric"], "FI_PROVIDER", "libfabric", Rule::OneOf(&["shm", "efa"]), "shm"),
    Switch(&["libfabric"], "FI_HMEM", "libfabric", Rule::OneOf(&["cuda"]), "cuda"),
    Switch(&["libfabric"], "FI_HMEM_CUDA_USE_GDRCOPY", "libfabric", Rule::Yes, "1"),
];

/// The library of UCX that looks for UCX's plugins and configuration files relative to its own path.
const LIBUCS: &str = "libucs.so.0";

/// UCX's plugin for GDRCopy. UCX appends the suffix that the file of libucs has, such as `.0`.
pub(super) const PLUGIN: &str = "libuct_cuda_gdrcopy.so";

/// Returns UCX's plugin for GDRCopy in a directory, if it is there.
fn plugin_in(directory: &Path) -> Option<PathBuf> {
    let files = ["", ".0"].map(|suffix| directory.join(format!("{PLUGIN}{suffix}")));
    files.into_iter().find(|file| file.exists())
}

impl Rule {
    fn allows(self, value: Option<&str>) -> bool {
        match (self, value) {
            (Rule::Number(good), value) => value.unwrap_or_default().trim().parse().unwrap_or(0) == good,
            (_, None) | (Rule::OneOf(_), Some("")) => true,
            // A list without ^ enables gdr_copy by this name, by `cuda` or by `all`. A list with ^ disables it by
            // excluding `gdr_copy` or `cuda`.
            (Rule::Transports, Some(list)) if list.starts_with('^') => {
                leaves_one(list, &["gdr_copy"]) && leaves_one(list, &["cuda"])
            }
            (Rule::Transports, Some(list)) => leaves_one(list, &["gdr_copy", "cuda", "all"]),
            (Rule::Modules, Some(list)) if list.starts_with('^') => {
                leaves_one(list, &["cuda"]) && leaves_one(list, &["gdrcopy"])
            }
            (Rule::Modules, Some(list)) => leaves_one(list, &["cuda", "all"]) && leaves_one(list, &["gdrcopy", "all"]),
            (Rule::Plugins, Some(directory)) => plugin_in(Path::new(directory)).is_some(),
            (Rule::OneOf(names), Some(list)) => leaves_one(list, names),
            (Rule::Yes, Some(value)) => is_yes(value),
            (Rule::No, Some(value)) => !is_yes(value),
        }
    }
}

fn is_yes(value: &str) -> bool {
    !["0", "n", "no", "false", "off"].contains(&value.to_lowercase().as_str())
}

/// Returns whether a list enables at least one of these names. A list that begins with ^ enables all names not in it.
fn leaves_one(list: &str, names: &[&str]) -> bool {
    let list = list.to_lowercase();
    let excluded = list.strip_prefix('^');
    let listed: Vec<_> =
        excluded.unwrap_or(&list).split([',', ';']).map(|name| name.trim_matches([' ', '\\'])).collect();
    names.iter().any(|name| listed.contains(name) != excluded.is_some())
}

/// Variables from the environment and from configuration files. `files` has, by variable, the file that set it.
pub(super) struct Settings {
    pub(super) environment: Environment,
    files: BTreeMap<String, PathBuf>,
}

impl Settings {
    /// Reads the variables of this process, and then those of the engines' configuration files.
    pub(super) fn read() -> Settings {
        let mut settings = Settings { environment: Environment::new(), files: BTreeMap::new() };
        for (name, value) in env::vars_os() {
            settings.environment.insert(name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned());
        }
        for file in files_of_nccl(&settings.environment) {
            let text = files::lossy(&file);
            settings.add("NCCL_", &file, text.lines().filter_map(|line| line.split_once('=')));
        }
        for file in files_of_ucx(&settings.environment) {
            let text = files::lossy(&file);
            // In UCX's files, a variable's last assignment counts, but `add` keeps the first. So the order is reversed.
            settings.add("UCX_", &file, assignments(&text).into_iter().rev());
        }
        settings
    }

    /// Adds the variables of a file that are not set yet.
    fn add<'a>(&mut self, prefix: &str, file: &Path, assignments: impl Iterator<Item = (&'a str, &'a str)>) {
        for (name, value) in assignments {
            if name.starts_with(prefix) && !self.environment.contains_key(name) {
                self.environment.insert(name.into(), value.into());
                self.files.insert(name.into(), file.into());
            }
        }
    }

    /// Returns the plugin directory of the UCX that the loader finds, if there is one, and the plugin for GDRCopy. UCX
    /// searches for that plugin in this directory, and in the one that UCX_MODULE_DIR names.
    pub(super) fn plugin(&self) -> (Option<PathBuf>, Option<PathBuf>) {
        let own = search::file_of(LIBUCS).map(|library| library.with_file_name("ucx"));
        let other = self.environment.get("UCX_MODULE_DIR").map(PathBuf::from);
        let mut plugin = None;
        for directory in [&other, &own] {
            if let Some(directory) = directory
                && let Some(file) = plugin_in(directory)
            {
                plugin = Some(file);
            }
        }
        (own, plugin)
    }

    /// Rates the variables of this engine, or of all engines if it is `None`.
    pub(super) fn findings(&self, engine: Option<&str>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for switch in &SWITCHES {
            let Switch(engines, name, _, rule, _) = switch;
            // UCX_TLS and NCCL_GDRCOPY_ENABLE are always shown. The others have an effect only if they are set.
            let is_shown = matches!(rule, Rule::Transports | Rule::Number(1)) || self.environment.contains_key(*name);
            if is_shown && engine.is_none_or(|engine| engines.contains(&engine)) {
                findings.push(self.rate(switch, engine.is_some()));
            }
        }
        findings
    }

    fn rate(&self, &Switch(_, name, part, rule, good): &Switch, needed: bool) -> Finding {
        let value = self.environment.get(name).map(String::as_str);
        let file = self.files.get(name).map(|file| file.display());
        let text = match (value, &file) {
            (None, _) => "not set".to_owned(),
            (Some(value), None) => value.to_owned(),
            (Some(value), Some(file)) => format!("{value}, of {file}"),
        };
        if rule.allows(value) || rule == Rule::Plugins && self.plugin().1.is_some() {
            return Finding::ok(name, text);
        }
        if rule == Rule::Plugins {
            let text = format!("{text}: it has no {PLUGIN}, and UCX finds one only if its own directory has it");
            let advice = Remedy::SettingUnset.with("or", ", or copy the plugin there").with("name", name);
            return Finding::warning(name, text, advice);
        }
        let text = format!("{text}: {part} does without libgdrapi");
        let (remedy, or) = match (value, file) {
            // This is NCCL's variable, which does not matter on systems that do not run NCCL.
            (None, _) if !needed => {
                return Finding::unknown(name, format!("{text}, unless it is 1; only if this is for NCCL"));
            }
            (Some(_), Some(file)) => (Remedy::SettingExport, format!(", or change it in {file}")),
            _ if rule == Rule::Number(1) => (Remedy::SettingExport, String::new()),
            _ if rule == Rule::Transports => (Remedy::SettingUnset, ", or add gdr_copy".into()),
            _ => (Remedy::SettingUnset, String::new()),
        };
        let advice = remedy.with("or", or).with("name", name).with("value", good);
        Finding::problem(name, text, advice).only_if(needed)
    }
}

/// Returns the configuration files of NCCL, highest priority first.
fn files_of_nccl(environment: &Environment) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some(file) = environment.get("NCCL_CONF_FILE")
        && !file.is_empty()
    {
        files.push(file.into());
    } else if let Ok(Some(user)) = User::from_uid(Uid::current()) {
        files.push(user.dir.join(".nccl.conf"));
    }
    files.push("/etc/nccl.conf".into());
    files
}

/// Returns the configuration files of UCX, highest priority first (seen with UCX 1.13 and 1.22).
fn files_of_ucx(environment: &Environment) -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("./ucx.conf")];
    for name in ["UCX_CONFIG_DIR", "HOME"] {
        files.extend(environment.get(name).map(|directory| Path::new(directory).join("ucx.conf")));
    }
    if let Some(library) = search::file_of(LIBUCS)
        && let Some(directory) = library.parent()
    {
        // UCX 1.22 reads the first of these files, and UCX 1.13 the second.
        files.extend([directory.join("../etc/ucx/ucx.conf"), directory.join("../etc/ucx.conf")]);
    }
    files.push("/etc/ucx/ucx.conf".into());
    files
}

/// Returns the assignments in a file of UCX (INI syntax) before its first section. Each section is only for
/// certain types of CPUs.
fn assignments(text: &str) -> Vec<(&str, &str)> {
    let mut assignments = Vec::new();
    for line in text.lines().map(str::trim).take_while(|line| !line.starts_with('[')) {
        if let Some((name, value)) = line.split_once(['=', ':'])
            && !line.starts_with(['#', ';'])
        {
            let value = value.split(" ;").next().unwrap_or_default();
            assignments.push((name.trim(), value.trim()));
        }
    }
    assignments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_allow_libgdrapi_or_not() {
        const EFA: Rule = Rule::OneOf(&["shm", "efa"]);
        for (rule, allowed, refused) in [
            (
                Rule::Transports,
                "all rc,cuda sm,gdr_copy \\gdr_copy ^cuda_ipc ^rc",
                "rc,sm cuda_copy ^gdr_copy ^rc,cuda",
            ),
            (Rule::Modules, "all cuda,gdrcopy ^ib ^rocm,ib", "cuda gdrcopy,ib ^cuda ^gdrcopy ^cuda,ib"),
            (EFA, "efa tcp,SHM efa;ofi_rxd ^tcp ^shm", "tcp ^shm,efa"),
            (Rule::Number(1), "1 +1 01", "-1 10 true + 99999999999999999999"),
            (Rule::Number(0), "0 true 99999999999999999999", "1 2 -1"),
        ] {
            for (list, expected) in [(allowed, true), (refused, false)] {
                for value in list.split(' ') {
                    assert_eq!(rule.allows(Some(value)), expected, "{value}");
                }
            }
        }
    }
}
