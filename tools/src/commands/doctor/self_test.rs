//! Tests the library on each GPU by pin, map, write, read, and comparison with CUDA's
//! view.
#![forbid(unsafe_code)]

use gdrcopy::Version;
use nix::errno::Errno;

use super::backends::{Backends, UNSET};
use super::probe::{self, Answer, Failure, Wanted};
use super::report::{Cause, Finding};
use crate::cuda::survey::Gpu;
use crate::libgdrapi::search::Maker;

/// Causes of a failed test other than the system.
pub(super) struct Blame<'a> {
    /// Other problems, which the report lists above.
    pub(super) others: bool,
    /// How to get this project's library, if another one was tested.
    pub(super) instead: &'a dyn Fn() -> Option<String>,
}

/// Tests the GPUs of these numbers, or all.
pub(super) fn findings(
    asked: &[i32],
    library: &Wanted,
    gpus: &[Gpu],
    backends: Backends,
    blame: &Blame,
) -> Vec<Finding> {
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
            true => on_gpu(library, number, backends, blame),
            false => {
                let remedy = format!("CUDA has {}, counted from 0: nvidia-smi -L lists them", gpus.len());
                Finding::problem(format!("there is no GPU {number}"), remedy).about("not run")
            }
        })
        .collect()
}

fn on_gpu(library: &Wanted, number: i32, backends: Backends, blame: &Blame) -> Finding {
    match probe::ask(library, Some(number)) {
        Ok((answer, log)) => rate(number, &answer, &log, backends, blame),
        Err(error) => Finding::problem(format!("GPU {number}: {error:#}"), probe::NOT_STARTED).about("not run"),
    }
}

fn rate(number: i32, answer: &Answer, log: &str, backends: Backends, blame: &Blame) -> Finding {
    let Answer { mapping, dmabuf, failure, .. } = answer;
    if let Some(failure) = failure {
        let value = format!("GPU {number}: {}", failure.what);
        let is_ours = answer.library.as_ref().is_some_and(|library| Maker::of(&library.file) == Maker::This);
        let remedy = backend(answer, backends).unwrap_or_else(|| remedy(failure, log, blame, is_ours));
        let finding = Finding::problem(value, remedy).about("failed");
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

/// The remedy where a backend works that the library does not use.
fn backend(answer: &Answer, backends: Backends) -> Option<String> {
    let failure = answer.failure.as_ref().filter(|failure| !failure.corrupted)?;
    let (major, minor) = answer.library.as_ref()?.version?;
    let is_old = Version::new(major as u32, minor as u32) < Version::API;
    if is_old && backends.dmabuf && !backends.gdrdrv {
        return Some(format!(
            "have programs load libgdrapi {} or later, as {major}.{minor} does not work without the module gdrdrv; or \
             load that (modprobe gdrdrv)",
            Version::API
        ));
    }
    let refused = failure.errno == Some(Errno::EOPNOTSUPP as i32);
    (refused && backends.dmabuf_forced).then(|| UNSET.into())
}

fn remedy(failure: &Failure, log: &str, blame: &Blame, is_ours: bool) -> String {
    // An errno is of the system.
    let is_library = failure.errno.is_none() && !blame.others && !is_ours;
    if let Some(instead) = is_library.then(|| (blame.instead)()).flatten() {
        return instead;
    }
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
        Some(_) if blame.others => "see the problems above, and the kernel log (dmesg)",
        None if blame.others => "see the problems above; run a program with GDRCOPY_ENABLE_LOGGING=1 for details",
        Some(_) => "see the kernel log (dmesg)",
        None => "run a program with GDRCOPY_ENABLE_LOGGING=1 for details",
    }
    .into()
}
