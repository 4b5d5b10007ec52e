//! What both kinds of access request have in common, as the rules see it.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::duration::{DurationError, GoDuration};
use oz_api::{Phase, RequestStatus, Requester, names};
use oz_trail::{Action, Decision, Record, RequestRef};

use super::decide::Ask;
use super::grant;
use super::stamp::{self, Stamp, StampError};
use crate::kinds::{AccessRequest, Kind};
use crate::lifecycle::End;
use crate::lifecycle::revoke::Marks;
use crate::lifecycle::seal::Keys;

/// What is asked for. A digest takes longer than most that is done with a request: it is made where it is needed.
pub trait Spec: fmt::Debug + Send + Sync {
    /// See [`Kind::spec_digest`].
    fn digest(&self) -> String;
}

impl<K: Kind> Spec for K {
    fn digest(&self) -> String {
        self.spec_digest()
    }
}

/// One request, of either kind.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Kind, such as `ExecAccessRequest`.
    pub kind: &'static str,
    /// Metadata.
    pub metadata: &'a ObjectMeta,
    /// Name of the template it asks by.
    pub template: &'a str,
    /// The duration it asks for, as written.
    pub duration: Option<&'a str>,
    /// What else it asks for.
    pub ask: Ask<'a>,
    /// The pod that it names; `None` if it names none.
    pub target_pod: Option<&'a str>,
    /// The request that it continues.
    pub extends: Option<&'a str>,
    /// Whether its pod is made for it.
    pub makes_pod: bool,
    /// Its spec, whose digest the stamp must name.
    pub spec: &'a dyn Spec,
    /// Its status.
    pub status: Option<&'a RequestStatus>,
}

impl<'a, R: AccessRequest> From<&'a R> for Request<'a> {
    fn from(request: &'a R) -> Self {
        request.view()
    }
}

impl Request<'_> {
    /// When it was created, by the API server's clock.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        self.metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0)
            .unwrap_or_default()
    }

    /// UID; empty before the API server gave one.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Until when its grant lasts, as far as its status tells.
    #[must_use]
    pub fn remembers_until(&self) -> Option<Timestamp> {
        let status = self.status?;
        status.granted_at.and(status.expires_at)
    }

    /// The name of the Role of its grant, as far as its status tells.
    #[must_use]
    pub fn role_name(&self) -> String {
        let told = self.status.and_then(|status| status.role_name.clone());
        let is_granted = self
            .status
            .is_some_and(|status| status.granted_at.is_some());
        told.unwrap_or_else(|| match is_granted {
            // By a release that gave all objects one name.
            true => self.object_name(),
            false => names::own_grant_role(&self.object_name()),
        })
    }

    /// The name that all objects of its grant share, but for its Role.
    #[must_use]
    pub fn object_name(&self) -> String {
        grant::object_name(
            self.metadata.name.as_deref().unwrap_or_default(),
            self.uid(),
        )
    }

    /// Who asked, if that is proven.
    ///
    /// # Errors
    /// Why it is not.
    pub fn requester(&self, keys: &Keys) -> Result<Requester, StampError> {
        stamp::verify(keys, self.kind, self.metadata, &self.spec.digest())
    }

    /// Its stamp, if that is proven: who created it, and what policies came to then.
    ///
    /// # Errors
    /// Why it is not.
    pub fn stamp(&self, keys: &Keys) -> Result<Stamp, StampError> {
        stamp::open(keys, self.kind, self.metadata, &self.spec.digest())
    }

    /// What marks the objects of its grant.
    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks {
            kind: self.kind,
            uid: self.uid(),
        }
    }

    /// How far it came.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.status.map(|status| status.phase).unwrap_or_default()
    }

    /// Whether what it was granted is over, or ends: it says so, or is being deleted.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.phase().is_terminal()
            || self.metadata.deletion_timestamp.is_some()
            || End::begun(self.status).is_some()
    }

    /// The duration it asks for.
    ///
    /// # Errors
    /// Why what it asks for is none.
    pub fn asked(&self) -> Result<Option<GoDuration>, DurationError> {
        self.duration.map(str::parse).transpose()
    }

    /// Kind, namespace, name and UID, for records.
    #[must_use]
    pub fn reference(&self) -> RequestRef {
        RequestRef {
            kind: self.kind.to_owned(),
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.metadata.name.clone().unwrap_or_default(),
            uid: self.uid().to_owned(),
        }
    }

    /// The record of something that happened to a request without a grant.
    #[must_use]
    pub fn record(
        &self,
        now: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: &str,
    ) -> Record {
        let why = self.ask.reason.map(|why| ("reason", why));
        let emergency = self.ask.emergency.then_some(("emergency", "true"));
        let ticket = self.ask.ticket.map(|ticket| ("ticket", ticket));
        let details = why.into_iter().chain(emergency).chain(ticket);
        let details = details.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Record {
            request: self.reference(),
            template: self.template.to_owned(),
            details: details.collect(),
            ..Record::about(now, action, decision, self.uid(), reason, message)
        }
    }
}
