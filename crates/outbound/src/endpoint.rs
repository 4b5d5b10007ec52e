//! A server with the files of its certificate authorities and of the headers that authenticate oz. The endpoint reads
//! the files for each use: a Secret may have changed.

use std::path::{Path, PathBuf};

use http::header::AUTHORIZATION;
use http::request::Builder;
use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;

use crate::{Allowed, HttpClient, OutboundError, Trust, client};

/// The maximum length of the value of a header, in bytes.
const LONGEST_VALUE: usize = 8 << 10;

/// The certificate authorities of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// The certificate authorities of the system.
    #[default]
    System,
    /// Those in a file, as PEM.
    File(PathBuf),
    /// The certificate authorities of the Web.
    Public,
}

impl Roots {
    /// Returns the certificate authorities of a configuration: those of the Web if `public`, else those in the file,
    /// else the system's.
    #[must_use]
    pub fn new(public: bool, file: Option<PathBuf>) -> Self {
        match file {
            _ if public => Self::Public,
            Some(file) => Self::File(file),
            None => Self::System,
        }
    }
}

/// The files with the headers that authenticate oz at a server.
#[derive(Clone, Debug, Default)]
pub struct CredentialFiles {
    /// The bearer token.
    pub token: Option<PathBuf>,
    /// The whole value of the header `Authorization`.
    pub authorization: Option<PathBuf>,
    /// Other headers by their names, with their values.
    pub headers: Vec<(String, PathBuf)>,
}

/// A server, see the module.
#[derive(Debug)]
pub struct Endpoint {
    /// The allowed destinations of requests.
    pub allowed: Allowed,
    roots: Roots,
    credentials: CredentialFiles,
    /// The client, which is created again when the certificate authorities change.
    client: Mutex<Option<(Trust, HttpClient)>>,
}

impl Endpoint {
    /// Creates an endpoint that verifies the server by `roots`, and authenticates with `credentials`.
    #[must_use]
    pub fn new(allowed: Allowed, roots: Roots, credentials: CredentialFiles) -> Self {
        Self {
            allowed,
            roots,
            credentials,
            client: Mutex::default(),
        }
    }

    /// Creates an endpoint without headers that authenticate oz.
    #[must_use]
    pub fn without_credentials(allowed: Allowed, roots: Roots) -> Self {
        Self::new(allowed, roots, CredentialFiles::default())
    }

    /// Returns the client for requests to the server.
    ///
    /// # Errors
    /// When the certificate authorities cannot be read.
    pub fn client(&self) -> Result<HttpClient, OutboundError> {
        let trust = match &self.roots {
            Roots::File(file) => Trust::Only(read(file)?.into_bytes()),
            Roots::System => Trust::System,
            Roots::Public => Trust::Public,
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

    /// Sets the headers that authenticate oz, if the endpoint has any. They replace headers of the same names.
    ///
    /// # Errors
    /// When a file cannot be read, or does not contain the value of a header. No message contains a value.
    pub fn authenticated(&self, mut request: Builder) -> Result<Builder, OutboundError> {
        let mut set = |name: HeaderName, value: HeaderValue| {
            if let Some(headers) = request.headers_mut() {
                headers.insert(name, value);
            }
        };
        let credentials = &self.credentials;
        if let Some(file) = &credentials.token {
            set(AUTHORIZATION, value(file, "Bearer ")?);
        }
        if let Some(file) = &credentials.authorization {
            set(AUTHORIZATION, value(file, "")?);
        }
        for (name, file) in &credentials.headers {
            let known = HeaderName::from_bytes(name.as_bytes());
            let known = known.map_err(|_| OutboundError::NoHeaderName { name: name.clone() })?;
            set(known, value(file, "")?);
        }
        Ok(request)
    }
}

/// Returns the value of a header: a prefix, and the text of a file without the blanks around it.
fn value(file: &Path, prefix: &str) -> Result<HeaderValue, OutboundError> {
    let invalid = || OutboundError::NoHeaderValue {
        file: file.to_owned(),
    };
    let text = read(file)?;
    let text = text.trim();
    if text.is_empty() || text.len() > LONGEST_VALUE {
        return Err(invalid());
    }
    let value = HeaderValue::from_str(&format!("{prefix}{text}"));
    let mut value = value.map_err(|_| invalid())?;
    value.set_sensitive(true);
    Ok(value)
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

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    /// A directory with the key of a Secret.
    struct Secret(tempfile::TempDir);

    impl Secret {
        fn with(key: &str, text: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join(key), text).unwrap();
            Self(directory)
        }

        fn file(&self, key: &str) -> PathBuf {
            self.0.path().join(key)
        }
    }

    fn sent(credentials: CredentialFiles) -> Result<Request<()>, OutboundError> {
        let endpoint = Endpoint::new(Allowed::default(), Roots::System, credentials);
        let request = Request::get("https://a.test/").header("accept", "application/json");
        let request = endpoint.authenticated(request)?.body(());
        Ok(request.unwrap_or_default())
    }

    #[test]
    fn authorization_is_whole_value_of_header() {
        for (key, text, expected) in [
            ("token", "abc\n", "Bearer abc"),
            (
                "authorization",
                "Basic b3o6cGFzcw==\n",
                "Basic b3o6cGFzcw==",
            ),
            ("authorization", "Token token=abc", "Token token=abc"),
            ("authorization", " GenieKey abc ", "GenieKey abc"),
        ] {
            let secret = Secret::with(key, text);
            let file = Some(secret.file(key));
            let (token, authorization) = match key {
                "token" => (file, None),
                _ => (None, file),
            };
            let request = sent(CredentialFiles {
                token,
                authorization,
                headers: Vec::new(),
            });
            let request = request.unwrap();
            let all: Vec<_> = request.headers().get_all(AUTHORIZATION).iter().collect();
            assert_eq!(all, [expected], "{key} {text:?}");
            assert!(all[0].is_sensitive());
        }
    }

    #[test]
    fn configured_header_replaces_header_of_same_name() {
        let secret = Secret::with("accept", "application/vnd.pagerduty+json;version=2\n");
        let headers = vec![("Accept".to_owned(), secret.file("accept"))];
        let request = sent(CredentialFiles {
            headers,
            ..CredentialFiles::default()
        });
        let request = request.unwrap();
        let all: Vec<_> = request.headers().get_all("accept").iter().collect();
        assert_eq!(all, ["application/vnd.pagerduty+json;version=2"]);
    }

    #[test]
    fn unusable_secret_is_reported_with_file_and_without_text() {
        for (text, why) in [
            (Some(""), "no value of a header"),
            (Some(" \n"), "no value of a header"),
            (
                Some("Basic secret\nHost: evil.test"),
                "no value of a header",
            ),
            (Some(&*"secret".repeat(2_000)), "no value of a header"),
            (None, "failed to read"),
        ] {
            let secret = Secret::with("other", "");
            let file = secret.file("authorization");
            if let Some(text) = text {
                std::fs::write(&file, text).unwrap();
            }
            let refused = sent(CredentialFiles {
                authorization: Some(file.clone()),
                ..CredentialFiles::default()
            });
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
            assert!(refused.contains(&file.display().to_string()), "{refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn roots_of_web_replace_those_of_system() {
        let file = PathBuf::from("/etc/oz/ca.crt");
        assert_eq!(Roots::new(true, None), Roots::Public);
        assert_eq!(Roots::new(false, None), Roots::System);
        assert_eq!(Roots::new(false, Some(file.clone())), Roots::File(file));
        let endpoint = Endpoint::without_credentials(Allowed::default(), Roots::Public);
        assert!(endpoint.client().is_ok());
    }
}
