//! The rules for a request that continues another (`spec.extends`): the other request is the requester's, is granted,
//! is in effect and is for the same pod. A continuation grants no access that a request without it could not get; but
//! an audit record that links two requests must be true. The webhook checks the rules at admission, and the operator
//! checks them again.

use jiff::Timestamp;
use oz_api::{EndReason, Phase, Requester};

use super::decide::Denial;
use super::request::Request;
use crate::lifecycle::End;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::window::has_come;

/// The data about the request that another request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continued {
    /// The requester; `None` if no valid stamp proves it.
    requester: Option<Requester>,
    /// The name of its template.
    template: String,
    phase: Phase,
    /// The expiry of its grant; `None` if it was not granted, is being deleted or ended early.
    until: Option<Timestamp>,
    /// The pod of its grant, if the pod existed before the request.
    pod: Option<String>,
}

impl Continued {
    /// Reads a request.
    #[must_use]
    pub fn from_request(keys: &Keys, request: &Request<'_>) -> Self {
        let metadata = request.metadata;
        let status = request.status;
        let ended_early = End::begun(status).is_some_and(|end| end.reason != EndReason::Expired)
            || metadata.deletion_timestamp.is_some();
        Self {
            requester: request.requester(keys).ok(),
            template: request.template.to_owned(),
            phase: request.phase(),
            until: status
                .and_then(|status| status.expires_at)
                .filter(|_| !ended_early),
            pod: status
                .and_then(|status| status.pod_name.clone())
                .filter(|_| !request.makes_pod),
        }
    }

    /// Checks whether the grant was in effect at `instant`.
    fn lasted(&self, instant: Timestamp) -> bool {
        (self.phase.is_granted() || self.phase == Phase::Expired)
            && self.until.is_some_and(|until| !has_come(instant, until))
    }
}

/// Checks whether `request`, by `requester`, may continue the request that it names, described by `continued`. The
/// named request must have been in effect at `created`, the creation of `request`, regardless of the time that
/// `request` has waited since.
///
/// # Errors
/// A [`Denial`] with the reason and the next step.
pub fn may(
    requester: &Requester,
    request: &Request<'_>,
    created: Timestamp,
    continued: Option<&Continued>,
) -> Result<(), Denial> {
    let Some(name) = request.extends else {
        return Ok(());
    };
    let denied = |reason, why: String| Err(Denial::new(reason, format!("spec.extends: {why}")));
    let own = |it: &&Continued| {
        let whose = it.requester.as_ref();
        whose.is_some_and(|whose| whose.user == requester.user && whose.uid == requester.uid)
    };
    // The denial does not disclose whether another user has a request of that name.
    let Some(continued) = continued.filter(own) else {
        let user = &requester.user;
        return denied(
            "ExtendsNotOwned",
            format!(
                "{user} has no {} {name} in this namespace; name one of your own",
                request.kind
            ),
        );
    };
    if !continued.lasted(created) {
        return denied(
            "ExtendsEnded",
            format!("{name} is not in effect; create a request without spec.extends"),
        );
    }
    match (&continued.pod, request.target_pod) {
        (Some(pod), Some(asked)) if pod != asked => denied(
            "ExtendsAnotherPod",
            format!(
                "{name} is for pod {pod}, not {asked}; remove spec.targetPod, or create a \
                request without spec.extends"
            ),
        ),
        (None, _) if continued.template != request.template => denied(
            "ExtendsAnotherPod",
            format!(
                "{name} is by template {}, not {}; create a request without spec.extends",
                continued.template, request.template
            ),
        ),
        _ => Ok(()),
    }
}

