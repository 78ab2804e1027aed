//! The report of doctor. As text, it is printed section by section as the findings become known, and ends with the
//! steps to take. As JSON, it is printed when it is complete.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

use super::remedies::{Advice, Remedy};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// The finding is as expected.
    Ok,
    /// The system does not report the value.
    Unknown,
    /// gdrcopy works, but with reduced performance or functionality.
    Warning,
    /// The finding prevents gdrcopy from working.
    Problem,
}

/// The cause of a problem. It decides whether the report advises the problem's remedy as a step of its own, as an
/// alternative to another step, or not at all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cause {
    /// The problem has no other cause, so its remedy is a step of its own.
    Itself,
    /// As long as this problem exists, nothing else helps, so the remedies of other problems are left out.
    Nothing,
    /// gdrdrv does not work. If dma-bufs worked, gdrcopy would not need it.
    Gdrdrv,
    /// Dma-bufs do not work. If gdrdrv worked, gdrcopy would not need them.
    DmaBuf,
    /// Another problem that the report lists is most likely the cause.
    Others,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) subject: &'static str,
    pub(super) verdict: Verdict,
    pub(super) value: String,
    /// The identifier of the remedy for a warning or problem. `advice` has the remedy's text.
    pub(super) remedy: Option<Remedy>,
    #[serde(skip)]
    advice: Option<Advice>,
    #[serde(skip)]
    cause: Cause,
}

impl Finding {
    pub(super) fn ok(subject: &'static str, value: impl Into<String>) -> Finding {
        let value = value.into();
        Finding { subject, verdict: Verdict::Ok, value, remedy: None, advice: None, cause: Cause::Itself }
    }

    pub(super) fn unknown(subject: &'static str, value: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Unknown, ..Finding::ok(subject, value) }
    }

    pub(super) fn warning(subject: &'static str, value: impl Into<String>, advice: impl Into<Advice>) -> Finding {
        let advice = advice.into();
        let remedy = Some(advice.remedy);
        Finding { verdict: Verdict::Warning, remedy, advice: Some(advice), ..Finding::ok(subject, value) }
    }

    pub(super) fn problem(subject: &'static str, value: impl Into<String>, advice: impl Into<Advice>) -> Finding {
        Finding { verdict: Verdict::Problem, ..Finding::warning(subject, value, advice) }
    }

    pub(super) fn caused_by(self, cause: Cause) -> Finding {
        Finding { cause, ..self }
    }

    /// Turns a problem into a warning unless `needed` is true.
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
    /// Advice that can be followed instead of this step's own.
    or: Option<Advice>,
}

/// All findings, and their summary.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    /// True if there is no problem.
    usable: bool,
    /// True if the self-test has passed on a GPU.
    pub(super) tested: bool,
    problems: usize,
    warnings: usize,
    sections: Vec<Section>,
    steps: Vec<Step>,
    #[serde(skip)]
    as_json: bool,
}

impl Report {
    pub(super) fn new(as_json: bool) -> Report {
        Report { as_json, ..Report::default() }
    }

    /// Adds a section, and prints it.
    pub(super) fn add(&mut self, title: impl Into<String>, findings: Vec<Finding>) -> io::Result<()> {
        if findings.is_empty() {
            return Ok(());
        }
        let section = Section { title: title.into(), findings };
        if !self.as_json {
            write_section(&section, &mut io::stdout().lock())?;
        }
        self.sections.push(section);
        Ok(())
    }

    /// Returns the findings with this verdict.
    pub(super) fn all(&self, verdict: Verdict) -> Vec<&Finding> {
        let mut findings: Vec<_> = self.sections.iter().flat_map(|section| &section.findings).collect();
        findings.retain(|finding| finding.verdict == verdict);
        findings
    }

