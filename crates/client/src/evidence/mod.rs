//! Bundles of evidence: writing one about a period ([`write`]), which reads the content from a cluster ([`gather`]),
//! assembles it ([`Assembly`]) and requests a seal ([`seal`]), and checking a bundle without a cluster ([`check`]).
//! `oz_compliance::evidence` defines the content of the files.

mod archive;
mod assembly;
mod check;
mod gather;
mod problem;
mod seal;
mod write;

#[cfg(test)]
mod tests;

pub use assembly::{Assembly, Gathered, Sealable};
pub use check::{Checked, check};
pub use gather::{Wanted, gather};
pub use problem::Problem;
pub use seal::seal;
pub use write::{PeriodError, Written, period, write};

use oz_compliance::evidence::Manifest;
use oz_trail::verify::{Evidence, Report, verify};
use oz_trail::{KeyError, Published, Trust};
use serde::Serialize;
use serde_json::{Value, json};

/// Returns JSON in the form in which a bundle contains it.
fn text<T: Serialize>(value: &T) -> String {
    // Strings, numbers and timestamps always serialise.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Returns the trust in signatures according to the keys that the cluster published.
fn published_trust(published: &[Published]) -> Result<Trust, KeyError> {
    let mut trust = Trust::published(published)?;
    trust.extend(published);
    Ok(trust)
}

/// Returns `verify.json`, and the report from which it is made.
fn judged(manifest: &Manifest, evidence: Evidence, trust: Trust) -> (Report, Value) {
    let report = verify(evidence, &manifest.terms(trust));
    let value = json!({ "verdict": report.verdict(false), "report": report });
    (report, value)
}
