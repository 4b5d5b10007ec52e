//! The security contexts and sizes of pods and containers that oz defines: those of harness runs, seeds and readers. A
//! dedicated pod has those of its workload or template: its user works with the program that runs there, with its
//! service account and its files.
//! See <https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>.

use serde_json::{Value, json};

/// The user and the group without rights of a container, and the group of the files that containers share.
pub const NONROOT: i64 = 65_532;

/// Returns the spec of a pod without rights in the cluster: it has no token and no links to services, runs no program
/// as root, and is never started again. `volumes` is the group of its volumes, if it writes to them.
#[must_use]
pub fn unattended(mut spec: Value, grace_seconds: i64, volumes: Option<i64>) -> Value {
    let mut context = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    if let Some(group) = volumes {
        context["fsGroup"] = json!(group);
        context["fsGroupChangePolicy"] = json!("OnRootMismatch");
    }
    spec["automountServiceAccountToken"] = json!(false);
    spec["enableServiceLinks"] = json!(false);
    spec["restartPolicy"] = json!("Never");
    spec["terminationGracePeriodSeconds"] = json!(grace_seconds);
    spec["securityContext"] = context;
    spec
}

/// Returns the security context of a container without any capability. Every container but one has it, with a user
/// other than root.
#[must_use]
pub fn confined(user: i64, is_read_only: bool) -> Value {
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "runAsGroup": NONROOT,
        "runAsNonRoot": true,
        "runAsUser": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    if is_read_only {
        context["readOnlyRootFilesystem"] = json!(true);
    }
    context
}

/// Returns the security context of the init container that confines the network of the pod, and ends before any other
/// container starts: root with the capability NET_ADMIN alone.
#[must_use]
pub fn network_init() -> Value {
    let mut context = confined(0, true);
    context["capabilities"]["add"] = json!(["NET_ADMIN"]);
    context["runAsNonRoot"] = json!(false);
    context["runAsGroup"] = json!(0);
    context
}

/// Returns the resources of a container that oz defines: the requested CPU and memory, and the limit of memory.
#[must_use]
pub fn footprint(cpu: &str, memory: &str, limit: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_network_init_is_root_and_has_a_capability() {
        for is_read_only in [false, true] {
            let context = confined(1337, is_read_only);
            assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
            assert_eq!(
                (&context["runAsNonRoot"], &context["runAsUser"]),
                (&json!(true), &json!(1337))
            );
            let root_filesystem = context.get("readOnlyRootFilesystem");
            assert_eq!(root_filesystem, is_read_only.then_some(&json!(true)));
        }
        let expected = json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
            "readOnlyRootFilesystem": true,
            "runAsGroup": 0,
            "runAsNonRoot": false,
            "runAsUser": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        });
        assert_eq!(network_init(), expected);
    }

    #[test]
    fn fields_that_confine_an_unattended_pod_replace_those_of_its_spec() {
        let own = json!({
            "containers": [{"name": "app"}],
            "automountServiceAccountToken": true,
            "restartPolicy": "Always",
            "securityContext": {"runAsNonRoot": false, "runAsUser": 0},
        });
        let mut expected = json!({
            "containers": [{"name": "app"}],
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        });
        assert_eq!(unattended(own.clone(), 5, None), expected);
        expected["securityContext"]["fsGroup"] = json!(NONROOT);
        expected["securityContext"]["fsGroupChangePolicy"] = json!("OnRootMismatch");
        assert_eq!(unattended(own, 5, Some(NONROOT)), expected);
    }
}
