//! The pod of a run, as JSON: the container of oz, which reads the prompt and reports; a runtime of the template, if
//! there is one; the agent; and the overlay of the template. No container runs as root, and only that of oz has a
//! token, which is valid for the broker only. In a run that requires hosts or injected credentials, the containers that
//! intercept connections come first.

mod proxied;

use ipnet::IpNet;
use oz_api::harness::wire::REPORTER_AUDIENCE;
use oz_api::harness::{EnvEntry, InteractiveMode, KeyRef, RunMode};
use oz_api::labels;
use oz_core::confine::deadline;
use oz_core::confine::json::{append, items_mut};
use oz_core::confine::security::{confined, footprint, unattended};
use oz_core::validate::Violation;
use serde_json::{Value, json};

use crate::authority::Endpoint;
use crate::credential::DecidedCredential;
use crate::mount::MountPath;
use crate::overlay::{self, CLAIM_PREFIX, optional, variable};
use crate::reserved;
use crate::template::Resolved;

/// The lifetime of a token, in seconds; the kubelet renews it.
const TOKEN_SECONDS: i64 = 600;
/// The size limit of the volume that the containers share.
const SHARED_SIZE: &str = "256Mi";
/// The size limit of the volume with the prompt, which is memory.
const PROMPT_SIZE: &str = "1Mi";
/// Label: name of the run.
pub const RUN_LABEL: &str = "paddock.dev/run";
/// Label: name of the workspace.
pub(crate) const WORKSPACE_LABEL: &str = "paddock.dev/workspace";

/// The data of the pod of a run, in addition to its template.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts<'a> {
    /// Namespace of the run.
    pub namespace: &'a str,
    /// Name of the run.
    pub run: &'a str,
    /// UID of the run.
    pub uid: &'a str,
    /// Name of its template.
    pub template_name: &'a str,
    /// The template, with the overrides of the run.
    pub template: &'a Resolved,
    /// Name of its workspace; `None` if it has none.
    pub workspace: Option<&'a str>,
    /// The mode of the run.
    pub mode: RunMode,
    /// The location of the prompt.
    pub prompt: Prompt<'a>,
    /// Variables of the agent.
    pub extra_env: &'a [EnvEntry],
    /// The credentials of the run.
    pub credentials: &'a [DecidedCredential],
    /// Whether the connections of its agent go through a proxy.
    pub intercepted: bool,
    /// The settings of the operator for pods.
    pub settings: &'a Settings,
    /// The endpoint of the broker.
    pub broker: &'a Endpoint,
}

/// The location of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt<'a> {
    /// The run itself: the container of oz reads it from the broker.
    Inline,
    /// A ConfigMap that the kubelet mounts.
    ConfigMap(&'a KeyRef),
    /// A Secret that the kubelet mounts.
    Secret(&'a KeyRef),
}

/// The settings of the operator for the pods of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image of the container of oz.
    pub image: String,
    /// Pull policy of the image.
    pub pull_policy: String,
    /// Ranges that no run may connect to, in addition to addresses that are not public.
    pub denied: Vec<IpNet>,
}

/// Creates the pod template of the Job of a run.
///
/// # Errors
/// All violations of the template's overlay.
pub fn pod_template(parts: &Parts<'_>) -> Result<Value, Vec<Violation>> {
    let template = parts.template;
    let found = violations(template);
    if !found.is_empty() {
        return Err(found);
    }
    let mut sidecars = Vec::new();
    if parts.intercepted {
        sidecars.extend([proxied::network_init(parts), proxied::proxy(parts)]);
    }
    sidecars.push(reporter(parts));
    let ours = sidecars.len();
    if template.runtime.image.is_some() {
        sidecars.push(runtime(parts));
    }
    let spec = json!({
        "hostAliases": parts.broker.host_aliases(),
        "initContainers": sidecars,
        "containers": [agent(parts)],
        "volumes": volumes(parts),
    });
    let mut pod = json!({
        "metadata": {"labels": labels(parts), "annotations": {}},
        "spec": unattended(spec, template.grace_seconds, Some(reserved::AGENT_USER)),
    });
    if parts.mode != RunMode::Interactive {
        pod["spec"]["activeDeadlineSeconds"] = json!(deadline::lasting(template.timeout));
    }
    if let Some(overlay) = &template.overlay {
        overlay::apply(&mut pod, overlay);
    }
    if parts.intercepted {
        for sidecar in items_mut(&mut pod["spec"], "initContainers").skip(ours) {
            proxied::trust(sidecar);
        }
    }
    Ok(pod)
}

/// Returns all violations of a template for the pod of a run: in its overlay, and in the mount path of the workspace.
#[must_use]
pub fn violations(template: &Resolved) -> Vec<Violation> {
    let overlay = template.overlay.iter();
    let mut found: Vec<Violation> = overlay.flat_map(overlay::violations).collect();
    found.extend(mount_violation(&template.workspace.mount_path));
    found
}

