//! The holder of a workspace that runs name.

use oz_api::harness::{HarnessRun, Workspace};
use oz_core::controller::Controller as _;
use oz_runs::workspace::{Facts, Holder, Waiting, queue};
use serde_json::{Value, json};

use crate::now;
use crate::seeding::controller;
use crate::world::run;

fn cage(status: Value) -> Workspace {
    serde_json::from_value(json!({
        "metadata": {
            "name": "cage", "namespace": "birds", "uid": "u-2", "creationTimestamp": now(),
        },
        "spec": {"storage": {"size": "1Gi"}},
        "status": status,
    }))
    .unwrap()
}

/// A run on the workspace `cage`, with a condition that is False.
fn waiting(name: &str, type_: &str, reason: &str) -> HarnessRun {
    let mut run = run(json!({"workspaceRef": "cage"}));
    run.metadata.name = Some(name.to_owned());
    run.metadata.uid = Some(format!("uid-{name}"));
    let condition = json!({
        "type": type_, "status": "False", "reason": reason, "message": "", "lastTransitionTime": now(),
    });
    let status = json!({"phase": "Pending", "conditions": [condition]});
    run.status = Some(serde_json::from_value(status).unwrap());
    run
}

fn holder(workspace: &Workspace, runs: &[HarnessRun]) -> Holder {
    let held = workspace.status.as_ref().unwrap().active_run_uid.is_some();
    let facts = Facts {
        queue: queue(workspace, runs),
        holder_is_live: held,
        ..Facts::default()
    };
    let verdict = controller().decide(now(), workspace, &facts, &[]);
    verdict.decided().unwrap().state.holder
}

#[test]
fn run_that_waits_for_something_else_does_not_become_holder() {
    let named = |name: &str| Waiting {
        name: name.to_owned(),
        uid: Some(format!("uid-{name}")),
    };
    let free = cage(json!({"phase": "Active"}));
    for (type_, reason) in [
        ("Approved", "Waiting"),
        ("TicketAccepted", "TicketCheckPending"),
        ("TemplateResolved", "TemplateNotFound"),
        ("BrokerReady", "BrokerUnavailable"),
        ("JobCreated", "TooManyRuns"),
    ] {
        let mut new = waiting("new", type_, reason);
        new.status = None;
        let first = waiting("first", type_, reason);
        let next = waiting("next", "WorkspaceBound", "WorkspaceFree");
        let runs = [first, new, next];
        assert_eq!(holder(&free, &runs[..2]), Holder::Nobody, "{reason}");
        assert_eq!(holder(&free, &runs), Holder::New(named("next")), "{reason}");
        // The holder may have started a process that its status does not report yet.
        let held = json!({"phase": "Active", "activeRunRef": "first", "activeRunUID": "uid-first"});
        assert_eq!(
            holder(&cage(held), &runs),
            Holder::Same(named("first")),
            "{reason}"
        );
    }
}
