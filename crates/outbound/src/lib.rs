//! HTTP to servers that users configure, such as functions of composites and receivers of notifications. The client
//! connects to no address that only this process or its machine can reach, whichever address a name resolves to; it
//! resolves a name once, in this crate, so that the name cannot resolve to another address when the client connects.
//! The client follows no redirect, and uses the proxy of a program only if the program passes it ([`Proxies`]).

mod address;
mod connector;
mod endpoint;
mod error;
mod proxies;
pub mod proxy;
mod resolver;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_rustls::builderstates::WantsSchemes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

pub use connector::Connector;
pub use endpoint::{CredentialFiles, Endpoint, Roots, read};
pub use error::{OutboundError, ProxyError};
pub use proxies::{Proxies, ProxySettings};
pub use proxy::NoProxyUrl;
pub use resolver::Resolver;

/// The time after which an idle connection is closed.
const IDLE: Duration = Duration::from_secs(60);
/// The maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client for requests. Clones share connections.
pub type HttpClient = Client<HttpsConnector<Connector>, Full<Bytes>>;

/// The allowed destinations of requests.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// The hosts, in lower case, that may have any address.
    pub hosts: Arc<BTreeSet<String>>,
    /// The addresses of the API server, which would accept a request as one from oz's network.
    pub api_servers: Arc<[IpAddr]>,
    /// The proxies through which requests are sent.
    pub proxies: Proxies,
}

impl Allowed {
    /// Creates the destinations of a client for one host, which may have any address: the administrator of oz names it,
    /// and it may well be next to oz.
    #[must_use]
    pub fn any_address_of(host: &str, proxies: &Proxies) -> Self {
        let host = host.to_lowercase();
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            hosts: Arc::new(BTreeSet::from([literal.to_owned(), format!("[{literal}]")])),
            proxies: proxies.clone(),
            ..Self::default()
        }
    }

    /// Checks whether a request for this host may be sent to this address.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), OutboundError> {
        let address = address.to_canonical();
        if self.hosts.contains(&host.to_lowercase()) {
            return Ok(());
        }
        let reached = address::reached(address);
        if let Some(why) = address::refused(reached) {
            return Err(OutboundError::Refused { address, why });
        }
        if self.api_servers.contains(&reached) {
            return Err(OutboundError::ApiServer { address });
        }
        Ok(())
    }

    /// Parses a URL that may receive requests.
    ///
    /// # Errors
    /// The reason why it may not. The message does not contain the URL.
    pub fn url(&self, text: &str) -> Result<Uri, OutboundError> {
        let url: Uri = text.parse().map_err(OutboundError::NoUrl)?;
        self.check_url(&url)?;
        Ok(url)
    }

    /// Checks whether a URL names a server that may receive requests. The addresses of its name are checked
    /// when the name is resolved.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn check_url(&self, url: &Uri) -> Result<(), OutboundError> {
        if !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err(OutboundError::Scheme);
        }
        let authority = url.authority().ok_or(OutboundError::NoHost)?;
        if authority.as_str().contains('@') {
            return Err(OutboundError::UserInfo);
        }
        self.check_host(authority.host())
    }

    /// Checks the host of a URL. A name passes: its addresses are checked when it is resolved.
    ///
    /// # Errors
    /// The reason why the host may receive no request.
    pub(crate) fn check_host(&self, host: &str) -> Result<(), OutboundError> {
        let name = proxy::plain(host);
        if name.is_empty() {
            return Err(OutboundError::NoHost);
        }
        if let Ok(address) = name.parse() {
            return self.check(host, address);
        }
        // Such as an address with a zone: a text that does not resolve here could be an address for a proxy.
        if host.contains(['[', ']']) && !self.hosts.contains(&host.to_lowercase()) {
            return Err(OutboundError::NoAddress);
        }
        Ok(())
    }
}

/// Returns the address in a URL; `None` if its host is a name.
#[must_use]
pub fn address_of(url: &Uri) -> Option<IpAddr> {
    proxy::plain(url.host()?).parse().ok()
}

/// The certificate authorities that the client trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The certificate authorities of the system. If the system has none, as in the image, requests to servers behind
    /// https fail.
    System,
    /// Only these, as PEM.
    Only(Vec<u8>),
    /// The certificate authorities of the Web, by Mozilla's list, which is compiled in.
    Public,
}

/// Creates a client that connects only to allowed destinations.
///
/// # Errors
/// When the trusted PEM contains no certificate.
pub fn client(allowed: Allowed, trust: &Trust) -> Result<HttpClient, OutboundError> {
    let trusting = match trust {
        Trust::System => HttpsConnectorBuilder::new()
            .try_with_platform_verifier()
            .unwrap_or_else(|error| {
                tracing::info!(%error, "requests over https are not possible; SSL_CERT_FILE names \
                    certificate authorities");
                trusting(RootCertStore::empty())
            }),
        Trust::Only(pem) => trusting(roots(pem)?),
        Trust::Public => trusting(public_roots()),
    };
    let connector = trusting
        .https_or_http()
        .enable_http1()
        .wrap_connector(Connector::new(allowed));
    Ok(Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .build(connector))
}

