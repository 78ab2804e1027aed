//! Limits of this process that programs inherit.
#![forbid(unsafe_code)]

use std::fs;

use nix::libc::rlim_t;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::Ways;
use crate::doctor::finding::Finding;

/// Descriptors below which programs run into the limit by themselves, and with a pin each.
const FEW: rlim_t = 256;
const FEW_FOR_DMABUFS: rlim_t = 1024;

/// Bytes of locked memory below which RDMA stacks cannot register buffers.
const LITTLE_LOCKED: rlim_t = 64 << 20;

pub(super) fn findings(ways: Ways) -> Vec<Finding> {
    vec![descriptors(ways), locked_memory()]
}

fn descriptors(ways: Ways) -> Finding {
    let subject = "open files";
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Finding::unknown(subject, "getrlimit does not tell");
    };
    let uses_dmabufs = ways.need_dmabuf() && ways.dmabuf;
    let enough = if uses_dmabufs { FEW_FOR_DMABUFS } else { FEW };
    let value = match uses_dmabufs {
        true => format!("{}, and each pin takes one", limit(soft)),
        false => limit(soft),
    };
    if soft < enough {
        return Finding::warning(
            subject,
            value,
            format!(
                "raise the limit: ulimit -n {} (LimitNOFILE= in a service)",
                limit(hard.min(65536))
            ),
        );
    }
    Finding::ok(subject, value)
}

fn locked_memory() -> Finding {
    let subject = "locked memory";
    let Ok((soft, _)) = getrlimit(Resource::RLIMIT_MEMLOCK) else {
        return Finding::unknown(subject, "getrlimit does not tell");
    };
    let value = match soft {
        RLIM_INFINITY => limit(soft),
        bytes => format!("{} KiB; gdrcopy locks none", bytes >> 10),
    };
    let has_rdma =
        fs::read_dir("/sys/class/infiniband").is_ok_and(|mut cards| cards.next().is_some());
    if has_rdma && soft < LITTLE_LOCKED {
        return Finding::warning(
            subject,
            format!("{value}, but this machine's RDMA network card does"),
            "raise the limit: ulimit -l unlimited (LimitMEMLOCK= in a service, --ulimit \
             memlock=-1 for a container)",
        );
    }
    Finding::ok(subject, value)
}

fn limit(value: rlim_t) -> String {
    match value {
        RLIM_INFINITY => "unlimited".into(),
        value => value.to_string(),
    }
}
