//! Fail-open hooks cannot be bypassed with large objects: an object that is too large for a hook
//! would be admitted without it. So each hook accepts the largest object that can be stored, and
//! judges it.

use oz_admission::Limits;
use oz_api::GROUP;
use oz_api::labels::REQUESTED_BY;
use oz_trail::Action;
use serde_json::{Value, json};

use super::connect::grant;
use super::server::Server;
use super::{Answer, UID, Webhook, request, with};

const RBAC: &str = "rbac.authorization.k8s.io";
/// The maximum size of a request to etcd: no object is larger.
const STORED: usize = 3 << 19;
/// The size of the other fields of an object.
const REST: usize = 8 << 10;

/// A fail-open hook, and its largest possible object.
struct Case {
    /// The registered name.
    hook: &'static str,
    path: &'static str,
    group: &'static str,
    resource: (&'static str, &'static str),
    groups: &'static [&'static str],
    object: Value,
    /// The object before the change.
    old: Value,
    judged: fn(&Webhook, &Answer) -> bool,
}

/// Returns a text with characters that take one byte each in etcd, and six in a review: the API
/// server escapes them.
fn fat() -> String {
    "<".repeat(STORED - REST)
}

fn refused(_: &Webhook, answer: &Answer) -> bool {
    !answer.allowed && answer.status.code == 403
}

fn recorded(webhook: &Webhook, answer: &Answer) -> bool {
    let recorded = webhook.recorded();
    let opened = |action| matches!(action, Action::SessionOpened | Action::BreakGlassOpened);
    answer.allowed && recorded.iter().any(|record| opened(record.action))
}

/// Returns a Role with the rules of alice's grant, and another rule that names pods at length.
fn role(name: &str) -> Value {
    let rule = |pod: &str| {
        json!({
            "apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"],
            "resourceNames": [pod],
        })
    };
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": name, "namespace": "shop" },
        "rules": [rule("web"), rule(&fat())],
    })
}

fn binding(role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "mine", "namespace": "shop" },
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": role },
        "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": fat() }],
    })
}

fn pod(image: &str, ephemeral: &Value) -> Value {
    let container = json!({ "name": "app", "image": image, "args": [fat()] });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "namespace": "shop", "uid": "uid-of-web" },
        "spec": { "containers": [container], "ephemeralContainers": ephemeral },
    })
}

/// Returns the cases of Roles and RoleBindings: a copy of alice's rights is denied.
fn of_rbac() -> [Case; 3] {
    let case = |hook, path, resource, object, old| Case {
        hook,
        path,
        group: RBAC,
        resource: (resource, ""),
        groups: &["devs"],
        object,
        old,
        judged: refused,
    };
    let theirs = binding("on-call");
    let nobodys = with(theirs.clone(), "/subjects", json!([]));
    let empty = with(role("mine"), "/rules", json!([]));
    let (waits, none) = (binding("oz-grant-mine-7c9e6679"), Value::Null);
    let bindings = "rolebindings";
    let path = "/guard-copied-rolebinding";
    [
        case(
            "guard-rolebinding.kb.io",
            "/guard-rolebinding",
            bindings,
            waits,
            none,
        ),
        case(
            "guard-copied-role.kb.io",
            "/guard-copied-role",
            "roles",
            role("mine"),
            empty,
        ),
        case(
            "guard-copied-rolebinding.kb.io",
            path,
            bindings,
            theirs,
            nobodys,
        ),
    ]
}

/// Returns the cases of changes of running pods: they are recorded.
fn of_pods() -> [Case; 2] {
    let case = |hook, path, subresource, groups, object| Case {
        hook,
        path,
        group: "",
        resource: ("pods", subresource),
        groups,
        object,
        old: pod("app:1", &json!([])),
        judged: recorded,
    };
    let debugged = pod("app:1", &json!([{ "name": "debug", "image": "sh:1" }]));
    let other = pod("app:2", &json!([]));
    let (observing, glass) = ("/watch-v1-pod", "/connect-break-glass");
    let subresource = "ephemeralcontainers";
    [
        case("vpod.kb.io", observing, subresource, &["devs"], debugged),
        case("connect-break-glass.kb.io", glass, "", &["sre"], other),
    ]
}

