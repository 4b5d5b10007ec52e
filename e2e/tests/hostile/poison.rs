//! Objects that oz cannot read, because they are nested, large or of the wrong shape, of the kinds that oz watches.
//! Such an object affects no other object.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use oz_api::{Phase, TargetKind, labels};
use oz_e2e::{
    GrantedRequest, Scene, System, TEMPLATE, exec_request, exec_template, pod_template, refusal,
    unregister_hooks,
};
use oz_testkit::{Process, eventually, fixtures};
use serde_json::{Value, json};

use crate::{Stage, smaller, stopped};

const SOON: Duration = Duration::from_secs(60);
/// A number of levels that every decoder rejects.
const LEVELS: usize = 200;
/// The version of oz's own kinds.
const CRDS: &str = "crds.wizardofoz.co/v1alpha1";

/// Returns nested managed fields for an object of this version.
fn nested(levels: usize, api_version: &str) -> Value {
    let fields = (0..levels).fold(json!({}), |inner, _| json!({ "f:a": inner }));
    json!([{
        "manager": "mallory", "operation": "Update", "apiVersion": api_version, "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z", "fieldsV1": { "f:metadata": { "f:annotations": fields } },
    }])
}

/// Creates an object with kubectl, because its decoder accepts more levels.
fn create(scene: &Scene, object: &Value) -> Result<Output> {
    use std::io::Write as _;
    let mut kubectl = scene.kubectl("admin", &["create", "--validate=false", "-f", "-"]);
    kubectl
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = kubectl.spawn()?;
    let mut stdin = child.stdin.take().context("no input")?;
    stdin.write_all(object.to_string().as_bytes())?;
    drop(stdin);
    Ok(child.wait_with_output()?)
}

/// Creates an object, and fails if the API server denies it.
fn created(scene: &Scene, object: &Value) -> Result<()> {
    let output = create(scene, object)?;
    let why = refusal(&output);
    ensure!(why.is_none(), "{}", why.unwrap_or_default());
    Ok(())
}

fn poison(scene: &Scene, api_version: &str, kind: &str, name: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": name, "namespace": scene.name(), "managedFields": nested(LEVELS, api_version),
            "labels": {
                labels::MANAGED_BY: labels::OZ,
                labels::OWNER_UID: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
            },
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn pod(scene: &Scene, name: &str, secret: &str) -> Value {
    let container = json!({
        "name": "app", "image": fixtures::IMAGE,
        "env": [{ "name": "PASSWORD", "value": secret }],
    });
    poison(
        scene,
        "v1",
        "Pod",
        name,
        &json!({ "spec": { "containers": [container] } }),
    )
}

/// Checks that the API server has stored the nested managed fields of an object.
fn is_poison(scene: &Scene, what: &str) -> Result<()> {
    let output = scene
        .kubectl(
            "admin",
            &["get", what, "-o", "json", "--show-managed-fields"],
        )
        .output()?;
    let deep = "{\"f:a\":".repeat(3);
    let text: String = String::from_utf8(output.stdout)?
        .split_whitespace()
        .collect();
    ensure!(
        text.contains(&deep),
        "{what} lost its managed fields: no attempt at all"
    );
    Ok(())
}

/// Requests access, and checks that it is granted and ends on time.
async fn goes_on(scene: &Scene, name: &str) -> Result<()> {
    let alice = scene.requests("alice").await?;
    let asked = alice.granted(&exec_request(name, TEMPLATE, "10s")).await?;
    alice.phase(name, Phase::Expired).await?;
    gone(scene, &asked).await
}

/// Checks that all watches of both processes work.
async fn hears(system: &System) -> Result<()> {
    eventually("every watch to go on", SOON, async || {
        let operator = system.operator.readiness().await?;
        let webhook = system.webhook.readiness().await?;
        for (code, text) in [operator, webhook] {
            ensure!(code == 200 && !text.contains(" fails: "), "{text}");
        }
        Ok(Some(()))
    })
    .await
}

async fn gone(scene: &Scene, asked: &GrantedRequest) -> Result<()> {
    scene.gone::<RoleBinding>(&asked.object_name(), SOON).await
}

/// A Pod with 200 nested levels in managedFields, and a restart of both processes: both start, and requests are granted
/// and expire on time.
#[tokio::test]
async fn a_pod_that_nests_and_a_restart() -> Result<()> {
    let (mut place, scene) = stopped("restart").await?;
    created(&scene, &pod(&scene, "poison", "x"))?;
    is_poison(&scene, "pod/poison")?;
    let system = smaller::start(scene.cluster).await?;
    goes_on(&scene, "mine").await?;
    hears(&system).await?;
    *place = Some(system);
    Ok(())
}

/// Nested objects of each watched kind, among them a hundred Pods, and a restart: requests are granted and expire on
/// time, and no log contains data of these objects.
#[tokio::test]
async fn poison_of_every_kind_and_a_restart() -> Result<()> {
    let (mut place, scene) = stopped("every").await?;
    let secret = "correct-horse-battery-staple";
    for number in 0..100 {
        created(&scene, &pod(&scene, &format!("poison-{number}"), secret))?;
    }
    every_kind(&scene)?;
    let system = smaller::start(scene.cluster).await?;
    goes_on(&scene, "mine").await?;
    hears(&system).await?;
    for process in [&system.operator.process, &system.webhook.process] {
        for file in [process.stdout(), process.stderr()] {
            let log = std::fs::read_to_string(file)?;
            assert!(
                !log.contains(secret) && !log.contains("f:a"),
                "{}",
                file.display()
            );
        }
    }
    *place = Some(system);
    Ok(())
}

/// Creates one object of each kind that oz watches by its labels, or creates.
fn every_kind(scene: &Scene) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "poison" });
    let more = [
        ("role", rbac, "Role", json!({ "rules": [] })),
        (
            "rolebinding",
            rbac,
            "RoleBinding",
            json!({ "roleRef": role }),
        ),
        (
            "networkpolicy",
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({ "spec": { "podSelector": {} } }),
        ),
    ];
    for (what, api_version, kind, fields) in more {
        created(scene, &poison(scene, api_version, kind, "poison", &fields))?;
        is_poison(scene, &format!("{what}/poison"))?;
    }
    Ok(())
}

