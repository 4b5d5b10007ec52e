//! What the hooks need to know of each kind, so that one hook serves both kinds of request and one
//! both kinds of template.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use oz_admission::Reviewed;
use oz_core::access::decide;
use oz_core::access::request::Request;
use oz_core::api::{
    AccessConfig, ExecAccessRequest, ExecAccessTemplate, PodAccessRequest, PodAccessTemplate,
};
use oz_core::validate::{self, Violation};
use oz_core::{build, encode};

use crate::permission::Right;

/// What is said of a changed `targetPod`, word for word as the original says it.
const TARGET_POD_IS_IMMUTABLE: &str =
    "error - Spec.TargetPod is an immutable field, create a new PodAccessRequest instead";
/// What is said of any other change of a spec.
const SPEC_IS_IMMUTABLE: &str =
    "spec is immutable: create a new request instead (spec.extends continues a running one)";

/// A change that is not allowed.
pub(crate) struct Change {
    /// The field that was changed.
    pub(crate) field: &'static str,
    /// Why it cannot be, and what to do instead.
    pub(crate) message: &'static str,
}

/// A kind of access request.
pub(crate) trait AccessRequest:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Reviewed + Debug
{
    /// The kind of template it names.
    type Template: AccessTemplate;

    /// What all kinds have in common.
    fn request(&self) -> Request<'_>;

    /// Which rules for single fields it breaks.
    fn violations(&self) -> Vec<Violation>;

    /// Name of the request that it continues.
    fn extends(&self) -> Option<&str>;

    /// How its spec differs from the one it had.
    fn spec_change(&self, old: &Self) -> Option<Change>;
}

impl AccessRequest for ExecAccessRequest {
    type Template = ExecAccessTemplate;

    fn request(&self) -> Request<'_> {
        Request::from(self)
    }

    fn violations(&self) -> Vec<Violation> {
        validate::exec_access_request(self)
            .err()
            .unwrap_or_default()
    }

    fn extends(&self) -> Option<&str> {
        self.spec.extends.as_deref()
    }

    fn spec_change(&self, old: &Self) -> Option<Change> {
        if self.spec.target_pod != old.spec.target_pod {
            return Some(Change {
                field: "spec.targetPod",
                message: TARGET_POD_IS_IMMUTABLE,
            });
        }
        (self.spec != old.spec).then_some(Change {
            field: "spec",
            message: SPEC_IS_IMMUTABLE,
        })
    }
}

impl AccessRequest for PodAccessRequest {
    type Template = PodAccessTemplate;

    fn request(&self) -> Request<'_> {
        Request::from(self)
    }

    fn violations(&self) -> Vec<Violation> {
        validate::pod_access_request(self).err().unwrap_or_default()
    }

    fn extends(&self) -> Option<&str> {
        self.spec.extends.as_deref()
    }

    fn spec_change(&self, old: &Self) -> Option<Change> {
        (self.spec != old.spec).then_some(Change {
            field: "spec",
            message: SPEC_IS_IMMUTABLE,
        })
    }
}

/// A kind of template.
pub(crate) trait AccessTemplate: Resource<DynamicType = ()> + Reviewed + Debug {
    /// Name of the kind.
    const KIND: &'static str;

    /// Metadata.
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }

    /// Who may get access, to do what, for how long.
    fn config(&self) -> &AccessConfig;

    /// Digest of the spec.
    fn spec_digest(&self) -> String;

    /// Which rules it breaks.
    fn violations(&self) -> Vec<Violation>;

    /// What its grants permit, and so what its author must be permitted.
    fn hands_out(&self) -> Vec<Right>;
}

impl AccessTemplate for ExecAccessTemplate {
    const KIND: &'static str = "ExecAccessTemplate";

    fn config(&self) -> &AccessConfig {
        &self.spec.access_config
    }

    fn spec_digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self) -> Vec<Violation> {
        validate::exec_access_template(self)
            .err()
            .unwrap_or_default()
    }

    fn hands_out(&self) -> Vec<Right> {
        on_pods(self.config())
    }
}

impl AccessTemplate for PodAccessTemplate {
    const KIND: &'static str = "PodAccessTemplate";

    fn config(&self) -> &AccessConfig {
        &self.spec.access_config
    }

    fn spec_digest(&self) -> String {
        encode::digest(&self.spec)
    }

    fn violations(&self) -> Vec<Violation> {
        validate::pod_access_template(self)
            .err()
            .unwrap_or_default()
    }

    /// A pod first, whose service account and Secrets may be any of the namespace: whoever may
    /// create pods may do that. Then what is done with the pod.
    fn hands_out(&self) -> Vec<Right> {
        let pods = Right {
            verb: "create",
            resource: "pods",
            subresource: None,
        };
        std::iter::once(pods)
            .chain(on_pods(self.config()))
            .collect()
    }
}

/// Each right that the Role of a grant holds.
fn on_pods(config: &AccessConfig) -> Vec<Right> {
    let operations = decide::operations(config);
    let rights = build::handed_out(&operations).flat_map(|(resource, verbs)| {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (resource, None),
        };
        verbs.iter().map(move |&verb| Right {
            verb,
            resource,
            subresource,
        })
    });
    rights.collect()
}
