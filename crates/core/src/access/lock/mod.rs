//! Locks: the check whether a lock blocks access ([`Locks::admit`]), which ends an existing grant, and the
//! check who may change or remove a lock ([`may_change`]). The operator checks locks before it grants and as
//! long as a grant lasts, the webhook when a request is created.

#[cfg(test)]
mod tests;

use std::fmt::{self, Display};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1 as rbac;
use oz_api::instant::{has_come, instant};
use oz_api::{AccessConfig, AccessLock, LockTarget, Name, Phase, Requester};

use super::decide::{self, Denial};
use super::grant::Grant;
use super::person::bound_user;
use super::request::Request;
use crate::controller::Failure;
use crate::lifecycle::seal::Keys;
use crate::lifecycle::{End, Stop};

/// The reason of access that a lock ended or refused.
pub const LOCKED: &str = "Locked";
/// The reason of a request that waits because a lock cannot be read.
const UNREADABLE: &str = "LockUnreadable";

/// The access that locks are compared with: its user and its target.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    /// Requester.
    requester: &'a Requester,
    /// Bound subjects.
    subjects: Vec<rbac::Subject>,
    /// Namespace; `None` for the whole cluster.
    namespace: Option<&'a str>,
    /// Name of the template; `None` if there is none.
    template: Option<&'a str>,
    /// Whether the access is an emergency.
    emergency: bool,
}

impl<'a> Access<'a> {
    /// Creates the access that a request is for, by a template with this config, if it is known.
    #[must_use]
    pub fn asked(
        request: &'a Request<'_>,
        namespace: Option<&'a str>,
        requester: &'a Requester,
        config: Option<&AccessConfig>,
    ) -> Self {
        let subjects = config.map(|config| decide::subjects(requester, config));
        Self {
            subjects: subjects.into_iter().flatten().collect(),
            template: Some(request.template),
            emergency: request.ask.emergency,
            ..Self::bound(requester, &[], namespace)
        }
    }

    /// Creates the access that a grant gives.
    #[must_use]
    pub fn granted(grant: &'a Grant) -> Self {
        let namespace = Some(grant.request.namespace.as_str());
        Self {
            template: Some(&grant.template),
            emergency: grant.emergency.is_some(),
            ..Self::bound(&grant.requester, &grant.subjects, namespace)
        }
    }

    /// Creates the access that a grant gives to its current user, who may have joined groups since the
    /// request.
    #[must_use]
    pub fn used(grant: &'a Grant, user: &'a Requester) -> Self {
        Self {
            requester: user,
            ..Self::granted(grant)
        }
    }

    /// Creates the access that a transient binding gives.
    #[must_use]
    pub fn bound(
        requester: &'a Requester,
        subjects: &[rbac::Subject],
        namespace: Option<&'a str>,
    ) -> Self {
        Self {
            requester,
            subjects: subjects.to_vec(),
            namespace,
            template: None,
            emergency: false,
        }
    }

    /// Creates the access of a harness run by the template with this name.
    #[must_use]
    pub fn run(submitter: &'a Requester, namespace: Option<&'a str>, template: &'a str) -> Self {
        Self {
            template: Some(template),
            ..Self::bound(submitter, &[], namespace)
        }
    }

    /// Sets whether the access is an emergency.
    #[must_use]
    pub fn in_emergency(self, emergency: bool) -> Self {
        Self { emergency, ..self }
    }

    fn is_of_user(&self, user: &str) -> bool {
        let bound = |subject: &rbac::Subject| bound_user(subject).is_some_and(|name| name == user);
        self.requester.user == user || self.subjects.iter().any(bound)
    }

    fn is_of_group(&self, group: &str) -> bool {
        let bound = |subject: &rbac::Subject| match subject.kind.as_str() {
            "Group" => subject.name == group,
            // The groups that the API server adds to every service account.
            "ServiceAccount" => {
                let namespace = subject.namespace.as_deref();
                let all = group.strip_prefix("system:serviceaccounts");
                all.is_some_and(|rest| match rest.strip_prefix(':') {
                    Some(only) => namespace == Some(only),
                    None => rest.is_empty(),
                })
            }
            _ => false,
        };
        let mut groups = self.requester.groups.iter();
        groups.any(|one| one == group) || self.subjects.iter().any(bound)
    }
}

/// Checks whether a lock affects this access, at any time. Names are compared letter by letter. If the lock
/// has more targets than permitted, each counts.
#[must_use]
pub fn is_about(lock: &AccessLock, access: &Access<'_>) -> bool {
    let LockTarget {
        user,
        group,
        namespace,
        template,
    } = &lock.spec.target;
    let is_in = |namespace: &String| access.namespace == Some(namespace.as_str());
    user.as_ref().is_some_and(|user| access.is_of_user(user))
        || group
            .as_ref()
            .is_some_and(|group| access.is_of_group(group))
        || namespace.as_ref().is_some_and(is_in)
        || template.as_ref().is_some_and(|template| {
            is_in(&template.namespace) && access.template == Some(template.name.as_str())
        })
}

/// Checks whether a request must be reconciled when this lock was created, changed or removed; `config` is
/// the current content of its template. A request for which this is unknown must be reconciled.
#[must_use]
pub fn concerns(
    lock: &AccessLock,
    keys: &Keys,
    request: &Request<'_>,
    config: Option<&AccessConfig>,
) -> bool {
    let phase = request.phase();
    if phase.is_terminal() {
        return false;
    }
    // A grant is bound to the groups that its template named at the time of the grant.
    if lock.spec.target.group.is_some() && phase.is_granted() {
        return true;
    }
    let namespace = request.metadata.namespace.as_deref();
    let requester = request.requester(keys);
    requester.map_or(true, |requester| {
        is_about(lock, &Access::asked(request, namespace, &requester, config))
    })
}

