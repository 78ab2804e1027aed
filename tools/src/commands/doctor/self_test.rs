//! Tests the library on each GPU by pin, map, write, read, and comparison with CUDA's
//! view.
#![forbid(unsafe_code)]

use nix::errno::Errno;

use super::probe::{self, Answer, Failure, Reply, Wanted};
use super::report::{Cause, Finding};
use crate::cuda::survey::Gpu;

/// Tests the GPUs of these numbers, or all.
pub(super) fn findings(asked: &[i32], library: &Wanted, gpus: &[Gpu]) -> Vec<Finding> {
    let numbers: Vec<_> = match asked {
        [] => gpus.iter().map(|gpu| gpu.number).collect(),
        asked => asked.to_vec(),
    };
    if numbers.is_empty() {
        return vec![Finding::unknown("not run", "there is no GPU to run it on")];
    }
    let exists = |number| gpus.iter().any(|gpu| gpu.number == number);
    numbers
        .into_iter()
        .map(|number| match exists(number) {
            true => on_gpu(library, number),
            false => Finding::problem(
                "not run",
                format!("there is no GPU {number}"),
                format!("CUDA has {}, counted from 0: nvidia-smi -L lists them", gpus.len()),
            ),
        })
        .collect()
}

fn on_gpu(library: &Wanted, number: i32) -> Finding {
    match probe::ask(library, Some(number)) {
        Ok(reply) => rate(number, &reply),
        Err(error) => Finding::problem("not run", format!("GPU {number}: {error:#}"), probe::NOT_STARTED),
    }
}

fn rate(number: i32, reply: &Reply) -> Finding {
    let Answer { mapping, dmabuf, failure, .. } = &reply.answer;
    if let Some(failure) = failure {
        let value = format!("GPU {number}: {}", failure.what);
        let finding = Finding::problem("failed", value, remedy(failure, &reply.log));
        return match failure.corrupted {
            true => finding,
            false => finding.caused_by(Cause::Others),
        };
    }
    let mapping = mapping.as_deref().unwrap_or("unknown");
    let backend = if *dmabuf { "a dma-buf" } else { "gdrdrv" };
    Finding::ok(
        "passed",
        format!(
            "GPU {number}: {} KiB written and read back through a {mapping} mapping of {backend}, \
             as CUDA sees them",
            probe::SIZE >> 10
        ),
    )
}

fn remedy(failure: &Failure, log: &str) -> String {
    if failure.corrupted {
        return "do not use this library here: use another one (--lib), and report this one".into();
    }
    // The last line is the most specific.
    let last = log.lines().filter_map(|line| line.strip_prefix("ERR:")).next_back();
    if let Some(line) = last {
        return format!("the library reports: {}", line.trim());
    }
    match failure.errno.map(Errno::from_raw) {
        Some(Errno::ENOMEM) => "BAR1 or memory is used up: end programs that hold pins",
        Some(Errno::EMFILE) => "no file descriptor is left: raise the limit (ulimit -n)",
        Some(Errno::EOPNOTSUPP) => "this GPU does not support this: see above",
        Some(_) => "see the problems above, and the kernel log (dmesg)",
        None => "see the problems above; run a program with GDRCOPY_ENABLE_LOGGING=1 for details",
    }
    .into()
}
