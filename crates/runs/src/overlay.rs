//! The fields that a template may set in `podTemplateOverlay`, and their effect on the pod. A field that is not listed
//! here is denied with its path: a field of a later Kubernetes release could weaken the confinement of a run.

use oz_api::harness::interception::TRUST_FILE;
use oz_core::confine::json::{append, fields, items};
use oz_core::confine::security::confined;
use oz_core::validate::Violation;
use serde_json::{Value, json};

use super::mount::{MountPath, normalize};
use super::reserved;

/// Fields of the pod that are copied unchanged.
const POD_FIELDS: [&str; 10] = [
    "affinity",
    "hostname",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
    "resourceClaims",
];
/// Fields of the agent that are copied unchanged, or added to those of oz.
const AGENT_FIELDS: [&str; 8] = [
    "name",
    "env",
    "envFrom",
    "imagePullPolicy",
    "resources",
    "securityContext",
    "volumeMounts",
    "workingDir",
];
/// Fields of a sidecar in addition to those of the agent.
const SIDECAR_FIELDS: [&str; 8] = [
    "args",
    "command",
    "image",
    "livenessProbe",
    "ports",
    "readinessProbe",
    "restartPolicy",
    "startupProbe",
];
/// Fields of a container's security context that cannot weaken it.
const CONTEXT_FIELDS: [&str; 3] = ["readOnlyRootFilesystem", "runAsGroup", "runAsUser"];
/// Fields of a pod's security context that cannot weaken it.
const POD_CONTEXT_FIELDS: [&str; 2] = ["fsGroupChangePolicy", "supplementalGroups"];
/// Kinds of volumes: those of the Pod Security Standard `restricted`
/// (<https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>).
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// Annotations that disable the confinement of a container.
const UNCONFINING: [&str; 2] = [
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
];
/// The prefix of the name of a claim, before the name of its workspace.
pub(super) const CLAIM_PREFIX: &str = "ws-";

/// Returns all violations of an overlay, each with its path.
#[must_use]
pub(super) fn violations(overlay: &Value) -> Vec<Violation> {
    let mut check = Check(Vec::new());
    let root = "spec.podTemplateOverlay";
    check.only(root, overlay, &["metadata", "spec"]);
    let metadata = &overlay["metadata"];
    check.only(
        &format!("{root}.metadata"),
        metadata,
        &["annotations", "labels"],
    );
    for list in ["annotations", "labels"] {
        for (key, _) in fields(&metadata[list]) {
            let unconfines = UNCONFINING.iter().any(|prefix| key.starts_with(prefix));
            if reserved::is_mark(key) || unconfines {
                check.add(
                    format!("{root}.metadata.{list}[{key}]"),
                    "is set by oz alone",
                );
            }
        }
    }
    check.pod(&format!("{root}.spec"), &overlay["spec"]);
    check.0
}

struct Check(Vec<Violation>);

impl Check {
    fn add(&mut self, field: impl Into<String>, message: &str) {
        self.0.push(Violation::new(field, message));
    }

    /// Adds a violation for each field of a value that is not allowed.
    fn only(&mut self, path: &str, value: &Value, allowed: &[&str]) {
        if !value.is_object() && !value.is_null() {
            self.add(path, "must be an object");
        }
        for (name, _) in fields(value) {
            if !allowed.contains(&name.as_str()) {
                self.add(format!("{path}.{name}"), "cannot be set by a template");
            }
        }
    }

    fn pod(&mut self, path: &str, spec: &Value) {
        let mut allowed = POD_FIELDS.to_vec();
        allowed.extend(["containers", "initContainers", "securityContext", "volumes"]);
        self.only(path, spec, &allowed);
        let context = format!("{path}.securityContext");
        self.only(&context, &spec["securityContext"], &POD_CONTEXT_FIELDS);
        for (number, volume) in items(&spec["volumes"]).enumerate() {
            self.volume(&format!("{path}.volumes[{number}]"), volume);
        }
        let mut names: Vec<&str> = Vec::new();
        for kind in ["containers", "initContainers"] {
            for (number, container) in items(&spec[kind]).enumerate() {
                let path = format!("{path}.{kind}[{number}]");
                let name = container["name"].as_str().unwrap_or_default();
                if names.contains(&name) {
                    self.add(format!("{path}.name"), "must be the only one of its name");
                }
                names.push(name);
                if kind == "initContainers" && container["restartPolicy"] != "Always" {
                    let message = "must be Always: a run has no init container but sidecars";
                    self.add(format!("{path}.restartPolicy"), message);
                }
                self.container(&path, name, container, kind);
            }
        }
    }

