//! The reasons why a run waits, by the functions with which admission and the operator decide.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use oz_api::conditions;
use oz_api::harness::{HarnessRun, RunPhase, Workspace, WorkspacePhase};
use oz_core::access::stamp;
use oz_runs::policy::Matching;
use oz_runs::queue::ahead;
use oz_runs::requires::admitted;
use oz_runs::template::Resolved;
use oz_runs::terms;

use super::check;
use super::egress::{egress, refusals};
use super::events::in_the_way;
use super::finding::{Finding, finding};
use super::template::{find, no_template, policies};
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// The phase of a run, and its dependencies.
#[derive(Debug)]
pub struct Explanation {
    /// The run.
    pub run: HarnessRun,
    /// The phase.
    pub phase: RunPhase,
    /// The dependencies; for a completed run, how it ended.
    pub findings: Vec<Finding>,
}

impl Explanation {
    /// Checks whether no dependency blocks the run.
    pub fn is_yes(&self) -> bool {
        self.findings.iter().all(|one| one.holds != Some(false))
    }
}

/// Explains a run.
///
/// # Errors
/// No part of the run can be read.
pub async fn explain(cluster: &Cluster, run: HarnessRun) -> Result<Explanation> {
    let status = run.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    let mut findings = Vec::new();
    if phase.is_terminal() {
        let completed = conditions::find(&status.conditions, "Completed");
        let message = match completed {
            Some(known) => format!("{phase}: {} ({})", known.message, known.reason),
            None => phase.to_string(),
        };
        findings.push(finding(phase == RunPhase::Succeeded, "end", message));
        if phase != RunPhase::Succeeded {
            findings.extend(of_egress(&run));
        }
        return Ok(Explanation {
            run,
            phase,
            findings,
        });
    }
    of_template(cluster, &run, &mut findings).await?;
    let named = run.spec.workspace_ref.as_deref();
    if let Some(name) = named {
        match of_workspace(cluster, &run, name).await {
            Ok(found) => findings.extend(found),
            Err(failure) => findings.push(unknown("workspace", failure)?),
        }
    }
    if run.metadata.deletion_timestamp.is_some() {
        let message = "the run is being deleted: it ends, and does not begin";
        findings.push(finding(false, "deletion", message));
    }
    for known in in_the_way(&status) {
        let message = format!("{} ({})", known.message, known.reason);
        findings.push(finding(false, &known.type_, message));
    }
    findings.extend(of_egress(&run));
    if status.phase.is_none() {
        let message = "the operator has not reconciled it yet: `ozctl doctor` checks whether it \
            runs";
        findings.push(finding(None, "operator", message));
    }
    Ok(Explanation {
        run,
        phase,
        findings,
    })
}

/// Reports the refusals of the proxy, by destination.
fn of_egress(run: &HarnessRun) -> impl Iterator<Item = Finding> {
    let refused = egress(run).iter().filter_map(refusals);
    refused.map(|message| finding(false, "egress", message))
}

/// Reports an object that the user may not read as a finding; returns any other failure.
fn unknown(about: &str, failure: Failure) -> Result<Finding> {
    match failure.is_forbidden() {
        true => Ok(finding(None, about, failure.message())),
        false => Err(failure),
    }
}

async fn of_template(
    cluster: &Cluster,
    run: &HarnessRun,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let reference = &run.spec.template_ref;
    let template = match find(cluster, reference).await {
        Ok(Some(template)) => template,
        Ok(None) => {
            let missing = no_template(cluster, reference);
            let message = format!("{}: the run waits a minute for it", missing.message());
            findings.push(finding(false, "template", message));
            return Ok(());
        }
        Err(failure) => {
            findings.push(unknown("template", failure)?);
            return Ok(());
        }
    };
    let resolved = match template.resolved() {
        Ok(resolved) => resolved,
        Err(failure) => {
            findings.push(finding(false, "template", failure.message()));
            return Ok(());
        }
    };
    let message = format!("{} {}", template.kind, template.name);
    findings.push(finding(true, "template", message));
    findings.extend(of_terms(run, resolved));
    match of_policies(cluster, run, resolved).await {
        Ok(found) => findings.extend(found),
        Err(failure) => findings.push(unknown("policies", failure)?),
    }
    Ok(())
}

