//! The effective template, and the requirements that its runs lack here.

use jiff::Timestamp;
use kube::ResourceExt;
use oz_api::harness::{EgressNeed, TemplateKind};
use oz_runs::policy::Matching;
use oz_runs::requires::gaps;
use serde::Serialize;

use super::template::{find_named, policies};
use crate::cluster::Cluster;
use crate::failure::Result;

/// A resolved template, as its runs have it in the chosen namespace.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateReport {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: TemplateKind,
    /// The template that it inherits from.
    pub base: Option<String>,
    /// The harness, for a label.
    pub harness: Option<String>,
    /// The image of the agent.
    pub image: String,
    /// The command of the agent.
    pub command: Vec<String>,
    /// The arguments of the command.
    pub args: Vec<String>,
    /// The model.
    pub model: Option<String>,
    /// The time that a run may last.
    pub timeout: String,
    /// The grace period of the agent, from SIGTERM to SIGKILL.
    pub grace_seconds: i64,
    /// The image of the sidecar container.
    pub runtime: Option<String>,
    /// The path of the workspace, if runs require one.
    pub workspace: Option<String>,
    /// The credentials that it requires.
    pub credentials: Vec<String>,
    /// The hosts that it requires, with their ports.
    pub egress: Vec<String>,
    /// The policies for it.
    pub policies: Vec<String>,
    /// The requirements that no policy grants.
    pub gaps: Option<String>,
}

/// Returns the effective template.
///
/// # Errors
/// The template does not exist, cannot be resolved, or cannot be read.
pub async fn report_template(
    cluster: &Cluster,
    name: &str,
    kind: Option<TemplateKind>,
) -> Result<TemplateReport> {
    let template = find_named(cluster, name, kind).await?;
    let resolved = template.resolved()?;
    let policies = policies(cluster).await?;
    let matching = Matching::from_policies(&policies, &template.name).unexpired(Timestamp::now());
    let lacking = gaps(resolved, &matching);
    let base = template.spec.base_template_ref.as_ref();
    let workspace = &resolved.workspace;
    Ok(TemplateReport {
        base: base.map(|base| base.name.clone()),
        harness: resolved.harness.clone(),
        image: resolved.image.clone(),
        command: resolved.command.clone(),
        args: resolved.args.clone(),
        model: resolved.model.clone(),
        timeout: resolved.timeout.to_string(),
        grace_seconds: resolved.grace_seconds,
        runtime: resolved.runtime.image.clone(),
        workspace: workspace.required.then(|| workspace.mount_path.clone()),
        credentials: resolved.credentials.clone(),
        egress: resolved.egress.iter().map(host).collect(),
        policies: matching.iter().map(ResourceExt::name_any).collect(),
        gaps: (!lacking.is_empty()).then(|| lacking.to_string()),
        kind: template.kind,
        name: template.name,
    })
}

/// Formats a host with its ports.
fn host(need: &EgressNeed) -> String {
    let ports: Vec<String> = need.ports.iter().map(ToString::to_string).collect();
    match need.ports.is_empty() || need.ports.contains(&0) {
        true => format!("{}:*", need.host),
        false => format!("{}:{}", need.host, ports.join(",")),
    }
}