/// Returns the violation of a mount path of the workspace, if there is one.
pub(crate) fn mount_violation(path: &str) -> Option<Violation> {
    let message = "must be an absolute path without '..' and ':', not /, nor below /paddock, /proc, /sys, \
                   /dev, /etc, /run and /var/run";
    let violation = || Violation::of_value("spec.workspace.mountPath", message, path);
    MountPath::of_workspace(path).is_none().then(violation)
}

fn labels(parts: &Parts<'_>) -> Value {
    let mut labels = json!({
        RUN_LABEL: labels::value(parts.run),
        "paddock.dev/namespace": parts.namespace,
        "paddock.dev/template": labels::value(parts.template_name),
        "paddock.dev/mode": parts.mode.name(),
    });
    if let Some(harness) = &parts.template.harness {
        labels["paddock.dev/harness"] = json!(harness);
    }
    if let Some(workspace) = parts.workspace {
        labels[WORKSPACE_LABEL] = json!(labels::value(workspace));
    }
    labels
}

/// Returns the variables of the harness contract for the agent. Variables of the template and of the run come first, so
/// that these override them.
fn agent_env(parts: &Parts<'_>) -> Vec<Value> {
    let mount = mount_path(parts);
    let is_credential = |name: &str| parts.credentials.iter().any(|it| it.name == name);
    let own = parts
        .extra_env
        .iter()
        .filter(|one| !reserved::is_variable(&one.name) && !is_credential(&one.name));
    // Theirs may refer to others, as in any pod.
    let own = own.map(|one| json!({"name": one.name, "value": one.value}));
    let mut env: Vec<Value> = own.collect();
    env.extend(proxied::credentials(parts));
    env.extend([
        variable("PADDOCK_PROMPT_PATH", "/paddock/prompt/prompt.txt"),
        variable("PADDOCK_RAW_PATH", "/paddock/raw/out"),
        variable("PADDOCK_EVENTS_PATH", "/paddock/events/events.jsonl"),
        variable(
            "PADDOCK_RESULT_PATH",
            &format!("{}/result.json", transcript(parts)),
        ),
        variable("PADDOCK_WORKSPACE", mount),
        variable(
            "PADDOCK_REPOS_PATH",
            &format!("{mount}/.paddock/repos.json"),
        ),
        variable("PADDOCK_RUN_NAME", parts.run),
        optional("PADDOCK_MODEL", parts.template.model.as_deref()),
        variable("HOME", &format!("{mount}/.home")),
    ]);
    env.extend(sockets());
    env.extend(interactive(parts));
    env
}

/// Returns the variables of the harness contract for a runtime.
fn runtime_env(parts: &Parts<'_>) -> Vec<Value> {
    let mut env = vec![
        variable("PADDOCK_MODE", parts.mode.name()),
        variable("PADDOCK_RAW_PATH", "/paddock/raw/out"),
        variable("PADDOCK_RUN_NAME", parts.run),
        variable("PADDOCK_RUN_NAMESPACE", parts.namespace),
        optional("PADDOCK_WORKSPACE_NAME", parts.workspace),
        variable("PADDOCK_TEMPLATE_NAME", parts.template_name),
        variable("PADDOCK_HARNESS_IMAGE", &parts.template.image),
        variable("PADDOCK_TRANSCRIPT_DIR", &transcript(parts)),
        variable("POD_NAMESPACE", parts.namespace),
    ];
    if parts.mode != RunMode::Interactive {
        env.push(variable(
            "PADDOCK_PROMPT_FILE",
            "/paddock/prompt/prompt.txt",
        ));
    }
    env.extend(sockets());
    env.extend(interactive(parts));
    env
}

fn sockets() -> [Value; 2] {
    [
        variable("PADDOCK_AGENT_DATA_SOCKET", "/paddock/agent-data.sock"),
        variable("PADDOCK_AGENT_CTL_SOCKET", "/paddock/agent-ctl.sock"),
    ]
}

fn interactive(parts: &Parts<'_>) -> Option<Value> {
    let mode = parts.template.interactive.mode;
    let is_interactive = parts.mode == RunMode::Interactive && mode != InteractiveMode::Batch;
    is_interactive.then(|| variable("PADDOCK_INTERACTIVE_MODE", mode.into()))
}

/// Returns the mounts of the volumes that all containers of a run share.
fn mounts(parts: &Parts<'_>, is_prompt_read_only: bool) -> Value {
    json!([
        {"name": reserved::SHARED_VOLUME, "mountPath": "/paddock"},
        {"name": reserved::PROMPT_VOLUME, "mountPath": "/paddock/prompt", "readOnly": is_prompt_read_only},
        {"name": reserved::WORKSPACE_VOLUME, "mountPath": mount_path(parts)},
    ])
}

fn agent(parts: &Parts<'_>) -> Value {
    let template = parts.template;
    let mut agent = json!({
        "name": reserved::AGENT,
        "image": template.image,
        "command": template.command,
        "args": template.args,
        "env": agent_env(parts),
        "securityContext": confined(reserved::AGENT_USER, false),
        "volumeMounts": mounts(parts, true),
    });
    if let Some(resources) = &template.resources {
        agent["resources"] = json!(resources);
    }
    if parts.intercepted {
        proxied::trust(&mut agent);
    }
    agent
}

