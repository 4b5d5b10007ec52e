//! The kinds of transient binding, and the view of an object that the common rules read.

use std::marker::PhantomData;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1 as rbac;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::{AccessLock, BindingStatus, IdentityError, Requester};
use oz_trail::{Action, Decision, Record, RequestRef};

use super::grant::details;
use super::policy::Policy;
use super::terms::Terms;
use crate::access::lock::{self, Access};
use crate::access::stamp::{self, StampError};
use crate::controller::{Sought, Step};
use crate::kinds;
use crate::lifecycle::Stored;
use crate::lifecycle::revoke::Marks;
use crate::lifecycle::seal::Keys;
use crate::validate::Violation;

/// A kind of transient binding.
pub trait Kind: kinds::Rules {
    /// Value of [`oz_api::labels::OWNER_KIND`] on its bindings. It distinguishes two kinds with the same name.
    const MARK: &'static str;
    /// Type of the condition that reports whether the binding is in effect.
    const EFFECTIVE: &'static str;
    /// Whether the binding is cluster-wide.
    const CLUSTER: bool;
    /// The prefix of the paths of its fields.
    const PREFIX: &'static str;
    /// Whether admission accepts an object with a window that never opens or has ended, as the published controller
    /// did.
    const LENIENT: bool;
    /// Whether an object can wait for approvals, and name a change ticket. An object that cannot is denied if an access
    /// policy requires approvals or a change ticket.
    const APPROVABLE: bool;

    /// Returns the validated terms of the object.
    ///
    /// # Errors
    /// All invalid fields.
    fn terms(&self) -> Result<Terms, Vec<Violation>>;

    /// Returns the status.
    fn status(&self) -> Option<&BindingStatus>;

    /// Returns the view of the object that the common rules read.
    fn view(&self) -> Binding<'_> {
        Binding {
            api_version: Self::api_version(&()).into_owned(),
            kind: Self::title(),
            mark: Self::MARK,
            is_approvable: Self::APPROVABLE,
            metadata: self.meta(),
            terms: self.terms(),
            spec_digest: self.spec_digest(),
            status: self.status(),
        }
    }

    /// Returns the stored binding in the form that the common rules read.
    ///
    /// # Errors
    /// If the binding is not stored.
    fn stored(&self) -> Result<StoredBinding<'_>, IdentityError> {
        StoredBinding::new(self.meta(), self.view())
    }
}

/// A stored binding of any kind.
pub type StoredBinding<'a> = Stored<'a, Binding<'a>>;

/// A transient binding of any kind.
#[derive(Clone, Debug)]
pub struct Binding<'a> {
    /// API group and version.
    pub api_version: String,
    /// Kind.
    pub kind: &'static str,
    /// See [`Kind::MARK`].
    pub mark: &'static str,
    /// See [`Kind::APPROVABLE`].
    pub is_approvable: bool,
    /// Metadata.
    pub metadata: &'a ObjectMeta,
    /// The terms, or all invalid fields.
    pub terms: Result<Terms, Vec<Violation>>,
    /// The digest that the stamp must contain.
    pub spec_digest: String,
    /// Status.
    pub status: Option<&'a BindingStatus>,
}

impl Terms {
    /// Returns the access that a binding with these terms gives in a namespace, or, with `None`, cluster-wide.
    #[must_use]
    pub fn access<'a>(&self, requester: &'a Requester, namespace: Option<&'a str>) -> Access<'a> {
        Access::bound(requester, &self.subjects, namespace).in_emergency(self.emergency)
    }
}

