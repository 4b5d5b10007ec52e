//! Getting into pods of an enforcing namespace in ways that were not granted, by people whose RBAC
//! would let them.

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
    Asked, Scene, TEMPLATE, WORKLOAD, exec_request, exec_template, records_in, refusal, refused,
};
use oz_testkit::{eventually, fixtures};
use oz_trail::{Action, DECIDED_AT};
use serde_json::json;

use crate::Stage;
use crate::record::counted;

const SOON: Duration = Duration::from_secs(60);
/// More than the minute for which equal records are counted.
const MINUTES: Duration = Duration::from_secs(120);

/// An enforcing namespace in which alice has a grant, and by RBAC could do everything.
pub(crate) async fn enforced(prefix: &str, duration: &str) -> Result<(Stage, Asked)> {
    let stage = Stage::set(prefix).await?;
    let alice = stage.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("mine", TEMPLATE, duration))
        .await?;
    for resource in ["exec", "attach", "portforward", "ephemeralcontainers"] {
        let verbs = ["get", "create", "patch", "update"];
        stage
            .standing("alice", &format!("pods/{resource}"), &verbs)
            .await?;
    }
    stage.enforce().await?;
    taken_up(&stage).await?;
    Ok((stage, asked))
}

/// Waits until the API server goes by the namespace's new label.
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

/// Waits until a kubectl command is let through or refused as `wanted` says, and gives what it said.
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

/// Opening sessions without pause around the end of the grant: none is admitted at or after it, and each
/// that was opened is on record, counted exactly.
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
    // Those of before the API server knew that the namespace enforces are counted, and their count comes when the
    // minute is over.
    let opened = eventually("every session to be on record", MINUTES, async || {
        let mut opened = records_in(&stage.oz()?.webhook.process)?;
        opened.retain(|record| {
            record.action == Action::SessionOpened && record.request.namespace == stage.name()
        });
        let count = counted(&opened);
        // One that the API server gave up on may be on record as well.
        anyhow::ensure!(
            (before..=before + unopened).contains(&count),
            "{count} of {before} sessions are on record"
        );
        Ok(Some(opened))
    })
    .await?;
    for record in opened {
        // A record that is written after a later one has its time, and says when it was decided.
        let decided = record.details.get(DECIDED_AT).map(|at| at.parse());
        let decided = decided.transpose()?.unwrap_or(record.time);
        let several = record.repeated.as_ref();
        let last = several.map_or(decided, |several| several.last);
        assert!(last < until, "{record:?}");
    }
    Ok(())
}

/// Going on with the pod that has the name now, a StatefulSet's pod having been replaced: another
/// UID, another pod.
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
    becomes(&stage, &["exec", "db-0", "--", "true"], Some("ask again")).await
}

/// Adding an ephemeral container (`kubectl debug`), which needs no exec: refused, no grant covers it.
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

/// Attaching where exec was granted: refused, the grant says which operations.
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

/// Forwarding ports where exec was granted: refused.
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

/// The other pod of the workload: refused, with the pod that was granted.
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

/// Another container than the template lists: refused, whether named or left to a default.
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

/// Coming over the older protocol (SPDY) in place of WebSockets: it is asked about as well.
#[tokio::test]
async fn the_older_protocol() -> Result<()> {
    let (stage, _) = enforced("spdy", "10m").await?;
    let mut kubectl = stage.exec("bob", &[&stage.pod()?, "--", "true"]);
    kubectl.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
    let why = refusal(&kubectl.output()?);
    assert!(why.is_some_and(|why| why.contains("bob has no grant")));
    Ok(())
}

/// Newlines, NUL, quotes and other letters in arguments: they arrive as they are or the kubelet
/// refuses them; U+FFFD, which stands for bytes that were replaced, is refused.
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

/// Commands of the size that the API server takes, and larger: they work, or the API server refuses
/// them; everybody else goes on.
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

/// Taking the enforcing label off, or giving it another value, with the right to change namespaces:
/// refused, by every kind of write.
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
        becomes(&stage, arguments, Some("may not take the label")).await?;
    }
    Ok(())
}

/// Taking the enforcing label off by the namespace's status or its finalizers, which carry labels as
/// well, with the right to change those alone: refused.
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
        becomes(&stage, arguments, Some("may not take the label")).await?;
    }
    let stays = namespaces.get(name).await?.metadata.labels;
    assert!(stays.is_some_and(|labels| labels.contains_key(labels::ENFORCE)));
    Ok(())
}

/// Gives alice the right to change these of the namespace.
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

/// Granting more operations by a template that alice writes herself: refused, nobody hands out what
/// they could not do.
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
