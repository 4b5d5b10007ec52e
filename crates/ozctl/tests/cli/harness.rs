//! Harness runs, where a table stands for the cluster: kinds that are not installed, transcripts, and the name
//! `kubectl paddock`.

use std::process::Command;

use serde_json::{Value, json};

use crate::stub::{Answer, ReceivedRequest, Stub, status};

const PODS: &str = "/api/v1/namespaces/shop/pods";
const RUN: &str = "/apis/paddock.dev/v1alpha1/namespaces/shop/harnessruns/hello";

/// Returns a cluster with a run that is over and had the image `oz-harness:1` in its pod. The pod
/// that reads ends in `phase` and writes `log`.
fn shop(phase: &'static str, log: &Value) -> Stub {
    let log = log.clone();
    Stub::start(move |asked: &ReceivedRequest| -> Answer {
        let (method, path) = asked.what.split_once(' ').unwrap();
        match (method, path) {
            ("GET", RUN) => (200, over()),
            ("POST", PODS) => {
                let mut pod = asked.body.clone();
                pod["metadata"]["name"] = json!("hello-reader-x7k2p");
                pod["status"] = json!({"phase": phase});
                (201, pod)
            }
            ("GET", path) if path.ends_with("/hello-reader-x7k2p/log") => (200, log.clone()),
            // A pod that was seen to run has failed by then.
            ("GET", PODS) => {
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": "hello-reader-x7k2p", "namespace": "shop", "resourceVersion": "2"},
                    "status": {"phase": "Failed"},
                });
                (200, json!({"type": "MODIFIED", "object": pod}))
            }
            ("DELETE", path) if path.ends_with("/hello-reader-x7k2p") => (
                200,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
            ),
            _ => status(404, &format!("{path} not found")),
        }
    })
}

fn over() -> Value {
    json!({
        "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessRun",
        "metadata": {"name": "hello", "namespace": "shop", "uid": "u"},
        "spec": {"templateRef": {"name": "echo"}, "prompt": "hi"},
        "status": {"phase": "Succeeded", "workspaceRef": "cage", "ozImage": "oz-harness:1"},
    })
}

fn made(stub: &Stub) -> Value {
    let asked = stub.asked();
    let mut asked = asked.into_iter();
    asked
        .find(|asked| asked.what == format!("POST {PODS}"))
        .unwrap()
        .body
}

fn is_deleted(stub: &Stub) -> bool {
    let deleted = format!("DELETE {PODS}/hello-reader-x7k2p");
    stub.asked().iter().any(|asked| asked.what == deleted)
}

#[test]
fn run_commands_without_installed_kinds_explain_installation() {
    for (words, code) in [
        (&["run", "submit", "-t", "echo", "--prompt", "hi"][..], 1),
        (
            &["run", "submit", "-t", "echo", "--prompt", "hi", "--wait"],
            125,
        ),
        (&["run", "list"], 1),
        (&["run", "status", "hello"], 1),
        (&["run", "events", "hello", "-f"], 1),
        (&["run", "egress", "hello", "-f"], 1),
        (&["run", "logs", "hello"], 1),
        (&["run", "explain", "hello"], 1),
        (&["run", "template", "echo"], 1),
        (&["run", "cancel", "hello"], 1),
        (&["workspace", "list"], 1),
        (&["workspace", "end", "demo"], 1),
        (&["policy", "list"], 1),
        (&["policy", "check", "echo"], 1),
        (&["policy", "scaffold", "echo"], 1),
    ] {
        let stub = Stub::start(|_| status(404, "the server could not find the requested resource"));
        let answer = stub.ozctl(words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains("harness.enabled=true"), "{words:?}: {said}");
        assert!(said.contains("paddock.dev/v1alpha1"), "{words:?}: {said}");
    }
}