/// Creates the container of oz: it stores the prompt before the agent starts, and is the runtime of a template without
/// one.
fn reporter(parts: &Parts<'_>) -> Value {
    let settings = parts.settings;
    let is_inline = parts.prompt == Prompt::Inline;
    let mut env = runtime_env(parts);
    env.extend([
        variable("PADDOCK_BROKER_URL", &parts.broker.url()),
        variable("PADDOCK_BROKER_TOKEN_PATH", "/var/run/secrets/oz/token"),
        variable("OZ_BROKER_CA", &parts.broker.certificates),
        variable("OZ_WORKSPACE", mount_path(parts)),
        variable("OZ_FETCH_PROMPT", &is_inline.to_string()),
        variable(
            "OZ_RECENT_EVENTS",
            &parts.template.interactive.max_recent_events.to_string(),
        ),
    ]);
    let has_runtime = parts.template.runtime.image.is_some();
    let (name, verb) = match has_runtime {
        true => (reserved::REPORTER, "report"),
        false => (reserved::RUNTIME, "runtime"),
    };
    let mut mounts = mounts(parts, !is_inline);
    let token = json!({"name": reserved::TOKEN_VOLUME, "mountPath": "/var/run/secrets/oz", "readOnly": true});
    append(&mut mounts, [token]);
    json!({
        "name": name,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["/oz-harness", verb],
        "env": env,
        "restartPolicy": "Always",
        // The kubelet starts nothing after it before this has ended. A startup probe is asked once a second, and the
        // agent would start that much later.
        "lifecycle": {
            "postStart": {"exec": {"command": ["/oz-harness", "ready", "--within=30"]}},
        },
        "resources": footprint("5m", "8Mi", "32Mi"),
        "securityContext": confined(reserved::REPORTER_USER, true),
        "volumeMounts": mounts,
    })
}

/// Creates the runtime of a template. It has no token and reports through the container of oz.
fn runtime(parts: &Parts<'_>) -> Value {
    let runtime = &parts.template.runtime;
    let mut container = json!({
        "name": reserved::RUNTIME,
        "image": runtime.image,
        "env": runtime_env(parts),
        "restartPolicy": "Always",
        "securityContext": confined(reserved::RUNTIME_USER, false),
        "volumeMounts": mounts(parts, true),
    });
    let policy = runtime.image_pull_policy.as_deref();
    if let Some(policy) = policy.filter(|policy| !policy.is_empty()) {
        container["imagePullPolicy"] = json!(policy);
    }
    container
}

fn volumes(parts: &Parts<'_>) -> Value {
    let mounted = |reference: &KeyRef, name: &str| {
        json!({
            name: reference.name,
            "defaultMode": 0o440,
            "items": [{"key": reference.key, "path": "prompt.txt"}],
        })
    };
    let mut prompt = json!({"name": reserved::PROMPT_VOLUME});
    match parts.prompt {
        Prompt::Inline => {
            prompt["emptyDir"] = json!({"medium": "Memory", "sizeLimit": PROMPT_SIZE});
        }
        Prompt::ConfigMap(reference) => prompt["configMap"] = mounted(reference, "name"),
        Prompt::Secret(reference) => prompt["secret"] = mounted(reference, "secretName"),
    }
    let mut workspace = json!({"name": reserved::WORKSPACE_VOLUME});
    match parts.workspace {
        Some(name) => {
            workspace["persistentVolumeClaim"] = json!({"claimName": claim_name(name)});
        }
        None => workspace["emptyDir"] = json!({}),
    }
    let mut volumes = vec![
        workspace,
        json!({"name": reserved::SHARED_VOLUME, "emptyDir": {"sizeLimit": SHARED_SIZE}}),
        prompt,
        token(reserved::TOKEN_VOLUME, REPORTER_AUDIENCE),
    ];
    if parts.intercepted {
        volumes.extend(proxied::volumes());
    }
    Value::Array(volumes)
}

/// Creates a volume with a token of the pod's service account for one audience
/// (<https://kubernetes.io/docs/concepts/storage/projected-volumes/#serviceaccounttoken>).
fn token(name: &str, audience: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o440,
            "sources": [{"serviceAccountToken": {
                "audience": audience,
                "expirationSeconds": TOKEN_SECONDS,
                "path": "token",
            }}],
        },
    })
}

/// Returns the name of the claim of a workspace.
#[must_use]
pub fn claim_name(workspace: &str) -> String {
    format!("{CLAIM_PREFIX}{workspace}")
}

fn mount_path<'a>(parts: &Parts<'a>) -> &'a str {
    &parts.template.workspace.mount_path
}

fn transcript(parts: &Parts<'_>) -> String {
    format!("{}/.paddock/runs/{}", mount_path(parts), parts.run)
}
