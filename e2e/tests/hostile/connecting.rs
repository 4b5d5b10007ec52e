//! Connections to pods of an enforcing namespace without a matching grant, by users with the RBAC permissions for
//! them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{AttachParams, DeleteParams, Patch, PatchParams};
use oz_api::{Operation, TargetKind, labels};
use oz_e2e::{
    GrantedRequest, Scene, TEMPLATE, WORKLOAD, exec_request, exec_template, records_in, refusal,
    refused,
};
use oz_testkit::{eventually, fixtures};
use oz_trail::{Action, DECIDED_AT};
use serde_json::json;

use crate::Stage;
use crate::record::counted;

const SOON: Duration = Duration::from_secs(60);
/// Longer than the minute for which the webhook counts equal audit records.
const MINUTES: Duration = Duration::from_secs(120);

/// Sets up an enforcing namespace in which alice has a grant and the RBAC permissions for every kind of connection.
pub(crate) async fn enforced(prefix: &str, duration: &str) -> Result<(Stage, GrantedRequest)> {
    let stage = Stage::set(prefix).await?;
    for resource in ["exec", "attach", "portforward", "ephemeralcontainers"] {
        let verbs = ["get", "create", "patch", "update"];
        stage
            .standing("alice", &format!("pods/{resource}"), &verbs)
            .await?;
    }
    stage.enforce().await?;
    taken_up(&stage).await?;
    // Last, so that a short grant has its whole time before it, however slow the machine is.
    let alice = stage.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("mine", TEMPLATE, duration))
        .await?;
    Ok((stage, asked))
}

/// Waits until the API server applies the namespace's new label.
async fn taken_up(scene: &Scene) -> Result<()> {
    scene
        .standing("bob", "pods/exec", &["get", "create"])
        .await?;
    let pod = scene.pod()?;
    eventually("the namespace to be enforcing", SOON, async || {
        Ok(refusal(&scene.exec("bob", &[&pod, "--", "true"]).output()?))
    })
    .await?;
    Ok(())
}

/// Waits until alice's kubectl command succeeds, or fails with the text in `wanted`.
pub(crate) async fn becomes(scene: &Scene, arguments: &[&str], wanted: Option<&str>) -> Result<()> {
    eventually(&format!("{arguments:?}: {wanted:?}"), SOON, async || {
        let said = refusal(&scene.kubectl("alice", arguments).output()?);
        match (&said, wanted) {
            (None, None) => Ok(Some(())),
            (Some(said), Some(wanted)) if said.contains(wanted) => Ok(Some(())),
            _ => anyhow::bail!("{said:?}"),
        }
    })
    .await
}

/// Opening sessions continuously around the expiry of a grant: the webhook admits none at or after the expiry, and
/// the audit trail records each session that opened.
#[tokio::test]
async fn a_race_against_the_end() -> Result<()> {
    let (stage, asked) = enforced("race", "10s").await?;
    let until = asked.status().expires_at.context("no end")?;
    let pods: Api<Pod> = Api::namespaced(stage.cluster.client("alice").await?, stage.name());
    let name = asked.pod();
    let mut racing = FuturesUnordered::new();
    let start = || async {
        let began = Timestamp::now();
        let how = AttachParams::default().stderr(false);
        let opened = pods.exec(&name, ["true"], &how).await.is_ok();
        (began, opened)
    };
    for _ in 0..8 {
        racing.push(start());
    }
    let (mut before, mut unopened, mut after) = (0_u64, 0, 0);
    while let Some((began, opened)) = racing.next().await {
        if opened {
            assert!(
                began < until,
                "admitted at {began}, which is not before {until}"
            );
            before += 1;
        } else if began < until {
            unopened += 1;
        } else {
            after += 1;
        }
        if after < 50 && began < until + SignedDuration::from_secs(30) {
            racing.push(start());
        }
    }
    assert!(before > 0 && after >= 50, "{before} before, {after} after");
    // The webhook counts the sessions from before the API server applied the label. It records their count when the
    // minute is over.
    let opened = eventually("every session to be on record", MINUTES, async || {
        let mut opened = records_in(&stage.oz()?.webhook.process)?;
        opened.retain(|record| {
            record.action == Action::SessionOpened && record.request.namespace == stage.name()
        });
        let count = counted(&opened);
        // The webhook may also record a session that the API server abandoned.
        anyhow::ensure!(
            (before..=before + unopened).contains(&count),
            "{count} of {before} sessions are on record"
        );
        Ok(Some(opened))
    })
    .await?;
    for record in opened {
        // An audit record that is written after a later one has the later time, and states the time of its decision
        // separately.
        let decided = record.details.get(DECIDED_AT).map(|at| at.parse());
        let decided = decided.transpose()?.unwrap_or(record.time);
        let several = record.repeated.as_ref();
        let last = several.map_or(decided, |several| several.last);
        assert!(last < until, "{record:?}");
    }
    Ok(())
}

