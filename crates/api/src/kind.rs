//! The trait of all kinds: the names and properties that hooks, controllers, definitions, the removal of oz and the
//! command line need of a kind. Each type implements it in its file, AuditEvent in `oz-trail`, where its spec is.
//! Therefore the list of all kinds is one crate higher, in `oz_core::kinds`.

use std::borrow::Cow;
use std::fmt::Debug;

#[doc(hidden)]
pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
#[doc(hidden)]
pub use kube::CustomResourceExt;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The part of oz to which a kind belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Access, in oz's own group: requests, templates, bindings, and the objects with rules and records about them.
    Access,
    /// Transient bindings as they were published, in a group that oz does not own: oz does not install them.
    Published,
    /// Harness runs.
    Harness,
    /// Composites.
    Composites,
}

/// The purpose of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The object requests access: an `AccessRequest` of `oz-core`.
    Request,
    /// The object defines the users who may have access: an `AccessTemplate` of `oz-core`.
    Template,
    /// The object binds subjects to a role for a time: a `transient::Kind` of `oz-core`.
    Binding,
    /// The object approves or denies a request, in the name of its creator.
    Approval,
    /// The object ends access, and blocks new access.
    Lock,
    /// The object defines rules for requests, regardless of their templates.
    Policy,
    /// The object is a review after the fact.
    Review,
    /// The object stores an event.
    Record,
    /// The object requests a harness run.
    Run,
    /// The object requests storage for harness runs.
    Workspace,
    /// The object defines harness runs.
    RunTemplate,
    /// The object defines the credentials and hosts of harness runs.
    RunPolicy,
    /// The object declares a composite: a `Source` of `oz-composites`.
    Composite,
}

/// A custom resource of oz.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The part of oz to which the kind belongs.
    const FAMILY: Family;
    /// The purpose of the kind.
    const ROLE: Role;
    /// The name of the kind's controller, also used in the names of its hooks: unique, in lower case.
    const NAME: &'static str;
    /// The finalizer that oz has on its objects.
    const FINALIZER: Option<&'static str> = None;

    /// Returns the definition, as it is installed; `None` if oz does not install it.
    fn definition() -> Option<CustomResourceDefinition>;

    /// Returns the short names.
    fn short_names() -> &'static [&'static str];

    /// Returns the digest of all fields that define what the object requests or declares.
    fn spec_digest(&self) -> String;

    /// Returns the kind's name, such as `ExecAccessRequest`.
    #[must_use]
    fn title() -> &'static str {
        match Self::kind(&()) {
            Cow::Borrowed(title) => title,
            Cow::Owned(_) => Self::NAME,
        }
    }
}

/// The parts of [`Kind`] that follow from a derived definition; `as_derived` for a definition that is installed without
/// the changes of [`finished`](crate::schema::finished).
#[macro_export]
macro_rules! defined {
    () => {
        fn definition() -> Option<$crate::kind::CustomResourceDefinition> {
            let crd = <Self as $crate::kind::CustomResourceExt>::crd();
            Some($crate::schema::finished(crd))
        }

        $crate::defined!(@names);
    };
    (as_derived) => {
        fn definition() -> Option<$crate::kind::CustomResourceDefinition> {
            Some(<Self as $crate::kind::CustomResourceExt>::crd())
        }

        $crate::defined!(@names);
    };
    (@names) => {
        fn short_names() -> &'static [&'static str] {
            <Self as $crate::kind::CustomResourceExt>::shortnames()
        }

        fn spec_digest(&self) -> String {
            $crate::encode::digest(&self.spec)
        }
    };
}
