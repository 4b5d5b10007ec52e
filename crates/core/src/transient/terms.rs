//! The terms of a transient binding of any kind, and the position of an instant relative to its window. The window is
//! half-open: at `validFrom` the binding is in effect, at `validUntil` it is not.

use std::fmt::Display;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use oz_api::duration::GoDuration;
use oz_api::example_com::Flat;
use oz_api::instant::{after, has_come, instant};
use oz_api::{BindingSubject, RBAC_GROUP, RoleKind, RoleReference, SubjectKind};
use serde_json::Value;

use crate::validate::{self, Violation};

/// The maximum time for which an object with `duration` waits for its binding, if something prevents it, before it has
/// ended.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(24);

/// The maximum length of all subjects, in bytes of JSON: the sealed decision contains them.
const MAX_SUBJECTS: usize = 48 * 1024;

/// The validated spec of a transient binding.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// The role.
    pub role: RoleReference,
    /// The subjects of the binding, in the order of the spec.
    pub subjects: Vec<Subject>,
    /// The first instant of the window; `None` for the creation of the object.
    pub from: Option<Timestamp>,
    /// The end of the window.
    pub closes: Closes,
    /// The reason that the requester gave.
    pub reason: Option<String>,
    /// The change ticket that the requester named.
    pub ticket: Option<String>,
    /// Whether the requester declares an emergency.
    pub emergency: bool,
}

/// The end of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Closes {
    /// The window ends at this instant.
    At(Timestamp),
    /// The window ends this duration after the creation of the binding.
    After(GoDuration),
}

/// The position of an instant relative to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The instant is before the window, which opens at this instant.
    Before(Timestamp),
    /// The instant is inside the window, which ends at this instant.
    Inside(Timestamp),
    /// The instant is the end of the window, or later.
    After,
}

/// A spec of the kinds of oz.
pub(crate) struct Spec<'a> {
    pub(crate) role: &'a RoleReference,
    pub(crate) subjects: &'a [BindingSubject],
    pub(crate) valid_from: Option<&'a str>,
    pub(crate) valid_until: Option<&'a str>,
    pub(crate) duration: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
    pub(crate) ticket: Option<&'a str>,
    pub(crate) emergency: bool,
}

impl Terms {
    /// Reads a spec; `cluster` means a cluster-scoped kind.
    pub(crate) fn of_spec(spec: &Spec<'_>, cluster: bool) -> Result<Self, Vec<Violation>> {
        let mut found = Vec::new();
        let mut read = |field: &str, text: Option<&str>| {
            let text = text?;
            check(&mut found, field, text, instant(text))
        };
        let from = read("spec.validFrom", spec.valid_from);
        let until = read("spec.validUntil", spec.valid_until);
        let duration = spec.duration.and_then(|text| {
            let duration = check(
                &mut found,
                "spec.duration",
                text,
                text.parse::<GoDuration>(),
            )?;
            if duration.is_positive() {
                return Some(duration);
            }
            let none: Result<GoDuration, _> = Err("must be greater than zero");
            check(&mut found, "spec.duration", text, none)
        });
        if spec.valid_until.is_some() == spec.duration.is_some() {
            let message = "exactly one of validUntil and duration must be set";
            found.push(Violation::new("spec", message));
        }
        role(&mut found, "spec.roleRef", spec.role, cluster);
        let subjects = subjects(&mut found, "spec.subjects", spec.subjects);
        reason(&mut found, spec);
        if let Some(named) = spec.ticket {
            check(&mut found, "spec.ticket", named, validate::ticket(named));
        }
        if spec.emergency && spec.valid_from.is_some() {
            let message = "must not be set for an emergency, which begins at once";
            found.push(Violation::new("spec.validFrom", message));
        }
        let closes = until.map(Closes::At).or(duration.map(Closes::After));
        match closes {
            Some(closes) if found.is_empty() => Ok(Self {
                role: spec.role.clone(),
                subjects,
                from,
                closes,
                reason: spec.reason.map(ToOwned::to_owned),
                ticket: spec.ticket.map(ToOwned::to_owned),
                emergency: spec.emergency,
            }),
            _ => Err(found),
        }
    }

