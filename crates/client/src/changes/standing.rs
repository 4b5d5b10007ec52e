//! The part of each kind of object that a user sees.

use jiff::Timestamp;
use kube::Resource;
use oz_api::{
    AccessLock, AccessRequestApproval, AccessReview, ExecAccessRequest, PodAccessRequest, labels,
};
use oz_core::access::lock;
use oz_core::kinds::AccessRequest;

use super::{ObjectSummary, Watched};
use crate::request::{self, Ask, user};
use crate::reviews;

/// Returns the part of a request that a user sees.
fn of_request<R: AccessRequest>(request: &R) -> ObjectSummary {
    let status = request::status(request);
    let ask = Ask::from_request(request);
    let ended = status.ending.as_ref().map(|ending| match &ending.detail {
        Some(detail) => format!("{}: {detail}", ending.reason),
        None => ending.reason.to_string(),
    });
    let emergency = if ask.emergency { ", an emergency" } else { "" };
    ObjectSummary {
        user: user(request),
        subject: format!("{} by template {}{emergency}", R::PURPOSE, ask.template),
        phase: match &status.approval {
            Some(_) if !status.phase.is_granted() && !status.phase.is_terminal() => {
                "Waiting for approval".to_owned()
            }
            _ => status.phase.to_string(),
        },
        reason: ended.or(ask.reason),
        until: status.expires_at,
    }
}

impl Watched for ExecAccessRequest {
    fn standing(&self, _: Timestamp) -> ObjectSummary {
        of_request(self)
    }
}

impl Watched for PodAccessRequest {
    fn standing(&self, _: Timestamp) -> ObjectSummary {
        of_request(self)
    }
}

fn annotation<K: Resource>(object: &K, name: &str) -> Option<String> {
    let annotations = object.meta().annotations.as_ref();
    annotations.and_then(|all| all.get(name).cloned())
}

impl Watched for AccessRequestApproval {
    fn standing(&self, _: Timestamp) -> ObjectSummary {
        let about = &self.spec.access_request_ref;
        ObjectSummary {
            user: annotation(self, labels::REQUESTED_BY),
            subject: format!("{} {}", about.kind, about.name),
            phase: if self.spec.approval {
                "Approved"
            } else {
                "Denied"
            }
            .to_owned(),
            reason: self.spec.reason.clone(),
            until: None,
        }
    }
}

impl Watched for AccessReview {
    fn standing(&self, now: Timestamp) -> ObjectSummary {
        let spec = &self.spec;
        let open = (!spec.is_written()).then_some(spec.due_at);
        let what = match (
            &spec.break_glass,
            &spec.attestation,
            &spec.access_request_ref,
        ) {
            (Some(_), ..) => "break-glass".to_owned(),
            (_, Some(attestation), _) => format!(
                "entitlements, {} kept, {} removed",
                attestation.kept, attestation.removed
            ),
            (.., Some(about)) => format!("emergency {} {}", about.kind, about.name),
            _ => String::new(),
        };
        let phase = match (spec.finding, &spec.attestation) {
            (Some(finding), _) => finding.to_string(),
            (None, Some(_)) => "Attested".to_owned(),
            (None, None) if reviews::is_overdue(self, now) => "Overdue".to_owned(),
            (None, None) => "Open".to_owned(),
        };
        let written = annotation(self, labels::REVIEWED_BY);
        let asked = Some(spec.requester.user.clone()).filter(|user| !user.is_empty());
        let emergency = Some(spec.emergency.clone()).filter(|reason| !reason.is_empty());
        ObjectSummary {
            user: written.or(asked),
            subject: what,
            phase,
            reason: spec.reason.clone().or(emergency),
            until: open,
        }
    }
}

impl Watched for AccessLock {
    fn standing(&self, now: Timestamp) -> ObjectSummary {
        ObjectSummary {
            user: None,
            subject: lock::target(&self.spec.target),
            phase: if lock::holds(self, now) {
                "Locked"
            } else {
                "Over"
            }
            .to_owned(),
            reason: Some(self.spec.reason.clone()),
            until: lock::until(self),
        }
    }
}
