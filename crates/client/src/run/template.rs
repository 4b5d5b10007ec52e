//! The template that a run names, and the broker policies.

use kube::api::ListParams;
use kube::{Api, ResourceExt};
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, HarnessTemplate, HarnessTemplateSpec, TemplateKind,
    TemplateRef,
};
use oz_runs::template::{Resolved, Unresolved, chosen, resolve};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// A template that exists.
#[derive(Debug)]
pub struct Template {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: TemplateKind,
    /// The spec as its author wrote it.
    pub spec: HarnessTemplateSpec,
    /// The resolved template, with the template that it inherits from.
    pub resolved: Result<Resolved, Unresolved>,
}

/// Finds the template that a run of the chosen namespace names with this reference; `None` if it does not exist.
///
/// # Errors
/// Templates cannot be read.
pub async fn find(cluster: &Cluster, reference: &TemplateRef) -> Result<Option<Template>> {
    let name = crate::names::checked(&reference.name)?;
    let of_cluster = Api::<ClusterHarnessTemplate>::all(cluster.client.clone());
    let own = match reference.kind {
        Some(TemplateKind::ClusterHarnessTemplate) => None,
        _ => {
            cluster
                .find(&cluster.api::<HarnessTemplate>(), name)
                .await?
        }
    };
    let shared = match (&own, reference.kind) {
        (Some(_), _) | (None, Some(TemplateKind::HarnessTemplate)) => None,
        _ => cluster.find(&of_cluster, name).await?,
    };
    let (own, shared) = (
        own.as_ref().map(|found| &found.spec),
        shared.as_ref().map(|found| &found.spec.0),
    );
    let Some((kind, spec)) = chosen(reference, own, shared) else {
        return Ok(None);
    };
    let base = match &spec.base_template_ref {
        Some(base) => {
            let base = crate::names::checked(&base.name)?;
            cluster.find(&of_cluster, base).await?
        }
        None => None,
    };
    let resolved = resolve(spec, base.as_ref().map(|base| &base.spec.0));
    Ok(Some(Template {
        name: name.to_owned(),
        kind,
        spec: spec.clone(),
        resolved,
    }))
}

impl Template {
    /// Returns the resolved template.
    ///
    /// # Errors
    /// The reason why the template cannot be resolved.
    pub fn resolved(&self) -> Result<&Resolved> {
        self.resolved.as_ref().map_err(|error| {
            Failure::new(format!(
                "{} {} cannot be used: {error}",
                self.kind, self.name
            ))
        })
    }
}

/// Returns the template with this name, of this kind or of any.
///
/// # Errors
/// It does not exist, or templates cannot be read.
pub async fn find_named(
    cluster: &Cluster,
    name: &str,
    kind: Option<TemplateKind>,
) -> Result<Template> {
    let reference = TemplateRef {
        name: name.to_owned(),
        kind,
    };
    let found = find(cluster, &reference).await?;
    found.ok_or_else(|| no_template(cluster, &reference))
}

/// Returns the failure for a reference to a template that does not exist.
pub fn no_template(cluster: &Cluster, reference: &TemplateRef) -> Failure {
    let (name, namespace) = (&reference.name, &cluster.namespace);
    let message = match reference.kind {
        Some(TemplateKind::HarnessTemplate) => {
            format!("no HarnessTemplate {name} in namespace {namespace}")
        }
        Some(TemplateKind::ClusterHarnessTemplate) => format!("no ClusterHarnessTemplate {name}"),
        None => format!(
            "no HarnessTemplate {name} in namespace {namespace}, and no ClusterHarnessTemplate of that name"
        ),
    };
    Failure::new(message)
        .next(
            "`ozctl run list templates` and `ozctl run list clustertemplates` list the existing \
            templates",
        )
        .not_found()
}

/// Lists the broker policies of the chosen namespace, in the order of their names.
///
/// # Errors
/// The broker policies cannot be read.
pub async fn policies(cluster: &Cluster) -> Result<Vec<BrokerPolicy>> {
    let api = cluster.api::<BrokerPolicy>();
    let list = cluster.answer(api.list(&ListParams::default())).await?;
    let mut policies = list.items;
    policies.sort_by_key(ResourceExt::name_any);
    Ok(policies)
}
