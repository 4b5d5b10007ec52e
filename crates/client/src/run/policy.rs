//! The grants that a template lacks, and a policy with these grants, by the same functions as admission; and the right of
//! the broker to read the Secrets of policies.

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use oz_api::harness::{BrokerPolicy, ProviderKind, TemplateKind};
use oz_runs::policy::Matching;
use oz_runs::requires::{Gaps, admitted, gaps};
use oz_runs::scaffold::{self, Account, scaffold};

use super::check;
use super::finding::Finding;
use super::template::{find_named, policies};
use crate::cluster::Cluster;
use crate::explain::operator;
use crate::failure::{Failure, Result};
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
    /// The state of each requirement, and the conditions of the policies.
    pub findings: Vec<Finding>,
}

impl PolicyCheck {
    /// Checks whether runs of the template are admitted and get their credentials, as far as that is known.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        self.is_granted && self.findings.iter().all(|one| one.holds != Some(false))
    }
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
    let matching = Matching::from_policies(&all, &template.name);
    let admitted = admitted(&template.name, &cluster.namespace, resolved, &matching, now);
    Ok(PolicyCheck {
        policies: matching.iter().map(ResourceExt::name_any).collect(),
        is_granted: admitted.is_ok(),
        gaps: gaps(resolved, &matching.unexpired(now)),
        findings: check::examine(resolved, &matching.unexpired(now)),
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
    /// The right of the broker to read the Secrets of the policy, if it names any.
    pub access: Option<(Role, RoleBinding)>,
}

/// Returns a policy for a template, with the name of the template unless another is given.
///
/// # Errors
/// The template does not exist, cannot be resolved, or cannot be read, or the name is not valid.
pub async fn scaffold_policy(
    cluster: &Cluster,
    template: &str,
    kind: Option<TemplateKind>,
    provider: Option<ProviderKind>,
    name: Option<&str>,
    broker: &Account,
) -> Result<Scaffold> {
    let template = find_named(cluster, template, kind).await?;
    let resolved = template.resolved()?;
    let name = names::checked(name.unwrap_or(&template.name))?;
    let mut policy = scaffold(name, &template.name, resolved, provider);
    policy.metadata.namespace = Some(cluster.namespace.clone());
    Ok(Scaffold {
        is_needed: !resolved.credentials.is_empty() || !resolved.egress.is_empty(),
        access: scaffold::secret_access(&policy, broker),
        policy,
        kind: template.kind,
        template: template.name,
    })
}

/// Returns the right of the broker to read the Secrets of existing policies: of the policy with this name, or else of the
/// policies for the template.
///
/// # Errors
/// Policies cannot be read, neither name is given, or no policy has the name or is for the template.
pub async fn secret_access(
    cluster: &Cluster,
    template: Option<&str>,
    name: Option<&str>,
    broker: &Account,
) -> Result<Vec<(Role, RoleBinding)>> {
    let all = policies(cluster).await?;
    let namespace = &cluster.namespace;
    let (chosen, about): (Vec<&BrokerPolicy>, String) = match (name, template) {
        (Some(name), _) => {
            let named = all.iter().filter(|policy| policy.name_any() == name);
            (named.collect(), format!("no BrokerPolicy {name}"))
        }
        (None, Some(template)) => {
            let matching = Matching::from_policies(&all, template);
            let about = format!("no BrokerPolicy for template {template}");
            (matching.iter().collect(), about)
        }
        (None, None) => return Err(Failure::new("name a template, or a policy with --name")),
    };
    if chosen.is_empty() {
        return Err(
            Failure::new(format!("{about} in namespace {namespace}"))
                .next("`ozctl run policy list` lists the policies of the namespace, `ozctl run policy scaffold TEMPLATE` prints one")
                .not_found(),
        );
    }
    let access = chosen
        .into_iter()
        .filter_map(|policy| scaffold::secret_access(policy, broker));
    Ok(access.collect())
}

/// Returns the account of the broker of the oz in a namespace: of its Deployment if the user may read it, and else the
/// account of a release with the usual name.
pub async fn broker_account(cluster: &Cluster, oz: &str) -> Account {
    let deployments = operator::deployments(cluster, oz).await.unwrap_or_default();
    let broker = deployments
        .iter()
        .find(|one| operator::is_of_component(one, "broker"));
    let name = broker
        .and_then(operator::pod)
        .and_then(|pod| pod.service_account_name.clone());
    Account {
        namespace: oz.to_owned(),
        name: name.unwrap_or_else(|| oz_api::names::BROKER.to_owned()),
    }
}