    /// Prints the summary and the advised steps, or the whole report as JSON. The summary begins with `works`,
    /// `untested` or `fails`. Returns the exit status.
    pub(super) fn end(mut self, works: &str, untested: &str, fails: &str) -> io::Result<ExitCode> {
        let problems = self.all(Verdict::Problem);
        let warnings = self.all(Verdict::Warning);
        let steps = steps(&problems, &warnings);
        (self.problems, self.warnings) = (problems.len(), warnings.len());
        self.usable = self.problems == 0;
        self.steps = steps;
        let status = if self.usable { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        let mut out = io::stdout().lock();
        if self.as_json {
            writeln!(out, "{}", serde_json::to_string_pretty(&self)?)?;
            return Ok(status);
        }
        let text = match (self.usable, self.tested) {
            (true, true) => works,
            (true, false) => untested,
            (false, _) => fails,
        };
        writeln!(out, "{text} (problems: {}, warnings: {})", self.problems, self.warnings)?;
        for (number, step) in self.steps.iter().enumerate() {
            write_step(&mut out, &format!("{:>3}.", number + 1), &step.advice)?;
            if let Some(advice) = &step.or {
                write_step(&mut out, "     or", advice)?;
            }
        }
        Ok(status)
    }
}

/// Returns each remedy once, those of problems first. Problems with [`Cause::Others`] are left out if there are other
/// problems, which most likely cause them.
fn steps(problems: &[&Finding], warnings: &[&Finding]) -> Vec<Step> {
    let mut steps = chosen(problems, &[Cause::Nothing]);
    if !steps.is_empty() {
        return steps;
    }
    steps = chosen(problems, &[Cause::Itself, Cause::Gdrdrv]);
    let dma_bufs = chosen(problems, &[Cause::DmaBuf]);
    // One of gdrdrv and dma-bufs is enough, so the remedy for dma-bufs is an alternative to the one for gdrdrv.
    match chosen(problems, &[Cause::Gdrdrv]).first() {
        Some(of_gdrdrv) => {
            for step in steps.iter_mut().filter(|step| step.advice == of_gdrdrv.advice) {
                step.or = dma_bufs.first().map(|dma_buf| dma_buf.advice.clone());
            }
        }
        None => steps.extend(dma_bufs),
    }
    if steps.is_empty() {
        steps = chosen(problems, &[Cause::Others]);
    }
    // Warnings about a backend (gdrdrv or dma-bufs) come last, because the other backend works.
    let mut others = chosen(warnings, &[Cause::Itself]);
    others.extend(chosen(warnings, &[Cause::Gdrdrv, Cause::DmaBuf]));
    for step in others {
        if steps.iter().all(|other| other.advice != step.advice && other.or.as_ref() != Some(&step.advice)) {
            steps.push(step);
        }
    }
    steps
}

/// Returns the remedies of findings with one of these causes, each once.
fn chosen(findings: &[&Finding], causes: &[Cause]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for finding in findings {
        let Some(advice) = &finding.advice else { continue };
        if causes.contains(&finding.cause) && steps.iter().all(|step| step.advice != *advice) {
            steps.push(Step { advice: advice.clone(), or: None });
        }
    }
    steps
}

fn write_section(section: &Section, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", section.title)?;
    for finding in &section.findings {
        let word = ["ok", "unknown", "warning", "PROBLEM"][finding.verdict as usize];
        let subject = finding.subject;
        let mut value = printable(&finding.value);
        if let Some(remedy) = finding.remedy {
            value += &format!(" → {}", remedy.name());
        }
        writeln!(out, "  {word:<7}  {subject:<18}  {value}")?;
    }
    writeln!(out)?;
    out.flush()
}

fn write_step(out: &mut impl Write, start: &str, advice: &Advice) -> io::Result<()> {
    writeln!(out, "{start} {}: {}", advice.remedy.name(), printable(&advice.text))?;
    for command in &advice.commands {
        writeln!(out, "         {}", printable(command))?;
    }
    Ok(())
}

/// Replaces characters that control the terminal. Paths and variables may contain such characters.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
