//! The requests that alice can approve or deny, and her decisions.

use serde_json::{Value, json};

use crate::output::{run_commands, shows};
use crate::shop::{self, from_now};
use crate::stub::{Answer, ReceivedRequest, Stub, status};

const GROUP: &str = "crds.wizardofoz.co/v1alpha1";
const WHILE: i64 = 20 * 60 + 30;

fn list(kind: &str, items: &[Value]) -> Answer {
    let list = json!({
        "apiVersion": GROUP, "kind": format!("{kind}List"), "metadata": {"resourceVersion": "8"}, "items": items,
    });
    (200, list)
}

/// Returns a template with an approval rule for these groups.
fn template(name: &str, approvers: &[&str]) -> Value {
    json!({
        "apiVersion": GROUP, "kind": "ExecAccessTemplate",
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {
            "accessConfig": {
                "allowedGroups": ["devs"], "defaultDuration": "1h", "maxDuration": "24h",
                "approval": {"rules": [{"name": "security", "groups": approvers}], "timeout": "30m"},
            },
            "controllerTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        },
    })
}

fn request(name: &str, by: &str, template: &str, phase: &str) -> Value {
    json!({
        "apiVersion": GROUP, "kind": "ExecAccessRequest",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-of-{name}"),
            "creationTimestamp": from_now(WHILE - 30 * 60),
            "annotations": {"crds.wizardofoz.co/requested-by": by},
        },
        "spec": {"templateName": template, "duration": "45m", "reason": "INC-42"},
        "status": {"phase": phase},
    })
}

fn answered(request: &str, by: &str) -> Value {
    json!({
        "apiVersion": GROUP, "kind": "AccessRequestApproval",
        "metadata": {
            "name": format!("{request}-1"), "namespace": "shop",
            "annotations": {"crds.wizardofoz.co/requested-by": by},
        },
        "spec": {
            "accessRequestRef": {
                "kind": "ExecAccessRequest", "name": request, "uid": format!("uid-of-{request}"),
            },
            "approval": true, "digest": "0",
        },
    })
}

/// Answers with many requests, of which alice can decide one: the others are her own, over, decided
/// by her, or for other approvers.
fn answer(asked: &ReceivedRequest) -> Answer {
    let (method, path) = asked.what.split_once(' ').unwrap_or_default();
    let resource = path.rsplit('/').next().unwrap_or_default();
    match (method, resource) {
        ("GET", "execaccesstemplates") => list(
            "ExecAccessTemplate",
            &[
                template("prod", &["devs"]),
                template("vault", &["security"]),
            ],
        ),
        ("GET", "execaccessrequests") => list(
            "ExecAccessRequest",
            &[
                request("bob-a1b2c", "bob", "prod", "Pending"),
                request("alice-x7k2p", "alice", "prod", "Pending"),
                request("carol-d3f4g", "carol", "prod", "Active"),
                request("dave-h5j6k", "dave", "prod", "Pending"),
                request("erin-l7m8n", "erin", "vault", "Pending"),
            ],
        ),
        ("GET", "accessrequestapprovals") => list(
            "AccessRequestApproval",
            &[
                answered("dave-h5j6k", "alice"),
                answered("bob-a1b2c", "frank"),
            ],
        ),
        ("POST", "accessrequestapprovals") => {
            let spec = &asked.body["spec"];
            assert_eq!(asked.body["metadata"]["generateName"], "bob-a1b2c-");
            assert_eq!(spec["accessRequestRef"]["uid"], "uid-of-bob-a1b2c");
            assert!(
                spec["digest"]
                    .as_str()
                    .is_some_and(|digest| digest.len() > 40)
            );
            if spec["reason"].is_null() {
                return status(403, "template prod wants a reason");
            }
            let mut made = asked.body.clone();
            made["metadata"] = json!({"name": "bob-a1b2c-w9x8y", "namespace": "shop"});
            (201, made)
        }
        _ => shop::answer(asked),
    }
}

#[test]
fn approvals_are_listed_and_decided() {
    let lines = [
        "approvals",
        "approvals -A",
        "approve bob-a1b2c",
        "approve ear/bob-a1b2c --reason INC-42",
        "deny bob-a1b2c",
        "deny bob-a1b2c --reason INC-42",
        "approve alice-x7k2p",
        "approve carol-d3f4g",
        "approve dave-h5j6k",
        "approve erin-l7m8n",
        "approve par/bob-a1b2c",
        "approve trb/bob-a1b2c",
        "deny nobody --reason INC-42",
    ];
    shows(&run_commands(&Stub::start(answer), &lines), "approvals");
}

#[test]
fn nothing_waits() {
    let said = run_commands(&shop::open(), &["approvals"]);
    assert!(
        said.contains("No requests wait for your approval."),
        "{said}"
    );
}
