//! PodAccessTemplates at the edge: the pod templates of their targets.

use std::sync::Arc;

use oz_api::{Namespace, PodAccessTemplate};
use oz_core::access::template::{ObservedModel, PodTemplate, Target};
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

    fn facts(&self, _: &PodAccessTemplate) -> Option<ObservedModel> {
        None
    }

    async fn answer(
        &self,
        cx: &Cx,
        template: &PodAccessTemplate,
        _: Target,
        facts: &mut Option<ObservedModel>,
    ) {
        *facts = Some(match &template.spec.controller_target_ref {
            Some(target) => {
                let model = async {
                    let namespace = Namespace::from_metadata(&template.metadata)?.as_str();
                    self.workloads.model(cx, namespace, target).await
                };
                model.await.map(Some)
            }
            // A template with its own pod spec requires no target.
            None => Ok(None),
        });
    }
}
