//! The findings, printed section by section as they are known, with the steps at the end; or all of it as JSON.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::{Serialize, Serializer};

use super::remedies::Advice;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As expected.
    Ok,
    /// Not reported by the system.
    Unknown,
    /// Works, but with reduced performance or functionality.
    Warning,
    /// Prevents gdrcopy from working.
    Problem,
}

/// The cause of a problem, so that its remedy is a step of its own, part of one, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cause {
    Itself,
    /// As long as it is there, no other step helps.
    Nothing,
    /// One of these two backends is enough.
    Gdrdrv,
    DmaBuf,
    /// Most likely the other problems.
    Others,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) subject: &'static str,
    pub(super) verdict: Verdict,
    pub(super) value: String,
    /// Set for each warning and problem.
    #[serde(rename = "remedy", serialize_with = "identifier")]
    pub(super) advice: Option<Advice>,
    #[serde(skip)]
    pub(super) cause: Cause,
}

fn identifier<S: Serializer>(advice: &Option<Advice>, out: S) -> Result<S::Ok, S::Error> {
    let remedy = advice.as_ref().map(|advice| advice.remedy);
    remedy.serialize(out)
}

impl Finding {
    pub(super) fn ok(subject: &'static str, value: impl Into<String>) -> Finding {
        Finding { subject, verdict: Verdict::Ok, value: value.into(), advice: None, cause: Cause::Itself }
    }

    pub(super) fn unknown(subject: &'static str, value: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Unknown, ..Finding::ok(subject, value) }
    }

    pub(super) fn warning(subject: &'static str, value: impl Into<String>, advice: impl Into<Advice>) -> Finding {
        Finding { verdict: Verdict::Warning, advice: Some(advice.into()), ..Finding::ok(subject, value) }
    }

    pub(super) fn problem(subject: &'static str, value: impl Into<String>, advice: impl Into<Advice>) -> Finding {
        Finding { verdict: Verdict::Problem, ..Finding::warning(subject, value, advice) }
    }

    pub(super) fn caused_by(self, cause: Cause) -> Finding {
        Finding { cause, ..self }
    }

    /// Turns a problem into a warning unless this holds.
    pub(super) fn only_if(self, needed: bool) -> Finding {
        let most = if needed { Verdict::Problem } else { Verdict::Warning };
        Finding { verdict: self.verdict.min(most), ..self }
    }
}

#[derive(Debug, Serialize)]
struct Section {
    title: String,
    findings: Vec<Finding>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Step {
    #[serde(flatten)]
    advice: Advice,
    /// Does instead.
    or: Option<Advice>,
}

/// All findings.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// There is no problem.
    usable: bool,
    /// The self-test passed on a GPU.
    tested: bool,
    problems: usize,
    warnings: usize,
    sections: Vec<Section>,
    steps: Vec<Step>,
    #[serde(skip)]
    as_json: bool,
}

impl Report {
    pub(super) fn new(as_json: bool) -> Report {
        Report { usable: true, tested: false, problems: 0, warnings: 0, sections: vec![], steps: vec![], as_json }
    }

    /// Adds a section, and prints it.
    pub(super) fn add(&mut self, title: impl Into<String>, findings: Vec<Finding>) -> io::Result<()> {
        if findings.is_empty() {
            return Ok(());
        }
        let section = Section { title: title.into(), findings };
        if !self.as_json {
            write_section(&section, &mut anstream::stdout().lock())?;
        }
        self.sections.push(section);
        Ok(())
    }

    pub(super) fn passed(&mut self) {
        self.tested = true;
    }

    pub(super) fn has_problems(&self) -> bool {
        self.findings().any(|finding| finding.verdict == Verdict::Problem)
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sections.iter().flat_map(|section| &section.findings)
    }

