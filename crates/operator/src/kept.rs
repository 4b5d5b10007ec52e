//! The stores of requests for access and of transient bindings. There are many requests, and most
//! of them wait for their expiry: these are compressed. Marks identify both.
//! See docs/adr/0038-what-waits-is-kept-as-compressed-text.md.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use oz_api::Phase;
use oz_api::harness::HarnessRun;
use oz_core::access::stamp;
use oz_core::kinds::AccessRequest;
use oz_core::transient;
use oz_runs::lean;
use oz_runtime::{AsText, Feeds, Keep, Kind, Selection, Store, mark};

/// The mark by which a request is found.
#[derive(Hash)]
pub(crate) enum By<'a> {
    /// The requests that have ended.
    Over,
    /// The stamp of the request.
    Stamp(&'a str),
    /// The namespace and name of its template.
    Template(Option<&'a str>, &'a str),
    /// The namespace and name of the pod to which it gives access.
    Pod(Option<&'a str>, &'a str),
    /// The namespace, if it gives access to a pod that is not ready.
    Unready(Option<&'a str>),
    /// The user with a waiting transient binding, from its stamp.
    Waits(&'a str),
}

impl By<'_> {
    pub(crate) fn mark(&self) -> u64 {
        mark(self)
    }
}

/// Returns the store of requests of a kind. All parts of the operator use this store, so that
/// requests are stored in one form.
pub(crate) fn requests<R: AccessRequest>(feeds: &Feeds) -> Store<R> {
    feeds.store_of(&Kind::from_type::<R>(), Selection::default(), &keep())
}

pub(crate) fn keep<R: AccessRequest>() -> Keep<R> {
    Keep {
        marks_of: Some(marks_of::<R>),
        until_of: Some(until_of::<R>),
        compact: Some(AsText::json()),
        ..Keep::default()
    }
}

/// Returns the requests that name a template.
pub(crate) fn of_template<R: AccessRequest>(
    template: &R::Template,
    requests: &Store<R>,
) -> Vec<Arc<R>> {
    let (namespace, name) = (template.namespace(), template.name_any());
    let by = By::Template(namespace.as_deref(), &name);
    requests.marked(by.mark(), |request| {
        let request = request.view();
        request.template == name && request.metadata.namespace == namespace
    })
}

/// Returns the store of transient bindings of a kind. All parts of the operator use this store, so
/// that bindings are stored in one form.
pub(crate) fn bindings<K: transient::Kind>(feeds: &Feeds) -> Store<K> {
    feeds.store_of(
        &Kind::from_type::<K>(),
        Selection::default(),
        &keep_bindings(),
    )
}

/// Returns the store of harness runs. All parts of the operator use this store, so that runs are stored in one form.
pub(crate) fn runs(feeds: &Feeds) -> Store<HarnessRun> {
    let keep = Keep {
        lean: Some(lean::run),
        ..Keep::default()
    };
    feeds.store_of(
        &Kind::from_type::<HarnessRun>(),
        Selection::default(),
        &keep,
    )
}

pub(crate) fn keep_bindings<K: transient::Kind>() -> Keep<K> {
    Keep {
        marks_of: Some(marks_of_binding::<K>),
        ..Keep::default()
    }
}

fn marks_of_binding<K: transient::Kind>(binding: &K) -> Vec<u64> {
    // The caller checks for each result whether its window is open by now.
    let waits = binding.stored();
    let waits = waits.is_ok_and(|binding| binding.waiting(Timestamp::MIN).is_some());
    let user = stamp::flow(binding.meta());
    let mark = waits.then(|| By::Waits(&user).mark());
    mark.into_iter().collect()
}

fn marks_of<R: AccessRequest>(request: &R) -> Vec<u64> {
    let request = request.view();
    let namespace = request.metadata.namespace.as_deref();
    let active = request
        .status
        .filter(|status| status.phase == Phase::Active);
    let pod = active.and_then(|status| match (status.ready, &status.pod_name) {
        (false, _) => Some(By::Unready(namespace)),
        (true, name) => Some(By::Pod(namespace, name.as_deref()?)),
    });
    let all = [
        request.phase().is_terminal().then_some(By::Over),
        stamp::read(request.metadata).map(By::Stamp),
        Some(By::Template(namespace, request.template)),
        pod,
    ];
    all.iter().flatten().map(By::mark).collect()
}

fn until_of<R: AccessRequest>(request: &R) -> Option<Timestamp> {
    request.view().remembers_until()
}

#[cfg(test)]
mod tests {
    use oz_core::for_each_kind;
    use serde_json::{Value, json};

    use super::*;

    const STAMP: &str = "{\"at\":\"\u{0}\\u0000é\"}";

    fn request(status: Value) -> Value {
        json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1",
            "kind": "any",
            "metadata": {
                "name": "a", "namespace": "dev", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-11-27T10:00:00Z",
                "deletionTimestamp": "2026-11-27T10:00:01Z", "deletionGracePeriodSeconds": 0,
                "annotations": {"crds.wizardofoz.co/requester": STAMP},
                "finalizers": ["oz"],
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "T", "name": "shell", "uid": "t",
                    "controller": true, "blockOwnerDeletion": false,
                }],
            },
            "spec": {
                "templateName": "shell", "duration": "1h30m", "reason": "why", "extends": "b",
                "ticket": "INC-42", "emergency": true,
            },
            "status": status,
        })
    }

    /// Returns the marks of a request that is stored as text, and checks that it is decoded
    /// unchanged.
    fn found_by<R: AccessRequest>(status: Value) -> Vec<u64> {
        let request: R = serde_json::from_value(request(status)).unwrap();
        let text = (AsText::json().write)(&request).unwrap();
        let again: R = (AsText::json().read)(&text).unwrap();
        let [before, after] = [&request, &again].map(|one| serde_json::to_value(one).unwrap());
        assert_eq!(before, after);
        assert_eq!(
            before["status"]["grantedAt"],
            json!("2026-11-27T10:00:00.123456789Z")
        );
        let until = request.view().status.and_then(|status| status.expires_at);
        assert!(until.is_some() && until_of(&request) == until);
        marks_of(&request)
    }

    #[test]
    fn requests_are_found_by_what_concerns_them() {
        let here = Some("dev");
        let (over, unready) = (By::Over, By::Unready(here));
        let pod = By::Pod(here, "web-1");
        for (phase, ready, expected) in [
            ("Pending", false, None),
            ("Active", true, Some(&pod)),
            ("Active", false, Some(&unready)),
            ("Expired", true, Some(&over)),
            ("Revoked", false, Some(&over)),
        ] {
            let status = json!({
                "phase": phase, "ready": ready, "podName": "web-1", "podUID": "p",
                "grantedAt": "2026-11-27T10:00:00.123456789Z",
                "expiresAt": "2026-11-27T11:30:00Z",
                "ending": {"detail": "d", "since": "2026-11-27T11:00:00Z", "recorded": true},
                "foreignBindings": ["x"], "gate": true, "observedGeneration": 1,
                "conditions": [{
                    "type": "AccessStillValid", "status": "True", "reason": "Success",
                    "message": "Access still valid",
                    "lastTransitionTime": "2026-11-27T10:00:00Z", "observedGeneration": 1,
                }],
            });
            for_each_kind!(requests R => {
                let marks = found_by::<R>(status.clone());
                let always = [By::Template(here, "shell"), By::Stamp(STAMP)];
                for by in always.iter().chain(expected) {
                    assert!(marks.contains(&by.mark()), "{phase} {ready}");
                }
                assert_eq!(marks.len(), always.len() + usize::from(expected.is_some()));
            });
        }
        assert_ne!(By::Template(here, "web-1").mark(), pod.mark());
    }
}
