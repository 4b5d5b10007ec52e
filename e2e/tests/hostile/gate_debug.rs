//! Obtaining more by `kubectl debug` through the gate than an additional container of a listed image.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use oz_api::{DebugConfig, ExecAccessTemplate, Operation};
use oz_core::connect::cut::MARK;
use oz_e2e::{exec_request, gate_template};
use oz_gating::debug::PATCH_TYPE;
use oz_testkit::{CONDITION_TIMEOUT, eventually, fixtures};
use serde_json::{Value, json};

use crate::gating::{Gated, Written};

/// Name of the template with Debug, and of alice's request by it.
const DEBUG: &str = "debug";

/// The stage of [`Gated`] with a second request of alice, by a template with Debug.
struct Debugging {
    gated: Gated,
    request: String,
    pod: String,
}

/// Returns a template with Debug.
fn debug_template(name: &str) -> ExecAccessTemplate {
    let mut template = gate_template();
    template.metadata.name = Some(name.to_owned());
    let config = &mut template.spec.access_config;
    config.operations = vec![Operation::Debug];
    config.debug = Some(DebugConfig {
        images: vec![fixtures::IMAGE.to_owned()],
    });
    template
}

impl Debugging {
    async fn set(name: &str) -> Result<Self> {
        let this = Self::granted(Gated::set(name).await?, &debug_template(DEBUG)).await?;
        // The API server applies the rights a moment after the grant. From then on, the gate denies only what the
        // test sends.
        eventually("a container to be added", CONDITION_TIMEOUT, async || {
            let (code, _) = this.patched(&adding(&container("first"))).await?;
            Ok((code == 200).then_some(()))
        })
        .await?;
        Ok(this)
    }

    /// Grants alice access by a template, with a request of its name.
    async fn granted(gated: Gated, template: &ExecAccessTemplate) -> Result<Self> {
        gated.template(template).await?;
        let request = template.metadata.name.clone().unwrap_or_default();
        let alice = gated.requests("alice").await?;
        let asked = exec_request(&request, &request, "10m");
        let pod = alice.granted(&asked).await?.pod();
        Ok(Self {
            gated,
            request,
            pod,
        })
    }

    fn path(&self, rest: &str) -> String {
        let pods = format!(
            "/api/v1/namespaces/{}/pods/{}{rest}",
            self.gated.name(),
            self.pod
        );
        self.gated.behind(&self.request, &pods)
    }

    async fn patched(&self, patch: &str) -> Result<(u16, String)> {
        self.sent(PATCH_TYPE, patch).await
    }

    async fn sent(&self, kind: &str, patch: &str) -> Result<(u16, String)> {
        let path = self.path("/ephemeralcontainers");
        let length = patch.len().to_string();
        let request = Written::new("PATCH", &path)
            .header("content-type", kind)
            .header("content-length", &length)
            .body(patch);
        self.gated.asked("alice", &request).await
    }

    /// Checks that the gate denies each of these patches, and that the pod has no new container.
    async fn refuses(&self, patches: &[String]) -> Result<()> {
        for patch in patches {
            let (code, answer) = self.patched(patch).await?;
            ensure!(code == 403, "{patch}: {answer}");
        }
        self.has_one().await
    }

    /// Checks that the pod has only the debug container that was added first.
    async fn has_one(&self) -> Result<()> {
        let pod = self.gated.api::<Pod>().get(&self.pod).await?;
        let added = pod.spec.and_then(|spec| spec.ephemeral_containers);
        let names: Vec<String> = added.into_iter().flatten().map(|one| one.name).collect();
        ensure!(names == ["first"], "{names:?}");
        Ok(())
    }
}

fn container(name: &str) -> Value {
    json!({"name": name, "image": fixtures::IMAGE, "resources": {}})
}

/// Returns a patch that adds a container with this additional field.
fn with(field: &str, value: Value) -> String {
    let mut container = container("more");
    container[field] = value;
    adding(&container)
}

fn adding(container: &Value) -> String {
    json!({"spec": {"ephemeralContainers": [container]}}).to_string()
}

/// Adding a debug container of an image that is not listed, such as a listed image with a suffix, a space, another
/// registry, upper-case letters or a digest, or a second image in the same object: the gate denies it.
#[tokio::test]
async fn an_image_that_is_not_listed() -> Result<()> {
    let debugging = Debugging::set("debug-image").await?;
    let listed = fixtures::IMAGE;
    let images = [
        "evil.test/app:1".to_owned(),
        format!("{listed}1"),
        format!("{listed} "),
        format!("evil.test/{listed}"),
        format!("{listed}@sha256:{}", "0".repeat(64)),
        listed.to_uppercase(),
        String::new(),
    ];
    let mut patches: Vec<String> = images
        .iter()
        .map(|image| with("image", json!(image)))
        .collect();
    patches.push(format!(
        r#"{{"spec":{{"ephemeralContainers":[{{"name":"more","image":"{listed}","image":"evil.test/app:1"}}]}}}}"#
    ));
    debugging.refuses(&patches).await
}

