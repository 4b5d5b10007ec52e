//! Harness runs in pods of a real node, as a chapter of the chart's story: with a foreign runtime image and with ours,
//! to
//! their end, with result, transcript and record; and one that does not end without cancellation.

use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use oz_api::harness::{ClusterHarnessTemplate, HarnessRun, HarnessTemplate, RunPhase, Workspace};
use oz_e2e::{NAMESPACE, Scene, apply_as, harness_image_archive, local_volume, run};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, Image, cargo_binary, eventually};
use oz_trail::Action;
use serde_json::{Value, json};

use crate::chart::records;
use crate::interception;

const DEVELOPER: &str = "dora";

/// An agent like those of the original: it prints lines in its own format, and a result.
const ECHO: &str = r#"#!/bin/sh
set -eu
say() { printf '%s\n' "$1" >> "$PADDOCK_RAW_PATH"; }
say "{\"kind\":\"message\",\"text\":\"$(head -n 1 "$PADDOCK_PROMPT_PATH")\"}"
say '{"kind":"tool","tool":"write","path":"hello.txt","summary":"wrote hello.txt"}'
cp "$PADDOCK_PROMPT_PATH" "$PADDOCK_WORKSPACE/hello.txt"
printf '%s' '{"summary":"said hello","filesChanged":1,"artifacts":["hello.txt"]}' > "$PADDOCK_RESULT_PATH"
"#;

/// A foreign runtime: each line of the agent becomes a message, in the transcript and on standard output.
const RUNTIME: &str = r#"#!/bin/sh
tail -n +1 -f "$PADDOCK_RAW_PATH" | while read -r line; do
  printf '{"schemaVersion":"1","ts":"2026-01-01T00:00:00Z","type":"Message","summary":"a line of the agent"}\n' |
    tee -a "$PADDOCK_TRANSCRIPT_DIR/events.jsonl"
done &
trap 'sleep 1; exit 0' TERM
wait
"#;

/// A command line that prints stream-json as Claude's does, and writes the files of the contract.
const CLAUDE: &str = r#"#!/bin/sh
set -eu
[ "$1" = -p ] && prompt=$2
id=$(id -u):$(id -g)
printf '%s\n' '{"type":"system","subtype":"init","session_id":"s1","model":"'"${PADDOCK_MODEL:-none}"'"}'
printf '%s\n' '{"type":"assistant","message":{"content":[{"type":"text","text":"as '"$id"': '"$prompt"'"}]}}'
printf '%s\n' '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"Write","input":{"file_path":"a.txt"}}]}}'
printf '%s\n' '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"done"}]}}'
printf '%s\n' '{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"all done"}'
"#;

/// Provides the programs of the pods, except oz's own, and the volumes that they write to.
async fn provide(cluster: &Cluster, scene: &Scene) -> Result<()> {
    for (name, program, text) in [
        ("paddock-echo", "paddock-echo", ECHO),
        ("paddock-runtime-echo", "init", RUNTIME),
        ("claude-code", "claude", CLAUDE),
    ] {
        let program = format!("usr/local/bin/{program}");
        let image = Image::busybox(&format!("docker.io/library/{name}:dev"))?
            .search("/usr/local/bin:/bin")
            .file(&program, 0o755, text.as_bytes())?;
        let image = match name {
            "paddock-runtime-echo" => image.command(&["/usr/local/bin/init"]),
            _ => image,
        };
        cluster.import_image(image)?;
    }
    for number in 0..5 {
        let name = format!("{}-{number}", scene.name());
        local_volume(cluster, &scene.admin, &name).await?;
    }
    Ok(())
}

