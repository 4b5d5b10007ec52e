//! `kubectl debug` through the gate: the check that the patch of kubectl adds one container, with an image that the
//! grant's template lists, and with no field that grants more than a shell next to the other containers. The gate
//! forwards a patch that it writes from the checked fields; it never forwards an unchecked field.
//! See <https://kubernetes.io/docs/concepts/workloads/pods/ephemeral-containers/>.

use oz_core::access::grant::Grant;
use oz_core::connect::Refusal;
use oz_core::connect::cut::MARK;
use oz_core::gate::image::Pattern;
use oz_core::validate::dns_label;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The maximum length of a patch that is read, in bytes.
pub const MAX_PATCH: usize = 64 << 10;
/// The content type of kubectl's patch. The gate reads no other.
pub const PATCH_TYPE: &str = "application/strategic-merge-patch+json";
/// The capability to trace visible processes of other containers. kubectl adds it automatically.
const TRACE: &str = "SYS_PTRACE";

/// The container to be added.
#[derive(Clone, Debug, PartialEq)]
pub struct Added {
    /// The name of the container.
    pub name: String,
    /// The image of the container.
    pub image: String,
    /// The container with the processes that this container sees, if there is one.
    pub target: Option<String>,
    container: Container,
}

impl Added {
    /// Returns the patch that adds the container, with a mark of this grant.
    #[must_use]
    pub fn patch(&self, grant: &Grant) -> String {
        let mut container = self.container.clone();
        container.env.push(Variable {
            name: MARK.to_owned(),
            value: grant.request.uid.clone(),
        });
        let container = serde_json::json!(container);
        serde_json::json!({ "spec": { "ephemeralContainers": [container] } }).to_string()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// The order of all containers, which the API server knows without it.
    #[serde(rename = "$setElementOrder/ephemeralContainers", default)]
    _order: Vec<Named>,
    #[serde(rename = "ephemeralContainers")]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[serde(rename = "name")]
    _name: String,
}

/// The known fields of a container. A patch with another field is rejected with the name of the field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Container {
    name: String,
    image: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<Variable>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    working_dir: Option<String>,
    #[serde(default)]
    stdin: bool,
    #[serde(default)]
    stdin_once: bool,
    #[serde(default)]
    tty: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image_pull_policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    termination_message_policy: Option<String>,
    #[serde(default, skip_serializing)]
    #[serde(rename = "resources")]
    _resources: Nothing,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_container_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    security_context: Option<SecurityContext>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// A variable with a literal value. References to Secrets and other sources are rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    #[serde(default)]
    value: String,
}

/// The fields that remove rights. A field that adds rights is rejected, except one capability that kubectl adds
/// automatically.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SecurityContext {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow_privilege_escalation: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_as_non_root: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capabilities: Option<Capabilities>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seccomp_profile: Option<SeccompProfile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Capabilities {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    add: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    drop: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeccompProfile {
    #[serde(rename = "type")]
    type_: String,
}

/// Returns the one container that a patch adds, if the grant allows it; `pod` is the pod from the API server.
///
/// # Errors
/// If a field violates the rules. The error names the field and the next step.
pub fn read(body: &[u8], grant: &Grant, pod: &Value) -> Result<Added, Refusal> {
    if body.len() > MAX_PATCH {
        let why = format!("the patch is longer than {MAX_PATCH} bytes");
        return Err(refused("PatchTooLong", &why));
    }
    let patch: Patch = serde_json::from_slice(body).map_err(|error| {
        refused(
            "PatchNotAllowed",
            &format!("the patch contains a field that the gate does not forward: {error}"),
        )
    })?;
    let Ok([container]) = <[Container; 1]>::try_from(patch.spec.containers) else {
        let why = "spec.ephemeralContainers has to name one new container";
        return Err(refused("PatchNotAllowed", why));
    };
    checked(&container, grant)?;
    fits(&container, grant, pod)?;
    apart(grant, pod)?;
    harmless(&container, pod)?;
    Ok(Added {
        name: container.name.clone(),
        image: container.image.clone(),
        target: container.target_container_name.clone(),
        container,
    })
}

