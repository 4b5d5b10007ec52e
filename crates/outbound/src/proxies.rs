//! The proxy of a program's requests: the configured one, else the one of the environment. Its user and password are
//! in the files of a Secret, which are read for each connection.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use crate::error::ProxyError;
use crate::{OutboundError, proxy, read};

/// The maximum time until the proxy has opened a tunnel.
const TUNNEL_TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration of a proxy.
#[derive(Clone, Debug, Default)]
pub struct ProxySettings {
    /// URL of the proxy; that of the environment if empty.
    pub proxy: String,
    /// Entries of `NO_PROXY`; those of the environment if there are none.
    pub no_proxy: Vec<String>,
    /// The directory with the files `username` and `password`.
    pub secret: Option<PathBuf>,
    /// The hosts of proxies that may have any address.
    pub allowed_hosts: BTreeSet<String>,
}

/// The proxy of requests, and the servers that are reached without it. Without settings, no request uses a proxy.
/// Clones share the settings.
#[derive(Clone, Default)]
pub struct Proxies(Option<Arc<Chosen>>);

/// The values of the variables, from the configuration or the environment.
struct Chosen {
    https: Option<String>,
    http: Option<String>,
    exempt: Option<String>,
    secret: Option<PathBuf>,
    allowed_hosts: Arc<BTreeSet<String>>,
    timeout: Duration,
}

impl fmt::Debug for Proxies {
    /// The URL of a proxy may contain a password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Proxies").finish_non_exhaustive()
    }
}

impl Proxies {
    /// Creates the proxies of a configuration; `variable` reads the environment.
    #[must_use]
    pub fn new(settings: ProxySettings, variable: impl Fn(&str) -> Option<String>) -> Self {
        let configured = Some(settings.proxy).filter(|proxy| !proxy.is_empty());
        let either = |name: &str| {
            let environment = || proxy::either(&variable, name);
            configured.clone().or_else(environment)
        };
        let exempt = match settings.no_proxy.is_empty() {
            true => proxy::either(&variable, "NO_PROXY"),
            false => Some(settings.no_proxy.join(",")),
        };
        let hosts = settings.allowed_hosts.iter();
        Self(Some(Arc::new(Chosen {
            https: either("HTTPS_PROXY"),
            http: either("HTTP_PROXY"),
            exempt,
            secret: settings.secret,
            allowed_hosts: Arc::new(hosts.map(|host| host.to_lowercase()).collect()),
            timeout: TUNNEL_TIMEOUT,
        })))
    }

    /// Checks the URL of a configured proxy.
    ///
    /// # Errors
    /// The fault. The message does not contain the URL.
    pub fn check(url: &str) -> Result<(), ProxyError> {
        let proxy = Proxy::new("the URL", &proxy::url("the URL", url)?)?;
        match proxy.credentials {
            Some(_) => Err(ProxyError::UserInfo),
            None => Ok(()),
        }
    }

    /// Returns the proxy for a server, if it has one.
    pub(crate) fn find(&self, server: &Uri) -> Result<Option<Proxy>, ProxyError> {
        let Some(chosen) = &self.0 else {
            return Ok(None);
        };
        let found = proxy::find(server, None, |name| match name {
            "HTTPS_PROXY" => chosen.https.clone(),
            "HTTP_PROXY" => chosen.http.clone(),
            "NO_PROXY" => chosen.exempt.clone(),
            _ => None,
        })?;
        let Some(found) = found else {
            return Ok(None);
        };
        let mut proxy = Proxy::new("the proxy", &found)?;
        if let Some(directory) = &chosen.secret {
            let credentials = secret(directory).map_err(ProxyError::Secret)?;
            proxy.credentials = Some(credentials);
        }
        Ok(Some(proxy))
    }

    /// Returns the hosts of proxies that may have any address.
    pub(crate) fn allowed_hosts(&self) -> Arc<BTreeSet<String>> {
        match &self.0 {
            Some(chosen) => Arc::clone(&chosen.allowed_hosts),
            None => Arc::default(),
        }
    }

    /// Returns the maximum time until the proxy has opened a tunnel.
    pub(crate) fn timeout(&self) -> Duration {
        let chosen = self.0.as_ref();
        chosen.map_or(TUNNEL_TIMEOUT, |chosen| chosen.timeout)
    }

    /// Returns the proxies with another timeout.
    #[cfg(test)]
    pub(crate) fn with_timeout(self, timeout: Duration) -> Self {
        let chosen = self.0.and_then(Arc::into_inner);
        Self(chosen.map(|chosen| Arc::new(Chosen { timeout, ..chosen })))
    }
}

/// The proxy for one connection.
pub(crate) struct Proxy {
    /// Host, without the brackets of an address.
    pub(crate) host: String,
    /// Host and port.
    pub(crate) address: String,
    /// The URL for a connector, without user and password.
    pub(crate) url: Uri,
    /// The value of the header `Proxy-Authorization`.
    pub(crate) credentials: Option<HeaderValue>,
}

impl Proxy {
    fn new(name: &'static str, url: &Uri) -> Result<Self, ProxyError> {
        if url.scheme_str() != Some("http") {
            return Err(ProxyError::Scheme { name });
        }
        let authority = url.authority().ok_or(ProxyError::NoHost { name })?;
        if authority.host().is_empty() {
            return Err(ProxyError::NoHost { name });
        }
        let address = format!("{}:{}", authority.host(), proxy::port(url));
        let plain = format!("http://{address}/").parse();
        let user_info = authority.as_str().rsplit_once('@');
        let credentials = user_info.map(|(user_info, _)| {
            let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
            let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
            basic(&decoded(user), &decoded(password))
        });
        Ok(Self {
            url: plain.map_err(|_| ProxyError::NoHost { name })?,
            host: proxy::plain(authority.host()),
            address,
            credentials: credentials.flatten(),
        })
    }
}

