//! With what requests are signed: files, as a Secret is mounted, or what a token of the pod's account is exchanged for.

use std::path::PathBuf;

use oz_outbound::read;
use rusty_s3::Credentials;

use super::web_identity::Role;

/// Where credentials come from.
#[derive(Debug)]
pub(super) enum Source {
    /// Files, which are read for each call, as they may have changed.
    Files(CredentialFiles),
    /// The role of a web identity, for as long as it is given.
    Role(Box<Role>),
}

impl Source {
    /// # Errors
    /// Why there are none. What is secret is in no message.
    pub(super) async fn get(&self) -> Result<Credentials, String> {
        match self {
            Self::Files(files) => files.read(),
            Self::Role(role) => role.credentials().await,
        }
    }
}

/// The directory they are in.
#[derive(Debug)]
pub(super) struct CredentialFiles {
    pub(super) directory: PathBuf,
}

impl CredentialFiles {
    /// # Errors
    /// Which file cannot be read, or is empty.
    fn read(&self) -> Result<Credentials, String> {
        let (key, secret) = (self.file("access-key-id")?, self.file("secret-access-key")?);
        let token = self.directory.join("session-token");
        if token.exists() {
            let token = self.file("session-token")?;
            return Ok(Credentials::new_with_token(key, secret, token));
        }
        Ok(Credentials::new(key, secret))
    }

    fn file(&self, name: &str) -> Result<String, String> {
        let path = self.directory.join(name);
        let text = read(&path)?;
        match text.trim() {
            "" => Err(format!("failed to read {}: it is empty", path.display())),
            text => Ok(text.to_owned()),
        }
    }
}
