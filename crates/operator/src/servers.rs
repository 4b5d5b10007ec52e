//! The servers that the operator asks, with their Secrets: those of ticket checks and of hooks.

use std::path::Path;

use oz_core::tickets::CheckSecret;
use oz_outbound::{Allowed, CredentialFiles, Endpoint, Roots};

/// Returns a server with its Secret, which is mounted in a directory, and whether it has a certificate of the Web.
pub(crate) fn endpoint(
    allowed: Allowed,
    (secret, public_roots): (&CheckSecret, bool),
    directory: &Path,
) -> Endpoint {
    let file = |key: &Option<String>| key.as_ref().map(|key| directory.join(key));
    let credentials = CredentialFiles {
        token: file(&secret.token),
        authorization: file(&secret.authorization),
        headers: secret.headers.files(directory),
    };
    Endpoint::new(
        allowed,
        Roots::new(public_roots, file(&secret.ca)),
        credentials,
    )
}
