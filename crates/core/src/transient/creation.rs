//! A new transient binding, as the rules read it at its creation.

use std::marker::PhantomData;

use jiff::SignedDuration;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::RoleReference;
use oz_api::duration::GoDuration;
use oz_api::instant::has_come;
use oz_api::names::BINDING_FINALIZER as FINALIZER;

use super::judged::longest;
use super::kind::{Binding, Kind, futile, invalid_terms};
use super::policy::{Policy, may_not_bind, role_missing};
use super::roles::Listed;
use super::terms::{Closes, Terms};
use crate::access::denial::Denial;
use crate::access::emergency;
use crate::access::lock::{Access, Locks};
use crate::access::policy::Judgement;
use crate::access::rules::{Creation, CreationDenial, CreationStop, NewObject};
use crate::access::stamp::{Stamp, StampError};
use crate::controller::Failure;
use crate::lifecycle::seal::Keys;
use crate::validate::Violation;

type Stop = CreationStop<BindingQuestion>;

/// A new transient binding of a kind.
pub struct NewBinding<'a, K> {
    creation: Creation<'a>,
    binding: Binding<'a>,
    policy: &'a Policy,
    stamp: Result<Stamp, StampError>,
    /// The facts that were asked for.
    pub facts: BindingFacts,
    kind: PhantomData<fn() -> K>,
}

/// The facts about a new binding. A fact is `None` until its question was asked.
#[derive(Debug, Default)]
pub struct BindingFacts {
    /// The answer to [`BindingQuestion::Locks`].
    pub locks: Option<Locks>,
    /// The answer to [`BindingQuestion::MayBind`].
    pub may_bind: Option<bool>,
    /// The answer to [`BindingQuestion::Waiting`]: their number.
    pub waiting: Option<usize>,
    /// The answer to [`BindingQuestion::Reviews`].
    pub unreviewed: Option<Vec<String>>,
    /// The answer to [`BindingQuestion::Role`]: its rules, if it exists.
    pub role: Option<Option<Vec<PolicyRule>>>,
}

/// A question about a new binding. They are asked in this order, and only if the answer matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindingQuestion {
    /// All locks.
    Locks,
    /// Whether the creator may bind this role, as the API server decides.
    MayBind(RoleReference),
    /// The windows of the creator that wait to open. If the limit permits one more, the new one counts from then on.
    Waiting,
    /// The unreviewed emergencies of the creator, by the UIDs of their objects.
    Reviews,
    /// The rules of the role, from the API server. If they are read only for a warning, the role may be unreadable.
    Role {
        /// The role.
        role: RoleReference,
        /// Whether the role is read only for a warning.
        for_warning: bool,
    },
}

impl<'a, K: Kind> NewBinding<'a, K> {
    /// Reads a new binding, of which no fact is known yet.
    #[must_use]
    pub fn new(keys: &Keys, creation: Creation<'a>, policy: &'a Policy, object: &'a K) -> Self {
        let binding = object.view();
        Self {
            creation,
            policy,
            stamp: binding.stamp(keys),
            binding,
            facts: BindingFacts::default(),
            kind: PhantomData,
        }
    }

    /// Returns the view of the object.
    #[must_use]
    pub fn binding(&self) -> &Binding<'a> {
        &self.binding
    }

    /// Returns the terms.
    ///
    /// # Errors
    /// The denial, if they are invalid.
    pub fn terms(&self) -> Result<&Terms, Stop> {
        let terms = self.binding.terms.as_ref();
        terms.map_err(|found| Stop::Deny(CreationDenial::Invalid(found.clone())))
    }
}

