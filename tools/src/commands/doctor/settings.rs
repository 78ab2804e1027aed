//! The variables by which engines do without libgdrapi, in the environment and in their files of settings.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

use super::libraries::Environment;
use super::remedies::Remedy;
use super::report::Finding;
use crate::libgdrapi::search;
use crate::system::files;

/// A variable that decides whether an engine uses libgdrapi. Its fields are the engines, the name, the part that does
/// without libgdrapi, the values with which that is used, and one of these.
struct Switch(&'static [&'static str], &'static str, &'static str, Rule, &'static str);

/// The values with which libgdrapi is used.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// A list of transports, which has gdr_copy.
    Transports,
    /// A list with one of these names, or without all of them behind ^.
    OneOf(&'static [&'static str]),
    /// NCCL takes the number that a value begins with, 0 if there is none, and its default if it is too large. It uses
    /// GDRCopy only if this variable is 1 (seen with NCCL 2.28.9).
    NcclOne,
    /// Without it, a part of NCCL does without libgdrapi.
    NcclNotZero,
    /// 1 and 2 both skip libgdrapi.
    NcclZero,
    /// A word or number for true, or unset; or for false.
    Yes,
    No,
    NoOfPart,
}

/// In the order of the report.
const SWITCHES: [Switch; 11] = [
    Switch(&["ucx", "nixl"], "UCX_TLS", "UCX", Rule::Transports, "all"),
    Switch(&["nccl"], "NCCL_GDRCOPY_ENABLE", "NCCL", Rule::NcclOne, "1"),
    Switch(&["nccl"], "NCCL_GDRCOPY_FIFO_ENABLE", "NCCL's FIFOs", Rule::NcclNotZero, "1"),
    Switch(&["nccl"], "NCCL_GDRCOPY_SYNC_ENABLE", "NCCL's synchronization", Rule::NcclNotZero, "1"),
    Switch(&["nccl"], "NCCL_GDRCOPY_USE_INTERNAL_DMABUF", "NCCL", Rule::NcclZero, "0"),
    Switch(&["nccl"], "DOCA_GPUNETIO_DISABLE_GDRCOPY", "NCCL's GPUNetIO", Rule::NoOfPart, "0"),
    Switch(&["nvshmem"], "NVSHMEM_DISABLE_GDRCOPY", "NVSHMEM", Rule::No, "0"),
    Switch(&["nvshmem"], "NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF", "NVSHMEM", Rule::No, "0"),
    Switch(&["libfabric"], "FI_PROVIDER", "libfabric", Rule::OneOf(&["shm", "efa"]), "shm"),
    Switch(&["libfabric"], "FI_HMEM", "libfabric", Rule::OneOf(&["cuda"]), "cuda"),
    Switch(&["libfabric"], "FI_HMEM_CUDA_USE_GDRCOPY", "libfabric", Rule::Yes, "1"),
];

/// Shown also where they are not set. All others are in use by default then.
const ALWAYS: [Rule; 2] = [Rule::Transports, Rule::NcclOne];

impl Rule {
    fn allows(self, value: Option<&str>) -> bool {
        match (self, value) {
            (Rule::NcclOne, value) => number(value) == Some(1),
            (Rule::NcclNotZero, value) => number(value) != Some(0),
            (Rule::NcclZero, value) => number(value).unwrap_or(0) == 0,
            (_, None) => true,
            (Rule::Transports, Some(list)) => has_gdr_copy(list),
            (Rule::OneOf(names), Some(list)) => leaves_one(list, names),
            (Rule::Yes, Some(value)) => is_yes(value),
            (Rule::No | Rule::NoOfPart, Some(value)) => !is_yes(value),
        }
    }

    /// The engine does not use libgdrapi at all otherwise.
    fn is_of_whole(self) -> bool {
        ![Rule::NcclNotZero, Rule::NoOfPart].contains(&self)
    }
}

fn is_yes(value: &str) -> bool {
    !["0", "n", "no", "false", "off"].contains(&value.to_lowercase().as_str())
}

