//! The sweep: opens the GPU and the libraries, then verifies and measures point after point.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use gdrcopy_tools::clock::Clock;
use gdrcopy_tools::cuda::{Gpu, PinnedBuffer};
use gdrcopy_tools::floor::LINE;
use gdrcopy_tools::library::Loader;
use gdrcopy_tools::progress;
use gdrcopy_tools::stats::Times;

use crate::environment::Environment;
use crate::method::Method;
use crate::options::{Direction, Options, Other};
use crate::plan::{self, Point};
use crate::results::{Outcome, Results, Row, Setup};
use crate::verify::Checker;

/// Fewest samples of which a median is told.
const MIN_REPETITIONS: usize = 21;
/// More samples tell nothing more.
const MAX_REPETITIONS: usize = 501;
/// A method is left out where its calls take longer than this many nanoseconds …
const SLOW: f64 = 2e6;
/// … and this many times as long as the first method's.
const SLOWER: f64 = 8.0;

/// Does all that the options ask for.
pub(crate) fn run(options: &Options) -> Result<Results> {
    match &options.cpu {
        Some(cpus) => cpus.allow_all()?,
        None => eprintln!("compare: not tied to a CPU (--cpu): times may vary threefold"),
    }
    let gpu = Gpu::open(options.gpu)?;
    let points = plan::points(options);
    ensure!(!points.is_empty(), "there is nothing to measure");
    let longest = |len: fn(&Point) -> usize| points.iter().map(len).max().unwrap_or(0);
    let methods = methods(options, gpu, longest(Point::device_len).max(2 << 20))?;
    if let Some(cpus) = &options.cpu {
        cpus.settle_on_first()?;
    }

    let bench = Bench {
        clock: Clock::calibrate(),
        cold: options.cold,
        share: Duration::from_secs(options.budget).as_nanos() as f64 / points.len() as f64,
    };
    let mut host = PinnedBuffer::alloc(gpu, longest(Point::host_len))?;
    let loads = || {
        methods[0]
            .loads(&bench.clock)
            .context("the first method is a library")
    };
    let before = loads()?;
    let mut rows: Vec<Row> = Vec::new();
    let progress = progress::bar(points.len());
    for point in points {
        progress.set_message(format!("{} {} B", point.direction.verb(), point.size));
        let outcomes = bench.measure(&methods, point, &mut host, rows.last())?;
        rows.push(Row { point, outcomes });
        progress.inc(1);
    }
    progress.finish_and_clear();
    let load = before.shorter(loads()?);

    Ok(Results {
        setup: setup(options, gpu, &methods),
        libraries: methods.len() - options.others.len(),
        methods: methods
            .into_iter()
            .map(|method| method.label.clone())
            .collect(),
        load,
        rows,
    })
}

/// Opens everything that is to be compared, the first library first.
fn methods(options: &Options, gpu: &'static Gpu, len: usize) -> Result<Vec<Method>> {
    let first = &options.libraries[0];
    let mut loader = Loader::default();
    let mut open = |label: String, file: &Path, environment: &Environment| {
        // SAFETY: this is the only thread so far that looks at the environment: drivers read it in
        // the calls that this thread makes.
        unsafe { Method::library(label, gpu, len, environment, || loader.load(file)) }
    };
    let mut methods = Vec::new();
    for library in &options.libraries {
        methods.push(open(
            library.label.clone(),
            &library.file,
            &Environment::default(),
        )?);
    }
    let mut variants = options.variants.clone();
    if options.kernel_matrix {
        let names = gdrcopy::routines::supported().map(|routine| routine.name());
        let environments = names.map(|name| format!("GDRCOPY_ISA={name}").parse());
        variants.extend(
            environments
                .collect::<Result<Vec<_>, _>>()
                .map_err(anyhow::Error::msg)?,
        );
    }
    for variant in &variants {
        let label = format!("{} {}", first.label, variant.label());
        methods.push(open(label, &first.file, variant)?);
    }
    for other in &options.others {
        methods.push(match other {
            Other::Memcpy => Method::memcpy(gpu, len, loader.load(&first.file)?)?,
            Other::CuMemcpy => Method::cumemcpy(gpu, len)?,
        });
    }
    Ok(methods)
}

/// How to measure.
struct Bench {
    clock: Clock,
    cold: bool,
    /// Nanoseconds that a point may take, repetitions beyond the fewest permitting.
    share: f64,
}

impl Bench {
    /// Verifies and times every method at this point. `smaller` is the row before it.
    fn measure(
        &self,
        methods: &[Method],
        point: Point,
        host: &mut PinnedBuffer,
        smaller: Option<&Row>,
    ) -> Result<Vec<Outcome>> {
        let mut checker = Checker::new(point);
        let mut outcomes = Vec::new();
        for (i, method) in methods.iter().enumerate() {
            outcomes.push(if smaller.is_some_and(|row| is_too_slow(row, &point, i)) {
                Outcome::LeftOut
            } else {
                match verify(method, &point, host, &mut checker)? {
                    Some(wrong) => Outcome::Failed(wrong),
                    None => Outcome::Timed(Times::of(vec![0.0])),
                }
            });
        }
        let sound = |outcome: &Outcome| matches!(outcome, Outcome::Timed(_));
        let timed: Vec<_> = (0..methods.len())
            .filter(|&i| sound(&outcomes[i]))
            .collect();
        checker.prepare_host(host);
        let samples = self.interleaved(methods, &timed, &point, host);
        for (&i, times) in timed.iter().zip(samples) {
            let repetitions = times.len();
            outcomes[i] =
                match self.verify_last(&methods[i], &point, host, &mut checker, repetitions)? {
                    Some(wrong) => Outcome::Failed(wrong),
                    None => Outcome::Timed(Times::of(times)),
                };
        }
        Ok(outcomes)
    }

