//! The connect hook as the API server calls it, in each of its three registrations.

mod ways;

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use oz_admission::testing;
use oz_api::duration::GoDuration;
use oz_api::{Operation, Requester, Timeout};
use oz_core::access::emergency::break_glass;
use oz_core::access::extra::SESSION_TOKEN;
use oz_core::access::grant::{Grant, SessionTerms};
use oz_core::access::window::Window;
use oz_core::gate::PERMITTED;
use oz_core::gate::ticket::Ticket;
use oz_trail::{Action, Admitted, FloodCounter, PodRef, RequestRef};
use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};

use super::server::Server;
use super::{Answer, GATE, Records, UID, Webhook, keys, now, request, role, with};
use crate::connect::{TIMEOUT, policies};

pub(super) const OBSERVING: &str = "/watch-v1-pod";
pub(super) const ENFORCING: &str = "/connect-enforced";
const BREAK_GLASS: &str = "/connect-break-glass";

/// Returns a grant with which alice may exec into pod web for an hour.
pub(super) fn grant() -> Grant {
    let hour = GoDuration::from_secs(3600);
    let subject = json!({
        "kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io",
    });
    Grant {
        request: RequestRef {
            kind: "ExecAccessRequest".into(),
            namespace: "shop".into(),
            name: "mine".into(),
            uid: UID.into(),
        },
        requester: Requester {
            user: "alice".into(),
            ..Requester::default()
        },
        subjects: vec![serde_json::from_value(subject).unwrap()],
        pod: PodRef {
            name: "web".into(),
            uid: "uid-of-web".into(),
            container: None,
        },
        not_ready: false,
        operations: vec![Operation::Exec],
        window: Window::new(now(), Some(hour), hour, hour),
        granted_at: now(),
        template: "shell".into(),
        template_digest: String::new(),
        revoke_on_template_change: false,
        access_message: String::new(),
        reason: None,
        following: None,
        sessions: SessionTerms {
            of_pod: vec!["app".into()],
            ..SessionTerms::default()
        },
        own_pod: None,
        stamp: None,
        role: None,
        approvals: Vec::new(),
        on_call: None,
        policies: Vec::new(),
        ticket: None,
        emergency: None,
        rules: None,
    }
}

/// Returns a webhook with the pod, alice's request, and these grants.
async fn webhook(grants: impl IntoIterator<Item = Grant>) -> Webhook {
    webhook_with(grants, Records::default()).await
}

async fn webhook_with(grants: impl IntoIterator<Item = Grant>, records: Records) -> Webhook {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "namespace": "shop", "uid": "uid-of-web" },
    });
    let asked = with(request("ExecAccessRequest", "shell"), "/metadata/uid", UID);
    let webhook = Webhook::recording(Server::with([pod, asked]), records);
    for grant in grants {
        webhook.grant(grant);
    }
    webhook.grants.wait_until_ready().await;
    webhook
}

#[derive(Clone, Debug)]
pub(super) struct Connection {
    user: String,
    pod: String,
    groups: &'static [&'static str],
    resource: &'static str,
    subresource: &'static str,
    options: Value,
    old: Value,
}

pub(super) fn exec(command: &[&str]) -> Connection {
    Connection {
        user: "alice".to_owned(),
        pod: "web".to_owned(),
        groups: &["devs", "system:authenticated"],
        resource: "pods",
        subresource: "exec",
        old: Value::Null,
        options: json!({
            "kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "stderr": true,
            "container": "app", "command": command,
        }),
    }
}

impl Connection {
    pub(super) fn request(&self) -> testing::Request {
        let request = if self.old.is_null() {
            testing::Request::connect(&self.options)
        } else {
            testing::Request::update(&self.old, &self.options)
        };
        request
            .user(&self.user)
            .groups(self.groups)
            .resource(self.resource, Some(self.subresource))
            .with_name("shop", &self.pod)
    }

    /// Returns the body as the API server writes it.
    pub(super) fn body(&self) -> Vec<u8> {
        self.request().body()
    }

    async fn to(&self, webhook: &Webhook, path: &str) -> Answer {
        self.request().send(&webhook.manager, path).await.into()
    }

