//! Attempts to obtain the value of a credential, and to use another one.

use anyhow::Result;

use super::{fails, fails_with};

/// Sending the placeholder in another header, which the upstream returns: the proxy responds with 403.
#[tokio::test]
async fn placeholder_in_another_header() -> Result<()> {
    fails_with("placeholder_in_another_header", "403").await
}

/// Sending the placeholder in the path or the query, also with escapes: the proxy responds with 403.
#[tokio::test]
async fn placeholder_in_the_target() -> Result<()> {
    fails_with("placeholder_in_the_target", "403").await
}

/// Sending the placeholder with more text, or twice: the proxy responds with 403.
#[tokio::test]
async fn placeholder_with_more_text() -> Result<()> {
    fails_with("placeholder_with_more_text", "403").await
}

/// Sending the placeholder to another granted host, which returns the headers of requests: the proxy responds with 403
/// and names the hosts of the credential.
#[tokio::test]
async fn placeholder_for_another_host() -> Result<()> {
    fails_with("placeholder_for_another_host", "api.anthropic.com").await
}

/// Sending the placeholder without TLS, to read the value on the way: the proxy refuses it.
#[tokio::test]
async fn placeholder_without_tls() -> Result<()> {
    fails("placeholder_without_tls").await
}

/// Sending a text in the form of the placeholder of another run: the proxy responds with 403.
#[tokio::test]
async fn placeholder_of_another_run() -> Result<()> {
    fails_with("placeholder_of_another_run", "403").await
}

/// Sending a key of the agent's own to a host with a credential, which would carry the workspace to another account:
/// the proxy responds with 403, and the audit trail records it.
#[tokio::test]
async fn foreign_key() -> Result<()> {
    fails("foreign_key").await
}

/// Sending such a key in another header in which credentials are sent: the proxy responds with 403.
#[tokio::test]
async fn foreign_key_in_another_header() -> Result<()> {
    fails_with("foreign_key_in_another_header", "403").await
}

/// Sending such a key as a parameter of the query, also with escapes: the proxy responds with 403.
#[tokio::test]
async fn foreign_key_in_the_query() -> Result<()> {
    fails_with("foreign_key_in_the_query", "403").await
}

/// Sending such a key together with the placeholder: the proxy responds with 403.
#[tokio::test]
async fn foreign_key_beside_the_placeholder() -> Result<()> {
    fails_with("foreign_key_beside_the_placeholder", "403").await
}