/// Creating a Role, a RoleBinding and a NetworkPolicy with oz's labels and 200 nested levels while oz runs: the watches
/// continue, and requests are granted and expire on time.
#[tokio::test]
async fn roles_with_our_labels_that_nest() -> Result<()> {
    let stage = Stage::set("roles").await?;
    every_kind(&stage)?;
    goes_on(&stage, "mine").await?;
    hears(stage.oz()?).await
}

/// Annotating a Pod with 200 nested levels repeatedly while `db-0` of a StatefulSet is replaced in an enforcing
/// namespace: the webhook denies connections to the successor by the grant for the deleted pod, and the operator
/// revokes the grant.
#[tokio::test]
async fn annotating_poison_while_the_pod_is_replaced() -> Result<()> {
    let stage = Stage::set("replaced").await?;
    let pods = fixtures::stateful_set(&stage.admin, stage.name(), "db", 1).await?;
    let before = pods.first().context("no pod")?.clone();
    let template = exec_template("db", TargetKind::StatefulSet, "db");
    stage.template(&template).await?;
    let alice = stage.requests("alice").await?;
    let asked = alice.granted(&exec_request("mine", "db", "10m")).await?;
    // Alice has a standing right, so only the hook can deny the connection.
    stage
        .standing("alice", "pods/exec", &["get", "create"])
        .await?;
    stage.enforce().await?;
    created(&stage, &pod(&stage, "poison", "x"))?;
    is_poison(&stage, "pod/poison")?;
    for number in 0..20 {
        annotate(&stage, number)?;
    }
    let pods: Api<Pod> = stage.api();
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete(&asked.pod(), &at_once).await?;
    let uid = before.uid();
    eventually("the successor", SOON, async || {
        let now = pods.get_opt(&asked.pod()).await?;
        Ok(now.filter(|now| now.uid() != uid && fixtures::is_ready(now)))
    })
    .await?;
    for number in 0..10 {
        annotate(&stage, number)?;
        let pod = asked.pod();
        let output = stage.exec("alice", &[&pod, "--", "true"]).output()?;
        let why = refusal(&output).context("alice is in the successor")?;
        assert!(why.contains("oz: "), "somebody else refused: {why}");
    }
    alice.phase("mine", Phase::Revoked).await?;
    hears(stage.oz()?).await
}

fn annotate(scene: &Scene, number: usize) -> Result<()> {
    let value = format!("example.com/number={number}");
    scene
        .kubectl("admin", &["annotate", "--overwrite", "pod/poison", &value])
        .output()?;
    Ok(())
}

/// Nesting the managedFields of a granted request: the request expires on time, and other requests are granted.
#[tokio::test]
async fn a_request_that_nests() -> Result<()> {
    let stage = Stage::set("request").await?;
    let alice = stage.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("mine", TEMPLATE, "20s"))
        .await?;
    for levels in [100, 121, LEVELS] {
        let patch = json!({ "metadata": { "managedFields": nested(levels, CRDS) } }).to_string();
        let mut kubectl = stage.kubectl("admin", &["patch", "ear/mine", "--type=merge", "-p"]);
        kubectl.arg(patch);
        // The hooks may deny objects that they cannot read.
        kubectl.output()?;
    }
    // kubectl decodes the request; the decoder of this test rejects it.
    let phase = ["get", "ear/mine", "-o", "jsonpath={.status.phase}"];
    eventually("the request to be over", SOON, async || {
        let output = stage.kubectl("admin", &phase).output()?;
        Ok((output.stdout == b"Expired").then_some(()))
    })
    .await?;
    gone(&stage, &asked).await?;
    goes_on(&stage, "another").await?;
    hears(stage.oz()?).await
}

