//! The duration of the pure part: one plan, and one status, for a request that can be granted.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::{ExecAccessRequest, Requester, TargetKind, encode, labels};
use oz_core::access::exec::{ExecAccess, Facts};
use oz_core::access::kind::KeepFinished;
use oz_core::access::seal::Keys;
use oz_core::access::stamp::Stamp;
use oz_core::access::target::Workload;
use oz_core::controller::{Controller as _, Outcome};
use oz_e2e::{exec_request, exec_template};
use serde_json::json;

use super::report::{Budget, Report};
use super::stats::Values;

const PODS: usize = 10;
const BATCHES: u32 = 500;
const CALLS: u32 = 20;

pub(super) fn measure(runs: u32, report: &mut Report) -> Result<()> {
    let now: Timestamp = "2026-01-01T12:00:01Z".parse()?;
    let keys = Keys::with_every_owner([[3; 32]]);
    let request = request(&keys, now - SignedDuration::from_secs(1))?;
    let controller = ExecAccess {
        keys,
        keep_finished: KeepFinished::all(SignedDuration::from_hours(1)),
        gate: None,
    };
    let facts = facts()?;
    let decide = || {
        controller
            .decide(now, black_box(&request), &facts, &[])
            .decided()
    };
    let decision = decide().context("the plan asks for more")?;
    let plan = &decision.plan;
    // At least Role, audit record and RoleBinding.
    let steps = plan.steps().count();
    anyhow::ensure!(steps >= 3, "the plan does not grant: {:?}", plan.obstacle);
    let outcome = Outcome::default();
    for _ in 0..runs {
        let plan = each(decide);
        report.add("a plan that grants", "µs", Budget::AtMost(20.0), plan);
        let status = each(|| controller.status(now, black_box(&request), &decision, &outcome));
        report.add("  its status", "µs", Budget::None, status);
    }
    Ok(())
}

/// Returns the microseconds that one call takes: the median of many batches, since other processes disturb
/// some of them.
fn each<T>(call: impl Fn() -> T) -> f64 {
    let batch = |_| {
        let began = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        began.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS)
    };
    (0..BATCHES).map(batch).collect::<Values>().median()
}

/// Returns alice's request, stamped as the webhook would.
fn request(keys: &Keys, created: Timestamp) -> Result<ExecAccessRequest> {
    let mut request = exec_request("look", "shell", "5m");
    let stamp = Stamp {
        requester: Requester {
            user: "alice".into(),
            uid: String::new(),
            groups: vec!["devs".into(), "system:authenticated".into()],
        },
        kind: "ExecAccessRequest".into(),
        namespace: "shop".into(),
        name: "look".into(),
        generate_name: String::new(),
        spec_digest: encode::digest(&request.spec),
        at: created,
        nonce: "nonce".into(),
        ..Stamp::default()
    };
    let sealed = stamp.seal(keys).context("failed to seal the stamp")?;
    let metadata = &mut request.metadata;
    metadata.namespace = Some("shop".into());
    metadata.uid = Some("0a1b2c3d-0000-4000-8000-000000000001".into());
    metadata.generation = Some(1);
    metadata.creation_timestamp = Some(Time(created));
    metadata.annotations = Some(BTreeMap::from([(labels::REQUESTER.to_owned(), sealed)]));
    Ok(request)
}

fn facts() -> Result<Facts> {
    let mut template = exec_template("shell", TargetKind::StatefulSet, "db");
    template.metadata.namespace = Some("shop".into());
    template.metadata.uid = Some("template".into());
    let pod = |number| -> Result<Pod> {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": true,
        });
        let pod = json!({
            "metadata": {
                "name": format!("db-{number}"), "namespace": "shop", "uid": format!("pod-{number}"),
                "ownerReferences": [owner],
            },
            "status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        Ok(serde_json::from_value(pod)?)
    };
    Ok(Facts {
        probes: Some(Vec::new()),
        workload: Some(Ok(Workload {
            kind: "StatefulSet".into(),
            name: "db".into(),
            uid: "db".into(),
            between: Vec::new(),
            pods: (0..PODS).map(pod).collect::<Result<_>>()?,
        })),
        ..Facts::alone(Some(Arc::new(template)))
    })
}
