//! `kubectl debug` through the gate: whether the patch that it sends adds one container, of an image that the grant's
//! template lists, with nothing about it that gives more than a shell beside the others. What is passed on is what was
//! read here, written anew: nothing goes on that nobody has looked at.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::grant::Grant;
use crate::connect::Refusal;
use crate::validate::dns_label;

/// The longest patch that is read, in bytes.
pub const MAX_PATCH: usize = 64 << 10;
/// What kubectl says of its patch. Nothing else is read.
pub const PATCH_TYPE: &str = "application/strategic-merge-patch+json";
/// The variable by which a container is known as one that came by a grant: UID of the request.
pub const MARK: &str = "OZ_REQUEST";

/// One container to be added.
#[derive(Clone, Debug, PartialEq)]
pub struct Added {
    /// What it is called.
    pub name: String,
    /// What it runs.
    pub image: String,
    /// The container whose processes it sees, if it sees any.
    pub target: Option<String>,
    container: Container,
}

impl Added {
    /// The patch that adds it, marked as one that came by this grant.
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
    /// In which order all of them are, which the API server knows by itself.
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

/// What is known of a container. What is not named here is refused by its name.
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

/// A value that is written out: what comes from Secrets and the like is not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    #[serde(default)]
    value: String,
}

/// What takes rights away. What gives some has no place here.
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
    #[serde(default)]
    drop: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeccompProfile {
    #[serde(rename = "type")]
    type_: String,
}

/// The one container that a patch adds, if the grant allows it; `images` are those that its template lists.
///
/// # Errors
/// Which field stands against it, and what to do next.
pub fn read(body: &[u8], grant: &Grant, images: &[String]) -> Result<Added, Refusal> {
    if body.len() > MAX_PATCH {
        let why = format!("the patch is longer than {MAX_PATCH} bytes");
        return Err(refused("PatchTooLong", &why));
    }
    let patch: Patch = serde_json::from_slice(body).map_err(|error| {
        refused(
            "PatchNotTaken",
            &format!("the patch says something that the gate does not pass on: {error}"),
        )
    })?;
    let Ok([container]) = <[Container; 1]>::try_from(patch.spec.containers) else {
        let why = "spec.ephemeralContainers has to name one new container";
        return Err(refused("PatchNotTaken", why));
    };
    checked(&container, grant, images)?;
    Ok(Added {
        name: container.name.clone(),
        image: container.image.clone(),
        target: container.target_container_name.clone(),
        container,
    })
}

/// Whether the pod has a container of this name that came by this grant; `pod` is as the API server has it.
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

fn checked(container: &Container, grant: &Grant, images: &[String]) -> Result<(), Refusal> {
    if dns_label(&container.name).is_err() {
        let why = format!("name {:?} is none of a container", container.name);
        return Err(refused("PatchNotTaken", &why));
    }
    if !images.contains(&container.image) {
        let why = format!(
            "image {:?} is not among those of template {}: {}",
            container.image,
            grant.template,
            images.join(", ")
        );
        return Err(refused("ImageNotGranted", &why));
    }
    if container.env.iter().any(|variable| variable.name == MARK) {
        let why = format!("env may not set {MARK}, which oz does");
        return Err(refused("PatchNotTaken", &why));
    }
    if let Some(target) = &container.target_container_name
        && !grant.may_enter(Some(target))
    {
        let why = format!(
            "targetContainerName: request {} grants access to {}, not to container {target}",
            grant.request.name,
            grant.enterable()
        );
        return Err(refused("ContainerNotGranted", &why));
    }
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
        return Ok(());
    };
    Err(refused(
        "PatchNotTaken",
        &format!("{field} gives more than a grant does"),
    ))
}

fn refused(reason: &'static str, why: &str) -> Refusal {
    Refusal::new(
        reason,
        format!(
            "{why}; use kubectl debug POD --image=IMAGE --profile=restricted (or baseline), with one of the images"
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::connect::tests::grant;

    const IMAGE: &str = "registry.test/tools:1";

    /// As kubectl sends it, with this changed.
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
        super::read(body, &grant(), &[IMAGE.to_owned()])
    }

    #[test]
    fn what_kubectl_sends_is_passed_on_written_anew_and_marked() {
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
    fn what_takes_rights_away_passes_and_what_gives_some_does_not() {
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
            (json!({"capabilities": {"add": ["SYS_PTRACE"]}}), false),
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
    fn what_nobody_has_looked_at_is_refused_by_its_name() {
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
    fn one_container_is_added_and_nothing_else_is_changed() {
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
        // Keys that come twice could be read in two ways.
        let twice = format!(
            r#"{{"spec":{{"ephemeralContainers":[{{"name":"a","image":"{IMAGE}","image":"evil"}}]}}}}"#
        );
        assert!(read(twice.as_bytes()).is_err());
        let long = sent(&json!({"args": ["x".repeat(MAX_PATCH)]}));
        assert_eq!(read(&long).unwrap_err().reason, "PatchTooLong");
        assert!(read(b"{").is_err() && read(b"").is_err());
    }

    #[test]
    fn whose_processes_it_sees_is_for_the_grant_to_say() {
        let mut grant = grant();
        grant.sessions.containers = vec!["app".into()];
        for (target, good) in [("app", true), ("sidecar", false)] {
            let body = sent(&json!({ "targetContainerName": target }));
            let read = super::read(&body, &grant, &[IMAGE.to_owned()]);
            assert_eq!(read.is_ok(), good, "{target}: {read:?}");
        }
    }
}