impl<K: Kind> NewObject for NewBinding<'_, K> {
    type Question = BindingQuestion;
    const AGAIN: &'static str = "create the object";

    fn ask_locks() -> BindingQuestion {
        BindingQuestion::Locks
    }

    fn ask_reviews() -> BindingQuestion {
        BindingQuestion::Reviews
    }

    fn creation(&self) -> Creation<'_> {
        self.creation
    }

    fn metadata(&self) -> &ObjectMeta {
        self.binding.metadata
    }

    fn violations(&self) -> Vec<Violation> {
        invalid_terms::<K>(&self.binding.terms, self.creation.now, self.created())
    }

    fn stamp(&self) -> Result<&Stamp, &StampError> {
        self.stamp.as_ref()
    }

    fn is_unchanged(&self) -> Result<(), Denial> {
        if has_finalizer(self.binding.metadata) {
            return Ok(());
        }
        let message = format!(
            "the finalizer {FINALIZER} was removed after oz's webhook: without it a deletion could \
             leave the binding; check which other webhook removed it"
        );
        Err(Denial::new("NoFinalizer", message))
    }

    fn locks(&self) -> Option<&Locks> {
        self.facts.locks.as_ref()
    }

    fn access(&self) -> Result<Access<'_>, Stop> {
        let Creation {
            creator, namespace, ..
        } = self.creation;
        Ok(self.terms()?.access(creator, namespace))
    }

    /// Checks whether the limits permit the role and the window, and whether the creator may bind the role. A user who may
    /// not learns nothing about access policies.
    fn permits(&self) -> Result<(), Stop> {
        let terms = self.terms()?;
        let permitted = self
            .policy
            .permits(terms, self.creation.namespace, self.created());
        permitted.map_err(|failure| denied::<K>(terms, failure))?;
        match self.facts.may_bind {
            None => Err(Stop::Need(BindingQuestion::MayBind(terms.role.clone()))),
            Some(true) => Ok(()),
            Some(false) => {
                let user = &self.creation.creator.user;
                Err(denied::<K>(terms, may_not_bind(user, &terms.role)))
            }
        }
    }

    fn judged(&self, judgement: Option<&Judgement>, _: &mut Vec<String>) -> Result<(), Stop> {
        let permitted = self.binding.permitted(judgement, self.creation.creator);
        permitted.map_err(Stop::from)
    }

    fn capacity(&self) -> Result<(), Stop> {
        let terms = self.terms()?;
        if terms
            .from
            .is_none_or(|from| has_come(self.creation.now, from))
        {
            return Ok(());
        }
        let Some(waiting) = self.facts.waiting else {
            return Err(Stop::Need(BindingQuestion::Waiting));
        };
        let user = &self.creation.creator.user;
        let permitted = self.policy.permits_waiting(user, waiting);
        permitted.map_err(|failure| denied::<K>(terms, failure))
    }

    /// Warns if the window never opens, which the published kinds admit, and if access policies shorten it.
    fn window(
        &self,
        judgement: Option<&Judgement>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Stop> {
        let (terms, created) = (self.terms()?, self.created());
        let futile = futile::<K>(terms, self.creation.now, created);
        warnings.extend(futile.map(|violation| violation.to_string()));
        let longest = longest(judgement, terms.emergency);
        let shorter = |longest: &GoDuration| SignedDuration::from(*longest) < terms.length(created);
        if let Some(longest) = longest.filter(shorter) {
            warnings.push(format!(
                "the window will be {longest}, the maximum of the AccessPolicies of the cluster"
            ));
        }
        Ok(())
    }

    fn emergency(&self) -> Result<Option<emergency::Terms>, Stop> {
        let creator = self.creation.creator;
        let terms = self.binding.emergency(self.judgement(), creator);
        terms.map_err(Stop::from)
    }

    fn unreviewed(&self) -> Option<&[String]> {
        self.facts.unreviewed.as_deref()
    }

    /// Checks whether the role can be used to escalate privileges.
    fn requirements(&self, warnings: &mut Vec<String>) -> Result<(), Stop> {
        let (terms, namespace) = (self.terms()?, self.creation.namespace);
        let listed = self.policy.permits_role(&terms.role, namespace);
        let listed = listed.map_err(|failure| denied::<K>(terms, failure))?;
        let is_named = listed == Listed::ByName;
        let Some(rules) = &self.facts.role else {
            let (role, for_warning) = (terms.role.clone(), is_named);
            return Err(Stop::Need(BindingQuestion::Role { role, for_warning }));
        };
        if rules.is_none() && !is_named {
            warnings.push(role_missing(&terms.role));
        }
        let rules = rules.as_deref().unwrap_or(&[]);
        let danger = Policy::permits_content(&terms.role, listed, rules, namespace);
        warnings.extend(danger.map_err(|failure| denied::<K>(terms, failure))?);
        Ok(())
    }
}

/// Checks whether the object has the finalizer without which an orphaning deletion would leave its binding.
#[must_use]
pub fn has_finalizer(metadata: &ObjectMeta) -> bool {
    let mut finalizers = metadata.finalizers.iter().flatten();
    finalizers.any(|name| name == FINALIZER)
}

/// Creates the denial by a limit or for want of a right, with the field that causes it.
fn denied<K: Kind>(terms: &Terms, failure: Failure) -> Stop {
    let field = match (failure.reason, terms.closes) {
        ("ReservedNamespace", _) => "metadata.namespace".to_owned(),
        ("WindowTooFar" | "TooManyWaiting", _) => format!("{}validFrom", K::PREFIX),
        ("WindowTooLong", Closes::At(_)) => format!("{}validUntil", K::PREFIX),
        ("WindowTooLong", Closes::After(_)) => format!("{}duration", K::PREFIX),
        _ => format!("{}roleRef", K::PREFIX),
    };
    Stop::of_field(failure, field)
}
