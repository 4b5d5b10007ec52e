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

    /// Returns the template that a run in this namespace names; `None` if it does not exist, or is being deleted.
    pub(crate) async fn find(
        &self,
        namespace: &str,
        reference: &TemplateRef,
    ) -> Result<Option<FoundTemplate>, Rejection> {
        let own = self.own.find(Some(namespace), &reference.name).await?;
        let own = own.filter(|template| template::is_available(&template.metadata));
        let cluster = self.of_cluster(&reference.name).await?;
        let (own, cluster) = (own.map(Template::Own), cluster.map(Template::Cluster));
        let Some((_, template)) = template::chosen(reference, own, cluster) else {
            return Ok(None);
        };
        let mut found = FoundTemplate {
            template,
            base: None,
        };
        if let Some(base) = &found.spec().base_template_ref {
            found.base = self.of_cluster(&base.name).await?;
        }
        Ok(Some(found))
    }

    /// Returns the template that a new run in this namespace names. If it was created just before, as by the same command,
    /// the call waits for it.
    pub(crate) async fn find_new(
        &self,
        namespace: &str,
        reference: &TemplateRef,
    ) -> Result<Option<FoundTemplate>, Rejection> {
        if let Some(found) = self.find(namespace, reference).await? {
            return Ok(Some(found));
        }
        let name = &reference.name;
        if reference.kind == Some(TemplateKind::ClusterHarnessTemplate) {
            self.cluster.find_new(None, name).await?;
        } else {
            self.own.find_new(Some(namespace), name).await?;
        }
        self.find(namespace, reference).await
    }

    /// Returns the cluster template with this name, if runs may begin by it.
    async fn of_cluster(
        &self,
        name: &str,
    ) -> Result<Option<Arc<ClusterHarnessTemplate>>, Rejection> {
        let found = self.cluster.find(None, name).await?;
        Ok(found.filter(|template| template::is_available(&template.metadata)))
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

    /// Returns the digest of the template as access policies see it.
    pub(crate) fn seen(&self) -> String {
        let (_, metadata) = self.object();
        template::seen(metadata, self.spec(), self.base())
    }

    /// Returns the digest of the template and its base.
    pub(crate) fn digest(&self) -> String {
        template::digest(self.spec(), self.base())
    }
}