/// Returns the user and the password in the files of a Secret as the value of a header.
fn secret(directory: &Path) -> Result<HeaderValue, OutboundError> {
    let file = directory.join("username");
    let (user, password) = (read(&file)?, read(&directory.join("password"))?);
    let line = |text: &str| text.trim_end_matches(['\r', '\n']).to_owned();
    let (user, password) = (line(&user), line(&password));
    let value = basic(user.as_bytes(), password.as_bytes());
    value
        .filter(|_| !user.contains(':'))
        .ok_or(OutboundError::NoHeaderValue { file })
}

/// Returns the value of a header with a user and a password, by RFC 7617.
fn basic(user: &[u8], password: &[u8]) -> Option<HeaderValue> {
    let both = STANDARD.encode([user, b":", password].concat());
    let value = HeaderValue::from_str(&format!("Basic {both}"));
    let mut value = value.ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(proxies: &Proxies, server: &str) -> Option<String> {
        let found = proxies.find(&server.parse().unwrap()).unwrap();
        found.map(|proxy| proxy.address)
    }

    #[test]
    fn configured_proxy_replaces_proxy_of_environment() {
        let environment = |name: &str| match name {
            "HTTPS_PROXY" => Some("environment:1".to_owned()),
            "http_proxy" => Some("http://plain".to_owned()),
            "NO_PROXY" => Some("a.test".to_owned()),
            _ => None,
        };
        let settings = |proxy: &str, no_proxy: &[&str]| ProxySettings {
            proxy: proxy.to_owned(),
            no_proxy: no_proxy.iter().map(|&one| one.to_owned()).collect(),
            ..ProxySettings::default()
        };
        for (settings, server, expected) in [
            (settings("", &[]), "https://b.test", Some("environment:1")),
            (settings("", &[]), "http://b.test", Some("plain:80")),
            (settings("", &[]), "https://a.test", None),
            (settings("", &["b.test"]), "https://b.test", None),
            (
                settings("", &["b.test"]),
                "https://a.test",
                Some("environment:1"),
            ),
            (
                settings("http://own:3128", &[]),
                "https://b.test",
                Some("own:3128"),
            ),
            (
                settings("http://own:3128", &[]),
                "http://b.test",
                Some("own:3128"),
            ),
            (settings("http://own:3128", &[]), "https://x.a.test", None),
            (settings("http://own:3128", &[]), "https://127.0.0.1", None),
            (
                settings("http://own:3128", &[".svc", "10.0.0.0/8"]),
                "http://hooks.web.svc",
                None,
            ),
            (
                settings("http://own:3128", &[".svc", "10.0.0.0/8"]),
                "http://10.1.2.3:8080",
                None,
            ),
        ] {
            let proxies = Proxies::new(settings.clone(), environment);
            let found = address(&proxies, server);
            assert_eq!(found.as_deref(), expected, "{settings:?} {server}");
        }
        let none = Proxies::new(ProxySettings::default(), |_| None);
        assert_eq!(address(&none, "https://b.test"), None);
        assert_eq!(address(&Proxies::default(), "https://b.test"), None);
    }

    #[test]
    fn password_of_proxy_is_in_no_message() {
        let environment = |name: &str| {
            let url = "http://oz:se%63ret@proxy:3128".to_owned();
            (name == "HTTPS_PROXY").then_some(url)
        };
        let proxies = Proxies::new(ProxySettings::default(), environment);
        assert!(!format!("{proxies:?}").contains("se%63ret"));
        let proxy = proxies.find(&"https://a.test".parse().unwrap()).unwrap();
        let proxy = proxy.unwrap();
        assert_eq!(proxy.address, "proxy:3128");
        assert_eq!(proxy.url, "http://proxy:3128/");
        let credentials = proxy.credentials.unwrap();
        let expected = format!("Basic {}", STANDARD.encode("oz:secret"));
        assert_eq!(credentials, expected.as_str());
        assert!(credentials.is_sensitive());
        for url in [
            "http://oz:secret@proxy:3128",
            "https://oz:secret@proxy",
            "socks5://secret.test",
            "http://secret test",
        ] {
            let why = Proxies::check(url).unwrap_err().to_string();
            assert!(!why.contains("secret."), "{why}");
            assert!(!why.contains("oz:secret"), "{why}");
        }
        for url in [
            "http://proxy.corp.test:3128",
            "proxy:3128",
            "http://[::1]:1",
        ] {
            Proxies::check(url).unwrap();
        }
    }

    #[test]
    fn secret_of_proxy_is_read_for_each_connection() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        let settings = ProxySettings {
            proxy: "http://proxy:3128".to_owned(),
            secret: Some(directory.path().to_owned()),
            ..ProxySettings::default()
        };
        let proxies = Proxies::new(settings, |_| None);
        let server: Uri = "https://a.test".parse().unwrap();
        let missing = proxies.find(&server).err().unwrap().to_string();
        assert!(missing.contains("username"), "{missing}");
        write("username", "oz\n");
        for password in ["old secret", "new secret"] {
            write("password", &format!("{password}\n"));
            let found = proxies.find(&server).unwrap().unwrap();
            let expected = STANDARD.encode(format!("oz:{password}"));
            let expected = format!("Basic {expected}");
            assert_eq!(found.credentials.unwrap(), expected.as_str());
        }
        write("username", "o:z");
        let invalid = proxies.find(&server).err().unwrap().to_string();
        assert!(!invalid.contains("secret"), "{invalid}");
    }
}
