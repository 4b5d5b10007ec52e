//! The address of the webhooks for the API server.
//!
//! One value determines three settings that must agree: the registered address, the names in the
//! certificate, and the manager's namespace.
//!
//! See
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#contacting-the-webhook>.

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{ServiceReference, WebhookClientConfig},
};

/// The address of the webhooks for the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// A Service, the usual endpoint in a cluster.
    Service {
        /// The name of the Service.
        name: String,
        /// The namespace of the Service.
        namespace: String,
        /// The port of the Service (not of the pod); usually 443.
        port: u16,
    },
    /// A URL that the API server can reach directly, for instance `https://10.0.0.7:8443`. For extensions
    /// outside the cluster, and for tests.
    Url(String),
}

/// The error for the URL of an endpoint that no API server can call.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The text is no URL.
    #[error("{url:?} is not a URL: {why}")]
    Malformed {
        /// The text.
        url: String,
        /// The error of the parser.
        why: String,
    },
    /// The API server calls webhooks by https only.
    #[error("{url:?} must begin with https://")]
    Scheme {
        /// The URL.
        url: String,
    },
    /// A path is appended to the URL.
    #[error("{url:?} must have no query")]
    Query {
        /// The URL.
        url: String,
    },
    /// The URL has no host.
    #[error("{url:?} must have a host")]
    Host {
        /// The URL.
        url: String,
    },
}

impl Endpoint {
    /// Checks a URL and returns its host.
    pub(crate) fn host_of(url: &str) -> Result<String, EndpointError> {
        let uri: axum::http::Uri =
            url.parse().map_err(
                |error: axum::http::uri::InvalidUri| EndpointError::Malformed {
                    url: url.to_owned(),
                    why: error.to_string(),
                },
            )?;
        let url = || url.to_owned();
        if uri.scheme_str() != Some("https") {
            return Err(EndpointError::Scheme { url: url() });
        }
        if uri.query().is_some() {
            return Err(EndpointError::Query { url: url() });
        }
        let host = uri
            .host()
            .ok_or_else(|| EndpointError::Host { url: url() })?;
        // An IPv6 host is enclosed in brackets, which are not part of the address.
        Ok(host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned())
    }

    /// Returns the names and addresses that the certificate must contain.
    pub(crate) fn certificate_names(&self) -> Vec<String> {
        match self {
            Self::Service {
                name, namespace, ..
            } => vec![
                format!("{name}.{namespace}.svc"),
                format!("{name}.{namespace}.svc.cluster.local"),
                format!("{name}.{namespace}"),
            ],
            Self::Url(url) => Self::host_of(url).into_iter().collect(),
        }
    }

    /// Builds the client configuration of a webhook served under `path`, behind `segment` if there is one.
    pub(crate) fn client_config(
        &self,
        segment: Option<&str>,
        path: &str,
        bundle: Option<&str>,
    ) -> WebhookClientConfig {
        let path = match segment {
            Some(segment) => format!("/{segment}{path}"),
            None => path.to_owned(),
        };
        let ca_bundle = bundle.map(|bundle| ByteString(bundle.as_bytes().to_vec()));
        match self {
            Self::Service {
                name,
                namespace,
                port,
            } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    name: name.clone(),
                    namespace: namespace.clone(),
                    path: Some(path),
                    port: Some(i32::from(*port)),
                }),
                url: None,
            },
            Self::Url(url) => WebhookClientConfig {
                ca_bundle,
                service: None,
                url: Some(format!("{}{path}", url.trim_end_matches('/'))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_known_by_the_names_the_api_server_may_check() {
        let endpoint = Endpoint::Service {
            name: "hooks".into(),
            namespace: "acme".into(),
            port: 443,
        };
        assert_eq!(endpoint.certificate_names()[0], "hooks.acme.svc");
    }

    #[test]
    fn a_url_gives_its_host_without_port_and_brackets() {
        for (url, host) in [
            ("https://127.0.0.1:8443", "127.0.0.1"),
            ("https://[::1]:8443/", "::1"),
            ("https://hooks.example.com", "hooks.example.com"),
        ] {
            assert_eq!(Endpoint::Url(url.into()).certificate_names(), [host]);
        }
    }

    #[test]
    fn a_url_without_tls_is_refused() {
        assert!(Endpoint::host_of("http://127.0.0.1:80").is_err());
        assert!(Endpoint::host_of("not a url").is_err());
    }
}
