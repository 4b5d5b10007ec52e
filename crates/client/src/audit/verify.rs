//! The verification of the audit trail: what the cluster and logs have of it, with keys that were pinned or published.

use jiff::{SignedDuration, Timestamp};
use oz_api::duration::GoDuration;
use oz_api::names::{AUDIT_CHECKPOINTS as CHECKPOINTS, AUDIT_PUBLIC_KEYS as KEYS};
use oz_trail::verify::{Evidence, Report, Terms, verify};
use oz_trail::{KeyError, Published, Trust};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::trail::{map, pages};

/// The maximum time by which the clock here may be behind the clock of the cluster, which decides
/// whether a record is old enough for deletion.
const SLACK: SignedDuration = SignedDuration::from_mins(5);

/// The reason why the audit trail cannot be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The files with pinned keys are empty. A fallback to the keys of the cluster, which the user did not request,
    /// would prove nothing.
    #[error("the file of --key has no public key in it")]
    NoKey,
    /// A pinned key is not valid.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Self {
        let failure = Self::new(error.to_string());
        match error {
            VerifyError::NoKey => failure.next(
                "`ozctl audit keys` prints the published keys; keep them outside the cluster",
            ),
            VerifyError::Key(_) => failure,
        }
    }
}

/// Returns the pinned keys in the contents of files, one in each line.
///
/// # Errors
/// There are files, and none has a key.
pub fn pinned(files: &[String]) -> Result<Vec<String>, VerifyError> {
    let lines = files.iter().flat_map(|file| file.lines());
    let keys = lines
        .map(str::trim)
        .filter(|key| !key.is_empty() && !key.starts_with('#'));
    let keys: Vec<String> = keys.map(str::to_owned).collect();
    match keys.is_empty() && !files.is_empty() {
        true => Err(VerifyError::NoKey),
        false => Ok(keys),
    }
}

/// Returns the instant before which the cluster may have deleted records.
#[must_use]
pub fn kept_since(now: Timestamp, retention: GoDuration) -> Option<Timestamp> {
    let kept = SignedDuration::from(retention) - SLACK;
    now.checked_sub(kept.max(SignedDuration::ZERO)).ok()
}

/// The parts of the audit trail that a verification covers.
#[derive(Default)]
pub struct Collected {
    evidence: Evidence,
    published: Vec<Published>,
}

/// The instants since which records are kept; records from before may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// In the cluster.
    pub objects: Option<Timestamp>,
    /// In the logs.
    pub logs: Option<Timestamp>,
}

/// The result of a verification.
#[derive(Debug)]
pub struct Verified {
    /// The findings.
    pub report: Report,
    /// The keys were pinned outside the cluster.
    pub is_pinned: bool,
}

impl Collected {
    /// Reads the audit trail of the oz in this namespace. Logs are added afterwards: the checkpoints come first, so that
    /// records that are written at the same time only add to them.
    ///
    /// # Errors
    /// Audit records, keys or checkpoints cannot be read.
    pub async fn read(cluster: &Cluster, oz: &str) -> Result<Self> {
        let mut collected = Self::default();
        let evidence = &mut collected.evidence;
        for (slot, text) in map(cluster, oz, CHECKPOINTS).await? {
            evidence.checkpoint(&format!("ConfigMap {CHECKPOINTS}, {slot}"), &text);
        }
        evidence.objects();
        pages(cluster, "", |object| {
            if let Ok(value) = serde_json::to_value(&object) {
                evidence.object(&value);
            }
        })
        .await?;
        for (_, text) in map(cluster, oz, KEYS).await? {
            collected
                .published
                .extend(serde_json::from_str::<Published>(&text));
        }
        Ok(collected)
    }

    /// Adds a log.
    pub fn log(&mut self, name: &str, text: &str) {
        self.evidence.log(name, text);
    }

    /// Verifies the audit trail with these pinned keys; without any, with those that the cluster published, which proves
    /// nothing against its administrators.
    ///
    /// # Errors
    /// A pinned key is not valid.
    pub fn verify(self, mut pinned: Vec<String>, kept: Kept) -> Result<Verified, VerifyError> {
        let is_pinned = !pinned.is_empty();
        if !is_pinned {
            pinned.extend(self.published.iter().map(Published::pin));
        }
        let mut trust = Trust::pinned(pinned.iter().map(String::as_str))?;
        trust.extend(&self.published);
        let terms = Terms {
            trust,
            objects_kept_since: kept.objects,
            logs_kept_since: kept.logs,
            ..Terms::default()
        };
        Ok(Verified {
            report: verify(self.evidence, &terms),
            is_pinned,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_behind_misses_nothing_that_was_old_enough_to_go() {
        let now = Timestamp::constant(1_790_000_000, 0);
        let ago = |minutes| Some(now - SignedDuration::from_mins(minutes));
        assert_eq!(kept_since(now, GoDuration::from_secs(3_600)), ago(55));
        assert_eq!(kept_since(now, GoDuration::from_secs(60)), ago(0));
    }
}
