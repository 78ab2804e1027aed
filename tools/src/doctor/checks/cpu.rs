//! The CPU: which copy routine this project's library takes, and pages.
#![forbid(unsafe_code)]

use gdrcopy::routines;
use nix::unistd::{SysconfVar, sysconf};

use crate::cuda::GPU_PAGE;
use crate::doctor::finding::Finding;

pub(super) fn findings() -> Vec<Finding> {
    vec![kernel(), pages()]
}

fn kernel() -> Finding {
    let subject = "copy kernel";
    let names: Vec<_> = routines::supported()
        .map(|routine| routine.name())
        .collect();
    let request = std::env::var_os("GDRCOPY_ISA");
    let (chosen, all) = (routines::find(request.as_deref()).name(), names.join(", "));
    if let Some(refused) = request.filter(|name| name != chosen) {
        return Finding::warning(
            subject,
            format!(
                "{chosen}, not the {} that GDRCOPY_ISA asks for",
                refused.display()
            ),
            format!("unset GDRCOPY_ISA, or set it to one that this CPU has: {all}"),
        );
    }
    match (chosen, names.first()) {
        ("portable", Some(&best)) if best != chosen => Finding::warning(
            subject,
            "portable, as GDRCOPY_ISA asks: reads are slow",
            format!("unset GDRCOPY_ISA; the best one of this CPU is {best}"),
        ),
        _ => Finding::ok(subject, format!("{chosen}, of {all}")),
    }
}

fn pages() -> Finding {
    let subject = "pages";
    match sysconf(SysconfVar::PAGE_SIZE) {
        Ok(Some(size)) => Finding::ok(
            subject,
            format!(
                "{} KiB on the host, {} KiB on the GPU",
                size >> 10,
                GPU_PAGE >> 10
            ),
        ),
        _ => Finding::unknown(subject, "sysconf does not tell"),
    }
}