/// Returns the pod to connect to: the requested pod, or the pod of the continued request.
#[must_use]
pub fn target_pod<'a>(asked: Option<&'a str>, continued: Option<&'a Continued>) -> Option<&'a str> {
    asked.or_else(|| continued?.pod.as_deref())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use kube::Resource as _;
    use oz_api::{ExecAccessRequest, PodAccessRequest, encode, labels};
    use serde_json::json;

    use super::super::stamp::Stamp;
    use super::super::testing::{keys, timestamp};
    use super::*;

    fn alice() -> Requester {
        Requester {
            user: "alice".into(),
            uid: "u-1".into(),
            groups: vec!["devs".into()],
        }
    }

    fn stamped(kind: &str, name: &str, digest: String, by: Requester) -> ObjectMeta {
        let stamp = Stamp {
            requester: by,
            kind: kind.into(),
            namespace: "shop".into(),
            name: name.into(),
            generate_name: String::new(),
            spec_digest: digest,
            at: timestamp(0),
            nonce: "nonce".into(),
            ..Stamp::default()
        };
        ObjectMeta {
            name: Some(name.into()),
            namespace: Some("shop".into()),
            creation_timestamp: Some(Time(timestamp(0))),
            annotations: Some(BTreeMap::from([(
                labels::REQUESTER.to_owned(),
                stamp.seal(&keys()).unwrap(),
            )])),
            ..ObjectMeta::default()
        }
    }

    /// Alice's request for db-0, granted until 300 seconds after noon.
    fn granted() -> ExecAccessRequest {
        let mut request: ExecAccessRequest = serde_json::from_value(json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "ExecAccessRequest",
            "metadata": {}, "spec": {"templateName": "shell"},
            "status": {"phase": "Active", "podName": "db-0", "expiresAt": timestamp(300), "conditions": [
                {"type": "AccessStillValid", "status": "True", "reason": "Success", "message": "",
                 "lastTransitionTime": timestamp(0)},
            ]},
        }))
        .unwrap();
        let digest = encode::digest(&request.spec);
        *request.meta_mut() = stamped("ExecAccessRequest", "first", digest, alice());
        request
    }

    fn next(pod: Option<&str>) -> ExecAccessRequest {
        serde_json::from_value(json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "ExecAccessRequest",
            "metadata": {"name": "next", "namespace": "shop"},
            "spec": {"templateName": "shell", "extends": "first", "targetPod": pod},
        }))
        .unwrap()
    }

    fn refusal(
        by: &Requester,
        pod: Option<&str>,
        first: Option<&ExecAccessRequest>,
    ) -> Option<&'static str> {
        let continued = first.map(|first| Continued::from_request(&keys(), &Request::from(first)));
        let next = next(pod);
        may(
            by,
            &Request::from(&next),
            timestamp(100),
            continued.as_ref(),
        )
        .err()
        .map(|denial| denial.reason)
    }

    #[test]
    fn ones_own_that_lasts_is_continued_in_its_pod() {
        let first = granted();
        for pod in [None, Some("db-0")] {
            assert_eq!(refusal(&alice(), pod, Some(&first)), None);
        }
        let continued = Continued::from_request(&keys(), &Request::from(&first));
        assert_eq!(target_pod(None, Some(&continued)), Some("db-0"));
        assert_eq!(target_pod(Some("db-1"), None), Some("db-1"));
        assert_eq!(target_pod(None, None), None);
        // The groups may have changed since the first request.
        let other = Requester {
            groups: Vec::new(),
            ..alice()
        };
        assert_eq!(refusal(&other, None, Some(&first)), None);
        assert_eq!(
            refusal(&alice(), Some("db-1"), Some(&first)),
            Some("ExtendsAnotherPod")
        );
    }

    #[test]
    fn extension_of_foreign_request_is_refused_like_missing_request() {
        let none = Some("ExtendsNotOwned");
        assert_eq!(refusal(&alice(), None, None), none);
        for (user, uid) in [("bob", "u-1"), ("alice", "u-2"), ("alice", "")] {
            let by = Requester {
                user: user.into(),
                uid: uid.into(),
                groups: vec!["devs".into()],
            };
            assert_eq!(refusal(&by, None, Some(&granted())), none, "{user} {uid}");
        }
        // Without a stamp, or with the stamp of another request, the request has no proven requester.
        let mut unstamped = granted();
        unstamped.metadata.annotations = None;
        assert_eq!(refusal(&alice(), None, Some(&unstamped)), none);
        let mut renamed = granted();
        renamed.metadata.name = Some("other".into());
        assert_eq!(refusal(&alice(), None, Some(&renamed)), none);
    }

    #[test]
    fn ended_or_ungranted_request_is_not_extended() {
        type Change = fn(&mut ExecAccessRequest);
        let status = |first: &mut ExecAccessRequest, phase, until| {
            let status = first.status.as_mut().unwrap();
            (status.phase, status.expires_at) = (phase, until);
        };
        let over = Some("ExtendsEnded");
        for (phase, until, refused) in [
            (Phase::Pending, None, over),
            (Phase::Denied, None, over),
            (Phase::Failed, None, over),
            (Phase::Revoked, Some(timestamp(300)), over),
            (Phase::Active, Some(timestamp(100)), over),
            (Phase::Active, Some(timestamp(101)), None),
            // The grant ended after the next request was created.
            (Phase::Expired, Some(timestamp(101)), None),
            (Phase::Expired, Some(timestamp(99)), over),
        ] {
            let mut first = granted();
            status(&mut first, phase, until);
            assert_eq!(
                refusal(&alice(), None, Some(&first)),
                refused,
                "{phase} {until:?}"
            );
        }
        let changes: [Change; 3] = [
            |first| first.status = None,
            |first| first.metadata.deletion_timestamp = Some(Time(timestamp(50))),
            |first| {
                let ending = json!({"reason": "DriftDetected"});
                let status = first.status.as_mut().unwrap();
                status.ending = Some(serde_json::from_value(ending).unwrap());
            },
        ];
        for change in changes {
            let mut first = granted();
            change(&mut first);
            assert_eq!(refusal(&alice(), None, Some(&first)), over);
        }
    }

    #[test]
    fn a_pod_of_ones_own_is_continued_by_one_of_the_same_template() {
        let pod = |name: &str, template: &str, extends: Option<&str>| {
            let mut request: PodAccessRequest = serde_json::from_value(json!({
                "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "PodAccessRequest",
                "metadata": {}, "spec": {"templateName": template, "extends": extends},
                "status": {"phase": "Active", "podName": "first-1", "expiresAt": timestamp(300)},
            }))
            .unwrap();
            let digest = encode::digest(&request.spec);
            *request.meta_mut() = stamped("PodAccessRequest", name, digest, alice());
            request
        };
        let first = pod("first", "debug", None);
        let continued = Continued::from_request(&keys(), &Request::from(&first));
        for (template, refused) in [("debug", None), ("other", Some("ExtendsAnotherPod"))] {
            let next = pod("next", template, Some("first"));
            let answer = may(
                &alice(),
                &Request::from(&next),
                timestamp(1),
                Some(&continued),
            );
            assert_eq!(answer.err().map(|denial| denial.reason), refused);
        }
    }
}