/// Creates templates, a workspace, and the rights of a developer.
async fn set(cluster: &Cluster, scene: &Scene) -> Result<()> {
    let templates = Api::<ClusterHarnessTemplate>::all(scene.admin.clone());
    let echo = json!({
        "metadata": {"name": "echo-default"},
        "spec": {
            "harness": "echo",
            "image": "paddock-echo:dev",
            "command": ["/usr/local/bin/paddock-echo"],
            "runtime": {"image": "paddock-runtime-echo:dev"},
            "defaults": {"model": "none", "timeout": "30s"},
            "workspace": {"required": true, "mountPath": "/workspace"},
        },
    });
    apply_as(&templates, echo).await?;
    let team = json!({
        "metadata": {"name": "echo-team"},
        "spec": {"baseTemplateRef": {"name": "echo-default"}, "defaults": {"timeout": "3m"}},
    });
    let own = scene.api::<HarnessTemplate>();
    apply_as(&own, team).await?;
    let through =
        r#"claude -p "$(cat "$PADDOCK_PROMPT_PATH")" | tee -a "$PADDOCK_RAW_PATH"; exec $MORE"#;
    let claude = |name: &str, more: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "harness": "claude-code",
                "image": "claude-code:dev",
                "command": ["/bin/sh", "-c", format!("MORE='{more}'; {through}")],
                "defaults": {"model": "opus", "timeout": "3m", "terminationGracePeriodSeconds": 1},
                "workspace": {"required": true, "mountPath": "/workspace"},
            },
        })
    };
    apply_as(&own, claude("claude-code", "true")).await?;
    apply_as(&own, claude("claude-for-long", "sleep 7100")).await?;
    let demo = json!({"metadata": {"name": "demo"}, "spec": {"storage": {"size": "1Gi"}}});
    apply_as(&scene.api::<Workspace>(), demo).await?;

    cluster.issue_kubeconfig(DEVELOPER, &["devs"])?;
    let role = json!({"metadata": {"name": "developer"}, "rules": [
        {"apiGroups": ["paddock.dev"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["paddock.dev"], "resources": ["harnessruns"], "verbs": ["create", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ]});
    apply_as(&scene.api::<Role>(), role).await?;
    let binding = json!({
        "metadata": {"name": "developer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "developer"},
        "subjects": [{"kind": "User", "name": DEVELOPER, "apiGroup": "rbac.authorization.k8s.io"}],
    });
    apply_as(&scene.api::<RoleBinding>(), binding).await?;
    Ok(())
}

/// Runs ozctl as the developer.
async fn ozctl(scene: &Scene, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(cargo_binary("ozctl")?);
    command
        .args(["-n", scene.name()])
        .args(words)
        .env("KUBECONFIG", scene.cluster.kubeconfig(DEVELOPER))
        .stdin(Stdio::null());
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// Returns the standard output of ozctl, which must exit with this code.
pub(crate) async fn said(scene: &Scene, words: &[&str], code: i32) -> Result<String> {
    let output = ozctl(scene, words).await?;
    ensure!(
        output.status.code() == Some(code),
        "ozctl {words:?}: {output:?}\n{}",
        state(scene).await?
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the state of runs and pods, to find the cause of a failure.
async fn state(scene: &Scene) -> Result<String> {
    let runs = scene.api::<HarnessRun>();
    let runs = runs.list(&ListParams::default()).await?.items;
    let pods = scene.api::<Pod>();
    let pods = pods.list(&ListParams::default()).await?.items;
    let runs = runs.iter().map(|it| json!([it.name_any(), it.status]));
    let pods = pods.iter().map(|it| json!([it.name_any(), it.status]));
    Ok(Value::from_iter(runs.chain(pods)).to_string())
}

/// Has runs with a foreign runtime and with ours, and returns their scene. The node has or pulls oz's image for runs.
pub(crate) async fn first_runs(cluster: &'static Cluster) -> Result<Scene> {
    let scene = Scene::empty(cluster, "harness").await?;
    provide(cluster, &scene).await?;
    set(cluster, &scene).await?;
    hello(cluster, &scene).await?;
    claude(&scene).await?;
    Ok(scene)
}

/// Runs the chapter.
pub(crate) async fn runs(cluster: &'static Cluster) -> Result<()> {
    cluster.import_image_archive(&harness_image_archive()?)?;
    let scene = first_runs(cluster).await?;
    interception::lent(cluster, &scene).await?;
    cancelled(cluster, &scene).await?;
    unanswered(cluster, &scene).await?;
    nothing_is_left(&scene).await
}

/// Checks a run as published: a template that inherits, a runtime image, a workspace that stays.
async fn hello(cluster: &Cluster, scene: &Scene) -> Result<()> {
    let hello = [
        "run",
        "submit",
        "--name=hello",
        "-t",
        "echo-team",
        "--workspace=demo",
        "--prompt=Say hello from the echo harness.",
        "--wait",
        "-o",
        "json",
    ];
    let run: HarnessRun = serde_json::from_str(&said(scene, &hello, 0).await?)?;
    let status = run.status.context("no status")?;
    assert_eq!(status.phase, Some(RunPhase::Succeeded));
    let outputs = serde_json::to_value(&status.outputs)?;
    assert_eq!(
        outputs,
        json!({"summary": "said hello", "filesChanged": 1, "artifacts": ["hello.txt"]})
    );
    assert!(status.completion_time.is_some());
    let events = said(scene, &["run", "logs", "hello"], 0).await?;
    assert_eq!(events.lines().count(), 2, "{events}");
    let result = said(scene, &["run", "logs", "hello", "--result"], 0).await?;
    assert!(result.contains("said hello"), "{result}");
    let none = said(scene, &["run", "logs", "hello", "--file=none.txt"], 1).await?;
    assert_eq!(none, "");

    on_record(cluster, scene, "hello").await
}

/// Checks that a run was submitted, begun and ended, with one record each; an additional record names the user who
/// deletes a run.
async fn on_record(cluster: &Cluster, scene: &Scene, run: &str) -> Result<()> {
    let whole = [Action::RunSubmitted, Action::RunStarted, Action::RunEnded];
    eventually("the record to be complete", CONDITION_TIMEOUT, async || {
        let mut its = records(cluster)?;
        its.retain(|it| it.request.name == run && it.request.namespace == scene.name());
        its.sort_by_key(|it| it.time);
        its.retain(|it| it.action != Action::RequestDeleted);
        let actions: Vec<_> = its.iter().map(|it| it.action).collect();
        Ok((actions == whole).then_some(()))
    })
    .await
}

/// Checks a run without a runtime image, on a separate workspace, with a command line that prints stream-json.
async fn claude(scene: &Scene) -> Result<()> {
    let submit = [
        "run",
        "submit",
        "--name=claude",
        "-t",
        "claude-code",
        "--prompt=Fix the bug.",
        "--wait",
        "-o",
        "json",
    ];
    let run: HarnessRun = serde_json::from_str(&said(scene, &submit, 0).await?)?;
    let status = run.status.context("no status")?;
    let outputs = serde_json::to_value(&status.outputs)?;
    assert!(outputs["summary"].is_string(), "{outputs}");
    let kinds: Vec<_> = status
        .recent_events
        .iter()
        .map(|event| event.type_.as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "PromptSubmitted",
            "Message",
            "Message",
            "FileEdit",
            "Result"
        ],
        "{status:?}"
    );
    // Its prompt and its answer stay in the workspace.
    let reported = serde_json::to_string(&status)?;
    assert!(
        !reported.contains("Fix the bug") && !reported.contains("all done"),
        "{reported}"
    );
    let raw = said(scene, &["run", "logs", "claude", "--raw"], 0).await?;
    assert!(raw.contains("as 65532:65532: Fix the bug."), "{raw}");
    assert_eq!(raw.lines().count(), 5, "{raw}");
    Ok(())
}

/// Checks that a cancelled run, which would not end otherwise, is ended.
async fn cancelled(cluster: &Cluster, scene: &Scene) -> Result<()> {
    let submit = [
        "run",
        "submit",
        "--name=long",
        "-t",
        "claude-for-long",
        "--prompt=Take your time.",
    ];
    said(scene, &submit, 0).await?;
    let api = scene.api::<HarnessRun>();
    eventually("its events to be reported", CONDITION_TIMEOUT, async || {
        let status = api.get("long").await?.status.unwrap_or_default();
        Ok(
            (status.phase == Some(RunPhase::Running) && status.recent_events.len() == 5)
                .then_some(()),
        )
    })
    .await?;
    let live = said(scene, &["run", "logs", "long"], 0).await?;
    assert!(
        live.contains("stream") || live.contains("all done"),
        "{live}"
    );
    said(scene, &["run", "cancel", "long"], 0).await?;
    let is_gone = async || Ok(api.get_opt("long").await?.is_none().then_some(()));
    eventually("the run to be gone", CONDITION_TIMEOUT, is_gone).await?;
    on_record(cluster, scene, "long").await
}

/// Checks that a run that waits for its prompt while no broker runs ends when it is cancelled.
async fn unanswered(cluster: &Cluster, scene: &Scene) -> Result<()> {
    let brokers = |words: &[&str]| {
        let mut kubectl = cluster.kubectl("admin");
        kubectl.args(["-n", NAMESPACE]).args(words);
        run(kubectl)
    };
    brokers(&["scale", "deployment/oz-broker", "--replicas=0"])?;
    let gone = [
        "--for=delete",
        "--selector=app.kubernetes.io/component=broker",
    ];
    brokers(&[&["wait", "pods", "--timeout=120s"][..], &gone].concat())?;
    let submit = [
        "run",
        "submit",
        "--name=silent",
        "-t",
        "claude-code",
        "--prompt=Hello?",
    ];
    said(scene, &submit, 0).await?;
    let pods = scene.api::<Pod>();
    let of_run = ListParams::default().labels("job-name=silent");
    // The status names a container only once the kubelet need not wait for it any more.
    let events = scene.api::<Event>();
    let started = ListParams::default().fields("reason=Started");
    eventually("our container to start", CONDITION_TIMEOUT, async || {
        let pods = pods.list(&of_run).await?;
        let events = events.list(&started).await?;
        let of = |event: &Event, pod: &Pod| event.involved_object.uid == pod.uid();
        let mut those = events
            .iter()
            .flat_map(|event| pods.iter().map(move |pod| of(event, pod)));
        Ok(those.any(|is| is).then_some(()))
    })
    .await?;
    said(scene, &["run", "cancel", "silent"], 0).await?;
    eventually("its pod to be gone", CONDITION_TIMEOUT, async || {
        Ok(pods.list(&of_run).await?.items.is_empty().then_some(()))
    })
    .await?;
    on_record(cluster, scene, "silent").await?;
    brokers(&["scale", "deployment/oz-broker", "--replicas=2"])?;
    brokers(&[
        "rollout",
        "status",
        "deployment/oz-broker",
        "--timeout=120s",
    ])
    .map(drop)
}

/// Checks that only claims of the ended runs remain.
pub(crate) async fn nothing_is_left(scene: &Scene) -> Result<()> {
    eventually(
        "pods and policies to be gone",
        CONDITION_TIMEOUT,
        async || {
            let all = ListParams::default();
            let policies = scene.api::<NetworkPolicy>().list(&all).await?.items;
            let pods = scene.api::<Pod>().list(&all).await?.items;
            let live = pods.iter().filter(|pod| {
                let phase = pod
                    .status
                    .as_ref()
                    .and_then(|status| status.phase.as_deref());
                matches!(phase, Some("Pending" | "Running"))
            });
            Ok((policies.is_empty() && live.count() == 0).then_some(()))
        },
    )
    .await?;
    let claims = scene.api::<PersistentVolumeClaim>();
    let claims = claims.list(&ListParams::default()).await?.items;
    assert!(!claims.is_empty());
    Ok(())
}