/// Reusing a grant for a StatefulSet's pod after another pod with the same name replaces it: the webhook denies it,
/// because the new pod has another UID.
#[tokio::test]
async fn a_pod_that_bears_the_name_again() -> Result<()> {
    let (stage, _) = enforced("again", "10m").await?;
    fixtures::stateful_set(&stage.admin, stage.name(), "db", 1).await?;
    stage
        .template(&exec_template("db", TargetKind::StatefulSet, "db"))
        .await?;
    let alice = stage.requests("alice").await?;
    alice.granted(&exec_request("into-db", "db", "10m")).await?;
    becomes(&stage, &["exec", "db-0", "--", "true"], None).await?;
    let pods: Api<Pod> = stage.api();
    pods.delete("db-0", &DeleteParams::default().grace_period(0))
        .await?;
    fixtures::ready_pods(&stage.admin, stage.name(), "app=db", 1).await?;
    becomes(
        &stage,
        &["exec", "db-0", "--", "true"],
        Some("create a new request"),
    )
    .await
}

/// Adding an ephemeral container (`kubectl debug`), which requires no right to exec: the webhook denies it, because
/// no grant covers it without the gate.
#[tokio::test]
async fn an_ephemeral_container() -> Result<()> {
    let (stage, asked) = enforced("debug", "10m").await?;
    let pods: Api<Pod> = Api::namespaced(stage.cluster.client("alice").await?, stage.name());
    let container = json!({"spec": {"ephemeralContainers": [{
        "name": "around", "image": fixtures::IMAGE, "targetContainerName": fixtures::CONTAINER,
    }]}});
    let patch = Patch::Strategic(container);
    let answer = pods
        .patch_ephemeral_containers(&asked.pod(), &PatchParams::default(), &patch)
        .await;
    let why = refused(answer)?;
    assert!(
        why.contains("containers that are added to a running pod"),
        "{why}"
    );
    Ok(())
}

/// Attaching with a grant for exec: the webhook denies it, because a grant lists its operations.
#[tokio::test]
async fn attach_where_exec_was_granted() -> Result<()> {
    let (stage, asked) = enforced("attach", "10m").await?;
    becomes(
        &stage,
        &["attach", &asked.pod()],
        Some("grants exec, not attach"),
    )
    .await
}

/// Forwarding ports with a grant for exec: the webhook denies it.
#[tokio::test]
async fn port_forward_where_exec_was_granted() -> Result<()> {
    let (stage, asked) = enforced("forward", "10m").await?;
    let pods: Api<Pod> = Api::namespaced(stage.cluster.client("alice").await?, stage.name());
    assert!(pods.portforward(&asked.pod(), &[80]).await.is_err());
    let refused = records_in(&stage.oz()?.webhook.process)?
        .into_iter()
        .any(|record| {
            record.action == Action::SessionRefused
                && record.request.namespace == stage.name()
                && record.reason == "OperationNotGranted"
        });
    assert!(refused, "port-forward was refused by somebody else");
    Ok(())
}

/// Executing a command in another pod of the workload: the webhook denies it, and names the pod of the grant.
#[tokio::test]
async fn the_pod_next_to_it() -> Result<()> {
    let (stage, asked) = enforced("next", "10m").await?;
    let mut names = stage
        .pods
        .iter()
        .filter_map(|pod| pod.metadata.name.clone());
    let other = names
        .find(|name| *name != asked.pod())
        .context("no other")?;
    becomes(&stage, &["exec", &other, "--", "true"], Some("not to pod")).await
}