    fn by(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Sets the pod and the user.
    pub(super) fn with_pod_and_user(mut self, pod: &str, user: &str) -> Self {
        pod.clone_into(&mut self.pod);
        self.by(user)
    }
}

/// Returns the command with which the API server continues.
fn command(connection: &Connection, answer: &Answer) -> Vec<String> {
    let mut options = connection.options.clone();
    if let Some(patch) = &answer.patch {
        let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
        json_patch::patch(&mut options, &patch).unwrap();
    }
    serde_json::from_value(options["command"].clone()).unwrap()
}

pub(super) fn able() -> Timeout {
    Timeout {
        foreground: false,
        kill_after: true,
        fractions: true,
    }
}

#[tokio::test]
async fn connection_requires_grant_and_refusal_names_command() {
    let webhook = webhook([grant()]).await;
    let answer = exec(&["sh"]).to(&webhook, ENFORCING).await;
    assert!(answer.allowed, "{answer:?}");
    let answer = exec(&["sh"]).by("bob").to(&webhook, ENFORCING).await;
    assert_eq!(answer.refusal(), Some("NoGrant"));
    assert_eq!(answer.status.code, 403);
    let message = &answer.status.message;
    assert!(message.contains("ozctl create exec"), "{message}");
    let actions: Vec<Action> = webhook.recorded().iter().map(|one| one.action).collect();
    assert_eq!(actions, [Action::SessionOpened, Action::SessionRefused]);
}

#[tokio::test]
async fn permitted_session_of_the_gate_has_a_warning_and_no_other_connection_has() {
    let mut gated = grant();
    gated.sessions.gate = Some("oz-system/oz-gate".parse().unwrap());
    let ticket = Ticket::new(&gated, &gated.requester, now());
    let ticket = ticket.seal(&keys()).unwrap();
    let webhook = webhook([gated]).await;
    let by_gate = |pod: &str| {
        let connection = exec(&["sh"]).with_pod_and_user(pod, GATE);
        connection
            .request()
            .extra(SESSION_TOKEN, &[ticket.as_str()])
    };
    for path in [ENFORCING, OBSERVING] {
        let permitted: Answer = by_gate("web").send(&webhook.manager, path).await.into();
        assert!(permitted.allowed, "{permitted:?}");
        assert_eq!(permitted.warnings, [PERMITTED]);
        let denied: Answer = by_gate("db").send(&webhook.manager, path).await.into();
        assert!(!denied.allowed && denied.warnings.is_empty(), "{denied:?}");
    }
    let direct = exec(&["sh"]).to(&webhook, OBSERVING).await;
    assert!(direct.allowed && direct.warnings.is_empty(), "{direct:?}");
}

#[tokio::test]
async fn grant_without_request_refuses_connection() {
    let webhook = webhook([]).await;
    let mut orphan = grant();
    orphan.request.uid = "another".into();
    webhook.grants.insert(orphan);
    let answer = exec(&["sh"]).to(&webhook, ENFORCING).await;
    assert_eq!(answer.refusal(), Some("Revoked"));
}

#[tokio::test]
async fn a_command_is_wrapped_where_the_container_was_found_able() {
    let mut able_grant = grant();
    able_grant.sessions.timeouts.insert("app".into(), able());
    let webhook = webhook([able_grant]).await;
    for path in [ENFORCING, OBSERVING] {
        let connection = exec(&["echo", "a b", ""]);
        let command = command(&connection, &connection.to(&webhook, path).await);
        assert_eq!(command[..2], ["/bin/sh", "-c"]);
        let script = &command[2];
        assert!(
            script.starts_with(&format!(
                "OZ_GRANT={UID}; export OZ_GRANT; oz_left=3599.000;"
            )) && script.ends_with("exec timeout -k 1 -s HUP \"$oz_left\" \"$@\""),
            "{script}"
        );
        assert_eq!(command[3..], ["oz", "echo", "a b", ""]);
    }
}

#[tokio::test]
async fn observing_namespace_admits_connections_unchanged() {
    let mut required = grant();
    required.sessions.required = true;
    required.sessions.command_policy = Some("false".into());
    let webhook = webhook([required]).await;
    for user in ["alice", "bob"] {
        let connection = exec(&["cat", "\u{FFFD}"]).by(user);
        let answer = connection.to(&webhook, OBSERVING).await;
        assert!(answer.allowed, "{answer:?}");
        assert_eq!(command(&connection, &answer), ["cat", "\u{FFFD}"]);
    }
    let answer = exec(&["sh"]).by("root").to(&webhook, BREAK_GLASS).await;
    assert!(answer.allowed);
    let last = webhook.recorded().pop().unwrap();
    assert_eq!(
        (last.reason.as_str(), last.details["mode"].as_str()),
        ("BreakGlass", "break-glass")
    );
    // Its review is made from this record.
    assert_eq!(last.action, Action::BreakGlassOpened);
    let opening = break_glass::on_record(&keys(), &last).unwrap();
    assert_eq!(opening.requester.user, "root");
    assert!(opening.window.from <= last.time && last.time < opening.window.until);
}

#[tokio::test]
async fn non_utf8_arguments_are_refused_in_both_modes_where_rewritten() {
    let mut able_grant = grant();
    able_grant.sessions.timeouts.insert("app".into(), able());
    let webhook = webhook([able_grant]).await;
    let mangled = exec(&["cat", "\u{FFFD}"]);
    for path in [ENFORCING, OBSERVING] {
        let answer = mangled.to(&webhook, path).await;
        assert_eq!(answer.refusal(), Some("ArgumentsNotUtf8"), "{path}");
    }
    let stranger = exec(&["cat", "\u{FFFD}"]).by("bob");
    assert!(stranger.to(&webhook, OBSERVING).await.allowed);
    assert!(mangled.to(&webhook, BREAK_GLASS).await.allowed);
}

#[tokio::test]
async fn no_watch_is_believed_for_who_gets_in() {
    let mut able_grant = grant();
    able_grant.sessions.timeouts.insert("app".into(), able());
    let webhook = webhook([able_grant]).await;
    let enter = async |path| exec(&["sh"]).to(&webhook, path).await;
    assert!(enter(ENFORCING).await.patch.is_some());
    // The API server no longer has the Role that the grant's index shows.
    let roles = std::mem::take(&mut *webhook.server.granted.lock());
    assert_eq!(enter(ENFORCING).await.refusal(), Some("Revoked"));
    let mut changed = grant();
    changed.pod.uid = "successor".into();
    webhook.server.has_role(role(&changed));
    assert_eq!(enter(ENFORCING).await.refusal(), Some("GrantChanged"));
    *webhook.server.granted.lock() = roles;
    assert!(enter(ENFORCING).await.allowed);
    // The pod with the name is unknown: its grant gives no access and ends no session.
    webhook.server.unreadable.store(true, Ordering::Relaxed);
    assert_eq!(enter(ENFORCING).await.refusal(), Some("PodLookupFailed"));
    let observed = enter(OBSERVING).await;
    assert!(observed.allowed && observed.patch.is_none(), "{observed:?}");
    assert!(enter(BREAK_GLASS).await.allowed);
}

#[tokio::test]
async fn the_terms_of_the_grant_are_enforced() {
    type Change = fn(&mut Grant);
    let rows: [(Change, &[&str], Option<&str>); 9] = [
        (
            |grant| grant.sessions.command_policy = Some("argv[0] == 'ls'".into()),
            &["ls"],
            None,
        ),
        (
            |grant| grant.sessions.command_policy = Some("argv[0] == 'ls'".into()),
            &["rm"],
            Some("CommandNotAllowed"),
        ),
        (
            |grant| grant.sessions.command_policy = Some("argv[5] == 'ls'".into()),
            &["ls"],
            Some("CommandPolicyFailed"),
        ),
        (
            |grant| grant.sessions.command_policy = Some("x".repeat(2000)),
            &["ls"],
            Some("CommandPolicyFailed"),
        ),
        (
            |grant| grant.sessions.command_policy = Some("(".repeat(900)),
            &["ls"],
            Some("CommandPolicyFailed"),
        ),
        (|_| (), &["cat", "\u{FFFD}"], Some("ArgumentsNotUtf8")),
        (
            |grant| grant.sessions.required = true,
            &["sh"],
            Some("SessionNotTerminable"),
        ),
        (
            |grant| grant.pod.uid = "older".into(),
            &["sh"],
            Some("PodReplaced"),
        ),
        (
            |grant| grant.operations = vec![Operation::Log],
            &["sh"],
            Some("OperationNotGranted"),
        ),
    ];
    for (change, command, reason) in rows {
        let mut changed = grant();
        change(&mut changed);
        let webhook = webhook([changed]).await;
        let answer = exec(command).to(&webhook, ENFORCING).await;
        assert_eq!(
            answer.refusal(),
            reason,
            "{command:?}: {}",
            answer.status.message
        );
    }
}

#[tokio::test]
async fn a_second_grant_may_allow_what_the_first_does_not() {
    let mut narrow = grant();
    narrow.sessions.command_policy = Some("false".into());
    let hours = GoDuration::from_secs(7200);
    narrow.window = Window::new(now(), Some(hours), hours, hours);
    let webhook = webhook([narrow]).await;
    assert_eq!(
        exec(&["sh"]).to(&webhook, ENFORCING).await.refusal(),
        Some("CommandNotAllowed")
    );
    let mut other = grant();
    other.request.name = "other".into();
    webhook.server.has_role(role(&other));
    webhook.grants.insert_as("other-role", other);
    assert!(exec(&["sh"]).to(&webhook, ENFORCING).await.allowed);
    // The options that the API server sends without a command, which it denies itself.
    let mut without = exec(&[]);
    without.options["command"] = Value::Null;
    for path in [OBSERVING, ENFORCING] {
        let answer = without.to(&webhook, path).await;
        assert!(answer.allowed && answer.patch.is_none(), "{answer:?}");
    }
}

#[tokio::test]
async fn ephemeral_containers_are_no_way_around() {
    let webhook = webhook([grant()]).await;
    let connection = Connection {
        subresource: "ephemeralcontainers",
        options: json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" } }),
        old: json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" } }),
        ..exec(&[])
    };
    let answer = connection.to(&webhook, ENFORCING).await;
    assert_eq!(answer.refusal(), Some("EphemeralContainersNotGranted"));
    assert!(connection.to(&webhook, OBSERVING).await.allowed);
}

#[tokio::test]
async fn the_second_try_of_one_kubectl_is_no_second_record() {
    let webhook = webhook([]).await;
    for _ in 0..2 {
        let answer = exec(&["sh"]).to(&webhook, ENFORCING).await;
        assert_eq!(answer.refusal(), Some("NoGrant"));
    }
    assert_eq!(webhook.recorded().len(), 1);
    exec(&["ls"]).to(&webhook, ENFORCING).await;
    exec(&["ls"]).by("bob").to(&webhook, ENFORCING).await;
    assert_eq!(webhook.recorded().len(), 3);
}

#[tokio::test]
async fn ten_thousand_refusals_of_one_user_are_fewer_than_two_hundred_writes() {
    let webhook = webhook([]).await;
    // The same command repeatedly, then a different one each time.
    for number in 0..10_000 {
        let word = number.max(5_000).to_string();
        let answer = exec(&["sh", &word]).to(&webhook, ENFORCING).await;
        assert_eq!(answer.refusal(), Some("NoGrant"));
    }
    let mut gate = FloodCounter::default();
    let records = webhook.recorded().into_iter();
    let plain = records.filter(|record| matches!(gate.admit(record.clone()), Admitted::Write(_)));
    let plain = plain.count();
    let counted = gate.due(Timestamp::MAX);
    let written = plain + counted.len();
    let repeated = counted.iter().filter_map(|record| record.repeated.as_ref());
    let repeated: u64 = repeated.map(|several| several.count).sum();
    // One was treated as the second try of a kubectl.
    assert_eq!(plain as u64 + repeated, 10_000 - 1);
    // Events are published by separate tasks.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let events = webhook.server.events.load(Ordering::Relaxed);
    // The records of the repeated command, of some other commands, and of all remaining ones.
    assert_eq!((written, events), (4 + 29 + 4, 20));
}

#[tokio::test]
async fn arguments_are_not_on_record_unless_the_template_says_so() {
    for keeps in [false, true] {
        let mut granted = grant();
        granted.sessions.record_arguments = keeps;
        let webhook = webhook([granted]).await;
        exec(&["mysql", "--where=hidden"])
            .to(&webhook, ENFORCING)
            .await;
        let record = webhook.recorded().remove(0);
        assert_eq!(record.line().contains("hidden"), keeps, "{}", record.line());
        assert!(record.details["command"].starts_with("mysql"));
        assert!(record.details["commandDigest"].starts_with("sha256:"));
        assert_eq!(record.pod.unwrap().uid, "uid-of-web");
        assert_eq!(record.request.uid, UID);
    }
}

#[tokio::test]
async fn enforcing_namespace_refuses_unrecorded_connection() {
    let broken = || Records {
        broken: true,
        ..Records::default()
    };
    let webhook = webhook_with([grant()], broken()).await;
    assert_eq!(
        exec(&["sh"]).to(&webhook, ENFORCING).await.refusal(),
        Some("RecordFailed")
    );
    assert!(exec(&["sh"]).to(&webhook, OBSERVING).await.allowed);
}

#[tokio::test]
async fn connection_beyond_the_quota_is_refused_unless_it_is_break_glass() {
    let exceeded = Records {
        exceeded: true,
        ..Records::default()
    };
    let webhook = webhook_with([grant()], exceeded).await;
    let answer = exec(&["sh"]).to(&webhook, ENFORCING).await;
    assert_eq!(answer.refusal(), Some("TooManyConnections"));
    assert_eq!(answer.status.code, 429);
    let recorded = webhook.recorded();
    let refused: Vec<_> = recorded
        .iter()
        .map(|one| (one.action, &*one.reason))
        .collect();
    assert_eq!(refused, [(Action::SessionRefused, "TooManyConnections")]);
    assert!(
        exec(&["sh"])
            .by("root")
            .to(&webhook, BREAK_GLASS)
            .await
            .allowed
    );
    let mut metrics = String::new();
    encode(&mut metrics, &webhook.registry).unwrap();
    let count = "oz_audit_unrecorded_sessions_total 1\n";
    assert!(metrics.contains(count), "{metrics}");
}

#[tokio::test]
async fn unrecorded_session_is_counted_where_records_are_optional() {
    let broken = Records {
        broken: true,
        optional: true,
        ..Records::default()
    };
    let webhook = webhook_with([grant()], broken).await;
    assert!(exec(&["sh"]).to(&webhook, ENFORCING).await.allowed);
    let nobody = exec(&["sh"]).by("bob").to(&webhook, ENFORCING).await;
    assert_eq!(nobody.refusal(), Some("NoGrant"));
    let mut metrics = String::new();
    encode(&mut metrics, &webhook.registry).unwrap();
    let count = "oz_audit_unrecorded_sessions_total 1\n";
    assert!(metrics.contains(count), "{metrics}");
}

#[tokio::test]
async fn nonsense_is_refused_and_crashes_nothing() {
    let webhook = webhook([grant()]).await;
    for (subresource, options) in [
        ("exec", json!({ "kind": "PodExecOptions", "command": "sh" })),
        (
            "exec",
            json!({ "kind": "PodExecOptions", "command": [1, 2] }),
        ),
        ("status", json!({})),
        ("", json!({})),
    ] {
        let connection = Connection {
            subresource,
            options,
            ..exec(&[])
        };
        let answer = connection.to(&webhook, ENFORCING).await;
        assert!(!answer.allowed, "{subresource}");
    }
    assert!(exec(&["sh"]).to(&webhook, ENFORCING).await.allowed);
}

#[tokio::test]
async fn binding_to_role_of_grant_is_refused() {
    let webhook = webhook([]).await;
    for (role, allowed) in [
        ("oz-grant-007", false),
        ("oz-grant-mine-7c9e6679", false),
        ("mine-7c9e6679", true),
        ("my-oz-grant-007", true),
    ] {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "waits", "namespace": "shop" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role },
        });
        let request = testing::Request::create(&binding).user("mallory");
        let answer = request.send(&webhook.manager, "/guard-rolebinding").await;
        assert_eq!(answer.allowed(), allowed, "{role}: {answer:?}");
    }
}

#[test]
fn connect_hook_waits_less_than_its_timeout() {
    let waits =
        policies::ALL_POLICIES_TIMEOUT + policies::POLICY_TIMEOUT + oz_audit::RECORD_TIMEOUT;
    assert!(waits < TIMEOUT, "{waits:?}");
}
