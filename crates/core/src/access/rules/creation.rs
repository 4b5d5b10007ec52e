//! The rules at the creation of an object, in the order of the list. [`at_creation`] applies them to the facts that are
//! known: the webhook answers the question of a rule and applies them again, so that no fact is read for an object that
//! an earlier rule denies. What the object may still wait for, such as its template, is a warning here.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::Requester;

use super::served::Served;
use super::{conditions, identity, permission};
use crate::access::denial::Denial;
use crate::access::emergency;
use crate::access::lock::{Access, Locks, NotAdmitted};
use crate::access::policy::Judgement;
use crate::access::stamp::{Stamp, StampError, is_of_creator};
use crate::controller::Failure;
use crate::validate::{REQUEST_METADATA, Violation, metadata};

/// The reason why a new object is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreationDenial {
    /// The metadata exceeds its bounds in these fields.
    TooLarge(Vec<Violation>),
    /// These fields are invalid.
    Invalid(Vec<Violation>),
    /// The creator may not create the object; with the path of the field that causes this, if one does.
    Forbidden(Denial, Option<String>),
    /// A fact cannot be read, so that there is no decision: the same object may be admitted later.
    Undecided(Failure),
}

/// The reason why a rule does not admit a new object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreationStop<Q> {
    /// The object is denied.
    Deny(CreationDenial),
    /// This data must be read first.
    Need(Q),
}

impl<Q> CreationStop<Q> {
    /// Creates the denial because of the field with this path.
    #[must_use]
    pub fn of_field(denial: impl Into<Denial>, field: impl Into<String>) -> Self {
        Self::Deny(CreationDenial::Forbidden(denial.into(), Some(field.into())))
    }

    /// Creates the denial because of these fields, if there are any.
    ///
    /// # Errors
    /// That denial.
    pub fn of_fields(found: Vec<Violation>) -> Result<(), Self> {
        match found.is_empty() {
            true => Ok(()),
            false => Err(Self::Deny(CreationDenial::Invalid(found))),
        }
    }
}

impl<Q> From<Denial> for CreationStop<Q> {
    fn from(denial: Denial) -> Self {
        Self::Deny(CreationDenial::Forbidden(denial, None))
    }
}

/// The reason why a rule does not admit a new object of a kind.
pub type CreationStopOf<N> = CreationStop<<N as NewObject>::Question>;

/// The creation of an object, as the API server describes it.
#[derive(Clone, Copy, Debug)]
pub struct Creation<'a> {
    /// The instant of the decision.
    pub now: Timestamp,
    /// The user who creates the object.
    pub creator: &'a Requester,
    /// The namespace of the object; `None` for the whole cluster.
    pub namespace: Option<&'a str>,
    /// The namespaces in which objects are granted.
    pub served: Served<'a>,
    /// Whether the operator only tests with it whether objects are stamped. Namespaces, locks and limits do not matter
    /// then.
    pub is_canary: bool,
}

/// A new object. The methods with a default are of rules that not every kind has at its creation.
pub trait NewObject {
    /// The questions of its kind.
    type Question;
    /// The next step of the user after a denial because of the stamp, such as `create the request`.
    const AGAIN: &'static str;

    /// Returns the question for all locks.
    fn ask_locks() -> Self::Question;

    /// Returns the question for the unreviewed emergencies of the creator.
    fn ask_reviews() -> Self::Question;

    /// Returns its creation.
    fn creation(&self) -> Creation<'_>;

    /// Returns its metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// Returns the instant of its creation.
    fn created(&self) -> Timestamp {
        let created = self.metadata().creation_timestamp.as_ref();
        created.map_or(self.creation().now, |time| time.0)
    }

    /// Returns the invalid fields, as far as they are detectable from the object alone.
    fn violations(&self) -> Vec<Violation>;

    /// Returns the stamp, or the reason why it is not valid.
    ///
    /// # Errors
    /// That reason.
    fn stamp(&self) -> Result<&Stamp, &StampError>;