/// A template with 121 nested levels in `patchSpecOperations[].value`, stored while no hook was registered: the
/// readiness response of the operator names the kind, and other templates work; once the hooks are registered, such a
/// template is denied.
#[tokio::test]
async fn a_template_that_nests() -> Result<()> {
    let (mut place, scene) = stopped("template").await?;
    unregister_hooks(scene.cluster)?;
    let value = (0..121).fold(json!(1), |inner, _| json!([inner]));
    let operation = json!({ "op": "add", "path": "/metadata/annotations/a", "value": value });
    let more = json!({
        "controllerTargetMutationConfig": { "patchSpecOperations": [operation] },
    });
    let mut template = serde_json::to_value(pod_template("deep", "web", &more)?)?;
    template["metadata"]["namespace"] = scene.name().into();
    created(&scene, &template)?;
    let system = smaller::start(scene.cluster).await?;
    eventually("the operator to say so", SOON, async || {
        let (code, text) = system.operator.readiness().await?;
        ensure!(code == 200, "{text}");
        Ok(text
            .contains("of kind PodAccessTemplate cannot be read")
            .then_some(()))
    })
    .await?;
    goes_on(&scene, "mine").await?;
    template["metadata"]["name"] = "deeper".into();
    assert!(refusal(&create(&scene, &template)?).is_some());
    *place = Some(system);
    Ok(())
}

/// Two hundred Pods with annotations of 250 KB each on one page of a list, and a restart: the peak memory of both
/// processes grows by less than half the size of the annotations, and requests are granted and expire on time.
#[tokio::test]
async fn fat_pods_and_a_restart() -> Result<()> {
    const PODS: usize = 200;
    const FAT: usize = 250_000;
    let (mut place, scene) = stopped("fat").await?;
    let before = {
        let system = smaller::start(scene.cluster).await?;
        goes_on(&scene, "before").await?;
        peak(&system)?
    };
    let pods: Api<Pod> = scene.api();
    let fat = |number: usize| {
        // These letters are not escaped, because oz does not hold an object of more than 4 MiB in a list.
        let annotations = json!({ "example.com/fat": "x".repeat(FAT) });
        let container = json!({ "name": "app", "image": fixtures::IMAGE });
        serde_json::from_value::<Pod>(json!({
            "metadata": { "name": format!("fat-{number}"), "annotations": annotations },
            "spec": { "containers": [container] },
        }))
    };
    let parameters = PostParams::default();
    for batch in 0..PODS / 10 {
        try_join_all((batch * 10..batch * 10 + 10).map(async |number| {
            let pod = fat(number)?;
            anyhow::Ok(pods.create(&parameters, &pod).await?)
        }))
        .await?;
    }
    let system = smaller::start(scene.cluster).await?;
    goes_on(&scene, "mine").await?;
    for (after, before) in peak(&system)?.into_iter().zip(before) {
        let more = after.saturating_sub(before);
        assert!(
            more < PODS * FAT / 2,
            "{before} bytes without, {after} with them"
        );
    }
    *place = Some(system);
    Ok(())
}

/// Returns the peak memory of the operator and the webhook, in bytes.
fn peak(system: &System) -> Result<[usize; 2]> {
    let peak = |process: &Process| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
        anyhow::Ok(kibibytes.context("no VmHWM")?.parse::<usize>()? * 1024)
    };
    Ok([
        peak(&system.operator.process)?,
        peak(&system.webhook.process)?,
    ])
}

/// A transient binding and an AuditEvent with 200 nested levels: the binding is stored and watched, the change of the
/// AuditEvent is denied, and requests are granted and expire on time.
#[tokio::test]
async fn a_transient_binding_and_a_record_that_nest() -> Result<()> {
    let stage = Stage::set("transient").await?;
    goes_on(&stage, "before").await?;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({ "spec": {
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "team-poison" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": "mallory" }],
        "duration": "1h",
    } });
    let object = poison(&stage, CRDS, "TransientRoleBinding", "poison", &binding);
    created(&stage, &object)?;
    is_poison(&stage, "transientrolebindings.crds.wizardofoz.co/poison")?;
    let list = ["get", "auditevents", "-o", "name"];
    let events = stage.kubectl("admin", &list).output()?.stdout;
    let event = String::from_utf8(events)?;
    let event = event.lines().next().context("no record")?.to_owned();
    let patch = json!({ "metadata": { "managedFields": nested(LEVELS, CRDS) } }).to_string();
    let output = stage
        .kubectl("admin", &["patch", &event, "--type=merge", "-p", &patch])
        .output()?;
    ensure!(refusal(&output).is_some(), "a record was changed");
    goes_on(&stage, "after").await?;
    hears(stage.oz()?).await?;
    let metrics = stage.oz()?.operator.metrics().await?;
    let age = "oz_watch_age_seconds{kind=\"TransientRoleBinding\"}";
    assert!(metrics.contains(age), "{metrics}");
    Ok(())
}
