//! What a transient binding asks for, read from whichever kind, and how an instant lies to its
//! window. The window is half open: at `validFrom` the binding is in effect, at `validUntil` it is
//! not any more.

use std::fmt::Display;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use oz_api::duration::GoDuration;
use oz_api::example_com::Flat;
use oz_api::instant::{after, has_come, instant};
use oz_api::{BindingSubject, RBAC_GROUP, RoleKind, RoleReference, SubjectKind};
use serde_json::Value;

use crate::validate::{MAX_REASON, Violation};

/// How long an object that says `duration` may wait for its binding, which something prevents,
/// before it counts as over.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(24);

/// What is asked for, in values that make sense.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// The role.
    pub role: RoleReference,
    /// Who is bound, in the order given.
    pub subjects: Vec<Subject>,
    /// The first instant; `None` for the object's creation.
    pub from: Option<Timestamp>,
    /// The end.
    pub closes: Closes,
    /// Why, in the requester's words.
    pub reason: Option<String>,
}

/// How a window ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Closes {
    /// At this instant.
    At(Timestamp),
    /// So long after the binding was made.
    After(GoDuration),
}

/// How an instant lies to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before it: it opens at this instant.
    Before(Timestamp),
    /// Inside: it closes at this instant.
    Inside(Timestamp),
    /// At its end or after.
    After,
}

/// A spec of our own kinds.
pub(crate) struct Spec<'a> {
    pub(crate) role: &'a RoleReference,
    pub(crate) subjects: &'a [BindingSubject],
    pub(crate) valid_from: Option<&'a str>,
    pub(crate) valid_until: Option<&'a str>,
    pub(crate) duration: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
}

impl Terms {
    /// Reads a spec; `cluster` says that there is no namespace.
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
            found.push(Violation::of("spec", message));
        }
        role(&mut found, "spec.roleRef", spec.role, cluster);
        let subjects = subjects(&mut found, "spec.subjects", spec.subjects);
        reason(&mut found, spec.reason);
        let closes = until.map(Closes::At).or(duration.map(Closes::After));
        match closes {
            Some(closes) if found.is_empty() => Ok(Self {
                role: spec.role.clone(),
                subjects,
                from,
                closes,
                reason: spec.reason.map(ToOwned::to_owned),
            }),
            _ => Err(found),
        }
    }

    /// Reads the published form. Both instants must be given: without them nothing was ever made.
    pub(crate) fn of_flat(flat: &Flat, cluster: bool) -> Result<Self, Vec<Violation>> {
        let mut found = Vec::new();
        let mut read = |field: &str, value: &Value| {
            let Some(text) = value.as_str() else {
                found.push(Violation::of(field, "must be an instant in RFC 3339"));
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
            }),
            _ => Err(found),
        }
    }

    /// What makes a window that never opens; the field is `validUntil`.
    #[must_use]
    pub fn never(&self) -> Option<&'static str> {
        match (self.from, self.closes) {
            (Some(from), Closes::At(until)) if until <= from => {
                Some("must be later than validFrom: as it stands, the binding is never in effect")
            }
            _ => None,
        }
    }

    /// Why an object created at `created` would never be in effect from now on, if so; the field is
    /// `validUntil`.
    #[must_use]
    pub fn futile(&self, now: Timestamp, created: Timestamp) -> Option<&'static str> {
        let over = self.position(now, created) == Position::After;
        self.never().or_else(|| {
            over.then_some("must lie in the future: as it stands, the binding is never in effect")
        })
    }

    /// When the window opens for an object created at `created`.
    #[must_use]
    pub fn opens(&self, created: Timestamp) -> Timestamp {
        self.from.unwrap_or(created)
    }

    /// The first instant from which something can be in effect.
    #[must_use]
    pub fn due(&self, created: Timestamp) -> Timestamp {
        self.opens(created).max(created)
    }

    /// How long the binding is in effect at most.
    #[must_use]
    pub fn length(&self, created: Timestamp) -> SignedDuration {
        match self.closes {
            Closes::At(until) => until.duration_since(self.due(created)),
            Closes::After(duration) => duration.into(),
        }
    }

    /// The instant after which an object that has no binding gets none any more.
    #[must_use]
    pub fn gives_up(&self, created: Timestamp) -> Timestamp {
        match self.closes {
            Closes::At(until) => until,
            Closes::After(_) => after(self.due(created), LONGEST_WAIT),
        }
    }

    /// How `now` lies to the window of an object that has no binding yet.
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

    /// The role, as a binding refers to it.
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
        found.push(Violation::of(field, "must be given, as in a RoleBinding"));
        return None;
    }
    serde_json::from_value(value.clone())
        .map_err(|error| {
            let message = format!("must be as in a RoleBinding: {error}");
            found.push(Violation::of(field, message));
        })
        .ok()
}

fn role(found: &mut Vec<Violation>, field: &str, role: &RoleReference, cluster: bool) {
    if role.api_group != RBAC_GROUP {
        let message = format!("must be {RBAC_GROUP}");
        found.push(Violation::of(format!("{field}.apiGroup"), message));
    }
    if cluster && role.kind != RoleKind::ClusterRole {
        found.push(Violation::of(
            format!("{field}.kind"),
            "must be ClusterRole",
        ));
    }
    if !is_path_segment(&role.name) {
        let message = "must be the name of a role: not empty, not '.' or '..', without '/' and '%'";
        found.push(Violation::of(format!("{field}.name"), message));
    }
}

/// What RBAC takes as a name.
fn is_path_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

/// Subjects as the API server stores them, so that what we ask for is what we read back.
fn subjects(found: &mut Vec<Violation>, field: &str, given: &[BindingSubject]) -> Vec<Subject> {
    if given.is_empty() {
        found.push(Violation::of(field, "must name at least one subject"));
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
            found.push(Violation::of(field("apiGroup"), message));
        }
        if subject.name.is_empty() {
            found.push(Violation::of(field("name"), "must be given"));
        }
        let namespace = subject.namespace.as_deref().filter(|name| !name.is_empty());
        if (subject.kind == SubjectKind::ServiceAccount) != namespace.is_some() {
            let message = "a ServiceAccount needs its namespace; a User or Group has none";
            found.push(Violation::of(field("namespace"), message));
        }
        subjects.push(Subject {
            api_group: (!group.is_empty()).then(|| group.to_owned()),
            kind: subject.kind.to_string(),
            name: subject.name.clone(),
            namespace: namespace.map(ToOwned::to_owned),
        });
    }
    subjects
}

fn reason(found: &mut Vec<Violation>, reason: Option<&str>) {
    let Some(reason) = reason else {
        return;
    };
    if reason.len() > MAX_REASON {
        let message = format!("must be at most {MAX_REASON} bytes");
        found.push(Violation::of("spec.reason", message));
    }
    // It is read in terminals and logs.
    if reason
        .chars()
        .any(|next| next.is_control() && next != '\n' && next != '\t')
    {
        found.push(Violation::of(
            "spec.reason",
            "must not contain control characters",
        ));
    }
}