/// A number as C's strtoll reads it with base 0; `None` where NCCL takes its default.
fn number(value: Option<&str>) -> Option<i64> {
    let value = value.filter(|value| !value.is_empty())?.trim_start();
    let (sign, digits) = value.split_at(value.starts_with(['+', '-']).into());
    let (digits, base) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    let end = digits.find(|digit: char| !digit.is_digit(base)).unwrap_or(digits.len());
    match &digits[..end] {
        "" => Some(0),
        digits => i64::from_str_radix(&format!("{sign}{digits}"), base).ok(),
    }
}

/// Returns whether UCX may use gdr_copy with this list.
fn has_gdr_copy(list: &str) -> bool {
    let excluded = list.strip_prefix('^');
    let names = excluded.unwrap_or(list).split(',').map(|name| name.trim_start_matches('\\').trim());
    let mut of_gdr_copy =
        names.filter(|name| ["gdr_copy", "cuda"].contains(name) || excluded.is_none() && *name == "all");
    of_gdr_copy.next().is_some() != excluded.is_some()
}

/// Returns whether a list of libfabric leaves one of these names.
fn leaves_one(list: &str, names: &[&str]) -> bool {
    let list = list.to_lowercase();
    let excluded = list.strip_prefix('^');
    let listed: Vec<_> = excluded.unwrap_or(&list).split([',', ';']).map(str::trim).collect();
    list.is_empty() || names.iter().any(|name| listed.contains(name) != excluded.is_some())
}

/// Variables, and the files that they come from if not from the environment.
pub(super) struct Settings {
    pub(super) environment: Environment,
    files: BTreeMap<String, PathBuf>,
    /// A file of NCCL that doctor may not read.
    unread: Option<PathBuf>,
}

impl Settings {
    /// Adds those of files, as this process or another one reads them.
    pub(super) fn with_files(environment: Environment, process: Option<u32>) -> Settings {
        let mut settings = Settings { environment, files: BTreeMap::new(), unread: None };
        for file in files_of_nccl(&settings.environment, process) {
            let Ok(text) = read(&file, process) else {
                settings.unread = process.is_some().then_some(file);
                break;
            };
            settings.add("NCCL_", &file, text.lines().filter_map(|line| line.split_once('=')));
        }
        for file in files_of_ucx(&settings.environment, process) {
            let text = read(&file, process).unwrap_or_default();
            // The last one of a file holds.
            settings.add("UCX_", &file, assignments(&text).into_iter().rev());
        }
        settings
    }

    /// Adds variables of a file that are not set.
    fn add<'a>(&mut self, prefix: &str, file: &Path, assignments: impl Iterator<Item = (&'a str, &'a str)>) {
        for (name, value) in assignments {
            if name.starts_with(prefix) && !self.environment.contains_key(name) {
                self.environment.insert(name.into(), value.into());
                self.files.insert(name.into(), file.into());
            }
        }
    }

    /// Rates the variables of all engines, or of the one that is to use libgdrapi.
    pub(super) fn findings(&self, engine: Option<&str>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for switch in &SWITCHES {
            let Switch(engines, name, _, rule, _) = switch;
            let is_shown = ALWAYS.contains(rule) || self.environment.contains_key(*name);
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
        if rule.allows(value) {
            return Finding::ok(name, text);
        }
        let text = format!("{text}: {part} does without libgdrapi");
        let (remedy, or) = match (value, file, &self.unread) {
            (None, _, Some(file)) => {
                let text = format!("not set, and {} cannot be read: run this as its user", file.display());
                return Finding::unknown(name, text);
            }
            // Not all systems run NCCL.
            (None, ..) if !needed => {
                return Finding::unknown(name, format!("{text}, unless it is 1; only if this is for NCCL"));
            }
            (Some(_), Some(file), _) => (Remedy::SettingExport, format!(", or change it in {file}")),
            _ if rule == Rule::NcclOne => (Remedy::SettingExport, String::new()),
            _ if rule == Rule::Transports => (Remedy::SettingUnset, ", or add gdr_copy".into()),
            _ => (Remedy::SettingUnset, String::new()),
        };
        let advice = remedy.with("or", or).with("name", name).with("value", good);
        Finding::problem(name, text, advice).only_if(needed && rule.is_of_whole())
    }
}

