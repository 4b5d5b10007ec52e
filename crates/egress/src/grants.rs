//! The grants of a run as its proxy uses them: every host and place is parsed once, when the broker answers.

use http::header::{self, HeaderName, HeaderValue};
use oz_api::harness::wire::{CredentialPlace, InjectedCredential, RunGrants};
use oz_api::harness::{HostError, Hosts};

use crate::placeholder;

/// Headers that carry the message itself: a credential in one of them would change the meaning of the request.
const OF_THE_MESSAGE: [HeaderName; 8] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
];

/// The reason why grants cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// A granted host.
    #[error("the granted host {host:?} {why}")]
    Host {
        /// The host.
        host: String,
        /// The reason.
        why: HostError,
    },
    /// A host of a credential.
    #[error("credential {credential}: the host {host:?} {why}")]
    CredentialHost {
        /// The name of the credential.
        credential: String,
        /// The host.
        host: String,
        /// The reason.
        why: HostError,
    },
    /// The placeholder of a credential.
    #[error("credential {credential}: {placeholder:?} does not have the form of a placeholder")]
    Placeholder {
        /// The name of the credential.
        credential: String,
        /// The text.
        placeholder: String,
    },
    /// The place of a credential.
    #[error("credential {credential}: {why}")]
    Place {
        /// The name of the credential.
        credential: String,
        /// The reason.
        why: String,
    },
}

/// The grants of a run.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    digest: String,
    certificates: String,
    hosts: Vec<(Hosts, Vec<u16>)>,
    credentials: Vec<Credential>,
}

/// A credential with its hosts and the header of its place.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    pub(crate) injected: InjectedCredential,
    pub(crate) header: Option<HeaderName>,
    hosts: Vec<Hosts>,
}

impl Credential {
    pub(crate) fn is_for(&self, host: &str) -> bool {
        self.hosts.iter().any(|hosts| hosts.matches(host))
    }
}

impl Granted {
    /// Parses the grants that the broker reports. Of two credentials with the same name or placeholder, the first one
    /// counts.
    ///
    /// # Errors
    /// The first host, placeholder or place that cannot be read.
    pub fn parse(grants: &RunGrants) -> Result<Self, GrantError> {
        let host = |grant: &oz_api::harness::wire::HostGrant| match grant.host.parse() {
            Ok(hosts) => Ok((hosts, grant.ports.clone())),
            Err(why) => Err(GrantError::Host {
                host: grant.host.clone(),
                why,
            }),
        };
        let mut credentials: Vec<Credential> = Vec::new();
        for injected in &grants.credentials {
            let credential = credential(injected)?;
            let is_same = |other: &Credential| {
                other.injected.name == injected.name
                    || other.injected.placeholder == injected.placeholder
            };
            if !credentials.iter().any(is_same) {
                credentials.push(credential);
            }
        }
        Ok(Self {
            digest: grants.digest.clone(),
            certificates: grants.certificates.clone(),
            hosts: grants.hosts.iter().map(host).collect::<Result<_, _>>()?,
            credentials,
        })
    }

    /// The digest, for the next request to the broker.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The certificate authorities of upstreams, as PEM, in addition to the public ones.
    #[must_use]
    pub fn certificates(&self) -> &str {
        &self.certificates
    }

    /// Checks whether a credential is granted for a host, in this version.
    #[must_use]
    pub fn has_credential(&self, name: &str, host: &str, version: &str) -> bool {
        let mut credentials = self.credentials.iter();
        let credential = credentials.find(|credential| credential.injected.name == name);
        credential.is_some_and(|credential| {
            credential.injected.version == version && credential.is_for(host)
        })
    }

    /// Checks whether a host is granted on any port, in any case, with or without the dot at its end.
    #[must_use]
    pub fn has_name(&self, host: &str) -> bool {
        self.hosts.iter().any(|(hosts, _)| hosts.matches(host))
    }

    /// Checks whether a host is granted on this port.
    #[must_use]
    pub fn allows(&self, host: &str, port: u16) -> bool {
        self.hosts.iter().any(|(hosts, ports)| {
            let is_any_port = ports.is_empty() || ports.contains(&0);
            (is_any_port || ports.contains(&port)) && hosts.matches(host)
        })
    }

    /// Returns the credential with this name.
    #[must_use]
    pub fn credential(&self, name: &str) -> Option<&InjectedCredential> {
        let mut credentials = self.credentials.iter();
        let found = credentials.find(|credential| credential.injected.name == name);
        found.map(|credential| &credential.injected)
    }

    /// Returns the credentials for a host.
    pub(crate) fn credentials_of(&self, host: &str) -> Vec<&Credential> {
        let credentials = self.credentials.iter();
        credentials.filter(|one| one.is_for(host)).collect()
    }

    /// Returns the credential with this placeholder.
    pub(crate) fn by_placeholder(&self, placeholder: &str) -> Option<&Credential> {
        let mut credentials = self.credentials.iter();
        credentials.find(|credential| credential.injected.placeholder == placeholder)
    }
}

fn credential(injected: &InjectedCredential) -> Result<Credential, GrantError> {
    let name = || injected.name.clone();
    if !placeholder::is_placeholder(&injected.placeholder) {
        return Err(GrantError::Placeholder {
            credential: name(),
            placeholder: injected.placeholder.clone(),
        });
    }
    let host = |host: &String| {
        host.parse().map_err(|why| GrantError::CredentialHost {
            credential: name(),
            host: host.clone(),
            why,
        })
    };
    let hosts = injected.hosts.iter().map(host);
    let hosts = hosts.collect::<Result<_, _>>()?;
    let header = header_of(&injected.place).map_err(|why| GrantError::Place {
        credential: name(),
        why,
    })?;
    Ok(Credential {
        injected: injected.clone(),
        header,
        hosts,
    })
}

/// Returns the header of a place; `None` for a query parameter.
pub(crate) fn header_of(place: &CredentialPlace) -> Result<Option<HeaderName>, String> {
    let header = match place {
        CredentialPlace::Header { name, prefix } => {
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("{name:?} is not a name of a header"))?;
            if OF_THE_MESSAGE.contains(&header) {
                return Err(format!("the header {header} may not hold a credential"));
            }
            HeaderValue::from_str(prefix)
                .map_err(|_| format!("{prefix:?} may not be part of a header"))?;
            Some(header)
        }
        CredentialPlace::Query { name } if name.is_empty() => {
            return Err("the query parameter has no name".to_owned());
        }
        CredentialPlace::Query { .. } => None,
        CredentialPlace::Basic { username } if username.contains(':') => {
            return Err(format!("{username:?} may not contain a colon"));
        }
        CredentialPlace::Basic { .. } => Some(header::AUTHORIZATION),
        CredentialPlace::Anthropic => Some(HeaderName::from_static("x-api-key")),
    };
    Ok(header)
}
