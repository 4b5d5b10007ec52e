//! ExecAccessTemplates at the edge: whether their targets exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use oz_api::{ExecAccessTemplate, Namespace};
use oz_core::access::template::{ExecTemplate, Probed, Target};
use oz_engine::{Cx, Observe, Watches};
use oz_runtime::Store;

use crate::session_probes::Probes;
use crate::workload::Workloads;

/// The maximum number of images in a status.
const MOST: usize = 64;

pub(crate) struct ExecTemplates {
    pub(crate) templates: Store<ExecAccessTemplate>,
    pub(crate) workloads: Arc<Workloads>,
    pub(crate) probes: Probes,
}

impl Observe<ExecTemplate> for ExecTemplates {
    fn watches(&self) -> Watches<ExecAccessTemplate> {
        Watches::new(&self.templates)
    }

    fn facts(&self, _: &ExecAccessTemplate) -> Option<Probed> {
        None
    }

    async fn answer(
        &self,
        cx: &Cx,
        template: &ExecAccessTemplate,
        _: Target,
        facts: &mut Option<Probed>,
    ) {
        *facts = Some(self.probed(cx, template).await);
    }
}

impl ExecTemplates {
    async fn probed(&self, cx: &Cx, template: &ExecAccessTemplate) -> Probed {
        let namespace = Namespace::from_metadata(&template.metadata)?.as_str();
        let target = &template.spec.controller_target_ref;
        if !self.probes.enabled {
            self.workloads.exists(cx, namespace, target).await?;
            return Ok(Vec::new());
        }
        let status = template.status.as_ref();
        self.probes.learn(
            namespace,
            status.map_or(&[], |status| status.session_probes.as_slice()),
        );
        let workload = self.workloads.read(cx, namespace, target, None).await?;
        // One of each kind of pod: those of an older replica set may run other images.
        let mut found = BTreeMap::new();
        for pod in &workload.pods {
            for probe in self.probes.probe_pod(cx.client(), namespace, pod).await {
                found.insert((probe.container.clone(), probe.image_id.clone()), probe);
            }
        }
        Ok(found.into_values().take(MOST).collect())
    }
}
