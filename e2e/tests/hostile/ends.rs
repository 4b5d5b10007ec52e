//! Templates and nodes that are slow, fail or hang, and the access of other users, which must end on time regardless.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_api::{ExecAccessTemplate, OnTemplateChange, Phase, PodAccessTemplate, TargetKind};
use oz_e2e::{
    NAMESPACE, Options, Scene, System, TEMPLATE, WORKLOAD, conditions_line, exec_request,
    exec_template, pod_request,
};
use oz_testkit::{eventually, fixtures};
use serde_json::{Value, json};
use tokio::sync::RwLockWriteGuard;

use crate::{SYSTEM, Stage};

const SOON: Duration = Duration::from_secs(120);

/// A node with a kubelet that accepts every connection and never responds.
struct DeafNode {
    name: String,
    nodes: Api<Node>,
    connections: Arc<AtomicUsize>,
}

impl DeafNode {
    async fn join(scene: &Scene) -> Result<Self> {
        let name = format!("deaf-{}", scene.name());
        let nodes: Api<Node> = Api::all(scene.admin.clone());
        let node = json!({
            "metadata": {"name": name},
            "spec": {"taints": [{"key": "example.test/deaf", "effect": "NoSchedule"}]},
        });
        let node = serde_json::from_value(node)?;
        nodes.create(&PostParams::default(), &node).await?;
        eventually("the node to be ready", SOON, async || {
            let status = nodes.get(&name).await?.status.unwrap_or_default();
            Ok(status.daemon_endpoints.is_some().then_some(()))
        })
        .await?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(keep_port(nodes.clone(), name.clone(), port));
        eventually("the node to be where nobody answers", SOON, async || {
            Ok(is_at(&nodes.get(&name).await?, port).then_some(()))
        })
        .await?;
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                held.push(connection);
            }
        });
        Ok(Self {
            name,
            nodes,
            connections,
        })
    }

    /// Returns the number of scripts and probes that were started.
    fn begun(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    async fn leave(self) -> Result<()> {
        let parameters = DeleteParams::default();
        self.nodes.delete(&self.name, &parameters).await?;
        Ok(())
    }
}

fn is_at(node: &Node, port: u16) -> bool {
    let status = node.status.as_ref();
    let endpoints = status.and_then(|status| status.daemon_endpoints.as_ref());
    let kubelet = endpoints.and_then(|endpoints| endpoints.kubelet_endpoint.as_ref());
    kubelet.is_some_and(|kubelet| kubelet.port == i32::from(port))
}

