//! Bundles of evidence: reading from a cluster what belongs in one ([`gather`]), writing it ([`Assembly`]), having it
//! sealed ([`seal`]), and checking one without a cluster ([`check`]). What the files say is `oz_compliance::evidence`'s.

mod archive;
mod assembly;
mod check;
mod gather;
mod seal;

#[cfg(test)]
mod tests;

pub use assembly::{Assembly, Gathered, Sealable};
pub use check::{Checked, check};
pub use gather::{Wanted, gather};
pub use seal::seal;

use oz_compliance::evidence::Manifest;
use oz_trail::verify::{Evidence, Report, verify};
use oz_trail::{KeyError, Published, Trust};
use serde::Serialize;
use serde_json::{Value, json};

/// JSON as it stands in a bundle.
fn text<T: Serialize>(value: &T) -> String {
    // Strings, numbers and timestamps always serialise.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Whose signatures count by what the cluster published.
fn published_trust(published: &[Published]) -> Result<Trust, KeyError> {
    let mut trust = Trust::published(published)?;
    trust.extend(published);
    Ok(trust)
}

/// `verify.json`, and what it is made of.
fn judged(manifest: &Manifest, evidence: Evidence, trust: Trust) -> (Report, Value) {
    let report = verify(evidence, &manifest.terms(trust));
    let value = json!({ "verdict": report.verdict(false), "report": report });
    (report, value)
}
