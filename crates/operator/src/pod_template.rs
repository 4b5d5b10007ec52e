//! PodAccessTemplates at the edge: what the pods of their targets look like.

use std::sync::Arc;

use kube::ResourceExt;
use oz_core::access::template::{ObservedModel, PodTemplate};
use oz_core::api::PodAccessTemplate;
use oz_core::controller::Live;
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::Store;

use crate::workload::Workloads;

pub(crate) struct PodTemplates {
    pub(crate) templates: Store<PodAccessTemplate>,
    pub(crate) workloads: Arc<Workloads>,
}

impl Observe<PodTemplate> for PodTemplates {
    fn watches(&self) -> Watches<PodAccessTemplate> {
        Watches::new(&self.templates)
    }

    async fn observe(&self, cx: &Cx, template: &PodAccessTemplate, _: &[Live]) -> ObservedModel {
        let namespace = template.namespace().unwrap_or_default();
        match &template.spec.controller_target_ref {
            Some(target) => {
                let model = self.workloads.model(cx, &namespace, target);
                model.await.map(Some)
            }
            // A spec of its own needs no target.
            None => Ok(None),
        }
    }
}
