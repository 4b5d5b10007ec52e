//! Writing the evidence of a period: the content of the cluster, the audit records, and the seal.

use std::io::{Seek, Write};

use jiff::{SignedDuration, Timestamp, Unit};
use oz_api::duration::GoDuration;
use oz_core::lifecycle::window::has_come;
use oz_trail::verify::Verdict;

use super::{Assembly, Wanted, gather, seal};
use crate::audit::kept_since;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::{choose, trail};

/// The default time between the end of evidence and now: by then, writers have signed a checkpoint.
const SETTLED: SignedDuration = SignedDuration::from_mins(1);

/// The reason why there can be no evidence of a period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeriodError {
    /// The period is empty, or ends in the future.
    #[error("the period of the evidence is empty: from {from} until {to}")]
    Empty {
        /// The first instant.
        from: Timestamp,
        /// The first instant after it.
        to: Timestamp,
    },
    /// The cluster may have deleted audit records of the period.
    #[error("audit records from before {kept} are deleted from the cluster")]
    Deleted {
        /// The instant since which the cluster has all, in whole seconds.
        kept: Timestamp,
    },
}

impl From<PeriodError> for Failure {
    fn from(error: PeriodError) -> Self {
        let next = match error {
            PeriodError::Empty { .. } => "--from must be before --to, and --to not in the future",
            PeriodError::Deleted { .. } => {
                "give a later --from, or the retention of the operator with --retention"
            }
        };
        Self::new(error.to_string()).next(next)
    }
}

/// Returns a period in the precision of audit records: without an end, one that ended shortly before `now`.
///
/// # Errors
/// The period is empty, is not over, or its audit records are not kept for so long.
pub fn period(
    from: Timestamp,
    to: Option<Timestamp>,
    now: Timestamp,
    retention: GoDuration,
) -> Result<(Timestamp, Timestamp), PeriodError> {
    let rounded = |at: Timestamp, unit: Unit| at.round(unit).unwrap_or(at);
    let to = rounded(to.unwrap_or(now - SETTLED), Unit::Microsecond);
    let from = rounded(from, Unit::Microsecond);
    if has_come(from, to) || !has_come(now, to) {
        return Err(PeriodError::Empty { from, to });
    }
    match kept_since(now, retention) {
        Some(kept) if from < kept => Err(PeriodError::Deleted {
            kept: rounded(kept, Unit::Second),
        }),
        _ => Ok((from, to)),
    }
}

/// A bundle that was written.
#[derive(Debug)]
pub struct Written<F> {
    /// The file.
    pub file: F,
    /// The sums of the bundle.
    pub sums: String,
    /// The number of audit records.
    pub records: u64,
    /// The number of requests.
    pub requests: usize,
    /// The number of granted requests.
    pub granted: usize,
    /// The verdict on the audit records, with the keys that the cluster published.
    pub verdict: Verdict,
    /// The parts of the cluster that could not be read.
    pub gaps: Vec<String>,
}

/// Writes a bundle, and has the operator seal it if `is_sealed`.
///
/// # Errors
/// The cluster cannot be read, the file cannot be written, or the operator does not seal the bundle.
pub async fn write<F: Write + Seek>(
    cluster: &Cluster,
    wanted: &Wanted,
    is_sealed: bool,
    file: F,
) -> Result<Written<F>> {
    let gathered = gather(cluster, wanted).await?;
    let gaps = gathered.manifest.gaps.iter();
    let gaps = gaps.chain(&gathered.entitlements.gaps).cloned().collect();
    let mut assembly = Assembly::new(file, gathered)?;
    let mut failed = None;
    trail::pages(cluster, "", |object| {
        if failed.is_none() {
            failed = assembly.record(&object.data["spec"]).err();
        }
    })
    .await?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let sealable = assembly.sealable()?;
    let verdict = sealable.report.verdict(false);
    let (requests, granted) = sealable.accounts.requests();
    let records = sealable.accounts.records();
    let sums = sealable.sums.digest();
    let seal = match is_sealed {
        true => {
            let by = choose::myself(cluster).await?.user;
            Some(seal(cluster, &wanted.oz, &sums, &by).await?)
        }
        false => None,
    };
    Ok(Written {
        file: sealable.finish(seal.as_ref())?,
        sums,
        records,
        requests,
        granted,
        verdict,
        gaps,
    })
}