/// Checks whether the pod has a container of this name that was added by this grant; `pod` is the pod from the API
/// server.
#[must_use]
pub fn came_by(pod: &Value, grant: &Grant, name: &str) -> bool {
    let containers = pod["spec"]["ephemeralContainers"].as_array();
    let is_marked = |container: &Value| {
        let variables = container["env"].as_array();
        variables.is_some_and(|all| {
            all.iter()
                .any(|one| one["name"] == MARK && one["value"] == grant.request.uid.as_str())
        })
    };
    containers.is_some_and(|all| all.iter().any(|one| one["name"] == name && is_marked(one)))
}

fn checked(container: &Container, grant: &Grant) -> Result<(), Refusal> {
    if dns_label(&container.name).is_err() {
        let why = format!("name {:?} is not a name of a container", container.name);
        return Err(refused("PatchNotAllowed", &why));
    }
    let images = &grant.sessions.debug_images;
    let mut patterns = images.iter().filter_map(|image| Pattern::read(image));
    if !patterns.any(|pattern| pattern.matches(&container.image)) {
        let why = format!(
            "image {:?} is not among those of template {} (spec.accessConfig.debug.images): {}",
            container.image,
            grant.template,
            images.join(", ")
        );
        return Err(refused("ImageNotGranted", &why));
    }
    if container.env.iter().any(|variable| variable.name == MARK) {
        let why = format!("env may not set {MARK}, which oz sets");
        return Err(refused("PatchNotAllowed", &why));
    }
    Ok(())
}

/// Checks whether the name of the container is free in the pod, and whether the grant allows its target container.
fn fits(container: &Container, grant: &Grant, pod: &Value) -> Result<(), Refusal> {
    let has = |list: &str, name: &str| {
        let containers = pod["spec"][list].as_array();
        containers.is_some_and(|all| all.iter().any(|one| one["name"] == name))
    };
    let name = &container.name;
    if ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .any(|list| has(list, name))
    {
        let why = format!("the pod has a container {name} already, and it cannot be changed");
        return Err(refused("NameTaken", &why));
    }
    let Some(target) = &container.target_container_name else {
        return Ok(());
    };
    if !has("containers", target) || !grant.may_enter(Some(target)) {
        let why = format!(
            "targetContainerName: request {} grants access to {} of the pod's own containers, not to {target}",
            grant.request.name,
            grant.enterable()
        );
        return Err(refused("ContainerNotGranted", &why));
    }
    Ok(())
}

/// Checks that the container sees no processes of containers that are not granted: a process of the same user can send
/// signals to them, and read their files below /proc, without any capability.
fn apart(grant: &Grant, pod: &Value) -> Result<(), Refusal> {
    // The node's namespace of processes contains the processes of all its pods.
    let shared = ["shareProcessNamespace", "hostPID"].into_iter();
    let mut shared = shared.filter(|field| pod["spec"][field] == true);
    let (Some(field), true) = (shared.next(), grant.is_confined()) else {
        return Ok(());
    };
    let others = others(grant, pod);
    if others.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(
        "ContainerNotGranted",
        format!(
            "the containers of the pod see each other's processes ({field}), so a container that is added \
             reaches {}, and request {} grants access to {} alone; ask for access to all of them, or use kubectl exec",
            others.join(", "),
            grant.request.name,
            grant.enterable()
        ),
    ))
}

/// Returns the names of the containers that run in the pod and that the grant does not allow to enter.
fn others<'a>(grant: &Grant, pod: &'a Value) -> Vec<&'a str> {
    let of = |list: &str| pod["spec"][list].as_array().into_iter().flatten();
    // Of the init containers, only sidecars continue to run.
    let runs = of("containers")
        .chain(of("initContainers").filter(|one| one["restartPolicy"] == "Always"))
        .chain(of("ephemeralContainers"));
    runs.filter_map(|one| one["name"].as_str())
        .filter(|name| !grant.may_enter(Some(name)) && !came_by(pod, grant, name))
        .collect()
}

