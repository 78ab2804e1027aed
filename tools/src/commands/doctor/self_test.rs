//! Tests the library on each GPU by pin, map, write, read, and comparison with CUDA's view.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

use gdrcopy::Version;
use nix::errno::Errno;

use super::driver;
use super::environment::{Backends, more_files};
use super::libraries::{faulty, not_preloaded, unusable};
use super::probe::{self, Answer, Failure, Kind};
use super::remedies::{Advice, Remedy};
use super::report::{Cause, Finding, Report};
use crate::cuda::survey::Cuda;

/// The library to test, and what doctor knows of other possible causes of a failure.
pub(super) struct SelfTest<'a> {
    pub(super) library: PathBuf,
    pub(super) cuda: Option<&'a Cuda>,
    pub(super) backends: Backends,
    /// True if the report already lists problems. One of them may be the reason why the self-test fails.
    pub(super) others: bool,
}

impl SelfTest<'_> {
    /// Tests the GPUs with these numbers, or all GPUs if no number is given, and reports on each.
    pub(super) fn report(&self, asked: &[i32], report: &mut Report) -> io::Result<()> {
        let gpus = self.gpus(asked);
        if gpus.is_empty() {
            let value = match self.cuda {
                Some(_) => "there is no GPU to run it on",
                None => "CUDA did not say which GPUs there are",
            };
            return report.add("self-test", vec![Finding::unknown("not run", value)]);
        }
        for &gpu in &gpus {
            let finding = self.run(gpu);
            report.tested |= finding.subject == "passed";
            let remedy = finding.remedy;
            report.add(format!("self-test on GPU {gpu}"), vec![finding])?;
            if matches!(remedy, Some(Remedy::GpuHung | Remedy::SelfTestHung)) && gpu != gpus[gpus.len() - 1] {
                let value = format!("not tried, as the self-test on GPU {gpu} did not end");
                return report.add("self-test on the other GPUs", vec![Finding::unknown("not run", value)]);
            }
        }
        Ok(())
    }

    /// Returns the numbers in `asked` or, if it is empty, the numbers of all GPUs that CUDA lists.
    fn gpus(&self, asked: &[i32]) -> Vec<i32> {
        match (asked, self.cuda) {
            ([], Some(cuda)) => cuda.gpus.as_deref().unwrap_or_default().iter().map(|gpu| gpu.device.number).collect(),
            _ => asked.to_vec(),
        }
    }

    /// Tests the library on a GPU. The finding's subject is `passed` if the test has passed.
    fn run(&self, number: i32) -> Finding {
        let all = self.gpus(&[]);
        if !all.contains(&number) {
            let advice = Remedy::GpuNumber.with("count", all.len());
            return Finding::problem("not run", format!("there is no GPU {number}"), advice);
        }
        let answer = probe::test(&self.library, Some(number));
        if let Some(failure) = &answer.failure {
            return self.rate(number, failure, &answer);
        }
        let size = probe::SIZE >> 10;
        let value = format!("{size} KiB written and read back through a {}, as CUDA sees them", answer.mapping);
        Finding::ok("passed", value)
    }

    fn rate(&self, number: i32, failure: &Failure, answer: &Answer) -> Finding {
        if let Kind::Cuda(code) = failure.kind {
            let libcuda = self.cuda.and_then(|cuda| cuda.file.as_deref());
            let (cause, advice, passes) = driver::rate_error(code, number, libcuda);
            let value = format!("{}: {cause}", failure.text);
            return match passes && !failure.in_library {
                true => Finding::warning("not tested", value, advice),
                false => Finding::problem("failed", value, advice),
            };
        }
        let (advice, cause) = self.advice(failure, answer);
        Finding::problem("failed", &*failure.text, advice).caused_by(cause)
    }

    fn advice(&self, failure: &Failure, answer: &Answer) -> (Advice, Cause) {
        if failure.kind == Kind::NotStarted {
            return (Remedy::DoctorStart.into(), Cause::Itself);
        }
        let Some(library) = &answer.library else {
            return (unusable(&self.library, failure), Cause::Others);
        };
        let file = library.file.display();
        let or_others = if self.others { Cause::Others } else { Cause::Itself };
        if failure.in_library
            && let Some(advice) = not_preloaded(&library.file)
        {
            return (advice, or_others);
        }
        match (&failure.kind, failure.in_library) {
            (Kind::Hung, false) => return (Remedy::GpuHung.into(), Cause::Itself),
            // The module may hang, or the cause may be another problem that the report lists.
            (Kind::Hung, true) => return (Remedy::SelfTestHung.with("file", file), or_others),
            (Kind::Died(_), false) => return (Remedy::CudaError.into(), Cause::Itself),
            (kind @ (Kind::Corrupted | Kind::Died(_)), _) => return (faulty(kind).with("file", file), Cause::Itself),
            _ => {}
        }
        // Only dma-bufs work here, and this library is too old to use them.
        if let Some(version) = library.release()
            && version < Version::API
            && self.backends.dmabuf
            && !self.backends.gdrdrv
        {
            let advice = Remedy::LibraryOld.with("oldest", Version::API).with("version", version);
            return (advice, Cause::Others);
        }
        let errno = match failure.kind {
            Kind::Call(errno) => Errno::from_raw(errno),
            _ => Errno::UnknownErrno,
        };
        // The last line of the log is the most specific.
        let line = answer.log.lines().rev().find_map(|line| line.strip_prefix("ERR:"));
        let advice = match (errno, line) {
            (Errno::EOPNOTSUPP, _) if self.backends.dmabuf_forced => Remedy::DmabufUnforced.into(),
            (Errno::ENOMEM, _) if failure.text.contains("pin") => Remedy::Bar1Full.into(),
            (Errno::EMFILE | Errno::ENFILE, _) => more_files(errno).into(),
            (_, Some(line)) => Remedy::LibraryReports.with("line", line.trim()),
            (_, None) => Remedy::SelfTestLog.into(),
        };
        (advice, Cause::Others)
    }
}
