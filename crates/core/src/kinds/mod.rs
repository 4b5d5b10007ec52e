//! The registry of oz's kinds: one file for each, with its names and its validation, and what all of its role have
//! in common; the types are in `oz-api`. Hooks, controllers, definitions, the removal of oz and the command line go
//! by it, and name no kind themselves: a new kind is a type there, a file here, its line in
//! [`for_each_kind`](crate::for_each_kind), and its decision.

mod access_lock;
mod access_policy;
mod access_request_approval;
mod access_review;
mod audit_event;
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

use std::borrow::Cow;
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use oz_api::schema::SPEC_IS_IMMUTABLE_MESSAGE;
use oz_api::{AccessConfig, CrossVersionObjectReference, RequestStatus, TemplateStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use registry::{Entry, all, named};
pub use requested::requested;
pub use right::Right;

use crate::access::decide::Ask;
use crate::access::request::Request;
use crate::validate::{self, ValidatedRequest, ValidatedTemplate, Violation};

/// The definitions of all kinds, as they are installed.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let all = all().into_iter();
    let mut crds: Vec<_> = all
        .filter_map(|kind| kind.definition())
        .map(oz_api::schema::finished)
        .collect();
    crds.sort_by(|one, other| one.spec.names.kind.cmp(&other.spec.names.kind));
    crds
}

/// What a kind is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Asks for access: an [`AccessRequest`].
    Request,
    /// Says who may have access: an [`AccessTemplate`].
    Template,
    /// Binds subjects to a role for a time: a [`transient::Kind`](crate::transient::Kind).
    Binding,
    /// Says whether a request may be granted, in the name of whoever creates it.
    Approval,
    /// Ends access, and lets nobody have more.
    Lock,
    /// Says what holds for requests, whatever their templates say.
    Policy,
    /// Is looked at by somebody after the fact.
    Review,
    /// Keeps what happened.
    Record,
}

/// One kind, of any role.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// What it is for.
    const ROLE: Role;
    /// The name of its controller and in those of its hooks: unique, in lower case.
    const NAME: &'static str;
    /// The finalizer that oz has on its objects.
    const FINALIZER: Option<&'static str> = None;

    /// Its definition; `None` if others install it.
    fn definition() -> Option<CustomResourceDefinition>;

    /// Its short names.
    fn short_names() -> &'static [&'static str];

    /// The kind's name, such as `ExecAccessRequest`.
    #[must_use]
    fn title() -> &'static str {
        match Self::kind(&()) {
            Cow::Borrowed(title) => title,
            Cow::Owned(_) => Self::NAME,
        }
    }

    /// Digest of everything that says what is asked for.
    fn spec_digest(&self) -> String;

    /// Which rules an object that is created `now` breaks, as far as that can be told from itself.
    fn violations(&self, now: Timestamp) -> Vec<Violation>;
}

/// The parts of [`Kind`] that follow from a definition of our own.
#[macro_export]
macro_rules! defined {
    () => {
        fn definition() -> Option<
            k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        > {
            Some(<Self as kube::CustomResourceExt>::crd())
        }

        fn short_names() -> &'static [&'static str] {
            <Self as kube::CustomResourceExt>::shortnames()
        }
    };
}
pub(crate) use defined;

/// What a request asks for, as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms<'a> {
    /// Name of the template.
    pub template: &'a str,
    /// For how long.
    pub duration: Option<&'a str>,
    /// In which pod; `None` in a request for a pod of one's own.
    pub target_pod: Option<&'a str>,
    /// In which container.
    pub container: Option<&'a str>,
    /// Why.
    pub reason: Option<&'a str>,
    /// The request that it continues.
    pub extends: Option<&'a str>,
    /// By which ticket.
    pub ticket: Option<&'a str>,
    /// Whether it is an emergency.
    pub emergency: bool,
}

/// A change that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The field that was changed.
    pub field: &'static str,
    /// Why it cannot be, and what to do instead.
    pub message: &'static str,
}

impl Change {
    /// Of anything in a spec.
    pub const OF_SPEC: Self = Self {
        field: "spec",
        message: SPEC_IS_IMMUTABLE_MESSAGE,
    };
}

/// A kind of access request.
pub trait AccessRequest: Kind + Resource<Scope = NamespaceResourceScope> {
    /// The kind of template that it names.
    type Template: AccessTemplate;
    /// What it is used for, which is also the verb of ozctl that does.
    const PURPOSE: &'static str;
    /// Whether its pod is made for it.
    const MAKES_POD: bool;

