//! The findings, printed as text or JSON.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use console::Term;
use serde::Serialize;

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
    /// The remedy; always set for warnings and problems.
    pub(super) remedy: Option<String>,
    #[serde(skip)]
    pub(super) cause: Cause,
    /// The report's step that does so, counted from 1.
    step: Option<usize>,
}

impl Finding {
    pub(super) fn ok(value: impl Into<String>) -> Finding {
        let value = value.into();
        Finding { subject: "", verdict: Verdict::Ok, value, remedy: None, cause: Cause::Itself, step: None }
    }

    pub(super) fn unknown(value: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Unknown, ..Finding::ok(value) }
    }

    pub(super) fn warning(value: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Warning, remedy: Some(remedy.into()), ..Finding::ok(value) }
    }

    pub(super) fn problem(value: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Problem, ..Finding::warning(value, remedy) }
    }

    /// Sets the subject, which each finding of a report has.
    pub(super) fn about(self, subject: &'static str) -> Finding {
        Finding { subject, ..self }
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

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) findings: Vec<Finding>,
}

impl Section {
    pub(super) fn new(title: impl Into<String>, findings: Vec<Finding>) -> Section {
        Section { title: title.into(), findings }
    }
}

/// All findings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    /// There is no problem.
    pub(super) usable: bool,
    pub(super) problems: usize,
    pub(super) warnings: usize,
    pub(super) sections: Vec<Section>,
    /// The steps, in this order.
    pub(super) steps: Vec<String>,
    /// The text if there is no problem, and if there is one.
    #[serde(skip)]
    summary: [String; 2],
}

impl Report {
    pub(super) fn new(mut sections: Vec<Section>, summary: [String; 2]) -> Report {
        let mut findings: Vec<_> = sections.iter_mut().flat_map(|section| &mut section.findings).collect();
        debug_assert!(findings.iter().all(|finding| !finding.subject.is_empty()), "{findings:?}");
        let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
        let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
        let steps = number_steps(&mut findings);
        Report { usable: problems == 0, problems, warnings, sections, steps, summary }
    }
}

/// The remedies, each once. Those of the problems come first, without those that others cause, then those of
/// the warnings.
fn number_steps(findings: &mut [&mut Finding]) -> Vec<String> {
    let either = either(findings);
    let mut steps = Vec::new();
    let mut add = |verdict, causes: &[Cause]| {
        for finding in findings.iter_mut() {
            if finding.verdict != verdict || !causes.contains(&finding.cause) {
                continue;
            }
            let step = match (verdict, finding.cause) {
                (Verdict::Problem, Cause::Gdrdrv | Cause::DmaBuf) => either.clone(),
                _ => finding.remedy.clone().unwrap_or_default(),
            };
            let known = steps.iter().position(|known| *known == step);
            finding.step = Some(1 + known.unwrap_or(steps.len()));
            if known.is_none() {
                steps.push(step);
            }
        }
        !steps.is_empty()
    };
    let causes = [Cause::Itself, Cause::Gdrdrv, Cause::DmaBuf];
    if !add(Verdict::Problem, &[Cause::Nothing]) {
        let _ = add(Verdict::Problem, &causes) || add(Verdict::Problem, &[Cause::Others]);
        add(Verdict::Warning, &causes);
    }
    steps
}

/// The remedies of the problems of both backends; one is enough.
fn either(findings: &[&mut Finding]) -> String {
    let of = |cause| {
        let these = findings.iter().filter(|it| it.verdict == Verdict::Problem && it.cause == cause);
        let mut remedies: Vec<_> = these.filter_map(|finding| finding.remedy.as_deref()).collect();
        remedies.dedup();
        remedies.join(", and ")
    };
    match [of(Cause::Gdrdrv), of(Cause::DmaBuf)] {
        [one, none] | [none, one] if none.is_empty() => one,
        [gdrdrv, dma_buf] => format!("either {gdrdrv}; or {dma_buf}"),
    }
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

/// Prints the report, in color if stdout is a terminal and NO_COLOR is not set, and as wide as the terminal.
pub(super) fn print_text(report: &Report) -> io::Result<()> {
    let width = Term::stdout().size_checked().map(|(_, columns)| columns.into());
    write_text(report, width, &mut anstream::stdout().lock())
}

/// `{"usable", "problems", "warnings", "sections": [{"title", "findings": [{"subject", "verdict",
/// "value", "remedy", "step"}]}], "steps"}`.
pub(super) fn print_json(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)
}

fn write_text(report: &Report, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let findings = report.sections.iter().flat_map(|section| &section.findings);
    let subjects = findings.map(|finding| finding.subject.len()).max().unwrap_or(0);
    for section in &report.sections {
        let bold = Style::new().bold();
        writeln!(out, "{bold}{}{bold:#}", section.title)?;
        for finding in &section.findings {
            let (word, style) = mark(finding.verdict);
            let (subject, value) = (finding.subject, &finding.value);
            let text = match (finding.step, &finding.remedy) {
                (Some(step), _) => format!("{value} → step {step}"),
                (None, Some(remedy)) if finding.cause == Cause::Others => {
                    format!("{value} → {remedy}")
                }
                (None, _) => value.clone(),
            };
            write!(out, "  {style}{word:<7}{style:#}  {subject:<subjects$}  ")?;
            write_wrapped(out, &text, subjects + 13, width)?;
        }
        writeln!(out)?;
    }
    let [yes, no] = &report.summary;
    let (text, style) = match report.usable {
        true => (yes, AnsiColor::Green.on_default()),
        false => (no, AnsiColor::Red.on_default().bold()),
    };
    let problems = count(report.problems, "problem");
    let warnings = count(report.warnings, "warning");
    writeln!(out, "{style}{text}{style:#}: {problems}, {warnings}")?;
    for (step, number) in report.steps.iter().zip(1..) {
        write!(out, "{number:>3}. ")?;
        write_wrapped(out, step, 5, width)?;
    }
    Ok(())
}

