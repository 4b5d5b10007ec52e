//! The reasons why a run waits, by the functions with which admission and the operator decide.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use oz_api::conditions;
use oz_api::harness::{HarnessRun, RunPhase, Workspace, WorkspacePhase};
use oz_runs::policy::Matching;
use oz_runs::queue::ahead;
use oz_runs::requires::admitted;
use oz_runs::template::Resolved;

use super::events::in_the_way;
use super::template::{find, no_template, policies};
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// A dependency of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// True if it is met; `None` if that is not known.
    pub holds: Option<bool>,
    /// The subject, in one word.
    pub about: String,
    /// The state.
    pub message: String,
}

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

fn finding(holds: impl Into<Option<bool>>, about: &str, message: impl Into<String>) -> Finding {
    Finding {
        holds: holds.into(),
        about: about.to_owned(),
        message: message.into(),
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
    if status.phase.is_none() {
        let message = "the operator has not looked at it yet: `ozctl doctor` says whether it runs";
        findings.push(finding(None, "operator", message));
    }
    Ok(Explanation {
        run,
        phase,
        findings,
    })
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
            let message = format!("{}: it is waited for, a minute", missing.message());
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
    match of_policies(cluster, run, resolved).await {
        Ok(found) => findings.extend(found),
        Err(failure) => findings.push(unknown("policies", failure)?),
    }
    Ok(())
}

async fn of_policies(
    cluster: &Cluster,
    run: &HarnessRun,
    resolved: &Resolved,
) -> Result<Vec<Finding>> {
    let name = &run.spec.template_ref.name;
    let all = policies(cluster).await?;
    let matching = Matching::of(&all, name);
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
            format!("it holds Workspace {name}"),
        ));
        return Ok(findings);
    }
    let runs = cluster.api::<HarnessRun>();
    let runs = cluster.answer(runs.list(&ListParams::default())).await?;
    let before = ahead(run, &runs.items);
    let holder = match &status.active_run_ref {
        Some(holder) => format!("run {holder} holds Workspace {name}"),
        None => format!("nobody holds Workspace {name}"),
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