fn trusting(roots: RootCertStore) -> HttpsConnectorBuilder<WantsSchemes> {
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    HttpsConnectorBuilder::new().with_tls_config(config)
}

/// Returns Mozilla's certificate authorities.
fn public_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    roots
}

fn roots(pem: &[u8]) -> Result<RootCertStore, OutboundError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(OutboundError::NoCertificate)?;
        roots.add(certificate).map_err(OutboundError::NoAuthority)?;
    }
    if roots.is_empty() {
        return Err(OutboundError::Empty);
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_own_machine_and_of_clouds_are_refused_in_any_writing() {
        for (address, allowed) in [
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("0.0.0.0", false),
            ("169.254.169.254", false),
            ("100.100.100.200", false),
            ("168.63.129.16", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::1", false),
            ("::", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("64:ff9b::a9fe:a9fe", false),
            ("64:ff9b:1::169.254.169.254", false),
            ("::127.0.0.1", false),
            ("2002:7f00:1::", false),
            // Teredo holds the address inverted.
            ("2001:0:1:2:3:4:80ff:fffe", false),
            ("fe80::1", false),
            ("fd00:ec2::254", false),
            ("fd00:ec2::23", false),
            ("fd20:ce::254", false),
            ("ff02::1", false),
            ("10.9.9.9", false),
            ("::ffff:10.9.9.9", false),
            ("64:ff9b::10.9.9.9", false),
            ("2001:db8:9::9", false),
            ("10.0.0.1", true),
            ("192.168.1.1", true),
            ("100.64.0.1", true),
            ("8.8.8.8", true),
            ("fd00::1", true),
            ("2001:db8::1", true),
            ("64:ff9b::8.8.8.8", true),
            ("::8.8.8.8", true),
        ] {
            let parsed: IpAddr = address.parse().unwrap();
            let at = Allowed {
                hosts: Arc::new(BTreeSet::from(["sidecar.test".to_owned()])),
                api_servers: Arc::new([
                    "10.9.9.9".parse().unwrap(),
                    "2001:db8:9::9".parse().unwrap(),
                ]),
                ..Allowed::default()
            };
            assert_eq!(at.check("a.test", parsed).is_ok(), allowed, "{address}");
            assert!(at.check("Sidecar.test", parsed).is_ok(), "{address}");
        }
    }

    #[test]
    fn unsafe_or_relative_urls_are_refused() {
        let allowed = Allowed::default();
        for (url, fine) in [
            ("https://hooks.test/a?b=c", true),
            ("http://alertmanager.monitoring:9093", true),
            ("https://user:word@hooks.test/", false),
            ("https://127.0.0.1/", false),
            ("https://[::1]/", false),
            ("https://[fe80::1]:80/", false),
            ("https://[fe80::1%25eth0]/", false),
            ("https://[::1%25lo]:80/", false),
            ("https://[hooks.test]/", false),
            ("https://127.0.0.1./", false),
            ("https://:443/", false),
            ("https://./", false),
            ("ftp://hooks.test/", false),
            ("/only/a/path", false),
            ("hooks.test:443", false),
        ] {
            let parsed: Uri = url.parse().unwrap();
            assert_eq!(allowed.check_url(&parsed).is_ok(), fine, "{url}");
        }
    }

    #[test]
    fn address_in_url_is_read_with_and_without_brackets() {
        for (url, expected) in [
            ("https://10.96.0.1:443/", Some("10.96.0.1")),
            ("https://[fd00:10:96::1]/", Some("fd00:10:96::1")),
            ("https://kubernetes.default.svc/", None),
        ] {
            let expected: Option<IpAddr> = expected.map(|address| address.parse().unwrap());
            assert_eq!(address_of(&url.parse().unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn permitted_host_may_be_address_with_zone() {
        let url: Uri = "http://[fe80::1%eth0]:8080/".parse().unwrap();
        let permitted = Allowed::any_address_of("[fe80::1%eth0]", &Proxies::default());
        assert!(permitted.check_url(&url).is_ok());
        assert!(Allowed::default().check_url(&url).is_err());
    }

    #[test]
    fn trust_without_certificates_is_rejected() {
        let client = |pem: &str| client(Allowed::default(), &Trust::Only(pem.into()));
        assert!(client("").is_err());
        assert!(client("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_err());
    }

    #[test]
    fn public_roots_contain_all_authorities_of_list() {
        let listed = webpki_root_certs::TLS_SERVER_ROOT_CERTS.len();
        assert!(listed > 100, "{listed}");
        assert_eq!(public_roots().len(), listed);
    }
}