    /// Returns the judgement of the access policies, as sealed in the stamp.
    fn judgement(&self) -> Option<&Judgement> {
        self.stamp().ok()?.judgement.as_ref()
    }

    /// Checks whether the object still has all other metadata that the webhook added together with the stamp.
    ///
    /// # Errors
    /// The denial.
    fn is_unchanged(&self) -> Result<(), Denial> {
        Ok(())
    }

    /// Returns all locks; `None` until they were asked for.
    fn locks(&self) -> Option<&Locks>;

    /// Returns the access that locks are compared with.
    ///
    /// # Errors
    /// The question that must be answered first.
    fn access(&self) -> Result<Access<'_>, CreationStopOf<Self>>;

    /// Checks whether its template exists. The object may wait for it, with a warning.
    ///
    /// # Errors
    /// The question that must be answered first.
    fn template(&self, warnings: &mut Vec<String>) -> Result<(), CreationStopOf<Self>> {
        let _ = warnings;
        Ok(())
    }

    /// Checks whether the creator may have the access.
    ///
    /// # Errors
    /// The denial, or the question that must be answered first.
    fn permits(&self) -> Result<(), CreationStopOf<Self>> {
        Ok(())
    }

    /// Checks whether the access policies permit it, by their sealed judgement.
    ///
    /// # Errors
    /// The denial, or the question that must be answered first.
    fn judged(
        &self,
        judgement: Option<&Judgement>,
        warnings: &mut Vec<String>,
    ) -> Result<(), CreationStopOf<Self>>;

    /// Checks the spec of its template, and the object by it.
    ///
    /// # Errors
    /// The denial, or the question that must be answered first.
    fn template_terms(&self, warnings: &mut Vec<String>) -> Result<(), CreationStopOf<Self>> {
        let _ = warnings;
        Ok(())
    }

    /// Checks whether the creator may have one more object of its kind.
    ///
    /// # Errors
    /// The denial, or the question that must be answered first.
    fn capacity(&self) -> Result<(), CreationStopOf<Self>> {
        Ok(())
    }

    /// Warns about a window that differs from the requested one.
    ///
    /// # Errors
    /// The question that must be answered first.
    fn window(
        &self,
        judgement: Option<&Judgement>,
        warnings: &mut Vec<String>,
    ) -> Result<(), CreationStopOf<Self>> {
        let _ = (judgement, warnings);
        Ok(())
    }

    /// Returns the terms of the declared emergency, if it declares one and they are valid.
    ///
    /// # Errors
    /// The denial, or the question that must be answered first.
    fn emergency(&self) -> Result<Option<emergency::Terms>, CreationStopOf<Self>>;

    /// Returns the unreviewed emergencies of the creator, by the UIDs of their objects; `None` until they were asked for.
    fn unreviewed(&self) -> Option<&[String]>;

    /// Checks the specific requirements of its kind, after all rules.
    ///
    /// # Errors
    /// The denial, or the question that must be answered first.
    fn requirements(&self, warnings: &mut Vec<String>) -> Result<(), CreationStopOf<Self>> {
        let _ = warnings;
        Ok(())
    }
}

/// Applies all rules to a new object, and then the specific requirements of its kind. Returns the warnings for its
/// creator.
///
/// # Errors
/// The denial by the first rule that does not hold, or the question that must be answered before the rules are applied
/// again.
pub fn at_creation<N: NewObject>(object: &N) -> Result<Vec<String>, CreationStopOf<N>> {
    let mut warnings = Vec::new();
    for rule in super::creation_rules::<N>() {
        rule.at_creation(object, &mut warnings)?;
    }
    object.requirements(&mut warnings)?;
    Ok(warnings)
}

/// A rule at the creation of an object.
pub(super) trait CreationRule<N: NewObject>: Sync {
    /// Checks whether the rule holds, and adds its warnings. A rule that depends on later changes admits every object.
    ///
    /// # Errors
    /// The denial, or the question that must be answered first.
    fn at_creation(&self, object: &N, warnings: &mut Vec<String>) -> Result<(), CreationStopOf<N>> {
        let _ = (object, warnings);
        Ok(())
    }
}

