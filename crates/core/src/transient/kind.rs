//! The kinds of transient binding, and what the common rules see of one object.

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

/// One kind of transient binding.
pub trait Kind: kinds::Rules {
    /// Value of [`oz_api::labels::OWNER_KIND`] on its bindings. Two kinds of one name differ in it.
    const MARK: &'static str;
    /// Type of the condition that says whether the binding is in effect.
    const EFFECTIVE: &'static str;
    /// Whether it is for the whole cluster.
    const CLUSTER: bool;
    /// What the paths of its fields begin with.
    const PREFIX: &'static str;
    /// Whether an object is let in although its window never opens or is over already, as the
    /// published controller had it.
    const LENIENT: bool;
    /// Whether it can wait for others to approve it. One that cannot is denied where a policy asks for that.
    const APPROVABLE: bool;

    /// What it asks for, or everything that is wrong with it.
    ///
    /// # Errors
    /// Every field that makes no sense.
    fn terms(&self) -> Result<Terms, Vec<Violation>>;

    /// Its status.
    fn status(&self) -> Option<&BindingStatus>;

    /// What the common rules see of it.
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

/// One object, of any kind.
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
    /// What is asked for.
    pub terms: Result<Terms, Vec<Violation>>,
    /// Digest of what the stamp must name.
    pub spec_digest: String,
    /// Status.
    pub status: Option<&'a BindingStatus>,
}

impl Binding<'_> {
    /// The namespace; `None` for the whole cluster.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.metadata.namespace.as_deref()
    }

    /// Who asked, if that is proven.
    ///
    /// # Errors
    /// Why it is not.
    pub fn requester(&self, keys: &Keys) -> Result<Requester, StampError> {
        stamp::verify(keys, self.kind, self.metadata, &self.spec_digest)
    }

    /// Whether it has to be looked at when this lock was made, changed or removed. One of which that cannot be told
    /// is.
    #[must_use]
    pub fn is_concerned_by(&self, lock: &AccessLock, keys: &Keys) -> bool {
        if self.is_over() {
            return false;
        }
        let (Ok(requester), Ok(terms)) = (self.requester(keys), &self.terms) else {
            return true;
        };
        let access = Access::bound(&requester, &terms.subjects, self.namespace());
        lock::is_about(lock, &access)
    }

    /// Whether its status says that it is over.
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
        let details =
            terms.map(|terms| details(&terms.role_ref(), &terms.subjects, terms.reason.as_deref()));
        let record = Record::about(time, action, decision, &reference.uid, reason, message);
        Record {
            request: reference,
            details: details.into_iter().flatten().collect(),
            ..record
        }
    }
}

impl StoredBinding<'_> {
    /// What marks its binding.
    pub(crate) fn marks(&self) -> Marks<'_> {
        Marks {
            kind: self.mark,
            uid: self.identity().uid,
        }
    }

    /// Looks for its binding, whatever the labels of that say.
    pub(super) fn look(&self) -> Step {
        let name = self.name();
        Step::Look(match self.namespace() {
            Some(namespace) => Sought::named::<rbac::RoleBinding>(Some(namespace), name),
            None => Sought::named::<rbac::ClusterRoleBinding>(None, name),
        })
    }

    /// Kind, namespace, name and UID, for records.
    #[must_use]
    pub fn reference(&self) -> RequestRef {
        RequestRef::stored(self.kind, self.identity())
    }

    /// The record of something that happened to it without a decision.
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

/// Which rules an object that is created `now` breaks: whether what it says makes sense, and whether its
/// window still opens, where that is asked for.
pub(crate) fn violations<K: Kind>(object: &K, now: Timestamp) -> Vec<Violation> {
    match object.terms() {
        Err(violations) => violations,
        Ok(_) if K::LENIENT => Vec::new(),
        Ok(terms) => {
            let field = format!("{}validUntil", K::PREFIX);
            let futile = terms.futile(now, now);
            let futile = futile.map(|message| Violation::of(field, message));
            futile.into_iter().collect()
        }
    }
}

/// The controller of one kind of transient binding.
pub struct Transient<K> {
    /// Opens stamps, seals and opens grants.
    pub keys: Keys,
    /// What may be bound.
    pub policy: Arc<Policy>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Transient<K> {
    /// A controller that binds by this policy.
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
