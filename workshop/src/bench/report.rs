//! The measured values, run by run, next to their budgets.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::stats::Values;
use xtask::screen::columns;

/// The budget of a figure from design and README.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Budget {
    AtMost(f64),
    AtLeast(f64),
    /// No budget: it explains another figure.
    None,
}

impl Budget {
    fn verdict(self, value: f64) -> &'static str {
        match self {
            Self::AtMost(limit) if value > limit => "over",
            Self::AtLeast(limit) if value < limit => "under",
            Self::None => "",
            _ => "within",
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {limit}"),
            Self::AtLeast(limit) => format!("≥ {limit}"),
            Self::None => String::new(),
        }
    }
}

#[derive(Debug)]
struct Row {
    what: String,
    unit: &'static str,
    budget: Budget,
    runs: Vec<f64>,
}

/// The rows in the order in which they were first measured.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Row>);

impl Report {
    /// Adds the value of one run. The same `what` in another run is the same row.
    pub(crate) fn add(&mut self, what: &str, unit: &'static str, budget: Budget, value: f64) {
        match self.0.iter_mut().find(|row| row.what == what) {
            Some(row) => row.runs.push(value),
            None => self.0.push(Row {
                what: what.to_owned(),
                unit,
                budget,
                runs: vec![value],
            }),
        }
    }

    /// Adds two times in milliseconds, and the ratio of the second to the first.
    pub(crate) fn add_times(
        &mut self,
        (first, alone): (&str, f64),
        (second, beside): (&str, f64),
        (what, most): (&str, f64),
    ) {
        self.add(first, "ms", Budget::None, alone);
        self.add(second, "ms", Budget::None, beside);
        self.add(what, "×", Budget::AtMost(most), beside / alone);
    }

    pub(crate) fn table(&self, load: &str) -> String {
        let head = [
            "",
            "MIN",
            "MEDIAN",
            "MAX",
            "",
            "RUNS",
            "BUDGET",
            "MEDIAN IS",
        ];
        let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
        for row in &self.0 {
            let values: Values = row.runs.iter().copied().collect();
            let number = |value: f64| format!("{value:7.1}");
            rows.push(vec![
                row.what.clone(),
                number(values.min()),
                number(values.median()),
                number(values.max()),
                row.unit.to_owned(),
                format!("{:4}", row.runs.len()),
                row.budget.text(),
                row.budget.verdict(values.median()).to_owned(),
            ]);
        }
        let mut text = columns(&rows).join("\n");
        let _ = write!(
            text,
            "\n\nMinimum, median and maximum are over the runs; their distance is the machine's noise. \
             Its load\naverage was {load} before, on {} cores that also run the whole control plane.",
            std::thread::available_parallelism().map_or(1, usize::from),
        );
        text
    }

    pub(crate) fn json(&self, load: &str) -> Result<String> {
        let rows = self.0.iter().map(|row| {
            let values: Values = row.runs.iter().copied().collect();
            json!({
                "what": row.what,
                "unit": row.unit,
                "runs": row.runs,
                "median": values.median(),
                "budget": row.budget.text(),
                "verdict": row.budget.verdict(values.median()),
            })
        });
        let report = json!({"loadAverage": load, "rows": rows.collect::<Vec<_>>()});
        serde_json::to_string_pretty(&report).context("failed to write JSON")
    }
}

/// The values of two builds, the current one and another.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) other: Report,
    pub(crate) at_hand: Report,
}

impl Compared {
    /// Formats the medians of both, and the ratio of the current one to the other.
    pub(crate) fn table(&self, load: &str) -> String {
        let head = ["", "OTHER", "AT HAND", "", "RATIO", "RUNS"];
        let mut rows = vec![head.map(ToOwned::to_owned).to_vec()];
        let both = self.at_hand.0.iter().filter_map(|row| {
            let other = self.other.0.iter().find(|other| other.what == row.what)?;
            Some((row, other))
        });
        for (row, other) in both {
            let median = |row: &Row| row.runs.iter().copied().collect::<Values>().median();
            let (other, at_hand) = (median(other), median(row));
            rows.push(vec![
                row.what.clone(),
                format!("{other:7.1}"),
                format!("{at_hand:7.1}"),
                row.unit.to_owned(),
                format!("{:5.2}", at_hand / other),
                format!("{:4}", row.runs.len()),
            ]);
        }
        let table = columns(&rows).join("\n");
        format!("{table}\n\nMedians over runs that took turns. The load average was {load} before.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_figure_are_one_row_and_its_median_is_judged() {
        let mut report = Report::default();
        for value in [1.0, 9.0, 2.0] {
            report.add("lag", "ms", Budget::AtMost(5.0), value);
        }
        report.add("rate", "/s", Budget::AtLeast(5.0), 4.0);

        let table = report.table("0 0 0");

        let line = |what: &str| {
            let line = table.lines().find(|line| line.starts_with(what));
            line.unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(line("lag"), "lag 1.0 2.0 9.0 ms 3 ≤ 5 within");
        assert_eq!(line("rate"), "rate 4.0 4.0 4.0 /s 1 ≥ 5 under");
    }

    #[test]
    fn builds_are_compared_by_medians() {
        let mut compared = Compared::default();
        for value in [1.0, 4.0, 9.0] {
            let (other, at_hand) = (&mut compared.other, &mut compared.at_hand);
            other.add("lag", "ms", Budget::None, value * 2.0);
            at_hand.add("lag", "ms", Budget::None, value);
        }
        compared.at_hand.add("new", "ms", Budget::None, 1.0);
        let table = compared.table("0 0 0");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = table.lines().map(words).collect();
        assert!(
            lines.contains(&"lag 8.0 4.0 ms 0.50 3".to_owned()),
            "{table}"
        );
        assert!(!table.contains("new"), "{table}");
    }
}
