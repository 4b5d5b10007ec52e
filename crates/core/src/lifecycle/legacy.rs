//! What statuses say that 0.1 wrote, which kept what it went by in the words of conditions. They are read
//! here and nowhere else, and written typed by the pass that reads them. The words are those of 0.1 and
//! are never corrected.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::{EndReason, Ending};
use crate::conditions::{
    self, ACCESS_RESOURCES_CREATED, ACCESS_RESOURCES_READY, ACCESS_STILL_VALID, SESSIONS_CUT,
};

/// The end that was begun.
pub(crate) fn ending_told(told: &[Condition]) -> Option<Ending> {
    let find = |type_| conditions::find(told, type_);
    let valid = find(ACCESS_STILL_VALID).filter(|valid| valid.status == "False")?;
    let reason = match valid.reason.as_str() {
        "Timeout" => EndReason::Expired,
        reason => reason.parse().ok()?,
    };
    let said = valid.message.as_str();
    let detail = match reason {
        EndReason::DriftDetected | EndReason::PodNotReady | EndReason::PodReplaced => {
            Some(said.strip_prefix("Access revoked: ").unwrap_or(said))
        }
        _ => None,
    };
    let ready = find(ACCESS_RESOURCES_READY);
    Some(Ending {
        reason,
        detail: detail.map(ToOwned::to_owned),
        since: Some(valid.last_transition_time.0),
        recorded: ready.is_some_and(|ready| ready.reason == "Ending"),
        sessions_ended: find(SESSIONS_CUT)
            .is_some_and(|cut| cut.message.contains("processes were ended")),
        sessions_may_go_on: ready.is_some_and(|ready| {
            let words = "Access has ended; its sessions may go on";
            ready.message.starts_with(words)
        }),
        // 0.1 had no state between the last try and the end.
        sessions_given_up: false,
    })
}

/// Whether it is on record that this stands in the way of a grant.
pub(crate) fn is_blocked_told(told: &[Condition], why: &str) -> bool {
    conditions::find(told, ACCESS_RESOURCES_CREATED).is_some_and(|said| said.message.contains(why))
}
