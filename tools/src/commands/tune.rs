//! `gdrcopy tune`: measures the mapping, and prints the settings of UCX and NCCL that fit it.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{Args, value_parser};
use serde::Serialize;

use crate::measure::chart::Plot;
use crate::measure::plan::{Cold, Direction, Point};
use crate::measure::results::{Results, mib_per_second};
use crate::measure::sampler::{Repetitions, Sweep};
use crate::measure::session::{EMULATED, Extra, Session, Setup};
use crate::measure::target::Target;
use crate::output::table::Table;
use crate::output::{Output, microseconds};
use crate::system::interrupt;

/// The options of `gdrcopy tune`.
///
/// The text output is a shell fragment, where all but the settings are comments.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy tune --cpu 4 >tune.env && set -a && . ./tune.env")]
pub(crate) struct Options {
    /// Time for more than the minimum of 21 samples per size and direction
    #[arg(
        long,
        default_value_t = 2,
        value_name = "SECONDS",
        value_parser = value_parser!(u64).range(1..=3600)
    )]
    budget: u64,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    plot: Plot,
}

/// The sizes whose times define the models; those between show how well the models fit.
const SIZES: [usize; 6] = [8, 64, 512, 4096, 32768, 65536];

/// UCX's model of a direction, where a copy takes the latency, and its size over the
/// bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Model {
    latency_ns: f64,
    mib_per_s: f64,
}

impl Model {
    /// The one that UCX has for CPUs and GPUs that it does not know.
    fn default_of(direction: Direction) -> Model {
        let (latency_ns, mib_per_s) = match direction {
            Direction::Write => (400.0, 6911.0),
            Direction::Read => (1400.0, 250.0),
        };
        Model { latency_ns, mib_per_s }
    }

    /// The line through the times of the smallest and the largest copy.
    fn through(smallest: (usize, f64), largest: (usize, f64)) -> Option<Model> {
        let (bytes, ns) = (largest.0 - smallest.0, largest.1 - smallest.1);
        Some(Model { latency_ns: smallest.1, mib_per_s: mib_per_second(bytes, ns)? })
    }

    /// Nanoseconds that it expects of a copy of this size.
    fn time(&self, bytes: usize) -> f64 {
        let bytes_per_ns = self.mib_per_s * f64::from(1 << 20) / 1e9;
        self.latency_ns + bytes as f64 / bytes_per_ns
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let points = points();
    let len = points.iter().map(Point::device_len).max().unwrap_or(0);
    let extra = Extra { max_libraries: 1, ..Extra::default() };
    let session = Session::open("tune", &options.target, len, &extra)?;
    let budget = Duration::from_secs(options.budget).as_nanos() as f64;
    let share = Repetitions::Budget(budget / points.len() as f64);
    let sweep = Sweep {
        points: points.into_iter().map(|point| (point, share)).collect(),
        verify: options.target.verify,
        cold: Cold::default(),
    };
    let results = sweep.run(&session)?;
    if let Some(failure) = results.failures().next() {
        bail!("wrong copy: {failure}. Do not use this library");
    }
    if results.interrupted {
        eprintln!("gdrcopy tune: interrupted: no settings");
        return Ok(ExitCode::from(interrupt::STATUS));
    }
    let advice = Advice::new(&results)?;
    let rows = &advice.records;
    options.output.write(|| advice.text(), &advice, rows)?;
    options.plot.draw(&advice)?;
    Ok(ExitCode::SUCCESS)
}

/// The measured points, as the sizes of both directions.
fn points() -> Vec<Point> {
    let of_direction = |direction| SIZES.map(|size| Point::spread(direction, size, 0, 0));
    Direction::BOTH.into_iter().flat_map(of_direction).collect()
}

#[derive(Debug, Serialize)]
struct Advice<'a> {
    setup: &'a Setup,
    /// The GPU is emulated, so the numbers are meaningless.
    emulated: bool,
    put: Model,
    get: Model,
    settings: Vec<Setting>,
    records: Vec<Record>,
}

#[derive(Debug, Serialize)]
struct Setting {
    name: &'static str,
    value: String,
    purpose: &'static str,
}

/// The time of a copy, as measured, and as expected by UCX.
#[derive(Debug, Serialize)]
struct Record {
    direction: Direction,
    size_bytes: usize,
    p0_ns: f64,
    p50_ns: f64,
    p99_ns: f64,
    /// With the settings.
    tuned_ns: f64,
    /// Without them.
    default_ns: f64,
}

