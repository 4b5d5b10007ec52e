//! A namespace as an API server would show it: two templates for exec and one for pods, three
//! requests, a binding, and the other objects that the verbs request.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::stub::{Answer, ReceivedRequest, Stub, status};
use crate::trail;

const GROUP: &str = "crds.wizardofoz.co/v1alpha1";

/// Starts the shop.
pub(crate) fn open() -> Stub {
    Stub::start(answer)
}

/// Returns an instant of whole seconds from now: its output stays the same for a while.
pub(crate) fn from_now(seconds: i64) -> String {
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    (now + SignedDuration::from_secs(seconds)).to_string()
}

const HALF_A_MINUTE: i64 = 30;
const HALF_A_DAY: i64 = 43_200;

fn object(kind: &str, name: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": GROUP, "kind": kind,
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-of-{name}"),
            "resourceVersion": "7", "generation": 1,
            "creationTimestamp": from_now(-5 * 86_400 - HALF_A_DAY),
        },
        "spec": spec, "status": status,
    })
}

fn condition(kind: &str, is: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": is, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T12:00:00Z", "observedGeneration": 1,
    })
}

fn exec_template(name: &str, config: &Value, kind: &str, workload: &str, ready: bool) -> Value {
    let exists = match ready {
        true => condition("TargetRefExists", "True", "Success", "Success"),
        false => condition(
            "TargetRefExists",
            "False",
            "NotFound",
            &format!("Error: {kind} {workload} does not exist"),
        ),
    };
    let spec = json!({
        "accessConfig": config,
        "controllerTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": workload},
    });
    let status = json!({"ready": ready, "conditions": [exists]});
    object("ExecAccessTemplate", name, &spec, &status)
}

fn shell() -> Value {
    let config = json!({
        "allowedGroups": ["devs"], "defaultDuration": "1h", "maxDuration": "24h",
        "accessCommand": "kubectl exec -ti -n {{ .Metadata.Namespace }} {{ .Metadata.Name }} -- /bin/sh",
    });
    exec_template("shell", &config, "Deployment", "web", true)
}

fn exec_templates() -> Vec<Value> {
    let config = json!({
        "allowedGroups": ["dba"], "defaultDuration": "15m", "maxDuration": "1h",
        "requireReason": true, "operations": ["Exec", "Log"], "containers": ["postgres"],
    });
    vec![
        shell(),
        exec_template("database", &config, "StatefulSet", "db", false),
    ]
}

fn pod_template() -> Value {
    let spec = json!({
        "accessConfig": {
            "allowedGroups": ["devs"], "defaultDuration": "1h", "maxDuration": "8h",
            "accessCommand": "kubectl attach -ti {{ .Metadata.Name }}",
        },
        "controllerTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    let valid = condition("TemplateDurationsValid", "True", "Success", "Success");
    let status = json!({"ready": true, "conditions": [valid]});
    object("PodAccessTemplate", "debug", &spec, &status)
}

fn granted(until: i64) -> Value {
    json!({
        "phase": "Active", "ready": true, "requester": "alice",
        "podName": "web-7d4b9c5f6-x2x8p", "podUID": "uid-of-the-pod",
        "expiresAt": from_now(until), "grantedAt": "2026-01-01T12:00:00Z",
        "accessMessage": "kubectl exec -ti -n shop web-7d4b9c5f6-x2x8p -- /bin/sh",
        "conditions": [
            condition("RequesterVerified", "True", "Verified", "Requested by alice"),
            condition("AccessResourcesReady", "True", "Success", "Ready"),
        ],
    })
}

fn hers() -> Value {
    let spec = json!({"templateName": "shell", "duration": "1h", "reason": "INC-42"});
    let mut request = object(
        "ExecAccessRequest",
        "alice-x7k2p",
        &spec,
        &granted(50 * 60 + HALF_A_MINUTE),
    );
    request["metadata"]["annotations"] = json!({"crds.wizardofoz.co/requested-by": "alice"});
    request
}

fn his() -> Value {
    let spec = json!({"templateName": "database"});
    let why = "bob is in none of the groups that template database allows (dba)";
    let status = json!({
        "phase": "Denied", "ready": false, "requester": "bob",
        "conditions": [condition("AccessAllowed", "False", "NotAllowed", why)],
    });
    object("ExecAccessRequest", "bob-a1b2c", &spec, &status)
}

fn own_pod() -> Value {
    let spec = json!({"templateName": "debug"});
    let status = json!({
        "phase": "Starting", "ready": false, "requester": "alice", "podName": "alice-m2n3p-12345678",
        "expiresAt": from_now(86_400 + HALF_A_DAY),
        "conditions": [condition("AccessResourcesReady", "False", "NotYetReady", "pod is not ready")],
    });
    object("PodAccessRequest", "alice-m2n3p", &spec, &status)
}

fn binding() -> Value {
    let spec = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "lea"}],
        "validUntil": from_now(7200 + HALF_A_MINUTE), "reason": "INC-7",
    });
    let until = from_now(7200 + HALF_A_MINUTE);
    let ready = condition("Ready", "True", "Bound", "ClusterRole view is bound");
    let status = json!({"phase": "Active", "expiresAt": until, "conditions": [ready]});
    object("TransientRoleBinding", "lea-m2k9c", &spec, &status)
}