/// Returns the case of a policy of any length that is replaced: the change is recorded.
fn of_policies() -> Case {
    let map = |text: String| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "fleets", "namespace": "shop", "uid": "u"},
            "data": {"fleets.rego": text},
        })
    };
    Case {
        hook: "observe-policy.kb.io",
        path: "/observe-policy",
        group: "",
        resource: ("configmaps", ""),
        groups: &["devs"],
        object: map(fat()),
        old: map("package fleets".to_owned()),
        judged: |webhook, answer| {
            let recorded = webhook.recorded();
            let changed = |action| action == Action::PolicyChanged;
            answer.allowed && recorded.iter().any(|record| changed(record.action))
        },
    }
}

/// Returns the case of an access policy with annotations of any size that is deleted: the deletion
/// is recorded.
fn of_access_policies() -> Case {
    Case {
        hook: "daccesspolicy.kb.io",
        path: "/observe-deletion-crds-wizardofoz-co-v1alpha1-accesspolicy",
        group: GROUP,
        resource: ("accesspolicies", ""),
        groups: &["devs"],
        object: Value::Null,
        old: json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessPolicy",
            "metadata": {"name": "one", "uid": "u", "annotations": {"note": fat()}},
        }),
        judged: |webhook, answer| {
            let recorded = webhook.recorded();
            let changed = |action| action == Action::PolicyChanged;
            answer.allowed && recorded.iter().any(|record| changed(record.action))
        },
    }
}

/// Returns the version of a group.
fn version(group: &str) -> &'static str {
    match group {
        GROUP | "paddock.dev" => "v1alpha1",
        _ => "v1",
    }
}

/// Returns the cases of other users' requests with annotations of any size that are deleted: denied
/// and recorded.
fn of_requests() -> [Case; 8] {
    let case = |hook, path, group, plural, kind| Case {
        hook,
        path,
        group,
        resource: (plural, ""),
        groups: &["devs"],
        object: Value::Null,
        old: {
            let mut old = request(kind, "shell");
            old["apiVersion"] = format!("{group}/{}", version(group)).into();
            old["metadata"]["annotations"] = json!({REQUESTED_BY: "bob", "note": fat()});
            old
        },
        judged: refused,
    };
    [
        case(
            "dexecaccessrequest.kb.io",
            "/observe-deletion-crds-wizardofoz-co-v1alpha1-execaccessrequest",
            GROUP,
            "execaccessrequests",
            "ExecAccessRequest",
        ),
        case(
            "dpodaccessrequest.kb.io",
            "/observe-deletion-crds-wizardofoz-co-v1alpha1-podaccessrequest",
            GROUP,
            "podaccessrequests",
            "PodAccessRequest",
        ),
        case(
            "dtransientrolebinding.kb.io",
            "/observe-deletion-crds-wizardofoz-co-v1alpha1-transientrolebinding",
            GROUP,
            "transientrolebindings",
            "TransientRoleBinding",
        ),
        case(
            "dtransientclusterrolebinding.kb.io",
            "/observe-deletion-crds-wizardofoz-co-v1alpha1-transientclusterrolebinding",
            GROUP,
            "transientclusterrolebindings",
            "TransientClusterRoleBinding",
        ),
        case(
            "dpublished-transientrolebinding.kb.io",
            "/observe-deletion-example-com-v1-transientrolebinding",
            "example.com",
            "transientrolebindings",
            "TransientRoleBinding",
        ),
        case(
            "dpublished-transientclusterrolebinding.kb.io",
            "/observe-deletion-example-com-v1-transientclusterrolebinding",
            "example.com",
            "transientclusterrolebindings",
            "TransientClusterRoleBinding",
        ),
        case(
            "dharnessrun.kb.io",
            "/observe-deletion-paddock-dev-v1alpha1-harnessrun",
            "paddock.dev",
            "harnessruns",
            "HarnessRun",
        ),
        case(
            "dworkspace.kb.io",
            "/observe-deletion-paddock-dev-v1alpha1-workspace",
            "paddock.dev",
            "workspaces",
            "Workspace",
        ),
    ]
}