    /// What it asks for.
    fn terms(&self) -> Terms<'_>;

    /// A request for this, without a name.
    fn asking(terms: &Terms<'_>) -> Self;

    /// Its status.
    fn status(&self) -> Option<&RequestStatus>;

    /// How its spec differs from the one that it had.
    fn change(&self, old: &Self) -> Option<Change>;

    /// The request as the common rules see it.
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

    /// What it asks for, checked.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn check(&self) -> Result<ValidatedRequest, Vec<Violation>> {
        validate::request(self.meta(), &self.terms())
    }
}

/// A kind of template.
pub trait AccessTemplate: Kind + Resource<Scope = NamespaceResourceScope> {
    /// What it gives access to, checked.
    type Target;
    /// What its grants are used for, see [`AccessRequest::PURPOSE`].
    const PURPOSE: &'static str;
    /// Whether who wrote it is noted on it.
    const NOTES_AUTHOR: bool;

    /// Who may get access, to do what, for how long.
    fn config(&self) -> &AccessConfig;

    /// The workload that it is about; `None` if it needs none.
    fn workload(&self) -> Option<&CrossVersionObjectReference>;

    /// What it says, checked.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn check(&self) -> Result<ValidatedTemplate<Self::Target>, Vec<Violation>>;

    /// Its status.
    fn status(&self) -> Option<&TemplateStatus>;

    /// What its grants permit, and so what its author must be permitted.
    fn hands_out(&self) -> Vec<Right> {
        Right::on_pods(self.config()).collect()
    }

    /// Its name.
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// Whether it can be asked by, as far as its status knows.
    fn is_ready(&self) -> bool {
        self.status().is_some_and(|status| status.ready)
    }
}

/// [`Kind`] and [`transient::Kind`](crate::transient::Kind) of a kind of binding: what is the same for those
/// of our own group and those that were published. `digest` and `terms` are functions of an object.
macro_rules! binding {
    (
        $type:ident, $name:literal, $mark:expr, cluster: $cluster:literal,
        effective: $effective:literal, prefix: $prefix:literal, lenient: $lenient:literal,
        approvable: $approvable:literal,
        digest: $digest:expr, terms: $terms:expr, { $($definition:tt)* }
    ) => {
        impl $crate::kinds::Kind for $type {
            const ROLE: $crate::kinds::Role = $crate::kinds::Role::Binding;
            const NAME: &'static str = $name;
            const FINALIZER: Option<&'static str> = Some($crate::transient::FINALIZER);

            $($definition)*

            fn spec_digest(&self) -> String {
                let digest: fn(&Self) -> String = $digest;
                digest(self)
            }

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

/// A kind of binding of our own group.
macro_rules! own_binding {
    ($type:ident, $name:literal, $cluster:literal) => {
        $crate::kinds::binding!(
            $type, $name, stringify!($type), cluster: $cluster,
            effective: "Effective", prefix: "spec.", lenient: false, approvable: true,
            digest: |object| oz_api::encode::digest(&object.spec),
            terms: |object| {
                let spec = &object.spec;
                let spec = $crate::transient::Spec {
                    role: &spec.role_ref,
                    subjects: &spec.subjects,
                    valid_from: spec.valid_from.as_deref(),
                    valid_until: spec.valid_until.as_deref(),
                    duration: spec.duration.as_deref(),
                    reason: spec.reason.as_deref(),
                };
                $crate::transient::Terms::of_spec(&spec, $cluster)
            },
            { $crate::kinds::defined!(); }
        );
    };
}
pub(crate) use own_binding;

/// The same for a kind as it was published.
macro_rules! published_binding {
    ($type:ident, $name:literal, $mark:literal, $cluster:literal) => {
        $crate::kinds::binding!(
            $type, $name, $mark, cluster: $cluster,
            effective: "effective", prefix: "", lenient: true, approvable: false,
            digest: |object| oz_api::encode::digest(&serde_json::json!({ "flat": object.flat })),
            terms: |object| $crate::transient::Terms::of_flat(&object.flat, $cluster),
            {
                fn definition() -> Option<$crate::kinds::CustomResourceDefinition> {
                    None
                }

                fn short_names() -> &'static [&'static str] {
                    &[]
                }
            }
        );
    };
}
pub(crate) use published_binding;
