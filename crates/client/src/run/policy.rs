//! The grants that a template lacks, and a policy with these grants, by the same functions as admission.

use jiff::Timestamp;
use kube::ResourceExt;
use oz_api::harness::{BrokerPolicy, ProviderKind, TemplateKind};
use oz_runs::policy::Matching;
use oz_runs::requires::{Gaps, admitted, gaps};
use oz_runs::scaffold::scaffold;

use super::template::{find_named, policies};
use crate::cluster::Cluster;
use crate::failure::Result;
use crate::names;

/// The grants of the policies of the chosen namespace for a template.
#[derive(Clone, Debug)]
pub struct PolicyCheck {
    /// The template.
    pub template: String,
    /// The kind of the template.
    pub kind: TemplateKind,
    /// The policies for the template.
    pub policies: Vec<String>,
    /// Admission would let runs of the template in.
    pub is_granted: bool,
    /// The requirements that no policy grants.
    pub gaps: Gaps,
}

/// Checks whether policies grant what a template requires.
///
/// # Errors
/// The template does not exist, cannot be resolved, or cannot be read.
pub async fn check_policies(
    cluster: &Cluster,
    name: &str,
    kind: Option<TemplateKind>,
) -> Result<PolicyCheck> {
    let template = find_named(cluster, name, kind).await?;
    let resolved = template.resolved()?;
    let (all, now) = (policies(cluster).await?, Timestamp::now());
    let matching = Matching::of(&all, &template.name);
    let admitted = admitted(&template.name, &cluster.namespace, resolved, &matching, now);
    Ok(PolicyCheck {
        policies: matching.iter().map(ResourceExt::name_any).collect(),
        is_granted: admitted.is_ok(),
        gaps: gaps(resolved, &matching.unexpired(now)),
        kind: template.kind,
        template: template.name,
    })
}

/// A policy that grants what a template requires, to begin with.
#[derive(Clone, Debug)]
pub struct Scaffold {
    /// The template.
    pub template: String,
    /// The kind of the template.
    pub kind: TemplateKind,
    /// The template requires something.
    pub is_needed: bool,
    /// The policy.
    pub policy: BrokerPolicy,
}

/// Returns a policy for a template, with the name of the template unless another is given.
///
/// # Errors
/// The template does not exist, cannot be resolved, or cannot be read, or the name is not valid.
pub async fn scaffold_policy(
    cluster: &Cluster,
    template: &str,
    kind: Option<TemplateKind>,
    provider: ProviderKind,
    name: Option<&str>,
) -> Result<Scaffold> {
    let template = find_named(cluster, template, kind).await?;
    let resolved = template.resolved()?;
    let name = names::checked(name.unwrap_or(&template.name))?;
    let mut policy = scaffold(name, &template.name, resolved, provider);
    policy.metadata.namespace = Some(cluster.namespace.clone());
    Ok(Scaffold {
        is_needed: !resolved.credentials.is_empty() || !resolved.egress.is_empty(),
        policy,
        kind: template.kind,
        template: template.name,
    })
}