impl Binding<'_> {
    /// Returns the namespace; `None` for a cluster-wide binding.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.metadata.namespace.as_deref()
    }

    /// Returns the requester from the verified stamp.
    ///
    /// # Errors
    /// The reason why the stamp is missing or invalid.
    pub fn requester(&self, keys: &Keys) -> Result<Requester, StampError> {
        stamp::verify(keys, self.kind, self.metadata, &self.spec_digest)
    }

    /// Checks whether a change of this lock requires a pass for the object. Without a valid stamp and valid terms it
    /// does.
    #[must_use]
    pub fn is_concerned_by(&self, lock: &AccessLock, keys: &Keys) -> bool {
        if self.is_over() {
            return false;
        }
        let (Ok(requester), Ok(terms)) = (self.requester(keys), &self.terms) else {
            return true;
        };
        lock::is_about(lock, &terms.access(&requester, self.namespace()))
    }

    /// Checks whether the status reports the end of the object.
    pub(super) fn is_over(&self) -> bool {
        self.status.is_some_and(|status| status.phase.is_terminal())
    }

    /// Creates the audit record of the admission or denial of a new binding. The caller adds its name, which the object
    /// may lack.
    #[must_use]
    pub fn admission(
        &self,
        time: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: String,
    ) -> Record {
        let reference = RequestRef::new_object(self.kind, self.metadata);
        self.event(reference, time, action, decision, reason, message)
    }

    fn event(
        &self,
        reference: RequestRef,
        time: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: String,
    ) -> Record {
        let terms = self.terms.as_ref().ok();
        let details = terms.map(|terms| {
            let bound = (&terms.role_ref(), terms.subjects.as_slice());
            let mut details = details(bound, terms.reason.as_deref(), terms.ticket.as_deref());
            if terms.emergency {
                details.insert("emergency".to_owned(), "true".to_owned());
            }
            details
        });
        let record = Record::about(time, action, decision, &reference.uid, reason, message);
        Record {
            request: reference,
            details: details.into_iter().flatten().collect(),
            ..record
        }
    }
}

impl StoredBinding<'_> {
    /// Returns the labels that mark the binding.
    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks {
            kind: self.mark,
            uid: self.identity().uid,
        }
    }

    /// Returns the step that reads the binding by its name, regardless of its labels.
    pub(super) fn look(&self) -> Step {
        let name = self.name();
        Step::Look(match self.namespace() {
            Some(namespace) => Sought::with_name::<rbac::RoleBinding>(Some(namespace), name),
            None => Sought::with_name::<rbac::ClusterRoleBinding>(None, name),
        })
    }

    /// Returns kind, namespace, name and UID, for audit records.
    #[must_use]
    pub fn reference(&self) -> RequestRef {
        RequestRef::stored(self.kind, self.identity())
    }

    /// Creates an audit record about an event of an object without a decision.
    #[must_use]
    pub fn record(
        &self,
        time: Timestamp,
        action: Action,
        decision: Decision,
        reason: &str,
        message: String,
    ) -> Record {
        self.event(self.reference(), time, action, decision, reason, message)
    }
}

/// Returns the rules that an object violates if it is created `now`: invalid fields, and, for kinds that are not
/// lenient, a window that cannot open.
pub(crate) fn violations<K: Kind>(object: &K, now: Timestamp) -> Vec<Violation> {
    invalid_terms::<K>(&object.terms(), now, now)
}

/// Returns the same for an object with these terms, created at `created`.
pub(super) fn invalid_terms<K: Kind>(
    terms: &Result<Terms, Vec<Violation>>,
    now: Timestamp,
    created: Timestamp,
) -> Vec<Violation> {
    match terms {
        Err(violations) => violations.clone(),
        Ok(_) if K::LENIENT => Vec::new(),
        Ok(terms) => futile::<K>(terms, now, created).into_iter().collect(),
    }
}

/// Returns the violation of an object with a window that cannot open.
pub(super) fn futile<K: Kind>(
    terms: &Terms,
    now: Timestamp,
    created: Timestamp,
) -> Option<Violation> {
    let message = terms.futile(now, created)?;
    Some(Violation::new(format!("{}validUntil", K::PREFIX), message))
}

/// The controller of a kind of transient binding.
pub struct Transient<K> {
    /// Keys that verify stamps, and seal and open grants.
    pub keys: Keys,
    /// The limits of the administrator.
    pub policy: Arc<Policy>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Transient<K> {
    /// Creates a controller with these limits.
    #[must_use]
    pub fn new(keys: Keys, policy: Arc<Policy>) -> Self {
        Self {
            keys,
            policy,
            kind: PhantomData,
        }
    }
}

impl<K> Clone for Transient<K> {
    fn clone(&self) -> Self {
        Self::new(self.keys.clone(), Arc::clone(&self.policy))
    }
}
