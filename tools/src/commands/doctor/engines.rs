//! Settings in the environment by which UCX, NCCL and libfabric do without libgdrapi.
#![forbid(unsafe_code)]

use std::env;

use super::report::Finding;

/// A variable that switches libgdrapi on or off in an engine.
struct Switch {
    name: &'static str,
    engine: &'static str,
    /// What a true value means.
    enables: bool,
}

const SWITCHES: [Switch; 5] = [
    Switch {
        name: NCCL,
        engine: "NCCL",
        enables: true,
    },
    Switch {
        name: "NCCL_GDRCOPY_FIFO_ENABLE",
        engine: "NCCL's FIFOs",
        enables: true,
    },
    Switch {
        name: "NCCL_GDRCOPY_SYNC_ENABLE",
        engine: "NCCL's synchronization",
        enables: true,
    },
    Switch {
        name: "FI_HMEM_CUDA_USE_GDRCOPY",
        engine: "libfabric",
        enables: true,
    },
    Switch {
        name: "DOCA_GPUNETIO_DISABLE_GDRCOPY",
        engine: "GPUNetIO",
        enables: false,
    },
];

/// The only switch that is off by default.
const NCCL: &str = "NCCL_GDRCOPY_ENABLE";

/// Entries of UCX_TLS that contain the transport gdr_copy.
const WITH_GDR_COPY: [&str; 2] = ["gdr_copy", "cuda"];

pub(super) fn findings() -> Vec<Finding> {
    let mut findings = vec![ucx_transports(env::var("UCX_TLS").ok().as_deref())];
    for Switch {
        name,
        engine,
        enables,
    } in SWITCHES
    {
        findings.extend(match env::var(name) {
            Ok(value) if is_true(&value) == enables => Some(Finding::ok(name, value)),
            Ok(value) => Some(Finding::warning(
                name,
                format!("{value}: {engine} does without libgdrapi"),
                match name {
                    NCCL => format!("set {name}=1"),
                    _ => format!("unset {name}"),
                },
            )),
            Err(_) if name == NCCL => Some(Finding::ok(
                name,
                "not set: NCCL does without libgdrapi; 1 has NCCL use it",
            )),
            Err(_) => None,
        });
    }
    findings
}

fn is_true(value: &str) -> bool {
    let falsehoods = ["0", "n", "no", "false", "off"];
    !falsehoods.contains(&value.to_lowercase().as_str())
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
    fn transports_of_ucx_with_and_without_gdr_copy() {
        let verdict = |list| ucx_transports(Some(list)).verdict;
        for list in [
            "all",
            "rc,cuda",
            "sm,cuda_copy,gdr_copy",
            "\\gdr_copy",
            "^cuda_ipc",
            "^rc",
        ] {
            assert_eq!(verdict(list), Verdict::Ok, "{list}");
        }
        for list in [
            "rc,sm",
            "sm,cuda_copy,cuda_ipc",
            "^gdr_copy",
            "^rc,cuda",
            "",
        ] {
            assert_eq!(verdict(list), Verdict::Warning, "{list}");
        }
    }
}
