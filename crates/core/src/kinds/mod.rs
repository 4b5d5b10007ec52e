//! The registry of all kinds of oz, and the rules over those of access: one file for each, and the traits for all
//! kinds of one role. The types and their names are in `oz-api`; the rules of harness runs and composites are in
//! `oz-runs` and `oz-composites`, above this crate. Hooks, controllers, definitions, the removal of oz and the
//! command line use the registry, and name no kind themselves: a new kind is a type with its names there, its
//! line in [`for_each_kind`](crate::for_each_kind), its rules, and its decision. [`own_objects`] and
//! [`child_kinds`] list the objects that oz creates in addition to those of its kinds.

mod access_lock;
mod access_policy;
mod access_request_approval;
mod access_review;
mod audit_event;
mod created;
mod example_com;
mod exec_access_request;
mod exec_access_template;
mod pod_access_request;
mod pod_access_template;
mod registry;
mod requested;
mod right;
mod transient_cluster_role_binding;
mod transient_role_binding;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use oz_api::schema::SPEC_IS_IMMUTABLE_MESSAGE;
use oz_api::{
    AccessConfig, CrossVersionObjectReference, IdentityError, Name, RequestStatus, TemplateStatus,
};

pub use created::{ChildKind, ChildRemoval, OwnObject, Removal, child_kinds, own_objects};
pub use oz_api::kind::{Family, Kind, Role};
pub use registry::{Entry, all, crds, find};
pub use requested::requested;
pub use right::Right;

use crate::access::decide::Ask;
use crate::access::request::{Request, StoredRequest};
use crate::validate::{self, ValidatedRequest, ValidatedTemplate, Violation};

/// The rules of a kind of access.
pub trait Rules: Kind {
    /// Returns the violations of an object that is created `now`, as far as they are detectable from the
    /// object alone.
    fn violations(&self, now: Timestamp) -> Vec<Violation>;
}

/// The terms of a request, as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms<'a> {
    /// Name of the template.
    pub template: &'a str,
    /// Requested duration.
    pub duration: Option<&'a str>,
    /// Name of the pod; `None` in a request for a dedicated pod.
    pub target_pod: Option<&'a str>,
    /// Name of the container.
    pub container: Option<&'a str>,
    /// Reason.
    pub reason: Option<&'a str>,
    /// The request that this one continues.
    pub extends: Option<&'a str>,
    /// Change ticket.
    pub ticket: Option<&'a str>,
    /// Whether the request is an emergency.
    pub emergency: bool,
}

/// A change that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The field that was changed.
    pub field: &'static str,
    /// The reason why it cannot be changed, and the next step.
    pub message: &'static str,
}

impl Change {
    /// The change of any field in a spec.
    pub const OF_SPEC: Self = Self {
        field: "spec",
        message: SPEC_IS_IMMUTABLE_MESSAGE,
    };
}

/// A kind of access request.
pub trait AccessRequest: Rules + Resource<Scope = NamespaceResourceScope> {
    /// The kind of the request's template.
    type Template: AccessTemplate;
    /// The purpose of the request, which is also the corresponding verb of ozctl.
    const PURPOSE: &'static str;
    /// Whether oz creates a dedicated pod for the request.
    const MAKES_POD: bool;

    /// Returns the terms of the request.
    fn terms(&self) -> Terms<'_>;

    /// Creates a request with these terms, without a name.
    fn asking(terms: &Terms<'_>) -> Self;

    /// Returns the status.
    fn status(&self) -> Option<&RequestStatus>;

    /// Returns the difference between this spec and the old one.
    fn change(&self, old: &Self) -> Option<Change>;

    /// Returns the request in the form that the common rules read.
    fn view(&self) -> Request<'_> {
        let terms = self.terms();
        Request {
            kind: Self::title(),
            metadata: self.meta(),
            template: terms.template,
            duration: terms.duration,
            ask: Ask {
                reason: terms.reason,
                container: terms.container,
                ticket: terms.ticket,
                emergency: terms.emergency,
            },
            target_pod: terms.target_pod.filter(|name| !name.is_empty()),
            extends: terms.extends,
            makes_pod: Self::MAKES_POD,
            spec: self,
            status: self.status(),
        }
    }

