//! HarnessTemplates and ClusterHarnessTemplates at the edge: the templates from which they inherit.

use std::convert::Infallible;
use std::sync::Arc;

use kube::ResourceExt as _;
use oz_api::harness::{ClusterHarnessTemplate, HarnessTemplate};
use oz_engine::{Cx, Observe, Watches};
use oz_runs::definitions::{ClusterTemplates, Templates};
use oz_runtime::Store;

pub(crate) struct ClusterTemplateObjects {
    pub(crate) templates: Store<ClusterHarnessTemplate>,
}

impl Observe<ClusterTemplates> for ClusterTemplateObjects {
    fn watches(&self) -> Watches<ClusterHarnessTemplate> {
        Watches::new(&self.templates)
    }

    fn facts(&self, _: &ClusterHarnessTemplate) {}

    async fn answer(&self, _: &Cx, _: &ClusterHarnessTemplate, question: Infallible, (): &mut ()) {
        match question {}
    }
}

pub(crate) struct TemplateObjects {
    pub(crate) templates: Store<HarnessTemplate>,
    pub(crate) bases: Store<ClusterHarnessTemplate>,
}

impl Observe<Templates> for TemplateObjects {
    fn watches(&self) -> Watches<HarnessTemplate> {
        Watches::new(&self.templates).related(&self.bases, |base, templates| {
            let name = base.name_any();
            templates.select(|template| base_of(template) == Some(&name))
        })
    }

    fn facts(&self, template: &HarnessTemplate) -> Option<Arc<ClusterHarnessTemplate>> {
        self.bases.get(None, base_of(template)?)
    }

    async fn answer(
        &self,
        _: &Cx,
        _: &HarnessTemplate,
        question: Infallible,
        _: &mut Option<Arc<ClusterHarnessTemplate>>,
    ) {
        match question {}
    }
}

/// Returns the name of the cluster template from which a template inherits.
fn base_of(template: &HarnessTemplate) -> Option<&str> {
    let base = template.spec.base_template_ref.as_ref()?;
    Some(&base.name)
}