/// Returns the case of a lock with annotations of the maximum size: denied and recorded.
fn of_locks() -> Case {
    Case {
        hook: "guard-lock-accesslock.kb.io",
        path: "/lock-crds-wizardofoz-co-v1alpha1-accesslock",
        group: GROUP,
        resource: ("accesslocks", ""),
        groups: &["devs"],
        object: json!({
            "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "AccessLock",
            "metadata": {"name": "incident-7", "annotations": {"note": fat()}},
            "spec": {"target": {"user": "alice"}, "reason": "INC-7"},
        }),
        old: Value::Null,
        judged: |webhook, answer| {
            let recorded = webhook.recorded();
            let refused = |action| action == Action::AccessLocked;
            answer.status.code == 422 && recorded.iter().any(|record| refused(record.action))
        },
    }
}

impl Case {
    fn body(&self) -> Vec<u8> {
        let (resource, subresource) = self.resource;
        let (operation, about) = match (self.object.is_null(), self.old.is_null()) {
            (true, _) => ("DELETE", &self.old),
            (false, true) => ("CREATE", &self.object),
            (false, false) => ("UPDATE", &self.object),
        };
        let (kind, version) = (&about["kind"], version(self.group));
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "review",
                "kind": { "group": self.group, "version": version, "kind": kind },
                "resource": { "group": self.group, "version": version, "resource": resource },
                "subResource": subresource,
                "name": about["metadata"]["name"], "namespace": "shop",
                "operation": operation,
                "userInfo": { "username": "alice", "groups": self.groups },
                "object": self.object, "oldObject": self.old,
            },
        });
        // The encoding of Go.
        review.to_string().replace('<', "\\u003c").into_bytes()
    }

    async fn webhook() -> Webhook {
        let asked = with(request("ExecAccessRequest", "shell"), "/metadata/uid", UID);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "web", "namespace": "shop", "uid": "uid-of-web" },
        });
        let webhook = Webhook::new(Server {
            forbids: vec![
                "create pods/exec",
                "get pods/exec",
                "revoke execaccessrequests",
                "revoke podaccessrequests",
                "revoke transientrolebindings",
                "revoke transientclusterrolebindings",
                "revoke harnessruns",
                "revoke workspaces",
            ],
            ..Server::with([asked, pod])
        });
        webhook.server.has_role(role("on-call"));
        webhook.grants.insert(grant());
        webhook.grants.wait_until_ready().await;
        webhook
    }
}

#[tokio::test]
async fn each_hook_that_fails_open_judges_the_largest_object_there_can_be() {
    let webhook = Webhook::new(Server::default());
    let mut open: Vec<String> = Vec::new();
    for configuration in webhook.manager.configurations() {
        for hook in configuration["webhooks"].as_array().unwrap() {
            if hook["failurePolicy"] == "Ignore" {
                open.push(hook["name"].as_str().unwrap().to_owned());
            }
        }
    }
    let cases: Vec<Case> = of_rbac()
        .into_iter()
        .chain(of_pods())
        .chain(of_requests())
        .chain([of_policies(), of_locks(), of_access_policies()])
        .collect();
    let mut known: Vec<_> = cases.iter().map(|case| case.hook.to_owned()).collect();
    open.sort();
    known.sort();
    assert_eq!(open, known, "one that fails open needs a case here");
    for case in cases {
        let webhook = Case::webhook().await;
        let body = case.body();
        let bytes = body.len();
        assert!(bytes > 6 * (STORED - REST), "{}: {bytes}", case.hook);
        assert!(bytes <= Limits::default().body, "{}: {bytes}", case.hook);
        let reply = webhook.manager.review(case.path, &body).await;
        let said = String::from_utf8_lossy(&reply.body)
            .chars()
            .take(500)
            .collect::<String>();
        assert_eq!(reply.status, 200, "{}: {said}", case.hook);
        let review: Value = serde_json::from_slice(&reply.body).unwrap();
        let answer: Answer = serde_json::from_value(review["response"].clone()).unwrap();
        assert!((case.judged)(&webhook, &answer), "{}: {said}", case.hook);
    }
}

/// An update contains two objects, each character of which may take six bytes.
#[test]
fn review_of_stored_objects_fits_body_limit() {
    let limits = Limits::default();
    assert!(limits.body >= 2 * 6 * STORED, "{}", limits.body);
    assert!(limits.bodies >= limits.body);
}
