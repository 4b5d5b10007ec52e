//! The templates that runs name, as the watches have shown them.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_admission::Rejection;
use oz_api::harness::{
    ClusterHarnessTemplate, HarnessTemplate, HarnessTemplateSpec, TemplateKind, TemplateRef,
};
use oz_runs::template::{self, Resolved, Unresolved};
use oz_runtime::Feeds;

use crate::watched::Watched;

/// The templates of all namespaces and of the cluster.
#[derive(Clone)]
pub(crate) struct RunTemplates {
    own: Watched<HarnessTemplate>,
    cluster: Watched<ClusterHarnessTemplate>,
}

/// A template that a run names, with its base.
pub(crate) struct FoundTemplate {
    template: Template,
    base: Option<Arc<ClusterHarnessTemplate>>,
}

enum Template {
    Own(Arc<HarnessTemplate>),
    Cluster(Arc<ClusterHarnessTemplate>),
}

impl RunTemplates {
    pub(crate) fn new(feeds: &Feeds) -> Self {
        Self {
            own: Watched(feeds.store()),
            cluster: Watched(feeds.store()),
        }
    }

    /// Returns the template that a run in this namespace names; `None` if it does not exist.
    pub(crate) async fn find(
        &self,
        namespace: &str,
        reference: &TemplateRef,
    ) -> Result<Option<FoundTemplate>, Rejection> {
        let own = self.own.find(Some(namespace), &reference.name).await?;
        let cluster = self.cluster.find(None, &reference.name).await?;
        let kind = template::chosen(
            reference,
            own.as_ref().map(|template| &template.spec),
            cluster.as_ref().map(|template| &template.spec.0),
        );
        let template = match kind {
            Some((TemplateKind::HarnessTemplate, _)) => own.map(Template::Own),
            Some((TemplateKind::ClusterHarnessTemplate, _)) => cluster.map(Template::Cluster),
            None => None,
        };
        let Some(template) = template else {
            return Ok(None);
        };
        let mut found = FoundTemplate {
            template,
            base: None,
        };
        if let Some(base) = &found.spec().base_template_ref {
            found.base = self.cluster.find(None, &base.name).await?;
        }
        Ok(Some(found))
    }
}

impl FoundTemplate {
    pub(crate) fn spec(&self) -> &HarnessTemplateSpec {
        match &self.template {
            Template::Own(template) => &template.spec,
            Template::Cluster(template) => &template.spec.0,
        }
    }

    /// Returns the kind and the metadata of the template.
    pub(crate) fn object(&self) -> (&'static str, &ObjectMeta) {
        match &self.template {
            Template::Own(template) => ("HarnessTemplate", &template.metadata),
            Template::Cluster(template) => ("ClusterHarnessTemplate", &template.metadata),
        }
    }

    fn base(&self) -> Option<&HarnessTemplateSpec> {
        self.base.as_ref().map(|base| &base.spec.0)
    }

    pub(crate) fn resolved(&self) -> Result<Resolved, Unresolved> {
        template::resolve(self.spec(), self.base())
    }

    /// Returns the digest of the template and its base.
    pub(crate) fn digest(&self) -> String {
        template::digest(self.spec(), self.base())
    }
}
