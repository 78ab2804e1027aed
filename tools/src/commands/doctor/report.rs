//! The findings, printed as text or JSON.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// A rating.
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

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) subject: &'static str,
    pub(super) verdict: Verdict,
    pub(super) value: String,
    /// What to do; always set for warnings and problems.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(subject: &'static str, value: impl Into<String>) -> Finding {
        Finding { subject, verdict: Verdict::Ok, value: value.into(), remedy: None }
    }

    pub(super) fn unknown(subject: &'static str, value: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Unknown, ..Finding::ok(subject, value) }
    }

    pub(super) fn warning(
        subject: &'static str,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            verdict: Verdict::Warning,
            remedy: Some(remedy.into()),
            ..Finding::ok(subject, value)
        }
    }

    pub(super) fn problem(
        subject: &'static str,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { verdict: Verdict::Problem, ..Finding::warning(subject, value, remedy) }
    }

    /// A problem if `needed`; otherwise a warning, as another backend works.
    pub(super) fn problem_if(
        needed: bool,
        subject: &'static str,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        match needed {
            true => Finding::problem(subject, value, remedy),
            false => Finding::warning(subject, value, remedy),
        }
    }
}

/// Findings on one topic.
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
}

impl Report {
    pub(super) fn new(sections: Vec<Section>) -> Report {
        let count = |verdict| {
            let findings = sections.iter().flat_map(|section| &section.findings);
            findings.filter(|finding| finding.verdict == verdict).count()
        };
        let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
        Report { usable: problems == 0, problems, warnings, sections }
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

/// Prints the report, in color if stdout is a terminal and NO_COLOR is not set.
pub(super) fn print_text(report: &Report) -> io::Result<()> {
    write_text(report, &mut anstream::stdout().lock())
}

/// `{"usable", "problems", "warnings", "sections": [{"title", "findings": [{"subject", "verdict",
/// "value", "remedy"}]}]}`.
pub(super) fn print_json(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)
}

fn write_text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let findings = report.sections.iter().flat_map(|section| &section.findings);
    let width = findings.map(|finding| finding.subject.len()).max().unwrap_or(0);
    for section in &report.sections {
        let bold = Style::new().bold();
        writeln!(out, "{bold}{}{bold:#}", section.title)?;
        for finding in &section.findings {
            let (word, style) = mark(finding.verdict);
            let (subject, value) = (finding.subject, &finding.value);
            writeln!(out, "  {style}{word:<7}{style:#}  {subject:<width$}  {value}")?;
            if let Some(remedy) = &finding.remedy {
                writeln!(out, "  {:<7}  {:<width$}  → {remedy}", "", "")?;
            }
        }
        writeln!(out)?;
    }
    let (word, style) = match report.usable {
        true => ("gdrcopy works here", AnsiColor::Green.on_default()),
        false => ("gdrcopy does not work here", AnsiColor::Red.on_default().bold()),
    };
    let problems = count(report.problems, "problem");
    let warnings = count(report.warnings, "warning");
    writeln!(out, "{style}{word}{style:#}: {problems}, {warnings}")
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

    #[test]
    fn only_problems_make_a_system_unusable() {
        let section = |findings| Section::new("topic", findings);
        let fine = vec![
            Finding::ok("a", "there"),
            Finding::unknown("b", "unknown"),
            Finding::problem_if(false, "c", "gone", "get it"),
        ];
        let report = Report::new(vec![section(fine.clone()), section(fine.clone())]);
        assert!(report.usable);
        assert_eq!((report.problems, report.warnings), (0, 2));
        let bad = vec![Finding::problem_if(true, "d", "gone", "get it")];
        let report = Report::new(vec![section(fine), section(bad)]);
        assert!(!report.usable);
        assert_eq!((report.problems, report.warnings), (1, 1));
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
    fn remedies_follow_their_findings() {
        let findings =
            vec![Finding::ok("module", "there"), Finding::problem("device", "gone", "make it")];
        let report = Report::new(vec![Section::new("gdrdrv", findings)]);
        let mut out = anstream::StripStream::new(Vec::new());
        write_text(&report, &mut out).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        let expected = "gdrdrv\n  ok       module  there\n  PROBLEM  device  gone\n                   → make it\n\n\
                        gdrcopy does not work here: 1 problem, no warnings\n";
        assert_eq!(text, expected);
    }
}
