//! Tests the library on each GPU by pin, map, write, read, and comparison with CUDA's
//! view.
#![forbid(unsafe_code)]

use std::env;

use gdrcopy::Version;
use nix::errno::Errno;

use super::backends::Backends;
use super::driver;
use super::host;
use super::libraries::{faulty, is_ours, may_fail, shown};
use super::probe::{self, Answer, Failure, Kind, Survey, Wanted};
use super::remedies::{Advice, Remedy};
use super::report::{Cause, Finding};

/// The library to test, and what else may be at fault.
pub(super) struct SelfTest<'a> {
    pub(super) library: Wanted,
    pub(super) survey: Option<&'a Survey>,
    pub(super) backends: Backends,
    /// The report lists other problems.
    pub(super) others: bool,
    /// How to get this project's library, if another one is tested.
    pub(super) instead: &'a dyn Fn() -> Option<Advice>,
}

impl SelfTest<'_> {
    /// The GPUs of these numbers, or all.
    pub(super) fn gpus(&self, asked: &[i32]) -> Vec<i32> {
        let all = self.survey.and_then(|survey| survey.cuda.gpus.as_ref().ok()).map_or(&[][..], |gpus| gpus);
        match asked {
            [] => all.iter().map(|gpu| gpu.device.number).collect(),
            asked => asked.to_vec(),
        }
    }

    /// Tests a GPU. Its subject is `passed` if it has.
    pub(super) fn run(&self, number: i32) -> Finding {
        let all = self.gpus(&[]);
        if !all.contains(&number) {
            let mut value = format!("there is no GPU {number}");
            let mut advice = Remedy::GpuNumber.with("count", all.len());
            if let Ok(list) = env::var("CUDA_VISIBLE_DEVICES") {
                value += &format!(", with CUDA_VISIBLE_DEVICES={list}");
                advice = Remedy::GpuHidden.into();
            }
            return Finding::problem("not run", value, advice);
        }
        let answer = match probe::test(&self.library, Some(number)) {
            Ok(answer) => answer,
            Err(why) => return why.finding("not run"),
        };
        if let Some(failure) = &answer.failure {
            return self.rate(number, failure, &answer);
        }
        let mapping = answer.mapping.as_deref().unwrap_or("unknown");
        let backend = if answer.dmabuf { "a dma-buf" } else { "gdrdrv" };
        let size = probe::SIZE >> 10;
        let way = format!("through a {mapping} mapping of {backend}, as CUDA sees them");
        Finding::ok("passed", format!("{size} KiB written and read back {way}"))
    }

    fn rate(&self, number: i32, failure: &Failure, answer: &Answer) -> Finding {
        let file = shown(answer.library.as_ref(), &self.library);
        if let Kind::Cuda(code) = failure.kind {
            let libcuda = self.survey.and_then(|survey| survey.cuda.file.as_deref());
            let (cause, advice, passes) = driver::rate_error(code, number, libcuda);
            let value = format!("{}: {cause}", failure.text);
            return match passes && !failure.in_library {
                true => Finding::warning("not tested", value, advice),
                false => Finding::problem("failed", value, advice),
            };
        }
        let log = || {
            // The last line is the most specific.
            let line = answer.log.lines().filter_map(|line| line.strip_prefix("ERR:")).next_back()?;
            Some(Remedy::LibraryReports.with("line", line.trim()))
        };
        let is_foreign = !is_ours(answer.library.as_ref());
        let blamed = is_foreign && may_fail(&failure.kind) && (!self.others || failure.kind != Kind::Other);
        let instead = || if blamed { (self.instead)() } else { None };
        let (advice, cause) = match (&failure.kind, self.backend(answer, failure)) {
            (Kind::Hung, _) if !failure.in_library => (Remedy::GpuHung.into(), Cause::Itself),
            // The module may hang, or what the other problems are about.
            (Kind::Hung, _) => {
                let cause = if self.others { Cause::Others } else { Cause::Itself };
                (Remedy::SelfTestHung.with("file", file), cause)
            }
            (Kind::Died(_), _) if !failure.in_library => (Remedy::CudaError.into(), Cause::Itself),
            (Kind::Corrupted | Kind::Died(_), _) => {
                (instead().unwrap_or_else(|| faulty(&failure.kind).with("file", file)), Cause::Itself)
            }
            (_, Some(advice)) => (advice, Cause::Others),
            (Kind::Call(errno), None) => {
                let by_errno = match Errno::from_raw(*errno) {
                    Errno::ENOMEM if failure.text.contains("pin") => Some(Remedy::Bar1Full.into()),
                    errno @ (Errno::EMFILE | Errno::ENFILE) => Some(host::more_files(errno)),
                    _ => None,
                };
                (by_errno.or_else(log).unwrap_or(Remedy::SelfTestLog.into()), Cause::Others)
            }
            _ => (instead().or_else(log).unwrap_or(Remedy::SelfTestLog.into()), Cause::Others),
        };
        Finding::problem("failed", &*failure.text, advice).caused_by(cause)
    }

    /// The remedy where a backend works that the library does not use.
    fn backend(&self, answer: &Answer, failure: &Failure) -> Option<Advice> {
        let (major, minor) = answer.library.as_ref()?.version?;
        let is_old = Version::new(major as u32, minor as u32) < Version::API;
        if is_old && self.backends.dmabuf && !self.backends.gdrdrv {
            let advice = Remedy::LibraryOld.with("oldest", Version::API);
            return Some(advice.with("version", format!("{major}.{minor}")));
        }
        let is_refused = failure.kind == Kind::Call(Errno::EOPNOTSUPP as i32);
        (is_refused && self.backends.dmabuf_forced).then(|| Remedy::DmabufUnforced.into())
    }
}