/// Keeps a node at a port until the node is deleted: the simulated kubelet writes its own port whenever it sets up
/// the node.
async fn keep_port(nodes: Api<Node>, name: String, port: u16) {
    let endpoint = json!({"status": {
        "addresses": [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    let (patch, parameters) = (Patch::Merge(&endpoint), PatchParams::default());
    while let Ok(Some(node)) = nodes.get_opt(&name).await {
        if !is_at(&node, port) {
            let _ = nodes.patch_status(&name, &parameters, &patch).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Creates a Deployment of one pod with the fields in `more` in the spec of its pod template.
async fn deployment(scene: &Scene, name: &str, annotations: Value, more: Value) -> Result<()> {
    let mut spec = json!({"containers": [{"name": "app", "image": "app:1"}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let labels = json!({"app": name});
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }))?;
    let deployments = scene.api::<Deployment>();
    deployments
        .create(&PostParams::default(), &deployment)
        .await?;
    fixtures::ready_pods(&scene.admin, scene.name(), &format!("app={name}"), 1).await?;
    Ok(())
}

/// Starts oz with one worker that ends sessions, instead of the shared oz, and creates a scene with two templates. A
/// change of a template revokes its grants. The template `deaf` is for a pod on a deaf node, `well` for the workload.
async fn hanging(
    prefix: &str,
) -> Result<(
    RwLockWriteGuard<'static, Option<System>>,
    System,
    Scene,
    DeafNode,
)> {
    let mut place = SYSTEM.write().await;
    drop(place.take());
    let cluster = crate::cluster().await?;
    let options = Options::default().cutting().set("operator.workers", 1);
    let system = System::start_with(cluster, &options).await?;
    let scene = Scene::set(cluster, prefix).await?;
    let node = DeafNode::join(&scene).await?;
    deployment(&scene, "deaf", json!({}), json!({"nodeName": node.name})).await?;
    for (name, target) in [("deaf", "deaf"), ("well", WORKLOAD)] {
        let mut template = exec_template(name, TargetKind::Deployment, target);
        template.spec.access_config.on_template_change = OnTemplateChange::Revoke;
        scene.template(&template).await?;
    }
    Ok((place, system, scene, node))
}

/// Changes a template, which revokes its grants.
async fn change(scene: &Scene, template: &str) -> Result<()> {
    let change = json!({"spec": {"accessConfig": {"maxDuration": "2h"}}});
    let templates = scene.api::<ExecAccessTemplate>();
    let patch = Patch::Merge(&change);
    templates
        .patch(template, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Many grants for a pod on a node that accepts every exec and never responds, all revoked together with the grants
/// of another pod: the operator deletes every RoleBinding before any of the scripts ends, and starts few scripts.
#[tokio::test]
async fn shells_that_hang() -> Result<()> {
    // More than the slots, including those for urgent work (8 for each worker).
    const MANY: usize = 40;
    // Two at a time in a pod. On a slow machine, others follow when these have timed out.
    const FIRST_SCRIPTS: usize = MANY / 4;
    let (place, _system, scene, node) = hanging("hang").await?;
    let alice = scene.requests("alice").await?;
    let mut names = Vec::new();
    for number in 0..MANY + 2 {
        // The operator probes the pod's containers once, which takes until the probe times out.
        let by = if number < MANY { "deaf" } else { "well" };
        let name = format!("{by}-{number}");
        names.push(alice.granted(&exec_request(&name, by, "1h")).await?);
    }
    let before = node.begun();
    for by in ["deaf", "well"] {
        change(&scene, by).await?;
    }
    eventually("every RoleBinding to go", SOON, async || {
        let left = scene
            .api::<RoleBinding>()
            .list(&Default::default())
            .await?
            .items;
        let ours = left.iter().filter(|binding| {
            let name = binding.metadata.name.as_deref();
            names
                .iter()
                .any(|asked| Some(asked.object_name().as_str()) == name)
        });
        Ok((ours.count() == 0).then_some(()))
    })
    .await?;
    let begun = node.begun() - before;
    ensure!(begun <= FIRST_SCRIPTS, "{begun} scripts were waited for");
    let hang = alice.api().get("deaf-0").await?;
    let phase = hang.status.context("no status")?.phase;
    assert_eq!(phase, Phase::Active, "over, while its sessions may go on");
    alice.phase(&format!("well-{MANY}"), Phase::Revoked).await?;
    node.leave().await?;
    drop(place);
    Ok(())
}

/// Many grants for a pod on a node that never responds, revoked before the grant of another pod: the script in the
/// other pod does not wait for the hanging scripts, because all grants of one pod share one script.
#[tokio::test]
async fn shells_that_hang_before_others() -> Result<()> {
    const MANY: usize = 40;
    let (place, _system, scene, node) = hanging("turns").await?;
    let alice = scene.requests("alice").await?;
    for number in 0..MANY {
        let name = format!("deaf-{number}");
        alice.granted(&exec_request(&name, "deaf", "1h")).await?;
    }
    alice.granted(&exec_request("well", "well", "1h")).await?;
    let before = node.begun();
    change(&scene, "deaf").await?;
    eventually("their script to begin", SOON, async || {
        Ok((node.begun() > before).then_some(()))
    })
    .await?;
    change(&scene, "well").await?;
    alice.phase("well", Phase::Revoked).await?;
    let begun = node.begun() - before;
    ensure!(begun < MANY, "{begun} scripts were waited for");
    node.leave().await?;
    drop(place);
    Ok(())
}

/// Waits until the conditions of a request contain the error.
async fn says(stage: &Stage, name: &str, why: &str) -> Result<()> {
    let requests = stage.pod_requests("alice").await?;
    let wanted = format!("to say {why}");
    requests
        .until(name, &wanted, |status| {
            conditions_line(status).contains(why)
        })
        .await?;
    Ok(())
}

/// Creates a template with this patch and a request of alice by it. Waits until the conditions of both contain the
/// error, and checks that the operator grants other requests.
async fn bomb(prefix: &str, operations: Value, why: &str) -> Result<()> {
    let stage = Stage::set(prefix).await?;
    let patch = json!({"controllerTargetMutationConfig": {"patchSpecOperations": operations}});
    stage.pod_template("bomb", &patch).await?;
    let alice = stage.pod_requests("alice").await?;
    alice.create(&pod_request("mine", "bomb", "5m")).await?;
    says(&stage, "mine", why).await?;
    let templates = stage.api::<PodAccessTemplate>();
    eventually("the template to say so too", SOON, async || {
        let status = templates.get("bomb").await?.status.unwrap_or_default();
        let mut conditions = status.conditions.iter();
        Ok(conditions
            .any(|one| one.message.contains(why))
            .then_some(()))
    })
    .await?;
    let others = stage.requests("alice").await?;
    others
        .granted(&exec_request("fine", TEMPLATE, "5m"))
        .await?;
    Ok(())
}

/// A patch of 64 operations, each on a large value: the operator denies it because of its work and states the limit,
/// although the resulting pod would be small.
#[tokio::test]
async fn patches_that_handle_large_values() -> Result<()> {
    let large = "x".repeat(16_000);
    let first = json!({"op": "add", "path": "/metadata/annotations", "value": {"a": large}});
    let second = json!({"op": "add", "path": "/metadata/annotations/b", "value": large});
    let again = json!({"op": "copy", "from": "/metadata/annotations", "path": "/metadata/more"});
    let operations = [first, second].into_iter();
    let operations = operations.chain(std::iter::repeat_n(again, 62));
    bomb("large", operations.collect(), "the maximum is 1048576").await
}

/// A patch that copies the document into itself repeatedly, so that its size doubles with each operation: the
/// operator denies it because of its size.
#[tokio::test]
async fn patches_that_double_at_each_step() -> Result<()> {
    let double = |step: usize| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/more{step}")});
    let start = json!({
        "op": "add", "path": "/metadata/annotations", "value": {"a": "x".repeat(1000)},
    });
    let operations = std::iter::once(start).chain((0..63).map(double));
    bomb("double", operations.collect(), "larger than 524288 bytes").await
}

/// A patch that doubles the depth of a small document with each operation, up to a thousand levels: the operator
/// denies it because of its depth, and grants other requests.
#[tokio::test]
async fn patches_that_nest_deeper_at_each_step() -> Result<()> {
    let mut deep = json!("x");
    for _ in 0..30 {
        deep = json!({"a": deep});
    }
    let start = json!({"op": "add", "path": "/metadata/a", "value": deep});
    let copies = (0..5).map(|step| {
        let levels = 1 + 30 * 2_usize.pow(step);
        json!({"op": "copy", "from": "/metadata/a", "path": format!("/metadata{}", "/a".repeat(levels))})
    });
    let operations = std::iter::once(start).chain(copies);
    bomb("deep", operations.collect(), "deeper than 100 levels").await
}

/// Many requests by a template with a patch that fails: the operator evaluates each request a few times, writes it at
/// most twice to report the error, and does not retry continuously.
#[tokio::test]
async fn a_patch_that_fails_is_not_a_storm() -> Result<()> {
    const MANY: usize = 10;
    let stage = Stage::set("storm").await?;
    let patch = json!({"controllerTargetMutationConfig": {"patchSpecOperations": [
        {"op": "test", "path": "/spec/containers/0/name", "value": "another"},
    ]}});
    stage.pod_template("fails", &patch).await?;
    let mark = stage.cluster.audit().mark()?;
    let alice = stage.pod_requests("alice").await?;
    for number in 0..MANY {
        let name = format!("mine-{number}");
        alice.create(&pod_request(&name, "fails", "5m")).await?;
    }
    for number in 0..MANY {
        says(&stage, &format!("mine-{number}"), "patchSpecOperations[0]").await?;
    }
    // During this time, continuous retries would exceed the limits below.
    let others = stage.requests("alice").await?;
    others
        .granted(&exec_request("fine", TEMPLATE, "15s"))
        .await?;
    others.phase("fine", Phase::Expired).await?;
    let operator = format!("system:serviceaccount:{NAMESPACE}:oz-operator");
    let entries = stage.cluster.audit().since(mark)?.by_user(&operator);
    let entries = entries.in_namespace(stage.name());
    let reads = entries.clone().with_verb("get").on("apps", "deployments");
    ensure!(
        reads.len() <= 3 * MANY,
        "{} reads of the workload",
        reads.len()
    );
    let writes = entries.writes();
    let writes = writes.on("crds.wizardofoz.co", "podaccessrequests");
    ensure!(writes.len() <= 2 * MANY, "{:?}", writes.counts());
    Ok(())
}

/// An access command that compares a large annotation of the pod with itself hundreds of times: the operator denies
/// the request for this pod and states the limit, and grants other requests.
#[tokio::test]
async fn an_access_command_that_is_slow_on_its_pod() -> Result<()> {
    let stage = Stage::set("fat").await?;
    let fat = json!({"a": "x".repeat(200_000)});
    deployment(&stage, "fat", fat, json!({})).await?;
    let mut template = exec_template("slow", TargetKind::Deployment, "fat");
    template.spec.access_config.access_command = format!(
        "{{{{ $a := index .Metadata.Annotations \"a\" }}}}{{{{ if eq \"\" {} }}}}{{{{ end }}}}done",
        " $a".repeat(800)
    );
    stage.template(&template).await?;
    let alice = stage.requests("alice").await?;
    alice.create(&exec_request("mine", "slow", "5m")).await?;
    let enough = "at most 83 are carried out";
    alice
        .until("mine", "to be refused", |status| {
            conditions_line(status).contains(enough)
        })
        .await?;
    alice.granted(&exec_request("fine", TEMPLATE, "5m")).await?;
    Ok(())
}

/// Breaking the template and deleting the workload during a grant: the grant requires neither to expire, and expires
/// on time.
#[tokio::test]
async fn pod_access_expires_despite_broken_template_and_workload() -> Result<()> {
    let stage = Stage::set("broken").await?;
    stage.pod_template("mine", &json!({})).await?;
    let alice = stage.pod_requests("alice").await?;
    let asked = alice.granted(&pod_request("mine", "mine", "30s")).await?;
    let broken = json!({"spec": {"controllerTargetMutationConfig": {"patchSpecOperations": [
        {"op": "remove", "path": "/spec/containers"},
    ]}}});
    let patch = Patch::Merge(&broken);
    let templates = stage.api::<PodAccessTemplate>();
    templates
        .patch("mine", &PatchParams::default(), &patch)
        .await?;
    let deployments = stage.api::<Deployment>();
    deployments
        .delete(WORKLOAD, &DeleteParams::default())
        .await?;
    alice.phase("mine", Phase::Expired).await?;
    let (_, binding) = stage.grant(&asked.object_name()).await?;
    assert!(binding.is_none());
    let pod = stage.api::<Pod>().get_opt(&asked.pod()).await?;
    assert!(pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()));
    Ok(())
}
