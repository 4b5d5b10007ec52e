//! The credentials that sign requests: files, as in a mounted Secret, or the result of the exchange of a token of the
//! pod's service account.

use std::path::PathBuf;

use oz_outbound::read;
use rusty_s3::Credentials;

use super::CallError;
use super::web_identity::Role;

/// The source of the credentials.
#[derive(Debug)]
pub(super) enum Source {
    /// The files, which are read for each call, as they may have changed.
    Files(CredentialFiles),
    /// The role of a web identity, with credentials of limited validity.
    Role(Box<Role>),
}

impl Source {
    /// # Errors
    /// When there are no credentials; the error contains the cause. No message contains a secret.
    pub(super) async fn get(&self) -> Result<Credentials, CallError> {
        match self {
            Self::Files(files) => files.read(),
            Self::Role(role) => role.credentials().await,
        }
    }
}

/// The directory with the files of the credentials.
#[derive(Debug)]
pub(super) struct CredentialFiles {
    pub(super) directory: PathBuf,
}

impl CredentialFiles {
    /// # Errors
    /// When a file cannot be read or is empty; the error names the file.
    fn read(&self) -> Result<Credentials, CallError> {
        let (key, secret) = (self.file("access-key-id")?, self.file("secret-access-key")?);
        let token = self.directory.join("session-token");
        if token.exists() {
            let token = self.file("session-token")?;
            return Ok(Credentials::new_with_token(key, secret, token));
        }
        Ok(Credentials::new(key, secret))
    }

    fn file(&self, name: &str) -> Result<String, CallError> {
        let path = self.directory.join(name);
        let text = read(&path).map_err(CallError::failed)?;
        match text.trim() {
            "" => Err(CallError::EmptyFile { path }),
            text => Ok(text.to_owned()),
        }
    }
}