/// Implements [`CreationRule`] for rules by one expression.
macro_rules! at_creation {
    ($($rule:path => |$object:ident, $warnings:ident| $check:expr;)*) => {$(
        impl<N: NewObject> CreationRule<N> for $rule {
            fn at_creation(
                &self,
                $object: &N,
                $warnings: &mut Vec<String>,
            ) -> Result<(), CreationStopOf<N>> {
                $check
            }
        }
    )*};
}

at_creation! {
    identity::Spec => |object, _warnings| fields(object);
    identity::Stamped => |object, _warnings| stamped(object);
    identity::NotLocked => |object, _warnings| not_locked(object);
    permission::Template => |object, warnings| object.template(warnings);
    permission::Permission => |object, _warnings| object.permits();
    permission::AccessPolicies => |object, warnings| object.judged(object.judgement(), warnings);
    permission::TemplateTerms => |object, warnings| object.template_terms(warnings);
    conditions::Capacity => |object, _warnings| match object.creation().is_canary {
        true => Ok(()),
        false => object.capacity(),
    };
    conditions::Window => |object, warnings| object.window(object.judgement(), warnings);
    conditions::Reviews => |object, _warnings| reviews(object);
}

/// The gate may be installed later; the operator knows whether it is.
impl<N: NewObject> CreationRule<N> for permission::Gate {}
/// The owners of a template may correct its terms; the operator waits for them.
impl<N: NewObject> CreationRule<N> for conditions::EmergencyTerms {}
/// The checks of a change ticket are asked after the creation.
impl<N: NewObject> CreationRule<N> for conditions::TicketChecked {}
/// Approvals name an object that exists.
impl<N: NewObject> CreationRule<N> for conditions::Approved {}
/// The API server has not stored the object yet, so that no other one can have its stamp.
impl<N: NewObject> CreationRule<N> for identity::FirstStamp {}
/// See [`conditions::TicketChecked`].
impl<N: NewObject> CreationRule<N> for conditions::TicketStillAccepted {}

fn fields<N: NewObject>(object: &N) -> Result<(), CreationStopOf<N>> {
    let creation = object.creation();
    if !creation.is_canary {
        creation.served.admit(creation.namespace)?;
    }
    let large = metadata(object.metadata(), None, &REQUEST_METADATA);
    if !large.is_empty() {
        return Err(CreationStop::Deny(CreationDenial::TooLarge(large)));
    }
    CreationStop::of_fields(object.violations())
}

/// Checks that the stored object is the stamped object: another webhook may have changed it in between, or the webhook of
/// oz may not have been called.
fn stamped<N: NewObject>(object: &N) -> Result<(), CreationStopOf<N>> {
    let stamped = object.stamp().map(|stamp| &stamp.requester);
    is_of_creator(stamped, object.creation().creator, N::AGAIN)?;
    object.is_unchanged().map_err(CreationStop::from)
}

fn not_locked<N: NewObject>(object: &N) -> Result<(), CreationStopOf<N>> {
    let creation = object.creation();
    if creation.is_canary {
        return Ok(());
    }
    let access = object.access()?;
    let locks = object.locks();
    let locks = locks.ok_or_else(|| CreationStop::Need(N::ask_locks()))?;
    locks.admit(&access, creation.now).map_err(|not| match not {
        NotAdmitted::Locked(lock) => CreationStop::from(lock.denial()),
        NotAdmitted::Unreadable(failure) => CreationStop::Deny(CreationDenial::Undecided(failure)),
    })
}

/// Compares with the emergencies that the watch has shown: the operator checks again, and also counts those of this moment.
fn reviews<N: NewObject>(object: &N) -> Result<(), CreationStopOf<N>> {
    let Some(terms) = object.emergency()? else {
        return Ok(());
    };
    let unreviewed = object.unreviewed();
    let unreviewed = unreviewed.ok_or_else(|| CreationStop::Need(N::ask_reviews()))?;
    let room = terms.has_room(object.creation().creator, unreviewed);
    room.map_err(CreationStop::from)
}
