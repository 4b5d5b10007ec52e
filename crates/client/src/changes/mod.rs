//! Changes of requests, approvals, reviews and locks: from a list onward by watches, which resume where they broke. A
//! comparison of the current objects with the known ones finds the changes in between.

mod all;
mod feed;
mod standing;

use std::fmt::Debug;

use jiff::Timestamp;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::all::Feeds;
pub use self::feed::{Feed, Link, OnChange, OnLink, Stop};

/// The part of an object that a user sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectSummary {
    /// The requester, the approver or the user under review.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The subject of the object.
    pub subject: String,
    /// The phase.
    pub phase: String,
    /// The reason, in the words of the user or component that gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The instant until which it holds, or has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The kind of the object.
    pub kind: String,
    /// The namespace, if the object is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The current state; the last state, if the object was deleted.
    #[serde(flatten)]
    pub standing: ObjectSummary,
    /// True if the object was deleted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// A kind with changes that are shown.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// Returns the part of the object that a user sees.
    fn standing(&self, now: Timestamp) -> ObjectSummary;
}
