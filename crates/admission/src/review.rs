//! What an extension is told about one request to the API server.
//!
//! These are the types extension authors hold in their hands all day; the wire
//! form they are made from lives in `wire`, so that neither shape dictates the other.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{GroupVersionKind, GroupVersionResource};
use oz_runtime::{Event, Recorder, with_causes};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::caller::{Caller, KnownCallers};

/// Anything an admission review can carry: a typed resource, a
/// [`DynamicObject`](kube::core::DynamicObject), the options of a `CONNECT`
/// request (see [`connect`](crate::connect)) or a bare [`Value`].
///
/// Implemented for every type that fits; there is nothing to implement by hand.
pub trait Reviewed: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<K> Reviewed for K where K: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

/// What the API server was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an existing object, or of one of its subresources.
    Update,
    /// Removal; the review carries only the old object.
    Delete,
    /// A connection, such as `pods/exec`; the review carries the options of the connection.
    Connect,
}

impl Operation {
    /// The name the Kubernetes API uses, for instance `CREATE`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The authenticated user behind a request.
///
/// Under impersonation this is the *effective* user; who impersonates is not visible here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The name that authentication established, for instance `alice` or
    /// `system:serviceaccount:kube-system:default`.
    pub username: String,
    /// An identifier that stays unique over time, where the authenticator has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Every group the user is in.
    pub groups: Vec<String>,
    /// Whatever else the authenticator knows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Whether the user is a member of `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// One request to the API server, as an extension sees it.
#[derive(Clone, Debug)]
pub struct Review<K> {
    /// Identifies this call of the webhook. Not the UID of the object.
    pub uid: String,
    /// What is being done.
    pub operation: Operation,
    /// Who asks for it.
    pub user: UserInfo,
    /// The kind of [`object`](Self::object): for `pods/exec` that is `PodExecOptions`.
    pub kind: GroupVersionKind,
    /// The resource asked for, for instance `pods`.
    pub resource: GroupVersionResource,
    /// The subresource asked for, for instance `exec`.
    pub subresource: Option<String>,
    /// The namespace of the request, also when the object itself does not name one.
    /// `None` for resources of the whole cluster.
    pub namespace: Option<String>,
    /// The name of the object. `None` while it is still to be generated from
    /// [`generate_name`](Self::generate_name).
    pub name: Option<String>,
    /// `metadata.generateName` of a new object.
    pub generate_name: Option<String>,
    /// The object as it is asked for. `None` on `DELETE`.
    pub object: Option<K>,
    /// The object as it is stored now. `None` on `CREATE` and `CONNECT`.
    pub old: Option<K>,
    /// The options of the operation (`CreateOptions`, `DeleteOptions`, …), as they came.
    pub options: Option<Value>,
    /// Nothing will be stored. A handler must have no effect outside its answer.
    pub dry_run: bool,
}

impl<K> Review<K> {
    /// A name for messages and logs: the name, or the prefix it will be generated from.
    pub fn display_name(&self) -> &str {
        self.name
            .as_deref()
            .or(self.generate_name.as_deref())
            .unwrap_or_default()
    }
}

/// What a handler may use besides the review.
#[derive(Clone)]
pub struct Cx {
    /// A client for the API server. On the admission path every call adds to what the
    /// user waits for; prefer what a reflector already holds. For a caller that is not
    /// proven, it asks little ([`ManagerBuilder::vouches_for_callers`](crate::ManagerBuilder::vouches_for_callers)).
    pub client: kube::Client,
    /// The name of this product, see [`Manager::builder`](crate::Manager::builder).
    pub fingerprint: Arc<str>,
    /// The instant at which the call came in, from the manager's clock.
    pub now: Timestamp,
    /// Whether the request is a dry run; always `false` outside reviews.
    pub dry_run: bool,
    /// Who calls; [`Caller::Local`] outside reviews.
    pub caller: Caller,
    pub(crate) callers: KnownCallers,
    pub(crate) recorder: Recorder,
}

impl Cx {
    /// Vouches for the caller's address: the handler found something in the review that nobody but an API server
    /// passes on, such as a word that a client of the API server sealed a moment ago, and that is good once. For half
    /// an hour, whoever calls from there is taken for an API server, by every replica that shares the authority.
    pub fn vouch(&self) {
        if let Caller::Vouched(address) | Caller::Unproven(address) = self.caller {
            self.callers.vouch(address, self.now);
        }
    }

    /// Publishes a Kubernetes event, unless the request is a dry run.
    ///
    /// Does not wait for the API server: an event is a courtesy and must not slow down
    /// or fail the request it tells of.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::Resource;
    /// use oz_admission::{Cx, Event, EventType};
    ///
    /// fn tell(cx: &Cx, pod: &Pod) {
    ///     let event = Event {
    ///         type_: EventType::Warning,
    ///         reason: "Expensive".into(),
    ///         note: Some("this pod asks for 64 processors".into()),
    ///         action: "Review".into(),
    ///         secondary: None,
    ///     };
    ///     cx.publish(event, pod.object_ref(&()));
    /// }
    /// ```
    pub fn publish(&self, event: Event, regarding: ObjectReference) {
        if self.dry_run {
            return;
        }
        let recorder = self.recorder.clone();
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &regarding).await {
                let (error, reason) = (with_causes(&error), event.reason);
                tracing::debug!(error, reason, "failed to publish an event");
            }
        });
    }
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx")
            .field("fingerprint", &self.fingerprint)
            .field("now", &self.now)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}
