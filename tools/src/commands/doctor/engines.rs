//! Settings in the environment by which UCX, NCCL, NVSHMEM and libfabric do without libgdrapi.
#![forbid(unsafe_code)]

use std::env;

use super::report::Finding;

/// A variable that switches libgdrapi on or off in an engine: its name, the engine, what a true value
/// means, how the engine reads it.
type Switch = (&'static str, &'static str, bool, fn(&str) -> Option<bool>);

const SWITCHES: [Switch; 8] = [
    (NCCL, "NCCL", true, number),
    ("NCCL_GDRCOPY_FIFO_ENABLE", "NCCL's FIFOs", true, number),
    ("NCCL_GDRCOPY_SYNC_ENABLE", "NCCL's synchronization", true, number),
    // 1 and 2 both skip libgdrapi.
    ("NCCL_GDRCOPY_USE_INTERNAL_DMABUF", "NCCL", false, number),
    ("NVSHMEM_DISABLE_GDRCOPY", "NVSHMEM", false, word),
    ("NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF", "NVSHMEM", false, word),
    ("FI_HMEM_CUDA_USE_GDRCOPY", "libfabric", true, word),
    ("DOCA_GPUNETIO_DISABLE_GDRCOPY", "GPUNetIO", false, word),
];

fn word(value: &str) -> Option<bool> {
    let falsehoods = ["0", "n", "no", "false", "off"];
    Some(!falsehoods.contains(&value.to_lowercase().as_str()))
}

/// NCCL takes only numbers, and its default for anything else.
fn number(value: &str) -> Option<bool> {
    value.parse::<i64>().ok().map(|number| number != 0)
}

/// The only switch by which an engine does without libgdrapi unless it is set.
const NCCL: &str = "NCCL_GDRCOPY_ENABLE";

/// Entries of UCX_TLS that contain the transport gdr_copy.
const WITH_GDR_COPY: [&str; 2] = ["gdr_copy", "cuda"];

pub(super) fn findings() -> Vec<Finding> {
    let mut findings = vec![ucx_transports(env::var("UCX_TLS").ok().as_deref())];
    for (name, engine, enables, read) in SWITCHES {
        let value = match env::var(name) {
            Ok(value) => value,
            Err(_) if name == NCCL => {
                let text = "not set: NCCL does without libgdrapi; 1 has NCCL use it";
                findings.push(Finding::ok(name, text));
                continue;
            }
            Err(_) => continue,
        };
        let uses = read(&value).map_or(name != NCCL, |on| on == enables);
        findings.push(match uses {
            true => Finding::ok(name, value),
            false => Finding::warning(
                name,
                format!("{value}: {engine} does without libgdrapi"),
                match name {
                    NCCL => format!("set {name}=1"),
                    _ => format!("unset {name}"),
                },
            ),
        });
    }
    findings
}

/// Whether UCX may use gdr_copy with this value of UCX_TLS.
fn ucx_transports(list: Option<&str>) -> Finding {
    let subject = "UCX_TLS";
    let Some(list) = list else {
        return Finding::ok(subject, "not set: UCX may use gdr_copy");
    };
    let (names, excluded) = match list.strip_prefix('^') {
        Some(names) => (names, true),
        None => (list, false),
    };
    let named = |wanted: &[&str]| {
        let names = names.split(',').map(|name| name.trim_start_matches('\\'));
        names.map(str::trim).any(|name| wanted.contains(&name))
    };
    let allowed = match excluded {
        true => !named(&WITH_GDR_COPY),
        false => named(&WITH_GDR_COPY) || named(&["all"]),
    };
    match allowed {
        true => Finding::ok(subject, format!("{list}: UCX may use gdr_copy")),
        false => Finding::warning(
            subject,
            format!("{list}: UCX does not use gdr_copy"),
            match excluded {
                true => "unset UCX_TLS, or remove gdr_copy and cuda from it",
                false => "unset UCX_TLS, or add gdr_copy to it",
            },
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    #[test]
    fn nccl_takes_numbers_only() {
        for (value, meaning) in
            [("1", Some(true)), ("2", Some(true)), ("0", Some(false)), ("true", None), ("", None)]
        {
            assert_eq!(number(value), meaning, "{value}");
        }
    }

    #[test]
    fn transports_of_ucx_with_and_without_gdr_copy() {
        let verdict = |list| ucx_transports(Some(list)).verdict;
        for list in ["all", "rc,cuda", "sm,cuda_copy,gdr_copy", "\\gdr_copy", "^cuda_ipc", "^rc"] {
            assert_eq!(verdict(list), Verdict::Ok, "{list}");
        }
        for list in ["rc,sm", "sm,cuda_copy,cuda_ipc", "^gdr_copy", "^rc,cuda", ""] {
            assert_eq!(verdict(list), Verdict::Warning, "{list}");
        }
    }
}
