//! The digests of files, as releases and their manifests list them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 digest of a file in hexadecimal digits.
pub(crate) fn digest(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(oz_api::encode::hex(&Sha256::digest(bytes)))
}