/// Adding a debug container that is privileged, or has volumes, values of Secrets, probes, another user, or
/// capabilities: the gate denies each.
#[tokio::test]
async fn a_container_that_may_more() -> Result<()> {
    let debugging = Debugging::set("debug-more").await?;
    let context = |context: Value| with("securityContext", context);
    let secret = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    let patches = [
        context(json!({"privileged": true})),
        context(json!({"runAsUser": 0})),
        context(json!({"procMount": "Unmasked"})),
        context(json!({"allowPrivilegeEscalation": true})),
        context(json!({"capabilities": {"add": ["SYS_ADMIN"]}})),
        context(json!({"capabilities": {"add": ["SYS_PTRACE", "NET_ADMIN"]}})),
        context(json!({"seccompProfile": {"type": "Unconfined"}})),
        with(
            "volumeMounts",
            json!([{"name": "token", "mountPath": "/token"}]),
        ),
        with(
            "volumeDevices",
            json!([{"name": "disk", "devicePath": "/dev/disk"}]),
        ),
        with("env", secret),
        with("envFrom", json!([{"secretRef": {"name": "s"}}])),
        with("livenessProbe", json!({"exec": {"command": ["id"]}})),
        with(
            "lifecycle",
            json!({"postStart": {"exec": {"command": ["id"]}}}),
        ),
        with("resources", json!({"limits": {"cpu": "1"}})),
        with("targetContainerName", json!("another")),
    ];
    debugging.refuses(&patches).await
}

/// Changing an existing container or the pod, or adding several containers, in a patch that adds a debug container:
/// the gate denies it.
#[tokio::test]
async fn a_patch_that_changes_more_than_it_adds() -> Result<()> {
    let debugging = Debugging::set("debug-changes").await?;
    let more = container("more");
    let patch = |patch: Value| patch.to_string();
    let patches = [
        adding(&container("first")),
        adding(&container(fixtures::CONTAINER)),
        patch(json!({"spec": {"ephemeralContainers": [more, container("second")]}})),
        patch(json!({"spec": {"ephemeralContainers": []}})),
        patch(json!({"spec": {"ephemeralContainers": [more, {"$patch": "replace"}]}})),
        patch(json!({"spec": {"ephemeralContainers": [{"name": "first", "$patch": "delete"}]}})),
        patch(
            json!({"spec": {"ephemeralContainers": [more], "containers": [container(fixtures::CONTAINER)]}}),
        ),
        patch(json!({"spec": {"ephemeralContainers": [more]}, "metadata": {"labels": {"a": "b"}}})),
        patch(json!({"spec": {"ephemeralContainers": [more]}, "status": {}})),
        patch(json!([])),
        patch(json!(null)),
        "{".to_owned(),
        String::new(),
    ];
    debugging.refuses(&patches).await
}