/// Checks that the container has no more rights than a user with access to the pod.
fn harmless(container: &Container, pod: &Value) -> Result<(), Refusal> {
    let Some(context) = &container.security_context else {
        return Ok(());
    };
    let field = if context.allow_privilege_escalation == Some(true) {
        "securityContext.allowPrivilegeEscalation"
    } else if context
        .seccomp_profile
        .as_ref()
        .is_some_and(|profile| profile.type_ != "RuntimeDefault")
    {
        "securityContext.seccompProfile"
    } else {
        return traces(context, pod);
    };
    Err(refused(
        "PatchNotAllowed",
        &format!("{field} grants more than a grant permits"),
    ))
}

/// Checks that the only added capability is the one to trace processes, and that the pod does not see the processes of
/// its node.
fn traces(context: &SecurityContext, pod: &Value) -> Result<(), Refusal> {
    let mut added = context.capabilities.iter().flat_map(|all| &all.add);
    let why = match added.find(|one| *one != TRACE) {
        Some(other) => {
            format!("securityContext.capabilities.add: {other} grants more than a grant permits")
        }
        None if context.capabilities.iter().all(|all| all.add.is_empty()) => return Ok(()),
        None if pod["spec"]["hostPID"] == true => {
            format!(
                "the pod shares the process namespace of its node, which {TRACE} would give \
                access to"
            )
        }
        None => return Ok(()),
    };
    Err(refused("PatchNotAllowed", &why))
}

