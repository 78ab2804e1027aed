//! The report as a page of text, in colour on terminals.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::doctor::finding::{Report, Verdict};

/// How a verdict looks.
fn mark(verdict: Verdict) -> (&'static str, Style) {
    match verdict {
        Verdict::Ok => ("ok", AnsiColor::Green.on_default()),
        Verdict::Unknown => ("unknown", Style::new().dimmed()),
        Verdict::Warning => ("warning", AnsiColor::Yellow.on_default()),
        Verdict::Problem => ("PROBLEM", AnsiColor::Red.on_default().bold()),
    }
}

/// Tells it on stdout, without colour where that is no terminal or NO_COLOR is set.
pub(in crate::doctor) fn text(report: &Report) -> io::Result<()> {
    page(report, &mut anstream::stdout().lock())
}

fn page(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let findings = report.sections.iter().flat_map(|section| &section.findings);
    let width = findings
        .map(|finding| finding.subject.len())
        .max()
        .unwrap_or(0);
    for section in &report.sections {
        let bold = Style::new().bold();
        writeln!(out, "{bold}{}{bold:#}", section.title)?;
        for finding in &section.findings {
            let (word, style) = mark(finding.verdict);
            let (subject, value) = (finding.subject, &finding.value);
            writeln!(
                out,
                "  {style}{word:<7}{style:#}  {subject:<width$}  {value}"
            )?;
            if let Some(remedy) = &finding.remedy {
                writeln!(out, "  {:<7}  {:<width$}  → {remedy}", "", "")?;
            }
        }
        writeln!(out)?;
    }
    let (word, style) = match report.usable {
        true => ("gdrcopy works here", AnsiColor::Green.on_default()),
        false => (
            "gdrcopy does not work here",
            AnsiColor::Red.on_default().bold(),
        ),
    };
    let problems = count(report.problems, "problem");
    let warnings = count(report.warnings, "warning");
    writeln!(out, "{style}{word}{style:#}: {problems}, {warnings}")
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
    use crate::doctor::finding::{Finding, Section};

    #[test]
    fn remedies_stand_below_what_they_are_for() {
        let findings = vec![
            Finding::ok("module", "there"),
            Finding::problem("device", "gone", "make it"),
        ];
        let report = Report::of(vec![Section::new("gdrdrv", findings)]);
        let mut out = anstream::StripStream::new(Vec::new());
        page(&report, &mut out).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        let expected = "gdrdrv\n  ok       module  there\n  PROBLEM  device  gone\n                   → make it\n\n\
                        gdrcopy does not work here: 1 problem, no warnings\n";
        assert_eq!(text, expected);
    }
}