    /// Times the methods of these numbers in turn, the order reversed at every other turn, until the
    /// point's share of the time is spent.
    fn interleaved(
        &self,
        methods: &[Method],
        timed: &[usize],
        point: &Point,
        host: &mut PinnedBuffer,
    ) -> Vec<Vec<f64>> {
        let mut samples = vec![Vec::new(); timed.len()];
        // The first two turns warm up, and tell how many there can be.
        let mut turn_ns = 0.0;
        for repetition in 0..2 {
            let turn = timed
                .iter()
                .map(|&i| self.sample(&methods[i], point, host, repetition));
            turn_ns = turn.sum::<f64>() * point.batch() as f64;
        }
        let affordable = (self.share / turn_ns.max(1.0)) as usize;
        for repetition in 0..affordable.clamp(MIN_REPETITIONS, MAX_REPETITIONS) {
            for k in 0..timed.len() {
                let k = if repetition % 2 == 0 {
                    k
                } else {
                    timed.len() - 1 - k
                };
                let ns = self.sample(&methods[timed[k]], point, host, repetition);
                samples[k].push(ns);
            }
        }
        samples
    }

    /// Nanoseconds a call in one batch.
    fn sample(
        &self,
        method: &Method,
        point: &Point,
        host: &mut PinnedBuffer,
        repetition: usize,
    ) -> f64 {
        let at = point.host_offset();
        if self.cold {
            flush(&host.as_slice()[at..][..point.size]);
        }
        let address = host.as_mut_ptr().wrapping_add(at);
        // SAFETY: the host buffer is long enough for every point, and borrowed mutably.
        unsafe { method.time(&self.clock, point, address, repetition * point.batch()) }
    }

    /// What is wrong after the timed copies: for reads, with one more; for writes, with all.
    fn verify_last(
        &self,
        method: &Method,
        point: &Point,
        host: &mut PinnedBuffer,
        checker: &mut Checker,
        repetitions: usize,
    ) -> Result<Option<String>> {
        checker.prepare_host(host);
        match point.direction {
            // All windows were written by `verify`, and must hold the same now.
            Direction::To => checker.written(&method.device, 0..point.windows()),
            Direction::From => {
                self.sample(method, point, host, repetitions);
                Ok(checker.read(host, repetitions))
            }
        }
    }
}

/// What is wrong with the method's copies to or from each window.
fn verify(
    method: &Method,
    point: &Point,
    host: &mut PinnedBuffer,
    checker: &mut Checker,
) -> Result<Option<String>> {
    checker.prepare(&method.device, host)?;
    for index in 0..point.windows() {
        let address = host.as_mut_ptr().wrapping_add(point.host_offset());
        let at = point.device_offset(index);
        // SAFETY: the host buffer is long enough for every point, and borrowed mutably.
        unsafe { method.copy(point.direction, address, at, point.size) };
        if point.direction == Direction::From {
            let wrong = checker.read(host, index);
            if wrong.is_some() {
                return Ok(wrong);
            }
            checker.prepare_host(host);
        }
    }
    match point.direction {
        Direction::To => checker.written(&method.device, 0..point.windows()),
        Direction::From => Ok(None),
    }
}

/// Whether a method is not worth waiting for, going by the smaller copies before.
fn is_too_slow(smaller: &Row, point: &Point, method: usize) -> bool {
    let before = &smaller.point;
    let same_column = (before.direction, before.alignment, before.host_alignment)
        == (point.direction, point.alignment, point.host_alignment);
    if !same_column || method == 0 {
        return false;
    }
    match (&smaller.outcomes[0], &smaller.outcomes[method]) {
        (_, Outcome::LeftOut) => true,
        (Outcome::Timed(first), Outcome::Timed(times)) => {
            let grown = point.size as f64 / before.size as f64;
            times.median * grown > SLOW && times.median > SLOWER * first.median
        }
        _ => false,
    }
}

/// Throws memory out of the CPU's caches.
fn flush(memory: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in memory.chunks(LINE) {
        // SAFETY: the line is readable; every x86-64 CPU has CLFLUSH and MFENCE.
        unsafe { std::arch::x86_64::_mm_clflush(line.as_ptr()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = memory;
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

fn setup(options: &Options, gpu: &Gpu, methods: &[Method]) -> Setup {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Setup {
        command: env::args().collect::<Vec<_>>().join(" "),
        time: now.map_or(0, |since| since.as_secs()),
        gpu: gpu.device().name.clone(),
        cuda_version: gpu.version,
        cpu_model: cpu_model().unwrap_or_else(|_| "unknown".into()),
        cpu: options.cpu.as_ref().map(|cpus| cpus.first()),
        mapping_type: methods[0].mapping_type().unwrap_or("none").into(),
        cold: options.cold,
    }
}

/// What the kernel calls the CPU.
fn cpu_model() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let model = lines.find(|(name, _)| name.trim() == "model name");
    Ok(model.context("no model name")?.1.trim().to_owned())
}