    /// Returns the stored request in the form that the common rules read.
    ///
    /// # Errors
    /// If the request is not stored.
    fn stored(&self) -> Result<StoredRequest<'_>, IdentityError> {
        StoredRequest::new(self.meta(), self.view())
    }

    /// Returns the validated terms.
    ///
    /// # Errors
    /// All violations of the request.
    fn check(&self) -> Result<ValidatedRequest, Vec<Violation>> {
        validate::request(self.meta(), &self.terms())
    }
}

/// The name in messages about an object without a name. No object can have it.
const NAMELESS: &str = "(nameless)";

/// A kind of template.
pub trait AccessTemplate: Rules + Resource<Scope = NamespaceResourceScope> {
    /// The validated target of access.
    type Target;
    /// The purpose of its grants, see [`AccessRequest::PURPOSE`].
    const PURPOSE: &'static str;
    /// Whether the author is recorded on the template.
    const NOTES_AUTHOR: bool;

    /// Returns the users who may get access, their operations and the duration.
    fn config(&self) -> &AccessConfig;

    /// Returns the workload of the template; `None` if it needs none.
    fn workload(&self) -> Option<&CrossVersionObjectReference>;

    /// Returns the validated template.
    ///
    /// # Errors
    /// All violations of the template.
    fn check(&self) -> Result<ValidatedTemplate<Self::Target>, Vec<Violation>>;

    /// Returns the status.
    fn status(&self) -> Option<&TemplateStatus>;

    /// Returns the rights that its grants give, and which its author must therefore have.
    fn hands_out(&self) -> Vec<Right> {
        Right::on_pods(self.config()).collect()
    }

    /// Returns the name; a text that no object has as name for one that has none yet.
    fn name(&self) -> &str {
        Name::from_metadata(self.meta()).map_or(NAMELESS, Name::as_str)
    }

    /// Checks whether requests can use the template, according to its status.
    fn is_ready(&self) -> bool {
        self.status().is_some_and(|status| status.ready)
    }
}

/// Implements [`Rules`] and [`transient::Kind`](crate::transient::Kind) for a kind of binding: the shared
/// parts of oz's own kinds and of the published ones. `terms` is a function of an object.
macro_rules! binding {
    (
        $type:ident, $mark:expr, cluster: $cluster:literal,
        effective: $effective:literal, prefix: $prefix:literal, lenient: $lenient:literal,
        approvable: $approvable:literal, terms: $terms:expr
    ) => {
        impl $crate::kinds::Rules for $type {
            fn violations(&self, now: jiff::Timestamp) -> Vec<$crate::validate::Violation> {
                $crate::transient::violations(self, now)
            }
        }

        impl $crate::transient::Kind for $type {
            const MARK: &'static str = $mark;
            const EFFECTIVE: &'static str = $effective;
            const CLUSTER: bool = $cluster;
            const PREFIX: &'static str = $prefix;
            const LENIENT: bool = $lenient;
            const APPROVABLE: bool = $approvable;

            fn terms(&self) -> Result<$crate::transient::Terms, Vec<$crate::validate::Violation>> {
                let terms: fn(&Self) -> Result<_, _> = $terms;
                terms(self)
            }

            fn status(&self) -> Option<&oz_api::BindingStatus> {
                self.status.as_ref()
            }
        }
    };
}
pub(crate) use binding;

/// Implements them for a kind of binding of oz's own group.
macro_rules! own_binding {
    ($type:ident, $cluster:literal) => {
        $crate::kinds::binding!(
            $type, stringify!($type), cluster: $cluster,
            effective: "Effective", prefix: "spec.", lenient: false, approvable: true,
            terms: |object| {
                let spec = &object.spec;
                let spec = $crate::transient::Spec {
                    role: &spec.role_ref,
                    subjects: &spec.subjects,
                    valid_from: spec.valid_from.as_deref(),
                    valid_until: spec.valid_until.as_deref(),
                    duration: spec.duration.as_deref(),
                    reason: spec.reason.as_deref(),
                    ticket: spec.ticket.as_deref(),
                    emergency: spec.emergency == Some(true),
                };
                $crate::transient::Terms::of_spec(&spec, $cluster)
            }
        );
    };
}
pub(crate) use own_binding;

/// Implements them for a published kind.
macro_rules! published_binding {
    ($type:ident, $mark:literal, $cluster:literal) => {
        $crate::kinds::binding!(
            $type, $mark, cluster: $cluster,
            effective: "effective", prefix: "", lenient: true, approvable: false,
            terms: |object| $crate::transient::Terms::of_flat(&object.flat, $cluster)
        );
    };
}
pub(crate) use published_binding;