/// Writes a text in lines of this width, all but the first indented as the cursor is now.
fn write_wrapped(out: &mut impl Write, text: &str, indent: usize, width: Option<usize>) -> io::Result<()> {
    let width = width.map_or(usize::MAX, |width| width.max(indent + LEAST_TEXT));
    let mut column = indent;
    // Paths and variables of other users' processes could control the terminal.
    for word in text.replace(char::is_control, "\u{fffd}").split(' ') {
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

/// Columns that texts get on any terminal.
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

fn count(number: usize, noun: &str) -> String {
    match number {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: Vec<Finding>) -> Report {
        let summary = ["it works", "it does not work"].map(String::from);
        Report::new(vec![Section::new("topic", findings)], summary)
    }

    #[test]
    fn only_problems_make_a_system_unusable() {
        let mut findings = vec![
            Finding::ok("there").about("a"),
            Finding::unknown("unknown").about("b"),
            Finding::problem("gone", "get it").about("c").only_if(false),
        ];
        let fine = report(findings.clone());
        assert_eq!((fine.usable, fine.problems, fine.warnings), (true, 0, 1));
        findings.push(Finding::problem("gone", "get it").about("d").only_if(true));
        let bad = report(findings);
        assert_eq!((bad.usable, bad.problems, bad.warnings), (false, 1, 1));
    }

    #[test]
    fn steps_are_causes_first_and_each_once() {
        let warning = Finding::warning("low", "raise it").about("limit");
        let consequence = Finding::problem("failed", "look").about("test").caused_by(Cause::Others);
        let module = Finding::problem("gone", "load it").about("module").caused_by(Cause::Gdrdrv);
        let dma_buf = Finding::problem("old", "update").about("dma-buf").caused_by(Cause::DmaBuf);
        let library = Finding::problem("none", "install").about("library");
        let all = vec![warning, consequence.clone(), module.clone(), dma_buf.clone(), dma_buf, library];
        let mixed = report(all.clone());
        assert_eq!(mixed.steps, ["either load it; or update", "install", "raise it"]);
        let numbers = mixed.sections[0].findings.iter().map(|finding| finding.step);
        let expected = [Some(3), None, Some(1), Some(1), Some(1), Some(2)];
        assert_eq!(numbers.collect::<Vec<_>>(), expected);
        assert_eq!(report(vec![module]).steps, ["load it"]);
        assert_eq!(report(vec![consequence]).steps, ["look"]);
        let root = Finding::problem("none", "buy one").about("GPU").caused_by(Cause::Nothing);
        assert_eq!(report([all, vec![root]].concat()).steps, ["buy one"]);
    }

    #[test]
    fn text_cannot_control_the_terminal() {
        let finding = Finding::warning("\x1b[2J\u{9b}a\nb", "unset \x07").about("variable");
        let mut out = anstream::StripStream::new(Vec::new());
        write_text(&report(vec![finding]), None, &mut out).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        assert!(text.contains("\u{fffd}[2J\u{fffd}a\u{fffd}b → step 1\n"), "{text:?}");
        assert!(text.ends_with("1. unset \u{fffd}\n"), "{text:?}");
    }

    #[test]
    fn bytes_have_a_decimal_if_it_is_not_0() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 10, "1 KiB"),
            (2112 << 10, "2 MiB"),
            (2176 << 10, "2.1 MiB"),
            ((1 << 30) - 1, "1023.9 MiB"),
            (128 << 30, "128 GiB"),
            (u64::MAX, "17179869183.9 GiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn text_ends_with_the_steps_and_is_as_wide_as_the_terminal() {
        let text = |width| {
            let report = report(vec![
                Finding::ok("there").about("module"),
                Finding::problem("a file that is no device at all", "remove it, and make another").about("device"),
            ]);
            let mut out = anstream::StripStream::new(Vec::new());
            write_text(&report, width, &mut out).unwrap();
            String::from_utf8(out.into_inner()).unwrap()
        };
        let expected = "topic\n  ok       module  there\n  \
                        PROBLEM  device  a file that is no device at all → step 1\n\n\
                        it does not work: 1 problem, no warnings\n  \
                        1. remove it, and make another\n";
        assert_eq!(text(None), expected);
        // The smallest width of texts, 30 columns behind the subjects.
        for width in [1, 40, 49] {
            let narrow = text(Some(width));
            assert!(narrow.contains("device at\n                   all → step 1\n"), "{narrow}");
        }
        assert_eq!(text(Some(61)), expected);
    }
}