    /// Prints the summary, which is one of these words, and the steps, or the whole report as JSON. Returns the exit
    /// status.
    pub(super) fn end(mut self, works: &str, untested: &str, fails: &str) -> io::Result<ExitCode> {
        self.problems = self.findings().filter(|finding| finding.verdict == Verdict::Problem).count();
        self.warnings = self.findings().filter(|finding| finding.verdict == Verdict::Warning).count();
        self.usable = self.problems == 0;
        self.steps = steps(&self.findings().collect::<Vec<_>>());
        if self.as_json {
            let mut out = io::stdout().lock();
            serde_json::to_writer_pretty(&mut out, &self)?;
            writeln!(out)?;
        } else {
            let (text, style) = match (self.usable, self.tested) {
                (true, true) => (works, AnsiColor::Green.on_default()),
                (true, false) => (untested, AnsiColor::Yellow.on_default()),
                (false, _) => (fails, AnsiColor::Red.on_default().bold()),
            };
            write_end(&self, &format!("{style}{text}{style:#}"), &mut anstream::stdout().lock())?;
        }
        Ok(if self.usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The remedies, each once. Those of the problems come first, without those that others cause, then those of the
/// warnings.
fn steps(findings: &[&Finding]) -> Vec<Step> {
    let nothing_else = chosen(findings, Verdict::Problem, &[Cause::Nothing]);
    if !nothing_else.is_empty() {
        return nothing_else;
    }
    let mut steps = chosen(findings, Verdict::Problem, &[Cause::Itself, Cause::Gdrdrv]);
    let dma_bufs = chosen(findings, Verdict::Problem, &[Cause::DmaBuf]);
    // One backend is enough.
    match chosen(findings, Verdict::Problem, &[Cause::Gdrdrv]).first() {
        Some(of_gdrdrv) => {
            for step in steps.iter_mut().filter(|step| step.advice == of_gdrdrv.advice) {
                step.or = dma_bufs.first().map(|dma_buf| dma_buf.advice.clone());
            }
        }
        None => steps.extend(dma_bufs),
    }
    if steps.is_empty() {
        steps = chosen(findings, Verdict::Problem, &[Cause::Others]);
    }
    for step in chosen(findings, Verdict::Warning, &[Cause::Itself, Cause::Gdrdrv, Cause::DmaBuf]) {
        if steps.iter().all(|other| other.advice != step.advice && other.or.as_ref() != Some(&step.advice)) {
            steps.push(step);
        }
    }
    steps
}

/// The remedies of findings with this verdict and one of these causes.
fn chosen(findings: &[&Finding], verdict: Verdict, causes: &[Cause]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for finding in findings {
        let Some(advice) = &finding.advice else { continue };
        let is_meant = finding.verdict == verdict && causes.contains(&finding.cause);
        if is_meant && steps.iter().all(|step| step.advice != *advice) {
            steps.push(Step { advice: advice.clone(), or: None });
        }
    }
    steps
}

/// The word and color of a verdict.
fn mark(verdict: Verdict) -> (&'static str, Style) {
    match verdict {
        Verdict::Ok => ("ok", AnsiColor::Green.on_default()),
        Verdict::Unknown => ("unknown", Style::new().dimmed()),
        Verdict::Warning => ("warning", AnsiColor::Yellow.on_default()),
        Verdict::Problem => ("PROBLEM", AnsiColor::Red.on_default().bold()),
    }
}

fn write_section(section: &Section, out: &mut impl Write) -> io::Result<()> {
    let bold = Style::new().bold();
    writeln!(out, "{bold}{}{bold:#}", section.title)?;
    for finding in &section.findings {
        let (word, style) = mark(finding.verdict);
        let (subject, mut value) = (finding.subject, printable(&finding.value));
        if let Some(advice) = &finding.advice {
            value += &format!(" → {}", advice.remedy.name());
        }
        writeln!(out, "  {style}{word:<7}{style:#}  {subject:<18}  {value}")?;
    }
    writeln!(out)?;
    out.flush()
}

fn write_end(report: &Report, summary: &str, out: &mut impl Write) -> io::Result<()> {
    let problems = count(report.problems, "problem", "problems");
    let warnings = count(report.warnings, "warning", "warnings");
    writeln!(out, "{summary}: {problems}, {warnings}")?;
    for (step, number) in report.steps.iter().zip(1..) {
        write_step(out, &format!("{number:>3}."), &step.advice)?;
        if let Some(advice) = &step.or {
            write_step(out, "     or", advice)?;
        }
    }
    Ok(())
}

fn write_step(out: &mut impl Write, start: &str, advice: &Advice) -> io::Result<()> {
    writeln!(out, "{start} {}: {}", advice.remedy.name(), printable(&advice.text))?;
    for command in &advice.commands {
        writeln!(out, "         {}", printable(command))?;
    }
    Ok(())
}

/// Without characters that control the terminal, which paths and variables of other users' processes could have.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Bytes in the largest unit that fits, without what is less than a tenth of it.
pub(super) fn bytes(number: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let Some((unit, name)) = UNITS.iter().find(|(unit, _)| number >= *unit) else {
        return format!("{number} B");
    };
    match (number / unit, number % unit * 10 / unit) {
        (whole, 0) => format!("{whole} {name}"),
        (whole, tenths) => format!("{whole}.{tenths} {name}"),
    }
}

/// A number of things, as `no problems`.
pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    match number {
        0 => format!("no {many}"),
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}
