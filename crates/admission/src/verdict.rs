//! The response of an extension: permission with notes, or denial with a reason.
//!
//! The module is separate from the review because pure validation code builds rejections without access to
//! requests.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use oz_runtime::CallError;

/// The notes that accompany a permission.
///
/// ```
/// use oz_admission::Notes;
///
/// let notes = Notes::none()
///     .warn("spec.legacy is going away")
///     .annotate("decided-by", "policy 7");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The warnings that `kubectl` shows to the user. Keep each under 120 characters; the API server
    /// truncates them at 256.
    pub warnings: Vec<String>,
    /// The annotations of the audit event of the request, under `<webhook name>/<key>`.
    pub audit: BTreeMap<String, String>,
}

impl Notes {
    /// Returns empty notes.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a warning for the user.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// Adds an annotation to the audit event.
    #[must_use]
    pub fn annotate(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit.insert(key.into(), value.into());
        self
    }
}

/// A denial with the data that users and programs need to act on it; or the statement that no decision
/// exists ([`undecided`](Self::undecided)).
///
/// ```
/// use oz_admission::Rejection;
///
/// let refused = Rejection::invalid("TooMany", "the team has used up what it may use")
///     .cause("spec.replicas", "FieldValueInvalid", "at most 3")
///     .warn("ask in #platform for more");
/// assert_eq!(refused.code, 422);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// The HTTP status for the client of the API server; 403 is usual, 400 and 422 state that the object is
    /// invalid.
    pub code: u16,
    /// The machine-readable reason, in `PascalCase`; it becomes `status.reason`. Keep the set small and
    /// stable.
    pub reason: Cow<'static, str>,
    /// The message for users: the problem and the next step.
    pub message: String,
    /// The invalid fields, if there are any; they become `status.details.causes`.
    pub causes: Vec<Cause>,
    /// The annotations of the audit event, as with [`Notes::audit`].
    pub audit: BTreeMap<String, String>,
    /// The rarely used fields, boxed because a rejection is passed by value.
    more: Option<Box<More>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct More {
    warnings: Vec<String>,
    /// True if this is not a denial: the hook failed to read the data that its decision requires.
    undecided: bool,
}

/// An invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The path of the field, for instance `spec.duration`.
    pub field: String,
    /// The machine-readable reason; Kubernetes defines `FieldValueInvalid`, `FieldValueRequired`, ….
    pub reason: Cow<'static, str>,
    /// The message for users.
    pub message: String,
}

impl Rejection {
    /// Creates a denial with the given status.
    pub fn new(
        code: u16,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            causes: Vec::new(),
            audit: BTreeMap::new(),
            more: None,
        }
    }

    /// Creates a rejection that states that no decision exists, because the data that it depends on is
    /// unavailable. The hook's [`FailurePolicy`](crate::FailurePolicy) decides the result: the API server
    /// denies the request with this message, or processes it with the message as a warning. `?` converts a
    /// [`kube::Error`] into such a rejection.
    ///
    /// ```
    /// # use oz_admission::Rejection;
    /// let limit = "many".parse::<u32>().map_err(|error| {
    ///     Rejection::undecided("LimitUnknown", format!("the limit cannot be read: {error}"))
    /// });
    /// # assert!(limit.is_err());
    /// ```
    pub fn undecided(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let mut undecided = Self::new(500, reason, message);
        undecided.more.get_or_insert_default().undecided = true;
        undecided
    }

    /// Adds a warning for the user, which `kubectl` shows in addition to the denial.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        let more = self.more.get_or_insert_default();
        more.warnings.push(warning.into());
        self
    }

    /// Returns the warnings for the user.
    pub fn warnings(&self) -> &[String] {
        self.more.as_ref().map_or(&[], |more| &more.warnings)
    }

    pub(crate) fn is_undecided(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.undecided)
    }

    /// Creates a denial with status 403: the user may not perform this operation.
    pub fn forbidden(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(403, reason, message)
    }

    /// Creates a denial with status 422: the object breaks a rule. Name the field with
    /// [`cause`](Self::cause).
    pub fn invalid(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(422, reason, message)
    }

    /// Creates a denial with status 400: the request cannot be parsed.
    pub fn bad_request(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(400, reason, message)
    }

    /// Adds an invalid field.
    #[must_use]
    pub fn cause(
        mut self,
        field: impl Into<String>,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        self.causes.push(Cause {
            field: field.into(),
            reason: reason.into(),
            message: message.into(),
        });
        self
    }

    /// Adds an annotation to the audit event of the denied request.
    #[must_use]
    pub fn annotate(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit.insert(key.into(), value.into());
        self
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.reason)
    }
}

impl std::error::Error for Rejection {}

/// The conversion of a failed call to the API server. The log contains more detail than the message for the
/// user.
impl From<kube::Error> for Rejection {
    fn from(error: kube::Error) -> Self {
        let failed = CallError::new("failed to ask the API server", &error);
        tracing::warn!(error = failed.message, "could not decide");
        Self::undecided(
            failed.reason,
            "could not decide: failed to read the objects for the decision from the API server; \
             try again",
        )
    }
}
