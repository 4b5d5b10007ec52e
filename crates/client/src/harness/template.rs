//! The template that a run means, and the policies beside it.

use kube::api::ListParams;
use kube::{Api, ResourceExt};
use oz_api::harness::{
    BrokerPolicy, ClusterHarnessTemplate, HarnessTemplate, HarnessTemplateSpec, TemplateKind,
    TemplateRef,
};
use oz_runs::template::{Resolved, Unresolved, chosen, resolve};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// A template that is there.
#[derive(Debug)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: TemplateKind,
    /// What was written.
    pub spec: HarnessTemplateSpec,
    /// What it comes to, with the one that it inherits from.
    pub resolved: Result<Resolved, Unresolved>,
}

/// The template that a run of the chosen namespace means by this; `None` if it is not there.
///
/// # Errors
/// When templates cannot be read.
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
    /// What it comes to.
    ///
    /// # Errors
    /// That it comes to nothing, and why.
    pub fn resolved(&self) -> Result<&Resolved> {
        self.resolved.as_ref().map_err(|error| {
            Failure::new(format!(
                "{} {} cannot be used: {error}",
                self.kind, self.name
            ))
        })
    }
}

/// The failure that a reference to no template is.
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
        .next("`ozctl run list templates` and `ozctl run list clustertemplates` list those that are there")
        .not_found()
}

/// The policies of the chosen namespace, in the order of their names.
///
/// # Errors
/// When they cannot be read.
pub async fn policies(cluster: &Cluster) -> Result<Vec<BrokerPolicy>> {
    let api = cluster.api::<BrokerPolicy>();
    let list = cluster.answer(api.list(&ListParams::default())).await?;
    let mut policies = list.items;
    policies.sort_by_key(ResourceExt::name_any);
    Ok(policies)
}
