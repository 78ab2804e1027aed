//! The measurements and settings, as a shell fragment and JSON.
#![forbid(unsafe_code)]

use std::fmt::Write;

use serde::Serialize;

use super::messages::HOST;
use super::model::Model;
use super::settings::Setting;
use super::threshold::{Choice, Messages, Mode, choose};
use crate::measure::plan::Direction;
use crate::measure::results::Results;
use crate::measure::session::{EMULATED, Setup};
use crate::measure::stats::Times;
use crate::output::microseconds;
use crate::output::table::Table;

#[derive(Debug, Serialize)]
pub(super) struct Advice<'a> {
    setup: &'a Setup,
    /// The GPU is emulated, so the numbers are meaningless.
    emulated: bool,
    put: Model,
    get: Model,
    settings: Vec<Setting>,
    /// Why there are not more settings.
    notes: Vec<String>,
    records: Vec<Record>,
    messages: Vec<Messages>,
}

/// The time of a copy, as measured, and as expected by UCX.
#[derive(Debug, Serialize)]
pub(super) struct Record {
    direction: Direction,
    size_bytes: usize,
    #[serde(flatten)]
    times: Times,
    /// With the settings.
    tuned_ns: f64,
    /// Without them.
    default_ns: f64,
}

impl<'a> Advice<'a> {
    pub(super) fn new(
        results: &'a Results,
        [put, get]: [Model; 2],
        messages: Vec<Messages>,
        mut notes: Vec<String>,
    ) -> Advice<'a> {
        let records = results.rows.iter().filter_map(|row| {
            let (direction, size_bytes) = (row.point.direction, row.point.size);
            let tuned = match direction {
                Direction::Write => put,
                Direction::Read => get,
            };
            Some(Record {
                direction,
                size_bytes,
                times: *row.times(0)?,
                tuned_ns: tuned.time(size_bytes),
                default_ns: Model::default_of(direction).time(size_bytes),
            })
        });
        let mut settings = Setting::model(put, get);
        let choice = choose(&messages, HOST);
        let of_gpus: Vec<_> = messages.iter().filter(|row| row.route != HOST).cloned().collect();
        let for_gpus = choose(&of_gpus, HOST);
        if let Choice::Threshold(size) = for_gpus
            && for_gpus != choice
        {
            let Setting { name, value, .. } = Setting::threshold(size);
            notes.push(format!("{name}={value} is best for GPU memory, but makes messages of host memory slower"));
        }
        match choice {
            Choice::Threshold(size) => settings.push(Setting::threshold(size)),
            Choice::Model if messages.is_empty() => {}
            Choice::Model => notes.push(
                "UCX_RNDV_THRESH is not set: no value was found that makes messages faster, and none slower".into(),
            ),
            Choice::Default(size) => {
                notes.push(format!(
                    "UCX keeps its own numbers: with those measured, messages of {size} bytes are slower, or fail"
                ));
                settings.clear();
            }
        }
        settings.push(Setting::nccl());
        Advice {
            setup: &results.setup,
            emulated: results.setup.emulated(),
            put,
            get,
            settings,
            notes,
            records: records.collect(),
            messages,
        }
    }

    /// A shell fragment.
    pub(super) fn text(&self) -> String {
        let mut comments = self.setup.to_string();
        let _ = writeln!(comments, "\nTime of a copy, and what UCX expects\n{}", self.copies());
        if !self.messages.is_empty() {
            let runs = self.messages.iter().map(|row| row.runs_ns[0].len()).max().unwrap_or(0);
            let _ = writeln!(comments, "Time of a message of UCX (us), median of {runs} runs\n{}", self.table());
        }
        for note in &self.notes {
            let _ = writeln!(comments, "{note}");
        }
        if self.emulated {
            let _ = writeln!(comments, "{EMULATED}");
        }
        let mut text = String::new();
        for line in comments.lines() {
            let _ = writeln!(text, "{}", format!("# {line}").trim_end());
        }
        for setting in &self.settings {
            text.push_str(&setting.text());
        }
        text
    }

    fn copies(&self) -> Table {
        let names = ["Copy", "Size(B)", "P50(us)", "Tuned(us)", "Default(us)"];
        let mut table = Table::new(names);
        for record in &self.records {
            let times = [record.times.median, record.tuned_ns, record.default_ns];
            let mut cells = vec![record.direction.name().to_owned(), record.size_bytes.to_string()];
            cells.extend(times.map(microseconds));
            table.push(cells);
        }
        table
    }

    fn table(&self) -> Table {
        let mut table = Table::new(["Memory", "Size(B)"].into_iter().chain(Mode::ALL.map(|(_, name)| name)));
        for row in &self.messages {
            let mut cells = vec![row.route.clone(), row.size_bytes.to_string()];
            for (mode, _) in Mode::ALL {
                cells.push(match row.median(mode) {
                    Some(ns) => format!("{:.2}", ns / 1000.0),
                    None => "-".into(),
                });
            }
            table.push(cells);
        }
        table
    }
}
