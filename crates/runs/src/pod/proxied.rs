//! The part of the pod of a run by which connections are intercepted: `netinit` confines the network of the pod, then the
//! proxy starts, and every other container trusts its certificate authority.

use oz_api::harness::interception::{TRUST_FILE, TRUST_NAME, TRUST_VARIABLES, placeholder};
use oz_api::harness::wire::PROXY_AUDIENCE;
use oz_core::confine::json::append;
use oz_core::confine::security::{self, confined, footprint};
use serde_json::{Value, json};

use super::{Parts, token};
use crate::overlay::variable;
use crate::reserved;

/// The directories of the proxy.
const TOKEN_DIR: &str = "/var/run/secrets/oz-proxy";
const AUTHORITY_DIR: &str = "/var/lib/oz/authority";
const TRUST_DIR: &str = "/var/lib/oz/trust";
/// The maximum size of each of its volumes, which are memory.
const VOLUME_SIZE: &str = "1Mi";

/// Returns the container that runs first, and alone: it writes the rules of the pod's network, and tries them.
pub(super) fn network_init(parts: &Parts<'_>) -> Value {
    json!({
        "name": reserved::NETINIT,
        "image": parts.settings.image,
        "imagePullPolicy": parts.settings.pull_policy,
        "command": ["/oz-harness", "netinit"],
        "resources": footprint("5m", "8Mi", "32Mi"),
        "securityContext": security::network_init(),
        // The reason for its failure is the reason for the failure of the run.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

/// Returns the proxy.
pub(super) fn proxy(parts: &Parts<'_>) -> Value {
    let denied = parts.settings.denied.iter().map(ToString::to_string);
    let denied: Vec<String> = denied.collect();
    let addresses = json!({
        "name": "OZ_POD_IPS",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIPs"}},
    });
    json!({
        "name": reserved::PROXY,
        "image": parts.settings.image,
        "imagePullPolicy": parts.settings.pull_policy,
        "command": ["/oz-harness", "proxy"],
        "env": [
            variable("OZ_BROKER_URL", &parts.broker.url()),
            variable("OZ_BROKER_CA", &parts.broker.certificates),
            variable("OZ_BROKER_TOKEN", &format!("{TOKEN_DIR}/token")),
            variable("OZ_DENIED_RANGES", &denied.join(",")),
            variable("OZ_AUTHORITY_DIR", AUTHORITY_DIR),
            variable("OZ_TRUST_DIR", TRUST_DIR),
            addresses,
            variable("PADDOCK_RUN_NAME", parts.run),
            variable("POD_NAMESPACE", parts.namespace),
        ],
        "restartPolicy": "Always",
        "lifecycle": {
            "postStart": {"exec": {"command": ["/oz-harness", "proxy-ready", "--within=30"]}},
        },
        "resources": footprint("5m", "16Mi", "64Mi"),
        "securityContext": confined(reserved::PROXY_USER, true),
        "volumeMounts": [
            {"name": reserved::PROXY_TOKEN_VOLUME, "mountPath": TOKEN_DIR, "readOnly": true},
            {"name": reserved::AUTHORITY_VOLUME, "mountPath": AUTHORITY_DIR},
            {"name": reserved::TRUST_VOLUME, "mountPath": TRUST_DIR},
        ],
    })
}

/// Returns the volumes of the proxy.
pub(super) fn volumes() -> [Value; 3] {
    let memory = |name: &str| {
        let source = json!({"medium": "Memory", "sizeLimit": VOLUME_SIZE});
        json!({"name": name, "emptyDir": source})
    };
    [
        token(reserved::PROXY_TOKEN_VOLUME, PROXY_AUDIENCE),
        memory(reserved::AUTHORITY_VOLUME),
        memory(reserved::TRUST_VOLUME),
    ]
}

/// Has a container trust the authority of the proxy, and the public authorities.
pub(super) fn trust(container: &mut Value) {
    for list in ["env", "volumeMounts"] {
        if !container[list].is_array() {
            container[list] = json!([]);
        }
    }
    let variables = TRUST_VARIABLES.map(|name| variable(name, TRUST_FILE));
    append(&mut container["env"], variables);
    let mount = json!({
        "name": reserved::TRUST_VOLUME,
        "mountPath": TRUST_FILE,
        "subPath": TRUST_NAME,
        "readOnly": true,
    });
    append(&mut container["volumeMounts"], [mount]);
}

/// Returns the agent's variables for its credentials: a placeholder where the proxy injects the value, a reference that
/// the kubelet resolves where the agent has the value.
pub(super) fn credentials(parts: &Parts<'_>) -> impl Iterator<Item = Value> {
    parts.credentials.iter().map(|credential| {
        let name = &credential.name;
        if credential.is_injected() {
            return variable(name, &placeholder(parts.uid, name));
        }
        let secret = &credential.secret;
        let reference = json!({"name": secret.name, "key": secret.key});
        json!({"name": name, "valueFrom": {"secretKeyRef": reference}})
    })
}