fn refused(reason: &'static str, why: &str) -> Refusal {
    Refusal::new(
        reason,
        format!(
            "{why}; use kubectl debug POD --image=IMAGE with one of the images that the template lists, and \
             --profile=baseline or restricted"
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const IMAGE: &str = "registry.test/tools:1";

    fn grant() -> Grant {
        let mut grant = crate::tests::grant();
        grant.sessions.debug_images = vec![IMAGE.to_owned()];
        grant
    }

    fn pod() -> Value {
        json!({ "spec": {
            "containers": [{ "name": "app" }, { "name": "sidecar" }],
            "initContainers": [{ "name": "init" }],
            "ephemeralContainers": [{ "name": "earlier" }],
        } })
    }

    /// Returns the patch as kubectl sends it, with these changes.
    fn sent(change: &Value) -> Vec<u8> {
        let mut container = json!({
            "name": "debugger-x7k2p", "image": IMAGE, "resources": {}, "stdin": true, "tty": true,
            "imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "File",
        });
        for (name, value) in change.as_object().unwrap() {
            container[name] = value.clone();
        }
        let patch = json!({ "spec": {
            "$setElementOrder/ephemeralContainers": [{ "name": "debugger-x7k2p" }],
            "ephemeralContainers": [container],
        } });
        patch.to_string().into_bytes()
    }

    fn read(body: &[u8]) -> Result<Added, Refusal> {
        super::read(body, &grant(), &pod())
    }

    #[test]
    fn debug_container_patch_is_rewritten_and_marked() {
        let added = read(&sent(
            &json!({"args": ["sh"], "env": [{"name": "A", "value": "b"}]}),
        ))
        .unwrap();
        let patch: Value = serde_json::from_str(&added.patch(&grant())).unwrap();
        assert_eq!(
            patch,
            json!({ "spec": { "ephemeralContainers": [{
                "name": "debugger-x7k2p", "image": IMAGE, "args": ["sh"],
                "env": [{"name": "A", "value": "b"}, {"name": MARK, "value": grant().request.uid}],
                "stdin": true, "stdinOnce": false, "tty": true,
                "imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "File",
            }] } })
        );
        assert!(came_by(&patch, &grant(), "debugger-x7k2p"));
        assert!(!came_by(&patch, &grant(), "another"));
        let mut other = grant();
        other.request.uid = "another".into();
        assert!(!came_by(&patch, &other, "debugger-x7k2p"));
    }

    #[test]
    fn security_context_that_adds_privileges_is_refused() {
        for (context, good) in [
            (json!({}), true),
            (
                json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true,
                    "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}),
                true,
            ),
            (json!({"privileged": true}), false),
            (json!({"privileged": false}), false),
            (json!({"allowPrivilegeEscalation": true}), false),
            // The capability that kubectl adds automatically.
            (json!({"capabilities": {"add": ["SYS_PTRACE"]}}), true),
            (json!({"capabilities": {"add": ["NET_ADMIN"]}}), false),
            (
                json!({"capabilities": {"add": ["SYS_PTRACE", "SYS_ADMIN"]}}),
                false,
            ),
            (json!({"seccompProfile": {"type": "Unconfined"}}), false),
            (json!({"runAsUser": 0}), false),
            (json!({"procMount": "Unmasked"}), false),
            (json!({"seLinuxOptions": {}}), false),
        ] {
            let read = read(&sent(&json!({ "securityContext": context })));
            assert_eq!(read.is_ok(), good, "{context}: {read:?}");
        }
    }

    #[test]
    fn unpermitted_field_of_debug_container_is_refused_by_name() {
        for (change, named) in [
            (json!({"image": "evil"}), "image"),
            (json!({"image": format!("{IMAGE}@sha256:0")}), "image"),
            (json!({"image": format!("{IMAGE} ")}), "image"),
            (json!({"name": "A"}), "name"),
            (json!({"name": "a/b"}), "name"),
            (
                json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
                "volumeMounts",
            ),
            (json!({"volumeMounts": []}), "volumeMounts"),
            (json!({"volumeDevices": []}), "volumeDevices"),
            (
                json!({"envFrom": [{"secretRef": {"name": "s"}}]}),
                "envFrom",
            ),
            (
                json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}),
                "valueFrom",
            ),
            (json!({"env": [{"name": MARK, "value": "another"}]}), MARK),
            (json!({"ports": []}), "ports"),
            (json!({"lifecycle": {}}), "lifecycle"),
            (json!({"livenessProbe": {}}), "livenessProbe"),
            (json!({"resources": {"limits": {"cpu": "1"}}}), "limits"),
            (json!({"$patch": "delete"}), "$patch"),
            (json!({"$retainKeys": ["name"]}), "$retainKeys"),
            (json!({"restartPolicy": "Always"}), "restartPolicy"),
        ] {
            let refusal = read(&sent(&change)).unwrap_err();
            assert!(refusal.message.contains(named), "{change}: {refusal}");
        }
    }

    #[test]
    fn debug_patch_adds_single_container_and_changes_nothing_else() {
        let one = json!({"name": "a", "image": IMAGE});
        for patch in [
            json!({}),
            json!({"spec": {}}),
            json!({"spec": {"ephemeralContainers": []}}),
            json!({"spec": {"ephemeralContainers": [one, one]}}),
            json!({"spec": {"ephemeralContainers": [one], "containers": []}}),
            json!({"spec": {"ephemeralContainers": [one], "$patch": "replace"}}),
            json!({"spec": {"ephemeralContainers": [one]}, "metadata": {"labels": {"a": "b"}}}),
            json!([{"op": "add", "path": "/spec/ephemeralContainers", "value": [one]}]),
            json!(null),
        ] {
            assert!(read(patch.to_string().as_bytes()).is_err(), "{patch}");
        }
        // Two readers could choose different values of a repeated key.
        let twice = format!(
            r#"{{"spec":{{"ephemeralContainers":[{{"name":"a","image":"{IMAGE}","image":"evil"}}]}}}}"#
        );
        assert!(read(twice.as_bytes()).is_err());
        let long = sent(&json!({"args": ["x".repeat(MAX_PATCH)]}));
        assert_eq!(read(&long).unwrap_err().reason, "PatchTooLong");
        assert!(read(b"{").is_err() && read(b"").is_err());
    }

    #[test]
    fn target_of_debug_container_must_be_in_grant() {
        let mut grant = grant();
        grant.sessions.containers = vec!["app".into()];
        for (target, good) in [
            ("app", true),
            ("sidecar", false),
            ("init", false),
            ("earlier", false),
            ("none", false),
        ] {
            let body = sent(&json!({ "targetContainerName": target }));
            let read = super::read(&body, &grant, &pod());
            assert_eq!(read.is_ok(), good, "{target}: {read:?}");
        }
    }

    #[test]
    fn no_container_that_is_there_is_changed() {
        for name in ["app", "sidecar", "init", "earlier"] {
            let refusal = read(&sent(&json!({ "name": name }))).unwrap_err();
            assert_eq!(refusal.reason, "NameTaken", "{name}");
        }
    }

    #[test]
    fn processes_of_the_node_are_not_looked_into() {
        let traces = json!({"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}});
        for (field, change, good) in [
            ("hostNetwork", &traces, true),
            ("shareProcessNamespace", &traces, true),
            ("hostPID", &traces, false),
            ("hostPID", &json!({}), true),
        ] {
            let mut pod = pod();
            pod["spec"][field] = json!(true);
            let read = super::read(&sent(change), &grant(), &pod);
            assert_eq!(read.is_ok(), good, "{field} {change}: {read:?}");
        }
    }

    #[test]
    fn container_that_would_see_processes_of_others_is_refused_and_they_are_named() {
        let only = |containers: &[&str]| {
            let mut grant = grant();
            grant.sessions.containers = containers.iter().map(|&one| one.to_owned()).collect();
            grant
        };
        let uid = grant().request.uid;
        let mine = json!({"name": "earlier", "env": [{"name": MARK, "value": uid}]});
        for (grant, shared, ephemeral, others) in [
            (grant(), true, json!([{"name": "earlier"}]), ""),
            (only(&["app"]), false, json!([]), ""),
            (only(&["app"]), true, json!([]), "reaches sidecar,"),
            (only(&["app", "sidecar"]), true, json!([]), ""),
            (only(&["app", "sidecar"]), true, json!([mine]), ""),
            (
                only(&["app"]),
                true,
                json!([{"name": "earlier"}]),
                "reaches sidecar, earlier,",
            ),
            (
                only(&["app", "sidecar"]),
                true,
                json!([{"name": "earlier"}]),
                "reaches earlier,",
            ),
        ] {
            let mut pod = pod();
            pod["spec"]["shareProcessNamespace"] = json!(shared);
            pod["spec"]["ephemeralContainers"] = ephemeral;
            // With and without a capability, with a granted target and without a target.
            for change in [
                json!({}),
                json!({"targetContainerName": "app"}),
                json!({"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}),
            ] {
                let read = super::read(&sent(&change), &grant, &pod);
                match others {
                    "" => assert!(read.is_ok(), "{change} {pod}: {read:?}"),
                    others => {
                        let refusal = read.unwrap_err();
                        assert_eq!(refusal.reason, "ContainerNotGranted");
                        assert!(refusal.message.contains(others), "{refusal}");
                    }
                }
            }
        }
        // The node's namespace of processes contains those of the pod.
        let mut on_node = pod();
        on_node["spec"]["hostPID"] = json!(true);
        let read = super::read(&sent(&json!({})), &only(&["app"]), &on_node);
        let message = read.unwrap_err().message;
        assert!(
            message.contains("(hostPID)") && message.contains("reaches sidecar,"),
            "{message}"
        );
        // A sidecar runs as long as the pod.
        let mut pod = pod();
        pod["spec"]["shareProcessNamespace"] = json!(true);
        pod["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
        let read = super::read(&sent(&json!({})), &only(&["app", "sidecar"]), &pod);
        assert!(read.unwrap_err().message.contains("reaches init,"));
    }
}
