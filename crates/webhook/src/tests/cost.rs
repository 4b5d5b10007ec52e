//! The cost of a connection with many grants and pods. This is no test: `cargo xtask bench connect`
//! runs it, built for release, and prints the results.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::connect::{ENFORCING, OBSERVING, able, exec, grant};
use super::server::Server;
use super::{Records, Webhook};

const GRANTS: usize = 10_000;
const PODS: usize = 50_000;
const CALLS: usize = 20_000;

fn uid(number: usize) -> String {
    format!("7c9e6679-7425-40de-944b-{number:012}")
}

fn pod(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("web-{number}"), "namespace": "shop", "uid": format!("pod-{number}") },
    })
}

fn request(number: usize) -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "ExecAccessRequest",
        "metadata": {
            "name": format!("mine-{number}"), "namespace": "shop", "uid": uid(number),
            "creationTimestamp": "2026-01-01T12:00:00Z",
        },
        "spec": { "templateName": "shell", "duration": "1h" },
        "status": {
            "ready": true, "phase": "Active", "requester": format!("user-{number}"),
            "podName": format!("web-{number}"), "podUID": format!("pod-{number}"),
            "expiresAt": "2026-01-01T13:00:00Z", "conditions": [],
        },
    })
}

/// Returns the memory of this process, in units of 1024 × 1024 bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kibibytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes / 1024.0
}

#[tokio::test]
#[ignore = "not a test: cargo xtask bench connect runs it for its figures"]
async fn connection_cost_with_many_pods_and_grants() {
    let objects = (0..PODS).map(pod).chain((0..GRANTS).map(request));
    let server = Server::with(objects);
    let before = resident();
    let webhook = Webhook::recording(server, Records::default());
    for number in 0..GRANTS {
        let mut grant = grant();
        grant.request.uid = uid(number);
        grant.request.name = format!("mine-{number}");
        grant.requester.user = format!("user-{number}");
        grant.subjects[0].name = format!("user-{number}");
        grant.pod.name = format!("web-{number}");
        grant.pod.uid = format!("pod-{number}");
        grant.sessions.timeouts.insert("app".into(), able());
        webhook.grant(grant);
    }
    webhook.grants.wait_until_ready().await;
    let held = resident() - before;

    let mut out = format!("{GRANTS} grants and {PODS} pods known: {held:.0} MiB held\n");
    let at = |number: usize, path: &'static str, user: usize| {
        let connection = exec(&["sh", "-c", "uptime"]);
        (
            connection.with_pod_and_user(&format!("web-{number}"), &format!("user-{user}")),
            path,
        )
    };
    type Case = (
        &'static str,
        bool,
        fn(usize) -> (usize, usize),
        &'static str,
    );
    let cases: [Case; 4] = [
        (
            "let in by a grant, and its command wrapped",
            true,
            |n| (n, n),
            ENFORCING,
        ),
        ("refused: another pod", false, |n| (n + 1, n), ENFORCING),
        (
            "refused: no grant at all",
            false,
            |n| (n, n + GRANTS),
            ENFORCING,
        ),
        ("observed", true, |n| (n, n + GRANTS), OBSERVING),
    ];
    for (what, allowed, who, path) in cases {
        let mut took = Vec::with_capacity(CALLS);
        for call in 0..CALLS {
            let (number, user) = who(call % GRANTS);
            let (connection, path) = at(number, path, user);
            let body = connection.body();
            let began = Instant::now();
            let reply = webhook.manager.review(path, &body).await;
            took.push(began.elapsed());
            if call < 10 {
                let review: Value = serde_json::from_slice(&reply.body).unwrap();
                assert_eq!(review["response"]["allowed"], allowed, "{what}");
            }
        }
        took.sort();
        let part =
            |percent: usize| -> Duration { took[(took.len() * percent / 100).min(took.len() - 1)] };
        writeln!(
            out,
            "{what:<44} p50 {:>8.1?}  p99 {:>8.1?}",
            part(50),
            part(99)
        )
        .unwrap();
    }
    std::io::stdout().write_all(out.as_bytes()).unwrap();
}
