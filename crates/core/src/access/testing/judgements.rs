//! Judgements of access policies, and the approvals that they require.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use oz_api::{
    AccessRequestApproval, AccessRequestApprovalSpec, AccessRequestReference, Requester,
    TicketConfig, labels,
};

use super::{keys, timestamp};
use crate::access::approval::Candidate;
use crate::access::policy::{Applied, Extra, Judgement, Refused, Rule, TicketRule};
use crate::access::stamp::Stamp;
use crate::kinds::Kind as _;

/// The timeout of approvals, unless a test requires another.
pub(crate) const TIMEOUT: &str = "10m";

/// Returns the judgement of one access policy that matches, and requires nothing.
pub(crate) fn judgement() -> Judgement {
    Judgement {
        asked: 1,
        policies: vec![Applied {
            name: "prod".into(),
            digest: "sha256:1".into(),
        }],
        ..Judgement::default()
    }
}

/// Returns a refusal.
pub(crate) fn refused() -> Refused {
    Refused {
        policy: "prod".into(),
        failed: false,
        message: "AccessPolicy prod refuses it: not now".into(),
    }
}

/// Returns the requirement of a change ticket.
pub(crate) fn ticket(pattern: Option<&str>, check: Option<&str>) -> TicketRule {
    TicketRule {
        policy: "prod".into(),
        ticket: TicketConfig {
            pattern: pattern.map(ToOwned::to_owned),
            check: check.map(ToOwned::to_owned),
        },
    }
}

/// Adds the requirement of an approval by a user. The first timeout other than [`TIMEOUT`] applies to all.
pub(crate) fn require(judgement: &mut Judgement, user: &str, timeout: &str) {
    let extra = judgement.approval.get_or_insert_with(|| Extra {
        rules: Vec::new(),
        timeout: TIMEOUT.into(),
        require_reason: false,
    });
    if extra.timeout == TIMEOUT {
        extra.timeout = timeout.into();
    }
    extra.rules.push(Rule {
        name: format!("prod/{user}"),
        groups: Vec::new(),
        users: vec![user.into()],
        approvals: 1,
        silent: false,
        unless: Vec::new(),
        escalation: None,
    });
}

/// Creates an approval or denial of a user at this second, with a stamp as the webhook makes it.
pub(crate) fn answer(
    candidate: &Candidate<'_>,
    digest: String,
    user: &str,
    approval: bool,
    second: i64,
) -> AccessRequestApproval {
    let spec = AccessRequestApprovalSpec {
        access_request_ref: AccessRequestReference {
            kind: candidate.kind.parse().unwrap(),
            name: candidate.identity.name.to_string(),
            uid: candidate.identity.uid.to_string(),
        },
        approval,
        reason: None,
        digest,
    };
    let mut object = AccessRequestApproval::new(user, spec);
    let namespace = candidate.answered_in.unwrap().to_owned();
    let stamp = Stamp {
        requester: Requester {
            user: user.into(),
            ..Requester::default()
        },
        kind: "AccessRequestApproval".into(),
        namespace: namespace.clone(),
        name: user.into(),
        spec_digest: object.spec_digest(),
        at: timestamp(second),
        nonce: user.into(),
        ..Stamp::default()
    };
    object.metadata = ObjectMeta {
        namespace: Some(namespace),
        creation_timestamp: Some(Time(timestamp(second))),
        annotations: Some(BTreeMap::from([(
            labels::REQUESTER.to_owned(),
            stamp.seal(&keys()).unwrap(),
        )])),
        ..object.metadata
    };
    object
}

/// Changes the content of a stamp, so that its seal is not valid.
pub(crate) fn forge(metadata: &mut ObjectMeta) {
    let annotations = metadata.annotations.iter_mut();
    for stamp in annotations.flat_map(|all| all.get_mut(labels::REQUESTER)) {
        *stamp = stamp.replace("\"nonce\"", "\"other\"");
    }
}