    fn container(&mut self, path: &str, name: &str, container: &Value, kind: &str) {
        let is_agent = name == reserved::AGENT && kind == "containers";
        if name.is_empty() || (!is_agent && reserved::CONTAINERS.contains(&name)) {
            let message = "must be agent, or another name than runtime, netinit, proxy and oz, which are \
                    reserved";
            self.add(format!("{path}.name"), message);
        }
        let mut allowed = AGENT_FIELDS.to_vec();
        if !is_agent {
            allowed.extend(SIDECAR_FIELDS);
            if container["image"].as_str().is_none_or(str::is_empty) {
                self.add(format!("{path}.image"), "must be set for a sidecar");
            }
        }
        self.only(path, container, &allowed);
        self.context(
            &format!("{path}.securityContext"),
            &container["securityContext"],
        );
        for (number, env) in items(&container["env"]).enumerate() {
            if env["name"].as_str().is_none_or(reserved::is_variable) {
                self.add(format!("{path}.env[{number}].name"), "is set by oz alone");
            }
        }
        for (number, mount) in items(&container["volumeMounts"]).enumerate() {
            let path = format!("{path}.volumeMounts[{number}]");
            if mount["name"].as_str().is_none_or(reserved::is_volume) {
                self.add(format!("{path}.name"), "must be a volume of the overlay");
            }
            let target = mount["mountPath"].as_str().and_then(MountPath::new);
            let message = match target {
                None => Some("must be an absolute path without '..' and ':'"),
                Some(target) if target.is_root() => Some("must not be /"),
                Some(target) if target.is_within("/paddock") => Some("must not lie below /paddock"),
                Some(target) if target.is_within(TRUST_FILE) => {
                    Some("must not be the file with the certificates that oz mounts")
                }
                Some(_) => None,
            };
            if let Some(message) = message {
                self.add(format!("{path}.mountPath"), message);
            }
            if mount["mountPropagation"].is_string() {
                self.add(
                    format!("{path}.mountPropagation"),
                    "cannot be set by a template",
                );
            }
        }
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            for kind in ["httpGet", "tcpSocket"] {
                // The kubelet would connect there, which nothing confines.
                if !container[probe][kind]["host"].is_null() {
                    self.add(
                        format!("{path}.{probe}.{kind}.host"),
                        "cannot be set by a template",
                    );
                }
            }
        }
        for (number, port) in items(&container["ports"]).enumerate() {
            if port["hostPort"].as_i64().is_some_and(|port| port != 0) {
                self.add(
                    format!("{path}.ports[{number}].hostPort"),
                    "cannot be set by a template",
                );
            }
        }
    }

    fn context(&mut self, path: &str, context: &Value) {
        self.only(path, context, &CONTEXT_FIELDS);
        let user = &context["runAsUser"];
        let is_taken = user
            .as_i64()
            .is_none_or(|user| user < 1 || reserved::is_user(user));
        if !user.is_null() && is_taken {
            let message = "must be neither root nor a user of oz's own containers (1337 to 1339)";
            self.0.push(Violation::of_value(
                format!("{path}.runAsUser"),
                message,
                user.to_string(),
            ));
        }
    }

    fn volume(&mut self, path: &str, volume: &Value) {
        if volume["name"].as_str().is_none_or(reserved::is_volume) {
            let message = "must be another name than workspace, paddock, paddock-… and oz-…, which are \
                    reserved";
            self.add(format!("{path}.name"), message);
        }
        let mut allowed = VOLUMES.to_vec();
        allowed.push("name");
        self.only(path, volume, &allowed);
        for (number, source) in items(&volume["projected"]["sources"]).enumerate() {
            let path = format!("{path}.projected.sources[{number}]");
            let allowed = ["configMap", "downwardAPI", "secret"];
            self.only(&path, source, &allowed);
        }
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
        if claim.is_some_and(|claim| claim.starts_with(CLAIM_PREFIX)) {
            let message = "must not be the claim of a workspace: a run names that in workspaceRef";
            self.add(format!("{path}.persistentVolumeClaim.claimName"), message);
        }
    }
}

/// Applies a valid overlay to a pod template. Sidecars end with the agent, and are as confined.
pub(super) fn apply(pod: &mut Value, overlay: &Value) {
    for list in ["annotations", "labels"] {
        for (key, value) in fields(&overlay["metadata"][list]) {
            pod["metadata"][list][key] = value.clone();
        }
    }
    let spec = &overlay["spec"];
    for field in POD_FIELDS.iter().filter(|field| !spec[**field].is_null()) {
        pod["spec"][*field] = spec[*field].clone();
    }
    for (field, value) in fields(&spec["securityContext"]) {
        pod["spec"]["securityContext"][field] = value.clone();
    }
    let volumes = items(&spec["volumes"]).cloned();
    append(&mut pod["spec"]["volumes"], volumes);
    let all = items(&spec["containers"]).chain(items(&spec["initContainers"]));
    for container in all {
        if container["name"] == reserved::AGENT {
            agent(&mut pod["spec"]["containers"][0], container);
        } else {
            let sidecar = sidecar(container.clone());
            append(&mut pod["spec"]["initContainers"], [sidecar]);
        }
    }
}

/// Applies an overlay to the agent. Its variables come first, so that those of oz override them.
fn agent(agent: &mut Value, overlay: &Value) {
    for (field, value) in fields(overlay) {
        match field.as_str() {
            "env" => {
                let mut env: Vec<Value> = items(value).cloned().collect();
                env.extend(items(&agent["env"]).cloned());
                agent["env"] = Value::Array(env);
            }
            "volumeMounts" => {
                let mut mounts = value.clone();
                normalize(&mut mounts);
                append(&mut agent["volumeMounts"], items(&mounts).cloned());
            }
            "securityContext" => {
                for (field, value) in fields(value) {
                    agent["securityContext"][field] = value.clone();
                }
            }
            // What a run or a template's defaults say goes before.
            "resources" if !agent["resources"].is_null() => {}
            _ => agent[field] = value.clone(),
        }
    }
}

fn sidecar(mut sidecar: Value) -> Value {
    let own = sidecar["securityContext"].take();
    sidecar["securityContext"] = confined(reserved::AGENT_USER, false);
    for (field, value) in fields(&own) {
        sidecar["securityContext"][field] = value.clone();
    }
    sidecar["restartPolicy"] = json!("Always");
    if let Some(mounts) = sidecar.get_mut("volumeMounts") {
        normalize(mounts);
    }
    sidecar
}

/// Creates a variable with this literal value, with references to other variables escaped
/// (<https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/>).
pub(super) fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value.replace('$', "$$")})
}

/// Creates a variable that is empty without a value.
pub(super) fn optional(name: &str, value: Option<&str>) -> Value {
    variable(name, value.unwrap_or_default())
}