/// Returns a workload with one pod, and the ReplicaSet between them.
fn workload(path: &str) -> Option<Value> {
    let owned = |name: &str, kind: &str, owner: &str| {
        json!({
            "name": name, "namespace": "shop", "uid": format!("uid-of-{name}"),
            "labels": {"app": "web"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": kind, "name": owner, "controller": true,
                "uid": format!("uid-of-{owner}"),
            }],
        })
    };
    let containers = json!([{"name": "web", "image": "registry.example/web:1"}]);
    Some(match path {
        "apps/v1/namespaces/shop/deployments/web" => json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": "uid-of-web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers},
                },
            },
        }),
        "apps/v1/namespaces/shop/replicasets" => json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSetList", "metadata": {},
            "items": [{"metadata": owned("web-7d4b9c5f6", "Deployment", "web")}],
        }),
        _ => return None,
    })
}

fn pods() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PodList", "metadata": {},
        "items": [{
            "metadata": {
                "name": "web-7d4b9c5f6-x2x8p", "namespace": "shop", "uid": "uid-of-the-pod",
                "labels": {"app": "web"},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c5f6",
                    "controller": true, "uid": "uid-of-web-7d4b9c5f6",
                }],
            },
            "spec": {"containers": [{"name": "web", "image": "registry.example/web:1"}]},
            "status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{
                    "name": "web", "image": "registry.example/web:1", "imageID": "sha256:1",
                    "ready": true, "restartCount": 0, "state": {"running": {}},
                }],
            },
        }],
    })
}

fn list(kind: &str, items: &[Value]) -> Answer {
    let list = json!({
        "apiVersion": GROUP, "kind": format!("{kind}List"), "metadata": {"resourceVersion": "8"},
        "items": items,
    });
    (200, list)
}

fn forbidden(verb: &str, resource: &str, place: &str) -> Answer {
    status(
        403,
        &format!(
            "{resource} is forbidden: User \"alice\" cannot {verb} resource \"{resource}\" in API \
             group \"\" {place}"
        ),
    )
}

pub(crate) fn answer(asked: &ReceivedRequest) -> Answer {
    let (method, path) = asked.what.split_once(' ').unwrap_or_default();
    let path = path.trim_start_matches('/');
    if path == "version" {
        return (
            200,
            json!({"major": "1", "minor": "35", "gitVersion": "v1.35.4"}),
        );
    }
    if path == "api/v1/namespaces/shop/pods" {
        return (200, pods());
    }
    if let Some(name) = path.strip_prefix("api/v1/namespaces/oz-system/configmaps/") {
        return match trail::map(name) {
            Some(map) => (200, map),
            None => status(404, &format!("configmaps \"{name}\" not found")),
        };
    }
    if path == "api/v1/namespaces/oz-system/configmaps" {
        return forbidden("list", "configmaps", "in the namespace \"oz-system\"");
    }
    let Some(path) = path.strip_prefix("apis/") else {
        return forbidden("list", "things", "in the namespace \"shop\"");
    };
    if let Some(found) = workload(path) {
        return (200, found);
    }
    match (method, path) {
        ("POST", "authentication.k8s.io/v1/selfsubjectreviews") => {
            let user = json!({"username": "alice", "groups": ["devs", "system:authenticated"]});
            (
                201,
                json!({
                    "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
                    "metadata": {}, "status": {"userInfo": user},
                }),
            )
        }
        ("POST", "authorization.k8s.io/v1/selfsubjectaccessreviews") => {
            let mut review = asked.body.clone();
            let of = &asked.body["spec"]["resourceAttributes"];
            let allowed = of["verb"] != "delete" || of["resource"] != "podaccessrequests";
            review["status"] = json!({"allowed": allowed});
            (201, review)
        }
        ("POST", "authorization.k8s.io/v1/subjectaccessreviews") => {
            forbidden("create", "subjectaccessreviews", "at the cluster scope")
        }
        ("GET", "rbac.authorization.k8s.io/v1/clusterroles/view") => (
            200,
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "view"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            }),
        ),
        ("GET", "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations") => {
            hooks("MutatingWebhookConfiguration", "mexecaccessrequest.kb.io")
        }
        ("GET", "admissionregistration.k8s.io/v1/validatingwebhookconfigurations") => {
            hooks("ValidatingWebhookConfiguration", "vexecaccessrequest.kb.io")
        }
        (_, path) => match path.strip_prefix(GROUP) {
            Some(rest) => of_oz(method, rest.trim_start_matches('/'), asked),
            None => {
                let resource = path.rsplit('/').next().unwrap_or_default();
                forbidden("list", resource, "at the cluster scope")
            }
        },
    }
}

