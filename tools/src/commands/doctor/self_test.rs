//! Tests the library on each GPU by pin, map, write, read, and comparison with CUDA's view.
#![forbid(unsafe_code)]

use std::env;
use std::io;

use gdrcopy::Version;
use nix::errno::Errno;

use super::backends::Backends;
use super::driver;
use super::host;
use super::libraries::{faulty, instead, shown};
use super::probe::{self, Answer, Failure, Kind, Survey, Wanted};
use super::remedies::{Advice, Remedy};
use super::report::{Cause, Finding, Report};
use crate::libgdrapi::search::Maker;

/// The library to test, and what else may be at fault.
pub(super) struct SelfTest<'a> {
    pub(super) library: Wanted,
    pub(super) survey: Option<&'a Survey>,
    pub(super) backends: Backends,
    /// The report lists other problems.
    pub(super) others: bool,
    /// The names by which it was found; none of a file that is named.
    pub(super) names: &'a [&'static str],
}

impl SelfTest<'_> {
    /// Tests the GPUs of these numbers, or all, and reports each.
    pub(super) fn report(&self, asked: &[i32], report: &mut Report) -> io::Result<()> {
        let gpus = self.gpus(asked);
        if gpus.is_empty() {
            let value = match self.survey {
                Some(_) => "there is no GPU to run it on",
                None => "CUDA did not say which GPUs there are",
            };
            return report.add("self-test", vec![Finding::unknown("not run", value)]);
        }
        for (&gpu, tested) in gpus.iter().zip(1..) {
            let finding = self.run(gpu);
            if finding.subject == "passed" {
                report.passed();
            }
            let hangs = finding.advice.as_ref().is_some_and(|advice| advice.remedy.is_of_hang());
            report.add(format!("self-test on GPU {gpu}"), vec![finding])?;
            if hangs && tested < gpus.len() {
                let value = format!("not tried, as the self-test on GPU {gpu} did not end");
                return report.add("self-test on the other GPUs", vec![Finding::unknown("not run", value)]);
            }
        }
        Ok(())
    }

    /// The GPUs of these numbers, or all.
    fn gpus(&self, asked: &[i32]) -> Vec<i32> {
        match (asked, self.survey) {
            ([], Some(Survey { cuda, .. })) => {
                cuda.gpus.as_deref().unwrap_or_default().iter().map(|gpu| gpu.device.number).collect()
            }
            _ => asked.to_vec(),
        }
    }

    /// Tests a GPU. Its subject is `passed` if it has.
    fn run(&self, number: i32) -> Finding {
        let all = self.gpus(&[]);
        if !all.contains(&number) {
            let value = format!("there is no GPU {number}");
            return match env::var("CUDA_VISIBLE_DEVICES") {
                Ok(list) => {
                    Finding::problem("not run", format!("{value}, with CUDA_VISIBLE_DEVICES={list}"), Remedy::GpuHidden)
                }
                Err(_) => Finding::problem("not run", value, Remedy::GpuNumber.with("count", all.len())),
            };
        }
        let answer = probe::test(&self.library, Some(number));
        if let Some(failure) = &answer.failure {
            return self.rate(number, failure, &answer);
        }
        let mapping = answer.mapping.as_deref().unwrap_or("unknown");
        let backend = if answer.dmabuf { "a dma-buf" } else { "gdrdrv" };
        let size = probe::SIZE >> 10;
        let value =
            format!("{size} KiB written and read back through a {mapping} mapping of {backend}, as CUDA sees them");
        Finding::ok("passed", value)
    }

    fn rate(&self, number: i32, failure: &Failure, answer: &Answer) -> Finding {
        if let Kind::Cuda(code) = failure.kind {
            let libcuda = self.survey.and_then(|survey| survey.cuda.file.as_deref());
            let (cause, advice, passes) = driver::rate_error(code, number, libcuda);
            let value = format!("{}: {cause}", failure.text);
            return match passes && !failure.in_library {
                true => Finding::warning("not tested", value, advice),
                false => Finding::problem("failed", value, advice),
            };
        }
        if let Kind::NotAsked(_) = failure.kind {
            return failure.finding("not run", || Remedy::SelfTestLog.into());
        }
        let (advice, cause) = self.advice(failure, answer);
        Finding::problem("failed", &*failure.text, advice).caused_by(cause)
    }

    fn advice(&self, failure: &Failure, answer: &Answer) -> (Advice, Cause) {
        let library = answer.library.as_ref();
        let file = shown(library, &self.library);
        let is_ours = matches!(library, Some(library) if Maker::of(&library.file) == Maker::This);
        let or_others = if self.others { Cause::Others } else { Cause::Itself };
        match (&failure.kind, failure.in_library) {
            (Kind::Hung, false) => return (Remedy::GpuHung.into(), Cause::Itself),
            // The module may hang, or what the other problems are about.
            (Kind::Hung, true) => return (Remedy::SelfTestHung.with("file", file), or_others),
            (Kind::Died(_), false) => return (Remedy::CudaError.into(), Cause::Itself),
            (kind @ (Kind::Corrupted | Kind::Died(_)), _) => {
                let instead = if is_ours { None } else { instead(self.names) };
                return (instead.unwrap_or_else(|| faulty(kind).with("file", file)), Cause::Itself);
            }
            _ => {}
        }
        // A backend works that the library does not use.
        if let Some(version) = library.and_then(|library| library.release())
            && version < Version::API
            && self.backends.dmabuf
            && !self.backends.gdrdrv
        {
            let advice = Remedy::LibraryOld.with("oldest", Version::API).with("version", version);
            return (advice, Cause::Others);
        }
        let by_errno = match &failure.kind {
            Kind::Call(errno) => match Errno::from_raw(*errno) {
                Errno::EOPNOTSUPP if self.backends.dmabuf_forced => Some(Remedy::DmabufUnforced.into()),
                Errno::ENOMEM if failure.text.contains("pin") => Some(Remedy::Bar1Full.into()),
                errno @ (Errno::EMFILE | Errno::ENFILE) => Some(host::more_files(errno)),
                _ => None,
            },
            // An errno is of the system, anything else may be the library's fault.
            _ if !is_ours && !self.others => instead(self.names),
            _ => None,
        };
        // The last line of the log is the most specific.
        let line = answer.log.lines().rev().find_map(|line| line.strip_prefix("ERR:"));
        let advice = match (by_errno, line) {
            (Some(advice), _) => advice,
            (None, Some(line)) => Remedy::LibraryReports.with("line", line.trim()),
            (None, None) => Remedy::SelfTestLog.into(),
        };
        (advice, Cause::Others)
    }
}