    /// Reads the published form. Both instants are required, as the published controller bound nothing without them.
    pub(crate) fn of_flat(flat: &Flat, cluster: bool) -> Result<Self, Vec<Violation>> {
        let mut found = Vec::new();
        let mut read = |field: &str, value: &Value| {
            let Some(text) = value.as_str() else {
                found.push(Violation::new(field, "must be an instant in RFC 3339"));
                return None;
            };
            check(&mut found, field, text, instant(text))
        };
        let from = read("validFrom", &flat.valid_from);
        let until = read("validUntil", &flat.valid_until);
        let role_ref = parsed::<RoleReference>(&mut found, "roleRef", &flat.role_ref);
        if let Some(role_ref) = &role_ref {
            role(&mut found, "roleRef", role_ref, cluster);
        }
        let given = parsed::<Vec<BindingSubject>>(&mut found, "subjects", &flat.subjects);
        let subjects = given.map(|given| subjects(&mut found, "subjects", &given));
        match (role_ref, subjects, from, until) {
            (Some(role), Some(subjects), Some(from), Some(until)) if found.is_empty() => Ok(Self {
                role,
                subjects,
                from: Some(from),
                closes: Closes::At(until),
                reason: None,
                ticket: None,
                emergency: false,
            }),
            _ => Err(found),
        }
    }

    /// Returns the message for a window that never opens; the field is `validUntil`.
    #[must_use]
    pub fn never(&self) -> Option<&'static str> {
        match (self.from, self.closes) {
            (Some(from), Closes::At(until)) if until <= from => {
                Some("must be later than validFrom, or the binding is never in effect")
            }
            _ => None,
        }
    }

    /// Returns the message for an object created at `created` that could not be in effect from `now` on; the field is
    /// `validUntil`.
    #[must_use]
    pub fn futile(&self, now: Timestamp, created: Timestamp) -> Option<&'static str> {
        let over = self.position(now, created) == Position::After;
        self.never()
            .or_else(|| over.then_some("must be in the future, or the binding is never in effect"))
    }

    /// Returns the instant at which the window of an object created at `created` opens.
    #[must_use]
    pub fn opens(&self, created: Timestamp) -> Timestamp {
        self.from.unwrap_or(created)
    }

    /// Returns the first instant at which the binding of an object created at `created` can be in effect.
    #[must_use]
    pub fn due(&self, created: Timestamp) -> Timestamp {
        self.opens(created).max(created)
    }

    /// Returns the maximum duration of the binding.
    #[must_use]
    pub fn length(&self, created: Timestamp) -> SignedDuration {
        match self.closes {
            Closes::At(until) => until.duration_since(self.due(created)),
            Closes::After(duration) => duration.into(),
        }
    }

    /// Returns the instant after which an object without a binding gets none.
    #[must_use]
    pub fn gives_up(&self, created: Timestamp) -> Timestamp {
        match self.closes {
            Closes::At(until) => until,
            Closes::After(_) => after(self.due(created), LONGEST_WAIT),
        }
    }

    /// Returns the position of `now` relative to the window of an object without a binding.
    #[must_use]
    pub fn position(&self, now: Timestamp, created: Timestamp) -> Position {
        let opens = self.opens(created);
        if has_come(now, self.gives_up(created)) {
            return Position::After;
        }
        match self.closes {
            _ if !has_come(now, opens) => Position::Before(opens),
            Closes::At(until) => Position::Inside(until),
            Closes::After(duration) => Position::Inside(after(now, duration)),
        }
    }

    /// Returns the role as the reference of a binding.
    #[must_use]
    pub fn role_ref(&self) -> RoleRef {
        RoleRef {
            api_group: RBAC_GROUP.to_owned(),
            kind: self.role.kind.to_string(),
            name: self.role.name.clone(),
        }
    }
}