/// Adding a debug container, with and without the capability to trace, to a pod with `shareProcessNamespace`, with a
/// grant for one container: the gate denies it, and names the container that the debug container would reach.
#[tokio::test]
async fn debug_container_in_shared_process_namespace_is_refused() -> Result<()> {
    let gated = Gated::set("debug-shared").await?;
    let labels = json!({"app": "shared"});
    let shared = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shared"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "shareProcessNamespace": true,
                    "containers": [container(fixtures::CONTAINER), container("vault")],
                },
            },
        },
    });
    let shared = serde_json::from_value(shared)?;
    gated
        .api::<Deployment>()
        .create(&PostParams::default(), &shared)
        .await?;
    fixtures::ready_pods(&gated.admin, gated.name(), "app=shared", 1).await?;
    let mut template = debug_template("shared");
    template.spec.controller_target_ref.name = "shared".to_owned();
    template.spec.access_config.containers = vec![fixtures::CONTAINER.to_owned()];
    let debugging = Debugging::granted(gated, &template).await?;
    for patch in [
        adding(&container("more")),
        with("targetContainerName", json!(fixtures::CONTAINER)),
        with(
            "securityContext",
            json!({"capabilities": {"add": ["SYS_PTRACE"]}}),
        ),
    ] {
        // The API server applies the rights a moment after the grant.
        let what = "the gate to refuse the container";
        eventually(what, CONDITION_TIMEOUT, async || {
            let (code, answer) = debugging.patched(&patch).await?;
            let is_refused = code == 403 && answer.contains("reaches vault");
            ensure!(is_refused, "{patch}: {answer}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

/// Adding a debug container by another kind of patch, a PUT of the whole object, a body of 2 MiB, a compressed body,
/// or with options in the query: the gate or the API server denies it.
#[tokio::test]
async fn a_patch_of_another_kind() -> Result<()> {
    let debugging = Debugging::set("debug-kinds").await?;
    let good = adding(&container("more"));
    let list =
        json!([{"op": "add", "path": "/spec/ephemeralContainers/-", "value": container("more")}])
            .to_string();
    for (kind, patch) in [
        ("application/json-patch+json", &list),
        ("application/merge-patch+json", &good),
        ("application/apply-patch+yaml", &good),
        ("application/json", &good),
        (PATCH_TYPE, &list),
    ] {
        let (code, answer) = debugging.sent(kind, patch).await?;
        ensure!(code == 403, "{kind}: {answer}");
    }
    let long = with("args", json!(["x".repeat(2 << 20)]));
    let (code, answer) = debugging.patched(&long).await?;
    ensure!(code >= 400, "{answer}");
    let path = debugging.path("/ephemeralcontainers");
    let length = good.len().to_string();
    for (method, query, header) in [
        ("PUT", "", ("x-none", "")),
        ("POST", "", ("x-http-method-override", "PATCH")),
        ("PATCH", "?dryRun=All", ("x-none", "")),
        ("PATCH", "?fieldManager=a&force=true", ("x-none", "")),
        ("PATCH", "", ("content-encoding", "gzip")),
    ] {
        let path = format!("{path}{query}");
        let request = Written::new(method, &path)
            .header("content-type", PATCH_TYPE)
            .header("content-length", &length)
            .header(header.0, header.1)
            .body(&good);
        let (code, answer) = debugging.gated.asked("alice", &request).await?;
        ensure!(code >= 400, "{method} {query} {header:?}: {answer}");
    }
    debugging.has_one().await
}

/// Attaching to the application or to a debug container of another or of no grant, with a grant that has Debug alone,
/// or marking a container as one of another grant: the gate denies it.
#[tokio::test]
async fn attach_to_container_of_another_grant_is_refused() -> Result<()> {
    let debugging = Debugging::set("debug-others").await?;
    let mark = |value: &str| json!([{"name": MARK, "value": value}]);
    debugging.refuses(&[with("env", mark("another"))]).await?;
    let admin = json!({"spec": {"ephemeralContainers": [
        {"name": "nobodys", "image": fixtures::IMAGE},
        {"name": "theirs", "image": fixtures::IMAGE, "env": mark("another")},
    ]}});
    let pods = debugging.gated.api::<Pod>();
    let patch = kube::api::Patch::Strategic(admin);
    let parameters = kube::api::PatchParams::default();
    pods.patch_ephemeral_containers(&debugging.pod, &parameters, &patch)
        .await?;
    let containers = [fixtures::CONTAINER, "nobodys", "theirs", "none", ""];
    for container in containers {
        for way in ["attach?stdin=true&", "log?", "exec?command=id&"] {
            let path = debugging.path(&format!("/{way}container={container}"));
            let mut request = Written::get(&path);
            if !way.starts_with("log") {
                request = request.upgrading("v5.channel.k8s.io");
            }
            let (code, answer) = debugging.gated.asked("alice", &request).await?;
            let good = code == 403 && answer.contains("OperationNotGranted");
            ensure!(good, "{way}{container}: {answer}");
        }
    }
    Ok(())
}

/// Listing or watching other pods, all pods, or pods by another selector, in the form in which `kubectl debug` waits
/// for its pod: the gate denies it.
#[tokio::test]
async fn a_list_of_other_pods() -> Result<()> {
    let debugging = Debugging::set("debug-lists").await?;
    let pods = format!("/api/v1/namespaces/{}/pods", debugging.gated.name());
    let other = debugging
        .gated
        .pods
        .iter()
        .filter_map(|pod| pod.metadata.name.clone());
    let other: Vec<String> = other.filter(|name| *name != debugging.pod).collect();
    let (pod, other) = (&debugging.pod, &other[0]);
    for query in [
        String::new(),
        "?watch=true".to_owned(),
        "?labelSelector=app".to_owned(),
        format!("?fieldSelector=metadata.name%3D{other}"),
        format!("?fieldSelector=metadata.name%21%3D{pod}"),
        format!("?fieldSelector=metadata.name%3D{pod}&fieldSelector=metadata.name%3D{other}"),
        format!("?fieldSelector=metadata.name%3D{pod}&fieldSelector="),
        format!("?fieldSelector=metadata.name%3D{pod}&continue=x"),
        format!("?FieldSelector=metadata.name%3D{pod}"),
        "?fieldSelector=metadata.namespace%3Ddefault".to_owned(),
    ] {
        let path = debugging.gated.behind(DEBUG, &format!("{pods}{query}"));
        let (code, answer) = debugging.gated.asked("alice", &Written::get(&path)).await?;
        ensure!(code >= 400, "{query}: {answer}");
    }
    for pods in ["/api/v1/pods", "/api/v1/namespaces/kube-system/pods"] {
        let rest = format!("{pods}?fieldSelector=metadata.name%3D{pod}");
        let path = debugging.gated.behind(DEBUG, &rest);
        let (code, answer) = debugging.gated.asked("alice", &Written::get(&path)).await?;
        ensure!(code == 403, "{pods}: {answer}");
    }
    Ok(())
}