#[test]
fn a_transcript_is_read_by_a_pod_of_our_own_image_that_is_deleted() {
    let stub = shop("Succeeded", &json!({"summary": "done"}));
    let answer = stub
        .ozctl(&["run", "logs", "hello", "--result"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(answer.status.code(), Some(0), "{said}");
    assert_eq!(
        String::from_utf8_lossy(&answer.stdout),
        "{\"summary\":\"done\"}\n"
    );
    let container = &made(&stub)["spec"]["containers"][0];
    assert_eq!(container["image"], "oz-harness:1");
    assert_eq!(
        container["command"],
        json!(["/oz-harness", "cat", "--", "/transcript/result.json"])
    );
    assert!(is_deleted(&stub), "{:?}", stub.asked());
}

#[test]
fn a_reader_goes_also_when_it_failed_and_stays_when_it_is_to() {
    let log = json!("cat: no such \u{1b}[2Jfile");
    for (phase, more, is_kept) in [
        ("Failed", &[][..], false),
        ("Running", &[][..], false),
        ("Failed", &["--keep-reader"], true),
    ] {
        let stub = shop(phase, &log);
        let words = [&["run", "logs", "hello", "--file", "none.txt"], more].concat();
        let answer = stub.ozctl(&words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(1), "{said}");
        assert_eq!(String::from_utf8_lossy(&answer.stdout), "");
        assert!(said.contains("no such"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said}");
        assert_eq!(is_deleted(&stub), !is_kept, "{more:?}");
    }
}

#[test]
fn an_image_of_others_and_a_file_outside_are_refused_before_there_is_a_pod() {
    for words in [
        &["--reader-image", "busybox:1"][..],
        &["--file", "../other/result.json"],
    ] {
        let stub = shop("Succeeded", &json!("x"));
        let words = [&["run", "logs", "hello"], words].concat();
        let answer = stub.ozctl(&words).output().unwrap();
        assert_eq!(answer.status.code(), Some(1), "{words:?}");
        assert!(
            !stub
                .asked()
                .iter()
                .any(|asked| asked.what.starts_with("POST"))
        );
    }
}

#[test]
fn destinations_of_run_are_listed_without_control_characters() {
    let stub = Stub::start(|asked: &ReceivedRequest| match asked.what.as_str() {
        "GET /apis/paddock.dev/v1alpha1/namespaces/shop/harnessruns/hello" => {
            let mut run = over();
            run["status"]["egress"] = json!([
                {
                    "host": "api.anthropic.com", "port": 443, "granted": 2, "credential": "ANTHROPIC_API_KEY",
                    "first": "2026-01-31T09:00:00Z", "last": "2026-01-31T09:01:00Z",
                },
                {"host": "a\u{1b}[2Jb", "port": 0, "refused": 1, "reason": "HostNotGranted"},
            ]);
            (200, run)
        }
        path => status(404, &format!("{path} not found")),
    });
    for words in [&["-f"][..], &["-o", "json"]] {
        let words = [&["run", "egress", "hello"], words].concat();
        let answer = stub.ozctl(&words).output().unwrap();
        assert_eq!(answer.status.code(), Some(0), "{words:?}");
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.contains("api.anthropic.com"), "{text}");
        assert!(text.contains("HostNotGranted"), "{text}");
    }
}

#[test]
fn run_list_shows_credentials_and_hosts_of_run() {
    let condition = |type_: &str, message: &str| {
        json!({
            "type": type_, "status": "True", "reason": "Granted", "message": message,
            "lastTransitionTime": "2026-01-31T09:00:00Z",
        })
    };
    let mut run = over();
    run["status"]["conditions"] = json!([
        condition("BrokerCredentialsReady", "API_KEY"),
        condition("EgressConfigured", "api.example.com:443"),
    ]);
    let stub = Stub::start(move |asked: &ReceivedRequest| {
        let runs = "GET /apis/paddock.dev/v1alpha1/namespaces/shop/harnessruns";
        match asked.what.starts_with(runs) {
            true => (
                200,
                json!({"apiVersion": "v1", "kind": "HarnessRunList", "metadata": {}, "items": [run]}),
            ),
            false => status(404, "not found"),
        }
    });
    for (words, shown) in [
        (&["run", "list"][..], &["CREDENTIALS", "API_KEY"][..]),
        (
            &["run", "list", "-o", "wide"],
            &["API_KEY", "HOSTS", "api.example.com:443"],
        ),
    ] {
        let answer = stub.ozctl(words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(0), "{said}");
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        for part in shown {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn scaffolded_role_is_for_account_of_brokers_deployment() {
    let policy = json!({
        "apiVersion": "paddock.dev/v1alpha1", "kind": "BrokerPolicy",
        "metadata": {"name": "claude", "namespace": "shop"},
        "spec": {"appliesToTemplates": ["claude"], "grants": {"credentials": [
            {"name": "KEY", "provider": {"kind": "AnthropicAPI", "secretRef": {"name": "anthropic", "key": "key"}}},
        ]}},
    });
    let deployment = json!({
        "metadata": {"name": "access-oz-broker", "labels": {"app.kubernetes.io/component": "broker"}},
        "spec": {"selector": {}, "template": {"spec": {"serviceAccountName": "access-oz-broker", "containers": []}}},
    });
    for (namespace, account) in [("access", "access-oz-broker"), ("oz-system", "oz-broker")] {
        let (policy, deployment) = (policy.clone(), deployment.clone());
        let stub = Stub::start(move |asked: &ReceivedRequest| {
            let list = |kind: &str, items: &[Value]| json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": items});
            let what = asked.what.as_str();
            if what.starts_with("GET /apis/paddock.dev/v1alpha1/namespaces/shop/brokerpolicies") {
                return (200, list("BrokerPolicyList", std::slice::from_ref(&policy)));
            }
            match what.starts_with("GET /apis/apps/v1/namespaces/access/deployments") {
                true => (
                    200,
                    list("DeploymentList", std::slice::from_ref(&deployment)),
                ),
                false => status(403, "forbidden"),
            }
        });
        let words = [
            "run",
            "policy",
            "scaffold",
            "--role",
            "--name",
            "claude",
            "--oz-namespace",
            namespace,
        ];
        let answer = stub.ozctl(&words).output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert_eq!(answer.status.code(), Some(0), "{said}");
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        assert!(text.contains("name: claude-secrets"), "{text}");
        assert!(text.contains(&format!("name: {account}\n")), "{text}");
        assert!(
            text.contains(&format!("namespace: {namespace}\n")),
            "{text}"
        );
        assert!(!text.contains("kind: BrokerPolicy"), "{text}");
    }
}

#[test]
fn under_the_name_of_paddocks_tool_its_command_lines_work() {
    let stub = shop("Succeeded", &json!("x"));
    let plugin = stub.directory.path().join("kubectl-paddock");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ozctl"), &plugin).unwrap();
    let kubeconfig = stub.kubeconfig(&json!({"token": "alices"}));
    let run = |words: &[&str]| {
        let answer = Command::new(&plugin)
            .args(words)
            .env_clear()
            .env("KUBECONFIG", &kubeconfig)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            answer.status.code(),
            text(&answer.stdout),
            text(&answer.stderr),
        )
    };
    let (code, stdout, stderr) = run(&["status", "hello", "-o", "name"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(stdout, "harnessrun.paddock.dev/hello\n");
    let (code, _, stderr) = run(&["policy", "suggest", "--all"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("`kubectl paddock policy check TEMPLATE`"),
        "{stderr}"
    );
    let (code, stdout, _) = run(&["submit", "--help"]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains("Usage: kubectl paddock submit"), "{stdout}");
    let (code, _, stderr) = run(&["exec", "deploy/web"]);
    assert_eq!(code, Some(1), "{stderr}");
}