impl<'a> Advice<'a> {
    fn new(results: &'a Results) -> Result<Advice<'a>> {
        let (put, get) = (model(results, Direction::Write)?, model(results, Direction::Read)?);
        let records = results.rows.iter().filter_map(|row| {
            let (direction, size_bytes) = (row.point.direction, row.point.size);
            let tuned = match direction {
                Direction::Write => put,
                Direction::Read => get,
            };
            let times = row.times(0)?;
            Some(Record {
                direction,
                size_bytes,
                p0_ns: times.p0,
                p50_ns: times.median,
                p99_ns: times.p99,
                tuned_ns: tuned.time(size_bytes),
                default_ns: Model::default_of(direction).time(size_bytes),
            })
        });
        Ok(Advice {
            setup: &results.setup,
            emulated: results.setup.emulated(),
            put,
            get,
            settings: settings(put, get),
            records: records.collect(),
        })
    }

    /// A shell fragment.
    fn text(&self) -> String {
        let mut comments = self.setup.to_string();
        let _ = writeln!(comments, "\nTime of a copy, and what UCX expects\n{}", self.table());
        if self.emulated {
            let _ = writeln!(comments, "{EMULATED}");
        }
        let mut text = String::new();
        for line in comments.lines() {
            let _ = writeln!(text, "{}", format!("# {line}").trim_end());
        }
        for Setting { name, value, purpose } in &self.settings {
            let _ = write!(text, "\n# {purpose}\n{name}={value}\n");
        }
        text
    }

    fn table(&self) -> Table {
        let names = ["Copy", "Size(B)", "P50(us)", "Tuned(us)", "Default(us)"];
        let mut table = Table::new(names);
        for record in &self.records {
            let times = [record.p50_ns, record.tuned_ns, record.default_ns];
            let mut cells = vec![record.direction.name().to_owned(), record.size_bytes.to_string()];
            cells.extend(times.map(microseconds));
            table.push(cells);
        }
        table
    }
}

fn model(results: &Results, direction: Direction) -> Result<Model> {
    let rows = results.rows.iter();
    let of_direction = rows.filter(|row| row.point.direction == direction);
    let times: Vec<_> = of_direction.filter_map(|row| Some((row.point.size, row.times(0)?.median))).collect();
    ensure!(times.len() == SIZES.len(), "not all sizes were measured");
    match Model::through(times[0], times[times.len() - 1]) {
        Some(model) => Ok(model),
        None => bail!(
            "a {} of {} bytes took no longer than one of {}: run it again on an idle CPU (--cpu)",
            direction.name(),
            SIZES[SIZES.len() - 1],
            SIZES[0]
        ),
    }
}

fn settings(put: Model, get: Model) -> Vec<Setting> {
    vec![
        Setting {
            name: "UCX_GDR_COPY_BW",
            // UCX counts in MiB.
            value: format!("get_dedicated:{:.0}MBs,put_shared:{:.0}MBs", get.mib_per_s, put.mib_per_s),
            purpose: "UCX: bandwidth of reads and writes; without it UCX's built-in numbers count",
        },
        Setting {
            name: "UCX_GDR_COPY_LAT",
            value: format!("get:{:.3}us,put:{:.3}us", get.latency_ns / 1000.0, put.latency_ns / 1000.0),
            purpose: "UCX: latency of reads and writes",
        },
        Setting { name: "NCCL_GDRCOPY_ENABLE", value: "1".into(), purpose: "NCCL: use libgdrapi; the default is 0" },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_meets_the_smallest_and_the_largest_copy() {
        // 64 KiB at 1 GiB/s take 61035 ns.
        let model = Model::through((8, 1000.0), (65536, 62000.0)).unwrap();
        assert_eq!(model.latency_ns, 1000.0);
        assert!((model.time(65536) - 62000.0).abs() < 10.0, "{model:?}");
        assert_eq!(model.mib_per_s.round(), 1024.0);
        assert_eq!(Model::through((8, 1000.0), (65536, 1000.0)), None);
    }

    #[test]
    fn settings_have_the_syntax_of_ucx() {
        let model = |latency_ns, mib_per_s| Model { latency_ns, mib_per_s };
        let settings = settings(model(130.4, 19999.6), model(1000.0, 987.2));
        let values: Vec<_> = settings.iter().map(|setting| &setting.value[..]).collect();
        let expected = ["get_dedicated:987MBs,put_shared:20000MBs", "get:1.000us,put:0.130us", "1"];
        assert_eq!(values, expected);
    }
}
