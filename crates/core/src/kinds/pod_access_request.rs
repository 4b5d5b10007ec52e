//! The rules of [`PodAccessRequest`].

use jiff::Timestamp;
use oz_api::{PodAccessRequest, PodAccessRequestSpec, PodAccessTemplate, RequestStatus};

use super::{AccessRequest, Change, Rules, Terms};
use crate::validate::Violation;

impl Rules for PodAccessRequest {
    fn violations(&self, _: Timestamp) -> Vec<Violation> {
        self.check().err().into_iter().flatten().collect()
    }
}

impl AccessRequest for PodAccessRequest {
    type Template = PodAccessTemplate;
    const PURPOSE: &'static str = "pod";
    const MAKES_POD: bool = true;

    fn terms(&self) -> Terms<'_> {
        let spec = &self.spec;
        Terms {
            template: &spec.template_name,
            duration: spec.duration.as_deref(),
            target_pod: None,
            container: spec.container.as_deref(),
            reason: spec.reason.as_deref(),
            extends: spec.extends.as_deref(),
            ticket: spec.ticket.as_deref(),
            emergency: spec.emergency == Some(true),
        }
    }

    fn asking(terms: &Terms<'_>) -> Self {
        let spec = PodAccessRequestSpec {
            template_name: terms.template.to_owned(),
            duration: terms.duration.map(ToOwned::to_owned),
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
        (self.spec != old.spec).then_some(Change::OF_SPEC)
    }
}
