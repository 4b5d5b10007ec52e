//! Names that are ours in a run's pod: of containers, volumes, labels, users and environment variables.

use oz_api::labels;

/// Name of the agent's container.
pub const AGENT: &str = "agent";
/// Name of the container that reads the agent's output.
pub const RUNTIME: &str = "runtime";
/// Name of our own container beside a runtime of others.
pub const REPORTER: &str = "oz";
/// Name of the proxy's container.
pub const PROXY: &str = "proxy";
/// Names of containers that nobody else may have.
pub const CONTAINERS: [&str; 4] = [AGENT, RUNTIME, REPORTER, PROXY];

/// The user of an agent, and the group of all files of a run.
pub const AGENT_USER: i64 = 65_532;
/// The user of the proxy.
pub const PROXY_USER: i64 = 1_337;
/// The user of our own container.
pub const REPORTER_USER: i64 = 1_338;
/// The user of a runtime of others.
pub const RUNTIME_USER: i64 = 1_339;

/// The volume with the workspace.
pub const WORKSPACE_VOLUME: &str = "workspace";
/// The volume that the containers of a run share.
pub const SHARED_VOLUME: &str = "paddock";
/// The volume with the prompt.
pub const PROMPT_VOLUME: &str = "paddock-prompt";
/// The volume with the token for the broker.
pub const TOKEN_VOLUME: &str = "oz-token";

/// Variables that connections are looked into by.
const VARIABLES: [&str; 13] = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    "PIP_CERT",
];

/// Whether nobody but us sets an environment variable, in whichever case it is written.
#[must_use]
pub fn is_variable(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.starts_with("PADDOCK_") || name == "HOME" || VARIABLES.contains(&name.as_str())
}

/// Whether a user is that of one of our containers.
#[must_use]
pub fn is_user(user: i64) -> bool {
    [PROXY_USER, REPORTER_USER, RUNTIME_USER].contains(&user)
}

/// Whether a volume is ours by its name.
#[must_use]
pub fn is_volume(name: &str) -> bool {
    name == WORKSPACE_VOLUME
        || name == SHARED_VOLUME
        || name.starts_with("paddock-")
        || name.starts_with("oz-")
}

/// Whether a label or annotation is ours, or a Job's, by its key.
#[must_use]
pub fn is_mark(key: &str) -> bool {
    const PREFIXES: [&str; 2] = ["paddock.dev/", "batch.kubernetes.io/"];
    const KEYS: [&str; 3] = [labels::MANAGED_BY, labels::CONTROLLER_UID, "job-name"];
    labels::is_own(key)
        || KEYS.contains(&key)
        || PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}
