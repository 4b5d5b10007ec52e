//! A server with the files that say who vouches for it, and what token it wants. They are read anew each time: a
//! Secret may have been changed.

use std::path::{Path, PathBuf};

use http::HeaderValue;
use http::header::AUTHORIZATION;
use http::request::Builder;
use parking_lot::Mutex;

use crate::{Allowed, HttpClient, Trust, client};

/// See the module.
#[derive(Debug)]
pub struct Endpoint {
    /// Where requests may go.
    pub allowed: Allowed,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    /// It is made anew when other authorities vouch for the server.
    client: Mutex<Option<(Trust, HttpClient)>>,
}

impl Endpoint {
    /// One whose authorities are in `ca_file`, and the system's without, and whose bearer token is in `token_file`.
    #[must_use]
    pub fn new(allowed: Allowed, ca_file: Option<PathBuf>, token_file: Option<PathBuf>) -> Self {
        Self {
            allowed,
            ca_file,
            token_file,
            client: Mutex::default(),
        }
    }

    /// What sends requests.
    ///
    /// # Errors
    /// When the authorities cannot be read.
    pub fn client(&self) -> Result<HttpClient, String> {
        let trust = match &self.ca_file {
            Some(file) => Trust::Only(read(file)?.into_bytes()),
            None => Trust::System,
        };
        let mut known = self.client.lock();
        if let Some((trusted, client)) = &*known
            && *trusted == trust
        {
            return Ok(client.clone());
        }
        let client = client(self.allowed.clone(), &trust)?;
        *known = Some((trust, client.clone()));
        Ok(client)
    }

    /// The request with the token, if the server wants one.
    ///
    /// # Errors
    /// When the token cannot be read, or is none. It is in no message.
    pub fn authorized(&self, request: Builder) -> Result<Builder, String> {
        let Some(file) = &self.token_file else {
            return Ok(request);
        };
        let token = HeaderValue::from_str(&format!("Bearer {}", read(file)?.trim()));
        let mut token = token.map_err(|_| format!("{} has no token", file.display()))?;
        token.set_sensitive(true);
        Ok(request.header(AUTHORIZATION, token))
    }
}

/// What a file says.
///
/// # Errors
/// Why it cannot be read, with its path.
pub fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file)
        .map_err(|error| format!("failed to read {}: {error}", file.display()))
}
