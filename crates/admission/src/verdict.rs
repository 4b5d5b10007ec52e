//! What an extension answers: yes with notes, or no with a reason.
//!
//! Kept apart from the review because pure validation code wants to build
//! rejections without knowing anything of requests.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use oz_runtime::CallError;

/// What travels back with a permission.
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
    /// Shown to the user by `kubectl`. Keep each under 120 characters; the API server
    /// cuts them at 256.
    pub warnings: Vec<String>,
    /// Added to the audit event of the request, under `<webhook name>/<key>`.
    pub audit: BTreeMap<String, String>,
}

impl Notes {
    /// Nothing to remark.
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

/// A refusal, with what a person and what a program need to act on it; or that there is no decision
/// ([`undecided`](Self::undecided)).
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
    /// The HTTP status the client of the API server gets; 403 is usual, 400 and 422 say
    /// that the object is at fault.
    pub code: u16,
    /// Machine-readable, in `PascalCase`; becomes `status.reason`. Keep the set small and stable.
    pub reason: Cow<'static, str>,
    /// For people: what is wrong and what to do next.
    pub message: String,
    /// Which fields are at fault, if fields are; becomes `status.details.causes`.
    pub causes: Vec<Cause>,
    /// Added to the audit event, as with [`Notes::audit`].
    pub audit: BTreeMap<String, String>,
    /// What few have, apart: a refusal is handed on by value.
    more: Option<Box<More>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct More {
    warnings: Vec<String>,
    /// Whether this is no refusal: what the hook decides by could not be had.
    undecided: bool,
}

/// One field at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The path of the field, for instance `spec.duration`.
    pub field: String,
    /// Machine-readable; Kubernetes' own are `FieldValueInvalid`, `FieldValueRequired`, ….
    pub reason: Cow<'static, str>,
    /// For people.
    pub message: String,
}

impl Rejection {
    /// A refusal with a status of your choice.
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

    /// There is no decision: what it depends on could not be had. What happens then is what the hook's
    /// [`FailurePolicy`](crate::FailurePolicy) says: the request is refused, with this message, or goes on
    /// with it as a warning. `?` makes one of a [`kube::Error`].
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

    /// Adds a warning for the user, which `kubectl` shows besides the refusal.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        let more = self.more.get_or_insert_default();
        more.warnings.push(warning.into());
        self
    }

    /// What the user is warned of besides.
    pub fn warnings(&self) -> &[String] {
        self.more.as_ref().map_or(&[], |more| &more.warnings)
    }

    pub(crate) fn is_undecided(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.undecided)
    }

    /// 403: this user may not do this.
    pub fn forbidden(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(403, reason, message)
    }

    /// 422: the object breaks a rule. Say where with [`cause`](Self::cause).
    pub fn invalid(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(422, reason, message)
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(400, reason, message)
    }

    /// Names a field that is at fault.
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

    /// Adds an annotation to the audit event of the refused request.
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

/// The API server could not be asked. The log says more than the user is told.
impl From<kube::Error> for Rejection {
    fn from(error: kube::Error) -> Self {
        let failed = CallError::new("failed to ask the API server", &error);
        tracing::warn!(error = failed.message, "could not decide");
        Self::undecided(
            failed.reason,
            "could not decide: what the decision depends on could not be had from the API server; \
             try again",
        )
    }
}
