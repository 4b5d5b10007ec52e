//! As what requests for access are kept: there are many, and most of them wait for their end. Those are compressed,
//! and found by marks.

use std::fmt::Debug;

use kube::Resource;
use oz_core::access::stamp;
use oz_core::api::Phase;
use oz_core::kinds::AccessRequest;
use oz_runtime::{AsText, Feeds, Keep, Kind, Selection, Store, mark};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a request is found by.
#[derive(Hash)]
pub(crate) enum By<'a> {
    /// Those that are over.
    Over,
    /// The stamp that it carries.
    Stamp(&'a str),
    /// Namespace and name of its template.
    Template(Option<&'a str>, &'a str),
    /// Namespace and name of the pod that it gives access to.
    Pod(Option<&'a str>, &'a str),
    /// The namespace, if it gives access to a pod that is not ready.
    Unready(Option<&'a str>),
}

impl By<'_> {
    pub(crate) fn mark(&self) -> u64 {
        mark(self)
    }
}

/// The requests of a kind. Whoever needs them gets them here: they are kept in one way.
pub(crate) fn requests<R>(feeds: &Feeds) -> Store<R>
where
    R: AccessRequest
        + Resource<DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let keep = Keep {
        marks_of: Some(marks_of::<R>),
        compact: Some(AsText::json()),
        ..Keep::default()
    };
    feeds.store_of(&Kind::of::<R>(), Selection::default(), &keep)
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
        stamp::of(request.metadata).map(By::Stamp),
        Some(By::Template(namespace, request.template)),
        pod,
    ];
    all.iter().flatten().map(By::mark).collect()
}
