//! ExecAccessTemplates at the edge: whether their targets exist.

use std::sync::Arc;

use kube::ResourceExt;
use oz_core::access::template::{ExecTemplate, Observed};
use oz_core::api::ExecAccessTemplate;
use oz_core::controller::Live;
use oz_engine::{Cx, Observe, Store, Watches};

use crate::workload::Workloads;

pub(crate) struct ExecTemplates {
    pub(crate) templates: Store<ExecAccessTemplate>,
    pub(crate) workloads: Arc<Workloads>,
}

impl Observe<ExecTemplate> for ExecTemplates {
    fn watches(&self) -> Watches<ExecAccessTemplate> {
        Watches::new(&self.templates)
    }

    async fn observe(&self, cx: &Cx, template: &ExecAccessTemplate, _: &[Live]) -> Observed {
        let namespace = template.namespace().unwrap_or_default();
        self.workloads
            .exists(cx, &namespace, &template.spec.controller_target_ref)
            .await
    }
}
