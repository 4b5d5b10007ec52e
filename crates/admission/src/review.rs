//! The data of one request to the API server, as an extension receives it.
//!
//! These types are the interface for extension authors; the module `wire` defines the wire form, so that
//! neither shape dictates the other.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{GroupVersionKind, GroupVersionResource};
use oz_runtime::{Event, Recorder, with_causes};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::caller::{Caller, KnownCallers};

/// A type that an admission review can carry: a typed resource, a
/// [`DynamicObject`](kube::core::DynamicObject), the options of a `CONNECT` request (see
/// [`connect`](crate::connect)) or a bare [`Value`].
///
/// The trait is implemented for every suitable type; extensions do not implement it.
pub trait Reviewed: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<K> Reviewed for K where K: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

/// The operation that the client requests from the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// The creation of an object.
    Create,
    /// A change of an existing object, or of one of its subresources.
    Update,
    /// The removal of an object; the review carries only the old object.
    Delete,
    /// A connection, such as `pods/exec`; the review carries the options of the connection.
    Connect,
}

impl Operation {
    /// Returns the name in the Kubernetes API, for instance `CREATE`.
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

/// The authenticated user of a request.
///
/// Under impersonation this is the *effective* user; the impersonating user is not visible here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The authenticated name, for instance `alice` or `system:serviceaccount:kube-system:default`.
    pub username: String,
    /// An identifier that stays unique over time, if the authenticator has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// All groups of the user.
    pub groups: Vec<String>,
    /// Additional attributes from the authenticator.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Checks whether the user is a member of `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// A request to the API server, as an extension receives it.
#[derive(Clone, Debug)]
pub struct Review<K> {
    /// The identifier of this call of the webhook; it is not the UID of the object.
    pub uid: String,
    /// The operation.
    pub operation: Operation,
    /// The requesting user.
    pub user: UserInfo,
    /// The kind of [`object`](Self::object): for `pods/exec` that is `PodExecOptions`.
    pub kind: GroupVersionKind,
    /// The requested resource, for instance `pods`.
    pub resource: GroupVersionResource,
    /// The requested subresource, for instance `exec`.
    pub subresource: Option<String>,
    /// The namespace of the request, even if the object itself does not name one. `None` for resources of
    /// the whole cluster.
    pub namespace: Option<String>,
    /// The name of the object. `None` until the API server generates it from
    /// [`generate_name`](Self::generate_name).
    pub name: Option<String>,
    /// `metadata.generateName` of a new object.
    pub generate_name: Option<String>,
    /// The requested object. `None` on `DELETE`.
    pub object: Option<K>,
    /// The stored object. `None` on `CREATE` and `CONNECT`.
    pub old: Option<K>,
    /// The options of the operation (`CreateOptions`, `DeleteOptions`, …), unchanged.
    pub options: Option<Value>,
    /// True if nothing will be stored: a handler must have no effect outside its response.
    pub dry_run: bool,
}

impl<K> Review<K> {
    /// Returns a name for messages and logs: the name, or the prefix from which it will be generated; empty for an
    /// object that requires neither, such as a TokenReview.
    pub fn display_name(&self) -> &str {
        self.name
            .as_deref()
            .or(self.generate_name.as_deref())
            .unwrap_or_default()
    }
}

/// The context of a handler, in addition to the review.
#[derive(Clone)]
pub struct Cx {
    /// A client for the API server. On the admission path, every call adds to the latency for the user;
    /// prefer the objects that a reflector already holds. For an unproven caller, its calls are limited
    /// ([`ManagerBuilder::vouches_for_callers`](crate::ManagerBuilder::vouches_for_callers)).
    pub client: kube::Client,
    /// The name of this product, see [`Manager::builder`](crate::Manager::builder).
    pub fingerprint: Arc<str>,
    /// The instant at which the call arrived, from the manager's clock.
    pub now: Timestamp,
    /// True if the request is a dry run; always `false` outside reviews.
    pub dry_run: bool,
    /// The caller; [`Caller::Local`] outside reviews.
    pub caller: Caller,
    pub(crate) callers: KnownCallers,
    pub(crate) recorder: Recorder,
}

impl Cx {
    /// Vouches for the caller's address: the handler found data in the review that only an API server
    /// passes on, such as a single-use token that a client of the API server sealed a moment ago. For half
    /// an hour, every replica that shares the authority treats callers from that address as API servers.
    pub fn vouch(&self) {
        if let Caller::Vouched(address) | Caller::Unproven(address) = self.caller {
            self.callers.vouch(address, self.now);
        }
    }

    /// Publishes a Kubernetes event, unless the request is a dry run.
    ///
    /// The function does not wait for the API server: an event is optional, and must not delay or fail the
    /// request that it reports.
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