/// Executing a command in a container that the template does not list, by name or by default: the webhook denies it.
#[tokio::test]
async fn another_container() -> Result<()> {
    let (stage, _) = enforced("container", "10m").await?;
    let mut template = exec_template("one", TargetKind::Deployment, WORKLOAD);
    template.spec.access_config.containers = vec!["sidecar".to_owned()];
    stage.template(&template).await?;
    let alice = stage.requests("alice").await?;
    alice.api().delete("mine", &DeleteParams::default()).await?;
    let asked = alice
        .granted(&exec_request("sidecar", "one", "10m"))
        .await?;
    let pod = asked.pod();
    for container in [&["-c", fixtures::CONTAINER][..], &[]] {
        let arguments = [&["exec", &pod][..], container, &["--", "true"]].concat();
        becomes(
            &stage,
            &arguments,
            Some("grants access to containers sidecar"),
        )
        .await?;
    }
    Ok(())
}

/// Executing a command without a grant over the older protocol, SPDY, instead of WebSockets: the webhook denies it.
#[tokio::test]
async fn the_older_protocol() -> Result<()> {
    let (stage, _) = enforced("spdy", "10m").await?;
    let mut kubectl = stage.exec("bob", &[&stage.pod()?, "--", "true"]);
    kubectl.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
    let why = refusal(&kubectl.output()?);
    assert!(why.is_some_and(|why| why.contains("bob has no grant")));
    Ok(())
}

/// Passing newlines, NUL, quotes and other special characters as arguments: the command receives them unchanged or
/// the kubelet denies them, and the webhook denies U+FFFD, which replaces invalid bytes.
#[tokio::test]
async fn letters_that_mean_something_elsewhere() -> Result<()> {
    let (stage, asked) = enforced("letters", "10m").await?;
    let pod = asked.pod();
    let odd = "a\nb'\"$(id)`id`;\\ü\u{1F600}\u{202E}";
    let echo = stage
        .exec("alice", &[&pod, "--", "printf", "%s|", odd, "", "-n"])
        .output()?;
    assert_eq!(String::from_utf8(echo.stdout)?, format!("{odd}||-n|"));
    let replaced = ["exec", &pod, "--", "echo", "a\u{FFFD}"];
    becomes(&stage, &replaced, Some("bytes that are not UTF-8")).await?;
    let pods: Api<Pod> = Api::namespaced(stage.cluster.client("alice").await?, stage.name());
    let how = AttachParams::default().stderr(false);
    if let Ok(session) = pods.exec(&pod, ["echo", "a\0b"], &how).await {
        let _ = session.join().await;
    }
    becomes(&stage, &["exec", &pod, "--", "true"], None).await
}

/// Commands of the maximum size that the API server accepts, and larger ones: the command runs, or the API server
/// denies it, and further commands run.
#[tokio::test]
async fn a_command_without_measure() -> Result<()> {
    let (stage, asked) = enforced("huge", "10m").await?;
    let pod = asked.pod();
    let (large, many) = ("x".repeat(100_000), vec![""; 5_000]);
    let too_large = vec![large.as_str(); 12];
    for (arguments, works) in [
        (&[large.as_str()][..], true),
        (&many, true),
        (&too_large, false),
    ] {
        let command = [&[pod.as_str(), "--", "true"], arguments].concat();
        let answer = refusal(&stage.exec("alice", &command).output()?);
        assert_eq!(
            answer.is_none(),
            works,
            "{} arguments: {answer:?}",
            arguments.len()
        );
    }
    becomes(&stage, &["exec", &pod, "--", "true"], None).await
}

