//! The rules of [`ExecAccessRequest`].

use jiff::Timestamp;
use oz_api::{
    ExecAccessRequest, ExecAccessRequestSpec, ExecAccessTemplate, RequestStatus,
    TARGET_POD_IS_IMMUTABLE_MESSAGE,
};

use super::{AccessRequest, Change, Rules, Terms};
use crate::validate::Violation;

impl Rules for ExecAccessRequest {
    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        self.check().err().into_iter().flatten().collect()
    }
}

impl AccessRequest for ExecAccessRequest {
    type Template = ExecAccessTemplate;
    const PURPOSE: &'static str = "exec";
    const MAKES_POD: bool = false;

    fn terms(&self) -> Terms<'_> {
        let spec = &self.spec;
        Terms {
            template: &spec.template_name,
            duration: spec.duration.as_deref(),
            target_pod: spec.target_pod.as_deref(),
            container: spec.container.as_deref(),
            reason: spec.reason.as_deref(),
            extends: spec.extends.as_deref(),
            ticket: spec.ticket.as_deref(),
            emergency: spec.emergency == Some(true),
        }
    }

    fn asking(terms: &Terms<'_>) -> Self {
        let spec = ExecAccessRequestSpec {
            template_name: terms.template.to_owned(),
            duration: terms.duration.map(ToOwned::to_owned),
            target_pod: terms.target_pod.map(ToOwned::to_owned),
            container: terms.container.map(ToOwned::to_owned),
            reason: terms.reason.map(ToOwned::to_owned),
            extends: terms.extends.map(ToOwned::to_owned),
            ticket: terms.ticket.map(ToOwned::to_owned),
            emergency: terms.emergency.then_some(true),
        };
        Self::new("", spec)
    }

    fn status(&self) -> Option<&RequestStatus> {
        self.status.as_ref()
    }

    fn change(&self, old: &Self) -> Option<Change> {
        if self.spec.target_pod != old.spec.target_pod {
            return Some(Change {
                field: "spec.targetPod",
                message: TARGET_POD_IS_IMMUTABLE_MESSAGE,
            });
        }
        (self.spec != old.spec).then_some(Change::OF_SPEC)
    }
}
