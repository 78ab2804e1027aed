//! Tests the library on each GPU by pin, map, write, read, and comparison with CUDA's
//! view.
#![forbid(unsafe_code)]

use nix::errno::Errno;

use super::probe::{self, Answer, Failure, Wanted};
use super::report::{Cause, Finding};
use crate::cuda::survey::Gpu;

/// Tests the GPUs of these numbers, or all.
pub(super) fn findings(asked: &[i32], library: &Wanted, gpus: &[Gpu]) -> Vec<Finding> {
    let numbers: Vec<_> = match asked {
        [] => gpus.iter().map(|gpu| gpu.device.number).collect(),
        asked => asked.to_vec(),
    };
    if numbers.is_empty() {
        return vec![Finding::unknown("there is no GPU to run it on").about("not run")];
    }
    let exists = |number| gpus.iter().any(|gpu| gpu.device.number == number);
    numbers
        .into_iter()
        .map(|number| match exists(number) {
            true => on_gpu(library, number),
            false => {
                let remedy = format!("CUDA has {}, counted from 0: nvidia-smi -L lists them", gpus.len());
                Finding::problem(format!("there is no GPU {number}"), remedy).about("not run")
            }
        })
        .collect()
}

fn on_gpu(library: &Wanted, number: i32) -> Finding {
    match probe::ask(library, Some(number)) {
        Ok((answer, log)) => rate(number, &answer, &log),
        Err(error) => Finding::problem(format!("GPU {number}: {error:#}"), probe::NOT_STARTED).about("not run"),
    }
}

fn rate(number: i32, answer: &Answer, log: &str) -> Finding {
    let Answer { mapping, dmabuf, failure, .. } = answer;
    if let Some(failure) = failure {
        let value = format!("GPU {number}: {}", failure.what);
        let finding = Finding::problem(value, remedy(failure, log)).about("failed");
        return match failure.corrupted {
            true => finding,
            false => finding.caused_by(Cause::Others),
        };
    }
    let mapping = mapping.as_deref().unwrap_or("unknown");
    let backend = if *dmabuf { "a dma-buf" } else { "gdrdrv" };
    let size = probe::SIZE >> 10;
    let how = format!("through a {mapping} mapping of {backend}, as CUDA sees them");
    Finding::ok(format!("GPU {number}: {size} KiB written and read back {how}")).about("passed")
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