/// Checks whether a lock holds: until its expiry, or as long as it exists. An invalid expiry does not end it.
#[must_use]
pub fn holds(lock: &AccessLock, now: Timestamp) -> bool {
    until(lock).is_none_or(|until| !has_come(now, until))
}

/// Returns the expiry of a lock.
#[must_use]
pub fn until(lock: &AccessLock) -> Option<Timestamp> {
    instant(lock.spec.until.as_deref()?).ok()
}

/// Describes the target of a lock in words.
#[must_use]
pub fn target(target: &LockTarget) -> String {
    let LockTarget {
        user,
        group,
        namespace,
        template,
    } = target;
    let named = |what, name: &Option<String>| name.as_ref().map(|name| format!("{what} {name}"));
    let template = template
        .as_ref()
        .map(|it| format!("template {}/{}", it.namespace, it.name));
    let all = [
        named("user", user),
        named("group", group),
        named("namespace", namespace),
        template,
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A lock that blocks access.
#[derive(Clone, Debug)]
pub struct Locked(Arc<AccessLock>);

impl Locked {
    /// Returns the end that the lock causes.
    #[must_use]
    pub fn end(&self) -> End {
        End::locked(self.to_string())
    }

    /// Returns the expiry of the lock. No other lock blocks the same access for longer.
    #[must_use]
    pub fn until(&self) -> Option<Timestamp> {
        until(&self.0)
    }

    /// Returns the denial of a request because of the lock.
    #[must_use]
    pub fn denial(&self) -> Denial {
        let next = match until(&self.0) {
            Some(_) => "create the request after that, or have the lock deleted",
            None => "have the lock deleted by a user with this right, and create the request again",
        };
        Denial::new(LOCKED, format!("{self}; {next}"))
    }
}

impl Display for Locked {
    /// Formats the lock in one line, without characters that affect a terminal, for any stored content.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.0.spec;
        let harmless = |text: &str| text.replace(char::is_control, " ");
        let target = harmless(&target(&spec.target));
        write!(formatter, "{target} is locked by AccessLock")?;
        if let Some(name) = &self.0.metadata.name {
            write!(formatter, " {name}")?;
        }
        if let Some(until) = until(&self.0) {
            write!(formatter, " until {until}")?;
        }
        write!(formatter, ": {}", harmless(&spec.reason))
    }
}

/// The existing locks.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// All locks, including those that no longer hold.
    pub all: Vec<Arc<AccessLock>>,
    /// Number of locks that cannot be read.
    pub unreadable: usize,
}

/// The reason why access is not granted.
#[derive(Clone, Debug)]
pub enum NotAdmitted {
    /// This lock blocks the access.
    Locked(Locked),
    /// A lock cannot be read, so its target is unknown.
    Unreadable(Failure),
}

/// A request that a lock refuses stays refused; with an unreadable lock, the request waits.
impl<S, Q> From<NotAdmitted> for Stop<S, Q> {
    fn from(not: NotAdmitted) -> Self {
        match not {
            NotAdmitted::Locked(lock) => {
                let Denial { reason, message } = lock.denial();
                Self::Refuse(Phase::Denied, Failure::invalid(reason, message))
            }
            NotAdmitted::Unreadable(failure) => Self::Wait(failure),
        }
    }
}

impl Locks {
    /// Finds the lock that blocks this access. If there are several, the one that lasts longest, so that the
    /// result is stable.
    #[must_use]
    pub fn against(&self, access: &Access<'_>, now: Timestamp) -> Option<Locked> {
        let mine = self.all.iter().filter(|lock| {
            holds(lock, now)
                && !(access.emergency && lock.spec.except_emergency)
                && is_about(lock, access)
        });
        let rank = |lock: &&Arc<AccessLock>| {
            let forever = until(lock).is_none();
            (
                std::cmp::Reverse((forever, until(lock))),
                lock.metadata.name.clone(),
            )
        };
        mine.min_by_key(rank).cloned().map(Locked)
    }

    /// Checks whether this access may be granted now.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn admit(&self, access: &Access<'_>, now: Timestamp) -> Result<(), NotAdmitted> {
        if let Some(lock) = self.against(access, now) {
            return Err(NotAdmitted::Locked(lock));
        }
        if self.unreadable > 0 {
            let message = format!(
                "failed to read {} AccessLocks, so the locked users are unknown; have them \
                    deleted, or oz upgraded",
                self.unreadable
            );
            let failure = Failure::transient(UNREADABLE, message);
            return Err(NotAdmitted::Unreadable(failure));
        }
        Ok(())
    }
}

/// Checks whether a user with the RBAC right may change or remove a lock: the users that it names may not,
/// unless they are in a break-glass group.
///
/// # Errors
/// A [`Denial`] with the reason and the next step.
pub fn may_change(
    lock: &AccessLock,
    user: &Requester,
    break_glass: &[String],
) -> Result<(), Denial> {
    let is_of = |groups: &[String]| user.groups.iter().any(|group| groups.contains(group));
    let LockTarget {
        user: locked,
        group,
        ..
    } = &lock.spec.target;
    let named = locked.as_ref() == Some(&user.user)
        || group
            .as_ref()
            .is_some_and(|group| user.groups.contains(group));
    if !named || is_of(break_glass) {
        return Ok(());
    }
    let name = Name::from_metadata(&lock.metadata)?;
    let why = format!(
        "{} is locked by AccessLock {name} ({}), and may not change or delete it; have another \
         user do it, with the ClusterRole oz-lock-access or in a group of cluster administrators",
        user.user,
        target(&lock.spec.target)
    );
    Err(Denial::new("Locked", why))
}
