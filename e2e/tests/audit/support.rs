//! Functions that the tests of the trail share.

use anyhow::{Result, bail};
use oz_e2e::Auditor;
pub(crate) use oz_e2e::clear_trail as clean;
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::verify::Report;

/// Waits until all records are signed, and returns the report.
pub(crate) async fn settled(auditor: &Auditor) -> Result<Report> {
    eventually(
        "the trail to be signed to its end",
        CONDITION_TIMEOUT,
        async || {
            let report = auditor.report().await?;
            if !report.is_whole() {
                bail!("not whole: {:#?}", report.problems);
            }
            let done = report
                .chains
                .iter()
                .all(|chain| chain.complete_through == chain.last);
            Ok((done && report.records() > 0).then_some(report))
        },
    )
    .await
}