/// Removing the enforcing label of a namespace or changing its value, with the right to change namespaces: the
/// webhook denies it for every kind of write.
#[tokio::test]
async fn the_label_that_enforces() -> Result<()> {
    let (stage, _) = enforced("label", "10m").await?;
    changes_namespaces(&stage, &["namespaces"])?;
    let name = stage.name();
    let label = labels::ENFORCE;
    let json_patch =
        json!([{"op": "remove", "path": "/metadata/labels/oz.wizardofoz.co~1enforce"}]);
    for arguments in [
        &["label", "namespace", name, &format!("{label}-")][..],
        &[
            "label",
            "namespace",
            name,
            "--overwrite",
            &format!("{label}=false"),
        ],
        &[
            "label",
            "namespace",
            name,
            "--overwrite",
            &format!("{label}=True"),
        ],
        &[
            "patch",
            "namespace",
            name,
            "--type=json",
            "-p",
            &json_patch.to_string(),
        ],
        &[
            "patch",
            "namespace",
            name,
            "--type=merge",
            "-p",
            r#"{"metadata":{"labels":null}}"#,
        ],
    ] {
        becomes(&stage, arguments, Some("may not remove the label")).await?;
    }
    Ok(())
}

/// Removing the enforcing label through the status or the finalizers of the namespace, which contain labels as well,
/// with the right to change these alone: the webhook denies it.
#[tokio::test]
async fn the_label_that_enforces_by_the_back_door() -> Result<()> {
    let (stage, _) = enforced("back-door", "10m").await?;
    changes_namespaces(&stage, &["namespaces/status", "namespaces/finalize"])?;
    let name = stage.name();
    let namespaces: Api<Namespace> = Api::all(stage.admin.clone());
    let mut bare = namespaces.get(name).await?;
    bare.metadata.managed_fields = None;
    bare.metadata.resource_version = None;
    let labels = bare.metadata.labels.get_or_insert_default();
    assert!(labels.remove(labels::ENFORCE).is_some());
    let path = stage.cluster.state_dir().join(format!("{name}-bare"));
    std::fs::write(&path, serde_json::to_string(&bare)?)?;
    let path = path.to_string_lossy().into_owned();
    let raw = |subresource: &str| format!("/api/v1/namespaces/{name}/{subresource}");
    let (status, finalize) = (raw("status"), raw("finalize"));
    let patch = r#"{"metadata":{"labels":null}}"#;
    for arguments in [
        &[
            "patch",
            "namespace",
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            patch,
        ][..],
        &["replace", "--raw", &status, "-f", &path],
        &["replace", "--raw", &finalize, "-f", &path],
    ] {
        becomes(&stage, arguments, Some("may not remove the label")).await?;
    }
    let stays = namespaces.get(name).await?.metadata.labels;
    assert!(stays.is_some_and(|labels| labels.contains_key(labels::ENFORCE)));
    Ok(())
}

/// Permits alice to change these resources of the namespace.
fn changes_namespaces(stage: &Stage, resources: &[&str]) -> Result<()> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": stage.name()},
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": ["get", "patch", "update"]}],
    });
    let path = stage.cluster.state_dir().join(stage.name());
    std::fs::write(&path, role.to_string())?;
    let path = path.to_string_lossy().into_owned();
    let name = stage.name();
    for arguments in [
        &["create", "-f", &path][..],
        &[
            "create",
            "clusterrolebinding",
            name,
            "--user=alice",
            &format!("--clusterrole={name}"),
        ],
    ] {
        assert_eq!(refusal(&stage.kubectl("admin", arguments).output()?), None);
    }
    Ok(())
}

/// Writing a template for more operations than its author may perform: the webhook denies it, because no author may
/// grant rights that the author lacks.
#[tokio::test]
async fn a_template_for_oneself() -> Result<()> {
    let stage = Stage::set("myself").await?;
    let rule = json!({
        "apiGroups": ["crds.wizardofoz.co"], "resources": ["execaccesstemplates"], "verbs": ["create", "get"],
    });
    stage.allow("templates", "alice", &[rule]).await?;
    let client = stage.cluster.client("alice").await?;
    let templates: Api<oz_api::ExecAccessTemplate> = Api::namespaced(client, stage.name());
    let mut template = exec_template("myself", TargetKind::Deployment, WORKLOAD);
    template.spec.access_config.operations = vec![Operation::Exec, Operation::Attach];
    let why = refused(templates.create(&Default::default(), &template).await)?;
    assert!(
        why.contains("pods/exec") && why.contains("pods/attach"),
        "{why}"
    );
    Ok(())
}
