//! The common view of both kinds of access request, for the rules.

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
use crate::lifecycle::revoke::Marks;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::{End, Stored, window};

/// The spec of a request. The digest costs more than most other operations on a request: it is computed only where it
/// is needed.
pub trait Spec: fmt::Debug + Send + Sync {
    /// See [`Kind::spec_digest`].
    fn digest(&self) -> String;
}

impl<K: Kind> Spec for K {
    fn digest(&self) -> String {
        self.spec_digest()
    }
}

/// A request of either kind.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Kind, such as `ExecAccessRequest`.
    pub kind: &'static str,
    /// Metadata.
    pub metadata: &'a ObjectMeta,
    /// Name of the template.
    pub template: &'a str,
    /// The requested duration, as written.
    pub duration: Option<&'a str>,
    /// The other content of the request.
    pub ask: Ask<'a>,
    /// The pod that it names; `None` if it names none.
    pub target_pod: Option<&'a str>,
    /// The request that it continues.
    pub extends: Option<&'a str>,
    /// The pod is created for the request.
    pub makes_pod: bool,
    /// The spec; the stamp must name its digest.
    pub spec: &'a dyn Spec,
    /// The status.
    pub status: Option<&'a RequestStatus>,
}

impl<'a, R: AccessRequest> From<&'a R> for Request<'a> {
    fn from(request: &'a R) -> Self {
        request.view()
    }
}

/// A stored request of either kind.
pub type StoredRequest<'a> = Stored<'a, Request<'a>>;

impl Request<'_> {
    /// Returns the expiry of its grant, as far as its status contains it.
    #[must_use]
    pub fn remembers_until(&self) -> Option<Timestamp> {
        let status = self.status?;
        status.granted_at.and(status.expires_at)
    }

    /// Returns the requester, if the stamp proves it.
    ///
    /// # Errors
    /// The reason why the stamp does not prove it.
    pub fn requester(&self, keys: &Keys) -> Result<Requester, StampError> {
        stamp::verify(keys, self.kind, self.metadata, &self.spec.digest())
    }

    /// Returns its stamp, if it is valid: the user who created the request, and the judgement of the access policies at
    /// that time.
    ///
    /// # Errors
    /// The reason why the stamp is not valid.
    pub fn stamp(&self, keys: &Keys) -> Result<Stamp, StampError> {
        stamp::open(keys, self.kind, self.metadata, &self.spec.digest())
    }

    /// Returns its phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.status.map_or(Phase::Pending, |status| status.phase)
    }

    /// Checks whether its grant has ended or is ending: by its status, or because it is being deleted.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.phase().is_terminal()
            || self.metadata.deletion_timestamp.is_some()
            || End::begun(self.status).is_some()
    }

    /// Returns the requested duration.
    ///
    /// # Errors
    /// The reason why the text is not a duration.
    pub fn asked(&self) -> Result<Option<GoDuration>, DurationError> {
        self.duration.map(str::parse).transpose()
    }

    /// Creates the audit record of the admission or denial of a new request. The caller adds its name and namespace,
    /// which the object may lack.
    #[must_use]
    pub fn admission(
        &self,
        now: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: &str,
    ) -> Record {
        let reference = RequestRef::new_object(self.kind, self.metadata);
        self.event(reference, now, action, decision, reason, message)
    }

    fn event(
        &self,
        reference: RequestRef,
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
        let record = Record::about(now, action, decision, &reference.uid, reason, message);
        Record {
            request: reference,
            template: self.template.to_owned(),
            details: details.collect(),
            ..record
        }
    }
}

impl StoredRequest<'_> {
    /// Returns the instant at which the request stops waiting, if it requires no approvals.
    #[must_use]
    pub fn waits_until(&self) -> Timestamp {
        window::waits_until(self.created(), self.asked().ok().flatten())
    }

    /// Returns the name of the Role of its grant, as far as its status contains it.
    #[must_use]
    pub fn role_name(&self) -> String {
        let told = self.status.and_then(|status| status.role_name.clone());
        let is_granted = self
            .status
            .is_some_and(|status| status.granted_at.is_some());
        told.unwrap_or_else(|| match is_granted {
            // A release that gave all objects one name made the grant.
            true => self.object_name(),
            false => names::own_grant_role(&self.object_name()),
        })
    }

    /// Returns the name that all objects of its grant share, except its Role.
    #[must_use]
    pub fn object_name(&self) -> String {
        grant::shared_name(&self.reference())
    }

    /// Returns the marks of the objects of its grant.
    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks {
            kind: self.kind,
            uid: self.identity().uid,
        }
    }

    /// Returns kind, namespace, name and UID, for audit records.
    #[must_use]
    pub fn reference(&self) -> RequestRef {
        RequestRef::stored(self.kind, self.identity())
    }

    /// Creates the audit record of an event of a request without a grant.
    #[must_use]
    pub fn record(
        &self,
        now: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: &str,
    ) -> Record {
        self.event(self.reference(), now, action, decision, reason, message)
    }
}
