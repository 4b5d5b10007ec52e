//! The rules of [`PodAccessTemplate`].

use jiff::Timestamp;
use oz_api::{AccessConfig, CrossVersionObjectReference, PodAccessTemplate, TemplateStatus};

use super::{AccessTemplate, Right, Rules};
use crate::validate::{self, AccessPod, ValidatedTemplate, Violation};

impl Rules for PodAccessTemplate {
    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        self.check().err().into_iter().flatten().collect()
    }
}

impl AccessTemplate for PodAccessTemplate {
    type Target = AccessPod;
    const PURPOSE: &'static str = "pod";
    const NOTES_AUTHOR: bool = true;

    fn config(&self) -> &AccessConfig {
        &self.spec.access_config
    }

    fn workload(&self) -> Option<&CrossVersionObjectReference> {
        self.spec.controller_target_ref.as_ref()
    }

    fn check(&self) -> Result<ValidatedTemplate<AccessPod>, Vec<Violation>> {
        validate::pod_access_template(self)
    }

    fn status(&self) -> Option<&TemplateStatus> {
        self.status.as_ref()
    }

    /// Returns the creation of a pod first, because the pod's service account and Secrets may be any of the
    /// namespace: a user who may create pods may choose them. The operations on the pod follow.
    fn hands_out(&self) -> Vec<Right> {
        let pods = Right {
            verb: "create",
            resource: "pods",
            subresource: None,
        };
        std::iter::once(pods)
            .chain(Right::on_pods(self.config()))
            .collect()
    }
}