/// Reports the change ticket and the emergency of a run, by the rules of its template.
fn of_terms(run: &HarnessRun, resolved: &Resolved) -> Vec<Finding> {
    let Some(stamp) = stamp::parse_unverified(&run.metadata) else {
        return Vec::new();
    };
    let rules = terms::rules(&stamp.requester, &run.spec, resolved).into_iter();
    let findings = rules.map(|rule| match rule.verdict {
        Ok(message) => finding(true, rule.name, message),
        Err(denial) => finding(false, rule.name, denial.message),
    });
    findings.collect()
}

async fn of_policies(
    cluster: &Cluster,
    run: &HarnessRun,
    resolved: &Resolved,
) -> Result<Vec<Finding>> {
    let name = &run.spec.template_ref.name;
    let all = policies(cluster).await?;
    let matching = Matching::from_policies(&all, name);
    let granted = admitted(
        name,
        &cluster.namespace,
        resolved,
        &matching,
        Timestamp::now(),
    );
    let mut findings = vec![match granted {
        Err(shortfall) => finding(false, "policies", shortfall.to_string()),
        Ok(()) => {
            let names: Vec<String> = matching.iter().map(ResourceExt::name_any).collect();
            let message = match &names[..] {
                [] => "the template requires nothing".to_owned(),
                names => format!(
                    "all that the template requires is granted by {}",
                    names.join(", ")
                ),
            };
            finding(true, "policies", message)
        }
    }];
    let standing = matching.iter().flat_map(check::standing);
    findings.extend(standing.filter(|one| one.holds == Some(false)));
    if let Some(limit) = matching.concurrent_runs() {
        let message = format!("at most {limit} runs at once");
        findings.push(finding(limit > 0, "limit", message));
    }
    Ok(findings)
}

async fn of_workspace(cluster: &Cluster, run: &HarnessRun, name: &str) -> Result<Vec<Finding>> {
    let Some(workspace) = cluster.find(&cluster.api::<Workspace>(), name).await? else {
        let message = format!("no Workspace {name} in namespace {}", cluster.namespace);
        return Ok(vec![finding(false, "workspace", message)]);
    };
    let status = workspace.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    let mut findings = Vec::new();
    if phase != WorkspacePhase::Active {
        let ready = conditions::find(&status.conditions, "Ready");
        let message = match ready {
            Some(ready) => format!("Workspace {name} is {phase}: {}", ready.message),
            None => format!("Workspace {name} is {phase}"),
        };
        findings.push(finding(false, "workspace", message));
    }
    if status.active_run_uid.is_some() && status.active_run_uid == run.uid() {
        findings.push(finding(
            true,
            "workspace",
            format!("it uses Workspace {name}"),
        ));
        return Ok(findings);
    }
    let runs = cluster.api::<HarnessRun>();
    let runs = cluster.answer(runs.list(&ListParams::default())).await?;
    let before = ahead(&workspace, run, &runs.items);
    let holder = match &status.active_run_ref {
        Some(holder) => format!("run {holder} uses Workspace {name}"),
        None => format!("no run uses Workspace {name}"),
    };
    findings.push(match before.len() {
        0 => finding(
            status.active_run_ref.is_none(),
            "queue",
            format!("{holder}; this run is the next"),
        ),
        count => {
            let names: Vec<String> = before.iter().map(|run| run.name_any()).collect();
            let names = names.join(", ");
            let message = format!(
                "{holder}; this run is number {} on it, behind {names}",
                count + 1
            );
            finding(false, "queue", message)
        }
    });
    Ok(findings)
}
