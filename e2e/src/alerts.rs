//! The evaluation of the chart's alerts on the metrics of a process.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::repository;

#[derive(Deserialize)]
struct Alerts {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    alert: Option<String>,
    expr: String,
}

/// Checks whether the expression of an alert in this file of `charts/oz/alerts` holds for these metrics. It
/// supports the forms `max(NAME) > NUMBER`, which is also `NAME > NUMBER` for one process, and
/// `max by (kind) (NAME) > NUMBER`.
///
/// # Errors
/// When the alert does not exist, its expression has another form, or no process exports its metric.
pub fn fires(file: &str, alert: &str, metrics: &str) -> Result<bool> {
    let path = repository().join("charts/oz/alerts").join(file);
    let alerts: Alerts = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
    let mut rules = alerts.groups.into_iter().flat_map(|group| group.rules);
    let rule = rules
        .find(|rule| rule.alert.as_deref() == Some(alert))
        .with_context(|| format!("no alert {alert} in {file}"))?;
    let forms = ["max(", "max by (kind) ("];
    let inner = forms.iter().find_map(|form| rule.expr.strip_prefix(form));
    let Some((name, least)) = inner.and_then(|rest| rest.split_once(") > ")) else {
        bail!("{alert} has another form: {}", rule.expr);
    };
    let least: f64 = least.trim().parse()?;
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        // Another name may begin with this one.
        let value = match rest.strip_prefix('{') {
            Some(labelled) => labelled.split_once("} ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.trim().parse::<f64>().ok()
    });
    let highest = values.reduce(f64::max);
    let highest = highest.with_context(|| format!("nothing exports {name}"))?;
    Ok(highest > least)
}

#[cfg(test)]
mod tests {
    use super::fires;

    #[test]
    fn alert_fires_by_exported_metrics_only() {
        let fires = |metrics: &str| fires("reviews.yaml", "OzReviewsOverdue", metrics);
        assert!(fires("oz_reviews_open 4\noz_reviews_overdue 1\n").unwrap());
        assert!(!fires("oz_reviews_open 4\noz_reviews_overdue 0\n").unwrap());
        assert!(fires("oz_reviews_overdue_total 1\n").is_err());
        let metrics = |count| {
            format!(
                "oz_grants_past_expiry{{kind=\"a\"}} 0\noz_grants_past_expiry{{kind=\"b\"}} {count}\n"
            )
        };
        let past = |count| super::fires("access.yaml", "OzGrantsPastExpiry", &metrics(count));
        assert!(past(1).unwrap() && !past(0).unwrap());
    }
}
