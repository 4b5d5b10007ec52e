//! Reserved names in the pod of a run: of containers, volumes, labels, users and environment variables.

use oz_api::harness::interception;
use oz_api::labels;
use oz_core::confine::security;

/// Name of the agent's container.
pub const AGENT: &str = "agent";
/// Name of the container that reads the agent's output.
pub const RUNTIME: &str = "runtime";
/// Name of the container of oz next to a runtime of the template.
pub const REPORTER: &str = "oz";
/// Name of the proxy's container.
pub const PROXY: &str = "proxy";
/// Name of the init container that confines the network of the pod.
pub const NETINIT: &str = "netinit";
/// Names of containers that a template may not use.
pub const CONTAINERS: [&str; 5] = [AGENT, RUNTIME, REPORTER, PROXY, NETINIT];

/// The user of an agent, and the group of all files of a run.
pub const AGENT_USER: i64 = security::NONROOT;
/// The user of the proxy.
pub const PROXY_USER: i64 = interception::PROXY_USER as i64;
/// The user of the container of oz.
pub const REPORTER_USER: i64 = interception::REPORTER_USER as i64;
/// The user of a runtime of the template.
pub const RUNTIME_USER: i64 = 1_339;

/// The volume with the workspace.
pub const WORKSPACE_VOLUME: &str = "workspace";
/// The volume that the containers of a run share.
pub const SHARED_VOLUME: &str = "paddock";
/// The volume with the prompt.
pub const PROMPT_VOLUME: &str = "paddock-prompt";
/// The volume with the token for the broker.
pub const TOKEN_VOLUME: &str = "oz-token";

/// The volume with the proxy's token for the broker.
pub const PROXY_TOKEN_VOLUME: &str = "oz-proxy-token";
/// The volume with the key of the proxy's certificate authority, which the proxy alone mounts.
pub const AUTHORITY_VOLUME: &str = "oz-authority";
/// The volume with the certificates that the containers of a run trust.
pub const TRUST_VOLUME: &str = "oz-trust";

/// The variables that name proxies.
const VARIABLES: [&str; 4] = ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"];

/// Checks whether only oz may set an environment variable, in upper or lower case.
#[must_use]
pub fn is_variable(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let name = name.as_str();
    name.starts_with("PADDOCK_")
        || name == "HOME"
        || VARIABLES.contains(&name)
        || interception::TRUST_VARIABLES.contains(&name)
}

/// Checks whether a user is that of a container of oz.
#[must_use]
pub fn is_user(user: i64) -> bool {
    [PROXY_USER, REPORTER_USER, RUNTIME_USER].contains(&user)
}

/// Checks whether the name of a volume is reserved.
#[must_use]
pub fn is_volume(name: &str) -> bool {
    name == WORKSPACE_VOLUME
        || name == SHARED_VOLUME
        || name.starts_with("paddock-")
        || name.starts_with("oz-")
}

/// Checks whether the key of a label or annotation is reserved for oz or for Jobs.
#[must_use]
pub fn is_mark(key: &str) -> bool {
    const PREFIXES: [&str; 2] = ["paddock.dev/", "batch.kubernetes.io/"];
    const KEYS: [&str; 3] = [labels::MANAGED_BY, labels::CONTROLLER_UID, "job-name"];
    labels::is_own(key)
        || KEYS.contains(&key)
        || PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}