/// Answers with one hook for oz's kinds, without a certificate, and one of another project.
fn hooks(kind: &str, name: &str) -> Answer {
    let hook = |name: &str, group: &str| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": {"name": "oz-webhook", "namespace": "oz-system"}},
            "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": ["*"]}],
        })
    };
    let hooks = [
        hook(name, "crds.wizardofoz.co"),
        hook("other.example.com", "apps"),
    ];
    (
        200,
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}List"),
            "metadata": {}, "items": [{"metadata": {"name": "oz"}, "webhooks": hooks}],
        }),
    )
}

fn of_oz(method: &str, path: &str, asked: &ReceivedRequest) -> Answer {
    if path.is_empty() {
        return kinds();
    }
    let path = path.trim_start_matches("namespaces/shop/");
    let (resource, name) = path.split_once('/').unwrap_or((path, ""));
    let (kind, all) = match resource {
        "execaccesstemplates" => ("ExecAccessTemplate", exec_templates()),
        "podaccesstemplates" => ("PodAccessTemplate", vec![pod_template()]),
        "execaccessrequests" => ("ExecAccessRequest", vec![hers(), his()]),
        "podaccessrequests" => ("PodAccessRequest", vec![own_pod()]),
        "transientrolebindings" => ("TransientRoleBinding", vec![binding()]),
        "accessrequestapprovals" => ("AccessRequestApproval", Vec::new()),
        "accesslocks" => ("AccessLock", Vec::new()),
        "accessreviews" => ("AccessReview", Vec::new()),
        "accesspolicies" => ("AccessPolicy", Vec::new()),
        "auditevents" => ("AuditEvent", trail::events()),
        _ => return status(404, "the server could not find the requested resource"),
    };
    let made = |name: &str| {
        let mut made = asked.body.clone();
        made["metadata"] = object(kind, name, &json!({}), &json!({}))["metadata"].clone();
        made["metadata"]["creationTimestamp"] = json!(from_now(0));
        made["metadata"]["annotations"] = json!({"crds.wizardofoz.co/requester": "{}"});
        made
    };
    match method {
        "POST" if resource == "transientrolebindings" => (201, made("lea-m2k9c")),
        "POST" => (201, made(NEW)),
        "DELETE" => match all.into_iter().find(|one| one["metadata"]["name"] == name) {
            Some(_) => (
                200,
                json!({
                    "apiVersion": "v1", "kind": "Status", "status": "Success", "metadata": {},
                }),
            ),
            None => missing(resource, name),
        },
        _ if asked.query.contains("watch=true") => {
            (200, json!({"type": "MODIFIED", "object": ready(kind)}))
        }
        "GET" if name == NEW => (200, ready(kind)),
        _ if name.is_empty() => list(kind, &all),
        _ => match all.into_iter().find(|one| one["metadata"]["name"] == name) {
            Some(found) => (200, found),
            None => missing(resource, name),
        },
    }
}

/// The name of a created request.
const NEW: &str = "alice-n4w5r";

/// Returns the created request once it is granted.
fn ready(kind: &str) -> Value {
    let template = if kind.starts_with("Exec") {
        "shell"
    } else {
        "debug"
    };
    let spec = json!({"templateName": template});
    object(kind, NEW, &spec, &granted(3600 + HALF_A_MINUTE))
}

fn missing(resource: &str, name: &str) -> Answer {
    status(
        404,
        &format!("{resource}.crds.wizardofoz.co \"{name}\" not found"),
    )
}

fn kinds() -> Answer {
    let resource = |kind: &str, short: &str, namespaced: bool| {
        let singular = kind.to_lowercase();
        let plural = match singular.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{singular}s"),
        };
        json!({
            "name": plural, "singularName": singular,
            "kind": kind, "namespaced": namespaced, "shortNames": [short], "verbs": ["get", "list"],
        })
    };
    (
        200,
        json!({
            "apiVersion": "v1", "kind": "APIResourceList", "groupVersion": GROUP,
            "resources": [
                resource("ExecAccessTemplate", "eat", true), resource("ExecAccessRequest", "ear", true),
                resource("PodAccessTemplate", "pat", true), resource("PodAccessRequest", "par", true),
                resource("TransientRoleBinding", "trb", true),
                resource("AccessPolicy", "ap", false),
                resource("TransientClusterRoleBinding", "tcrb", false),
                resource("AuditEvent", "oza", false), resource("AccessRequestApproval", "ara", true),
                resource("AccessLock", "al", false),
                resource("AccessReview", "arv", true),
            ],
        }),
    )
}
