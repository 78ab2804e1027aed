//! What doctor found out.
#![forbid(unsafe_code)]

use serde::Serialize;

/// How good or bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// The machine does not tell.
    Unknown,
    /// It works, but slower or for less than it could.
    Warning,
    /// It keeps gdrcopy from working.
    Problem,
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) subject: &'static str,
    pub(super) verdict: Verdict,
    /// What was found.
    pub(super) value: String,
    /// What to do about it: always there for warnings and problems.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(subject: &'static str, value: impl Into<String>) -> Finding {
        Finding {
            subject,
            verdict: Verdict::Ok,
            value: value.into(),
            remedy: None,
        }
    }

    pub(super) fn unknown(subject: &'static str, value: impl Into<String>) -> Finding {
        Finding {
            verdict: Verdict::Unknown,
            ..Finding::ok(subject, value)
        }
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
        Finding {
            verdict: Verdict::Problem,
            ..Finding::warning(subject, value, remedy)
        }
    }

    /// A problem where `needed`, else a warning: something else does the same here.
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

/// Findings of one topic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) findings: Vec<Finding>,
}

impl Section {
    pub(super) fn new(title: impl Into<String>, findings: Vec<Finding>) -> Section {
        Section {
            title: title.into(),
            findings,
        }
    }
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    /// gdrcopy works here: there is no problem.
    pub(super) usable: bool,
    pub(super) problems: usize,
    pub(super) warnings: usize,
    pub(super) sections: Vec<Section>,
}

impl Report {
    pub(super) fn of(sections: Vec<Section>) -> Report {
        let count = |verdict| {
            let findings = sections.iter().flat_map(|section| &section.findings);
            findings
                .filter(|finding| finding.verdict == verdict)
                .count()
        };
        let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
        Report {
            usable: problems == 0,
            problems,
            warnings,
            sections,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_alone_make_it_unusable() {
        let section = |findings| Section::new("topic", findings);
        let fine = vec![
            Finding::ok("a", "there"),
            Finding::unknown("b", "unknown"),
            Finding::problem_if(false, "c", "gone", "get it"),
        ];
        let report = Report::of(vec![section(fine.clone()), section(fine.clone())]);
        assert!(report.usable);
        assert_eq!((report.problems, report.warnings), (0, 2));
        let bad = vec![Finding::problem_if(true, "d", "gone", "get it")];
        let report = Report::of(vec![section(fine), section(bad)]);
        assert!(!report.usable);
        assert_eq!((report.problems, report.warnings), (1, 1));
    }
}
