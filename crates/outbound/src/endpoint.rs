//! A server with the files of its certificate authorities and its bearer token. The endpoint reads the files for
//! each use: a Secret may have changed.

use std::path::{Path, PathBuf};

use http::HeaderValue;
use http::header::AUTHORIZATION;
use http::request::Builder;
use parking_lot::Mutex;

use crate::{Allowed, HttpClient, OutboundError, Trust, client};

/// A server, see the module.
#[derive(Debug)]
pub struct Endpoint {
    /// The allowed destinations of requests.
    pub allowed: Allowed,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    /// The client, which is created again when the certificate authorities change.
    client: Mutex<Option<(Trust, HttpClient)>>,
}

impl Endpoint {
    /// Creates an endpoint with the certificate authorities in `ca_file`, or the system's without it, and the
    /// bearer token in `token_file`.
    #[must_use]
    pub fn new(allowed: Allowed, ca_file: Option<PathBuf>, token_file: Option<PathBuf>) -> Self {
        Self {
            allowed,
            ca_file,
            token_file,
            client: Mutex::default(),
        }
    }

    /// Returns the client for requests to the server.
    ///
    /// # Errors
    /// When the certificate authorities cannot be read.
    pub fn client(&self) -> Result<HttpClient, OutboundError> {
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

    /// Adds the token to the request, if the endpoint has one.
    ///
    /// # Errors
    /// When the token cannot be read, or is not a token. No message contains it.
    pub fn authorized(&self, request: Builder) -> Result<Builder, OutboundError> {
        let Some(file) = &self.token_file else {
            return Ok(request);
        };
        let token = HeaderValue::from_str(&format!("Bearer {}", read(file)?.trim()));
        let mut token = token.map_err(|_| OutboundError::NoToken { file: file.clone() })?;
        token.set_sensitive(true);
        Ok(request.header(AUTHORIZATION, token))
    }
}

/// Returns the text of a file.
///
/// # Errors
/// The reason why the file cannot be read, with its path.
pub fn read(file: &Path) -> Result<String, OutboundError> {
    std::fs::read_to_string(file).map_err(|error| OutboundError::Read {
        file: file.to_owned(),
        error,
    })
}
