//! The report of `gdrcopy tune`, with its measurements and settings, as a shell fragment and as JSON.
#![forbid(unsafe_code)]

use std::fmt::Write;

use serde::Serialize;

use super::messages::HOST;
use super::settings::{Model, Setting};
use super::threshold::{Choice, Messages, Mode, choose};
use crate::measure::results::{Results, TIMES, table};
use crate::measure::session::EMULATED;
use crate::output::table::Table;

#[derive(Debug, Serialize)]
pub(super) struct Advice<'a> {
    #[serde(flatten)]
    results: &'a Results,
    /// True if the GPU is emulated, so that the numbers are meaningless.
    emulated: bool,
    put: Model,
    get: Model,
    settings: Vec<Setting>,
    /// The reasons why settings are missing.
    notes: Vec<String>,
    messages: Vec<Messages>,
}

impl<'a> Advice<'a> {
    pub(super) fn new(
        results: &'a Results,
        [put, get]: [Model; 2],
        messages: Vec<Messages>,
        mut notes: Vec<String>,
    ) -> Advice<'a> {
        let mut settings = Setting::model(put, get);
        let choice = choose(&messages, HOST);
        let mut of_gpus = messages.clone();
        of_gpus.retain(|row| row.route != HOST);
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
        let emulated = results.setup.emulated();
        Advice { results, emulated, put, get, settings, notes, messages }
    }

    /// Returns a shell fragment with the settings. The measurements and notes are comments in it.
    pub(super) fn text(&self) -> String {
        let mut columns = vec![("Copy", "direction"), ("Size(B)", "size_bytes")];
        columns.extend(TIMES);
        let mut comments = format!("{}\n{}\n", self.results.setup, table(&self.results.records, &columns));
        if !self.messages.is_empty() {
            let runs = self.messages.iter().map(|row| row.runs_ns[0].len()).max().unwrap_or(0);
            let _ = writeln!(comments, "Time of a message of UCX (us), median of {runs} runs\n{}", self.messages());
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

    fn messages(&self) -> Table {
        let mut table = Table::new(["Memory", "Size(B)", "Default", "Model", "Eager", "Rendezvous"]);
        for row in &self.messages {
            let mut cells = vec![row.route.clone(), row.size_bytes.to_string()];
            for mode in Mode::ALL {
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