fn check<T, E: Display>(
    found: &mut Vec<Violation>,
    field: &str,
    text: &str,
    result: Result<T, E>,
) -> Option<T> {
    result
        .map_err(|error| {
            found.push(Violation::of_value(field, error.to_string(), text));
        })
        .ok()
}

fn parsed<T: serde::de::DeserializeOwned>(
    found: &mut Vec<Violation>,
    field: &str,
    value: &Value,
) -> Option<T> {
    if value.is_null() {
        found.push(Violation::new(field, "must be given, as in a RoleBinding"));
        return None;
    }
    serde_json::from_value(value.clone())
        .map_err(|error| {
            let message = format!("must be as in a RoleBinding: {error}");
            found.push(Violation::new(field, message));
        })
        .ok()
}

fn role(found: &mut Vec<Violation>, field: &str, role: &RoleReference, cluster: bool) {
    if role.api_group != RBAC_GROUP {
        let message = format!("must be {RBAC_GROUP}");
        found.push(Violation::new(format!("{field}.apiGroup"), message));
    }
    if cluster && role.kind != RoleKind::ClusterRole {
        found.push(Violation::new(
            format!("{field}.kind"),
            "must be ClusterRole",
        ));
    }
    if !is_path_segment(&role.name) {
        let message = "must be the name of a role: not empty, not '.' or '..', without '/' and '%'";
        found.push(Violation::new(format!("{field}.name"), message));
    }
}

/// Checks whether RBAC accepts the name of a role: a path segment
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#path-segment-names>).
fn is_path_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// Returns the subjects with the defaults of the API server, so that a comparison with the stored binding shows no
/// difference.
fn subjects(found: &mut Vec<Violation>, field: &str, given: &[BindingSubject]) -> Vec<Subject> {
    if given.is_empty() {
        found.push(Violation::new(field, "must name at least one subject"));
    }
    let mut subjects = Vec::new();
    for (number, subject) in given.iter().enumerate() {
        let field = |name: &str| format!("{field}[{number}].{name}");
        let group = match subject.kind {
            SubjectKind::User | SubjectKind::Group => RBAC_GROUP,
            SubjectKind::ServiceAccount => "",
        };
        if subject
            .api_group
            .as_deref()
            .is_some_and(|given| given != group)
        {
            let message = format!("must be {group:?} for a {}, or absent", subject.kind);
            found.push(Violation::new(field("apiGroup"), message));
        }
        if subject.name.is_empty() {
            found.push(Violation::new(field("name"), "must be given"));
        }
        let namespace = subject.namespace.as_deref().filter(|name| !name.is_empty());
        if (subject.kind == SubjectKind::ServiceAccount) != namespace.is_some() {
            let message = "a ServiceAccount needs its namespace; a User or Group has none";
            found.push(Violation::new(field("namespace"), message));
        }
        subjects.push(Subject {
            api_group: (!group.is_empty()).then(|| group.to_owned()),
            kind: subject.kind.to_string(),
            name: subject.name.clone(),
            namespace: namespace.map(ToOwned::to_owned),
        });
    }
    if serde_json::to_vec(&subjects).map_or(usize::MAX, |text| text.len()) > MAX_SUBJECTS {
        let message =
            format!("must be at most {MAX_SUBJECTS} bytes together: name groups instead of users");
        found.push(Violation::new(field, message));
    }
    subjects
}

/// Adds the violations of the reason, which users read in terminals and logs, and reviewers of an emergency decide by.
fn reason(found: &mut Vec<Violation>, spec: &Spec<'_>) {
    let Some(reason) = spec.reason else {
        return;
    };
    found.extend(match spec.emergency {
        true => validate::emergency_reason("spec.reason", reason),
        false => validate::readable("spec.reason", reason),
    });
}
