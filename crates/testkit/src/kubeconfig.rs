//! Kubeconfig files: written as JSON, which every reader of YAML takes.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::pki::Identity;

/// Returns a kubeconfig for `user`, which contains the keys themselves: the file can be copied.
pub(crate) fn kubeconfig(
    server_url: &str,
    authority: &str,
    user: &str,
    identity: &Identity,
) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "oz",
            "cluster": {
                "server": server_url,
                "certificate-authority-data": STANDARD.encode(authority),
            },
        }],
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": STANDARD.encode(&identity.certificate),
                "client-key-data": STANDARD.encode(&identity.key),
            },
        }],
        "contexts": [{ "name": "oz", "context": { "cluster": "oz", "user": user } }],
        "current-context": "oz",
    }))
    .with_context(|| format!("failed to write the kubeconfig of {user}"))
}

/// Returns the file name for a user's kubeconfig: user names may contain `:`, `/` and more.
pub(crate) fn file_name(user: &str) -> String {
    let safe = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' | '@' => character,
        _ => '_',
    };
    format!("{}.kubeconfig", user.chars().map(safe).collect::<String>())
}
