//! The findings, printed section by section as they are known, with the steps at the end; or all of it as JSON.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use console::Term;
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

/// The words at the end, by whether there is no problem, and whether the self-test has passed.
pub(super) struct Summary {
    pub(super) works: String,
    pub(super) untested: String,
    pub(super) fails: String,
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
            write_section(&section, columns(), &mut anstream::stdout().lock())?;
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

    /// Prints the summary and the steps, or the whole report as JSON. Returns the exit status.
    pub(super) fn end(mut self, summary: &Summary) -> io::Result<ExitCode> {
        self.problems = self.findings().filter(|finding| finding.verdict == Verdict::Problem).count();
        self.warnings = self.findings().filter(|finding| finding.verdict == Verdict::Warning).count();
        self.usable = self.problems == 0;
        self.steps = steps(&self.findings().collect::<Vec<_>>());
        if self.as_json {
            let mut out = io::stdout().lock();
            serde_json::to_writer_pretty(&mut out, &self)?;
            writeln!(out)?;
        } else {
            write_end(&self, summary, columns(), &mut anstream::stdout().lock())?;
        }
        Ok(if self.usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The remedies, each once. Those of the problems come first, without those that others cause, then those of the
/// warnings.
fn steps(findings: &[&Finding]) -> Vec<Step> {
    let mut steps = Vec::new();
    let add = |verdict, causes: &[Cause], steps: &mut Vec<Step>| {
        for finding in findings {
            if finding.verdict != verdict || !causes.contains(&finding.cause) {
                continue;
            }
            let Some(advice) = &finding.advice else { continue };
            let is_known = |step: &Step| step.advice == *advice || step.or.as_ref() == Some(advice);
            if !steps.iter().any(is_known) {
                steps.push(Step { advice: advice.clone(), or: None });
            }
        }
    };
    add(Verdict::Problem, &[Cause::Nothing], &mut steps);
    if !steps.is_empty() {
        return steps;
    }
    add(Verdict::Problem, &[Cause::Itself, Cause::Gdrdrv], &mut steps);
    let mut dma_bufs = Vec::new();
    add(Verdict::Problem, &[Cause::DmaBuf], &mut dma_bufs);
    // One backend is enough.
    let of_gdrdrv =
        findings.iter().find(|finding| finding.verdict == Verdict::Problem && finding.cause == Cause::Gdrdrv);
    let of_gdrdrv =
        of_gdrdrv.and_then(|finding| steps.iter_mut().find(|step| Some(&step.advice) == finding.advice.as_ref()));
    match of_gdrdrv {
        Some(step) => step.or = dma_bufs.into_iter().next().map(|dma_buf| dma_buf.advice),
        None => steps.extend(dma_bufs),
    }
    if steps.is_empty() {
        add(Verdict::Problem, &[Cause::Others], &mut steps);
    }
    add(Verdict::Warning, &[Cause::Itself, Cause::Gdrdrv, Cause::DmaBuf], &mut steps);
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

/// The width of the terminal.
fn columns() -> Option<usize> {
    Term::stdout().size_checked().map(|(_, columns)| columns.into())
}

/// The remedy's identifier.
fn name(advice: &Advice) -> String {
    let name = serde_json::to_value(advice.remedy).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

fn write_section(section: &Section, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let subjects = section.findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0).max(LEAST_SUBJECT);
    let bold = Style::new().bold();
    writeln!(out, "{bold}{}{bold:#}", section.title)?;
    for finding in &section.findings {
        let (word, style) = mark(finding.verdict);
        let (subject, value) = (finding.subject, &finding.value);
        let text = match &finding.advice {
            Some(advice) => format!("{value} → {}", name(advice)),
            None => value.clone(),
        };
        write!(out, "  {style}{word:<7}{style:#}  {subject:<subjects$}  ")?;
        write_wrapped(out, &text, subjects + 13, width)?;
    }
    writeln!(out)?;
    out.flush()
}

fn write_end(report: &Report, summary: &Summary, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let (text, style) = match (report.usable, report.tested) {
        (true, true) => (&summary.works, AnsiColor::Green.on_default()),
        (true, false) => (&summary.untested, AnsiColor::Yellow.on_default()),
        (false, _) => (&summary.fails, AnsiColor::Red.on_default().bold()),
    };
    let problems = count(report.problems, "problem", "problems");
    let warnings = count(report.warnings, "warning", "warnings");
    writeln!(out, "{style}{text}{style:#}: {problems}, {warnings}")?;
    for (step, number) in report.steps.iter().zip(1..) {
        write_step(out, &format!("{number:>3}. "), &step.advice, width)?;
        if let Some(advice) = &step.or {
            write_step(out, "     or ", advice, width)?;
        }
    }
    Ok(())
}

fn write_step(out: &mut impl Write, start: &str, advice: &Advice, width: Option<usize>) -> io::Result<()> {
    write!(out, "{start}")?;
    write_wrapped(out, &format!("{}: {}", name(advice), advice.text), start.len(), width)?;
    for command in &advice.commands {
        writeln!(out, "         {}", printable(command))?;
    }
    Ok(())
}

/// Without characters that control the terminal, which paths and variables of other users' processes could have.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Writes a text in lines of this width, all but the first indented as the cursor is now.
fn write_wrapped(out: &mut impl Write, text: &str, indent: usize, width: Option<usize>) -> io::Result<()> {
    let width = width.map_or(usize::MAX, |width| width.max(indent + LEAST_TEXT));
    let mut column = indent;
    for word in printable(text).split(' ') {
        let len = word.chars().count();
        if column == indent {
            write!(out, "{word}")?;
        } else if column + 1 + len <= width {
            write!(out, " {word}")?;
            column += 1;
        } else {
            write!(out, "\n{:indent$}{word}", "")?;
            column = indent;
        }
        column += len;
    }
    writeln!(out)
}

/// Columns that subjects and texts get on any terminal.
const LEAST_SUBJECT: usize = 18;
const LEAST_TEXT: usize = 30;

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

#[cfg(test)]
mod tests {
    use super::super::remedies::Remedy::{self, *};
    use super::*;

    fn text(write: impl Fn(&mut anstream::StripStream<Vec<u8>>)) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        write(&mut out);
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn steps_are_causes_first_and_each_once() {
        let problem = |remedy: Remedy, cause| Finding::problem("x", "", remedy).caused_by(cause);
        let warning = Finding::warning("limit", "low", OpenFilesHard);
        let consequence = problem(SelfTestLog, Cause::Others);
        let module = problem(ModuleLoad, Cause::Gdrdrv);
        let dma_buf = problem(DriverUpdate, Cause::DmaBuf);
        let library = problem(LibraryInstall, Cause::Itself);
        let of = |findings: &[&Finding]| -> Vec<(Remedy, Option<Remedy>)> {
            let steps = steps(findings);
            steps.iter().map(|step| (step.advice.remedy, step.or.as_ref().map(|or| or.remedy))).collect()
        };
        let all = [&warning, &consequence, &dma_buf, &module, &module, &library];
        let expected = [(ModuleLoad, Some(DriverUpdate)), (LibraryInstall, None), (OpenFilesHard, None)];
        assert_eq!(of(&all), expected);
        assert_eq!(of(&[&dma_buf]), [(DriverUpdate, None)]);
        assert_eq!(of(&[&consequence]), [(SelfTestLog, None)]);
        assert_eq!(of(&[&module, &problem(GpuNone, Cause::Nothing), &warning]), [(GpuNone, None)]);
    }

    #[test]
    fn text_cannot_control_the_terminal() {
        let advice = LibraryLink.with("preload", "\x07").with("target", "\x1b[2J").with("link", "y");
        let finding = Finding::warning("variable", "\x1b[2J\u{9b}a\nb", advice.clone());
        let section = Section { title: "topic".into(), findings: vec![finding] };
        let text = text(|out| {
            write_section(&section, None, out).unwrap();
            write_step(out, "1. ", &advice, None).unwrap();
        });
        assert!(text.contains("\u{fffd}[2J\u{fffd}a\u{fffd}b → library-link\n"), "{text:?}");
        assert!(text.ends_with("1. library-link: add the link\u{fffd}\n         ln -sf '\u{fffd}[2J' y\n"), "{text:?}");
    }

    #[test]
    fn text_is_as_wide_as_the_terminal() {
        let findings = vec![Finding::problem("device", "a file that is no device at all", ModuleLoad)];
        let section = Section { title: "topic".into(), findings };
        let text = |width| text(|out| write_section(&section, width, out).unwrap());
        let whole = "topic\n  PROBLEM  device              a file that is no device at all → module-load\n\n";
        assert_eq!(text(None), whole);
        // The smallest width of texts, 30 columns behind the subjects.
        for width in [1, 40, 60] {
            let narrow = text(Some(width));
            assert!(narrow.contains("device at\n                               all → module-load\n"), "{narrow}");
        }
        assert_eq!(text(Some(76)), whole);
    }

    #[test]
    fn bytes_have_a_decimal_if_it_is_not_0() {
        for (number, text) in [
            (0, "0 B"),
            (1 << 10, "1 KiB"),
            (2112 << 10, "2 MiB"),
            (2176 << 10, "2.1 MiB"),
            ((1 << 30) - 1, "1023.9 MiB"),
            (u64::MAX, "17179869183.9 GiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }
}