/// A file as a process sees it; no text if it is not there.
fn read(file: &Path, process: Option<u32>) -> Result<String, ErrorKind> {
    let seen = match (process, file.strip_prefix("/")) {
        (Some(pid), Ok(file)) => PathBuf::from(format!("/proc/{pid}/root")).join(file),
        (Some(pid), Err(_)) => PathBuf::from(format!("/proc/{pid}/cwd")).join(file),
        (None, _) => file.to_owned(),
    };
    match files::bytes(&seen) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if [ErrorKind::NotFound, ErrorKind::InvalidInput].contains(&error.kind()) => Ok(String::new()),
        Err(error) => Err(error.kind()),
    }
}

/// In the order in which NCCL reads them; the first one that sets a variable counts.
fn files_of_nccl(environment: &Environment, process: Option<u32>) -> Vec<PathBuf> {
    let own = environment.get("NCCL_CONF_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
    let home = match process {
        Some(_) => environment.get("HOME").map(PathBuf::from),
        None => User::from_uid(Uid::current()).ok().flatten().map(|user| user.dir),
    };
    let first = own.or(home.map(|home| home.join(".nccl.conf")));
    first.into_iter().chain([PathBuf::from("/etc/nccl.conf")]).collect()
}

/// Those of UCX, the one that counts first (seen with UCX 1.13 and 1.22).
fn files_of_ucx(environment: &Environment, process: Option<u32>) -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("./ucx.conf")];
    for name in ["UCX_CONFIG_DIR", "HOME"] {
        files.extend(environment.get(name).map(|directory| Path::new(directory).join("ucx.conf")));
    }
    let libucs = match process {
        Some(pid) => mapped(&fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default()),
        None => search::file_of("libucs.so.0"),
    };
    if let Some(directory) = libucs.as_deref().and_then(Path::parent) {
        // 1.22, and 1.13.
        files.extend([directory.join("../etc/ucx/ucx.conf"), directory.join("../etc/ucx.conf")]);
    }
    files.push(PathBuf::from("/etc/ucx/ucx.conf"));
    files
}

fn mapped(maps: &str) -> Option<PathBuf> {
    let line = maps.lines().find(|line| line.contains("/libucs.so"))?;
    Some(PathBuf::from(&line[line.find('/')?..]))
}

/// The assignments of a file of UCX, in INI syntax. Those of a section for another CPU or system are left out.
fn assignments(text: &str) -> Vec<(&str, &str)> {
    let (mut assignments, mut applies) = (Vec::new(), true);
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            applies = true;
        }
        let Some((name, value)) = line.split_once(['=', ':']) else { continue };
        if line.starts_with(['#', ';']) {
            continue;
        }
        // A filter, as "CPU model=Grace".
        applies &= name.starts_with("UCX_");
        if applies {
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
            (EFA, "efa tcp,SHM efa;ofi_rxd ^tcp ^shm", "tcp ^shm,efa"),
            (Rule::NcclOne, "1 +1 0x1 01 1abc", "-1 0x1F 010 08 true + 99999999999999999999"),
            (Rule::NcclZero, "0 08 true 99999999999999999999", "1 2 -1"),
        ] {
            for (list, expected) in [(allowed, true), (refused, false)] {
                for value in list.split(' ') {
                    assert_eq!(rule.allows(Some(value)), expected, "{value}");
                }
            }
        }
    }

    #[test]
    fn files_of_ucx_have_comments_and_sections() {
        let text =
            "# UCX_TLS=a\n  UCX_TLS = rc ; why\n;x\nUCX_A:1#\n[G]\nCPU model=G\nUCX_B=2\n[H]\nUCX_C=3\nnonsense\n";
        assert_eq!(assignments(text), [("UCX_TLS", "rc"), ("UCX_A", "1#"), ("UCX_C", "3")]);
    }
}
