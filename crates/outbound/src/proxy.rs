//! The choice of a proxy, by the rules of kubectl: the proxy that is named for the server; else the proxy of the
//! environment, but never for this machine, nor for the hosts that `NO_PROXY` lists.
//! See docs/adr/0017-kubectls-proxy-rules-are-our-own.md.

use std::net::IpAddr;

use http::Uri;
use http::uri::InvalidUri;

/// The text is not the URL of a proxy. The message does not contain the text, which may have a password.
#[derive(Debug, thiserror::Error)]
#[error("{name} is not the URL of a proxy: {error}")]
pub struct NoProxyUrl {
    /// The variable, or the field, with the text.
    name: String,
    /// The fault.
    error: String,
}

/// Returns the proxy for this server, if it has one. `named` is the proxy that a kubeconfig names for the server,
/// `variable` reads the environment.
///
/// # Errors
/// When the text is not a URL.
pub fn find(
    server: &Uri,
    named: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, NoProxyUrl> {
    if let Some(proxy) = named.filter(|proxy| !proxy.is_empty()) {
        return url("proxy-url of the kubeconfig", proxy).map(Some);
    }
    let name = match server.scheme_str() {
        Some("http") => "HTTP_PROXY",
        _ => "HTTPS_PROXY",
    };
    let Some(proxy) = either(&variable, name) else {
        return Ok(None);
    };
    let Some(host) = server.host() else {
        return url(name, &proxy).map(Some);
    };
    let host = plain(host);
    let exempt = either(&variable, "NO_PROXY");
    let mut exempt = exempt.iter().flat_map(|exempt| exempt.split(','));
    let port = port(server);
    if is_here(&host) || exempt.any(|one| is_listed(one.trim(), &host, port)) {
        return Ok(None);
    }
    url(name, &proxy).map(Some)
}

/// Returns a variable of the environment, in upper case or in lower case, if it is not empty.
pub(crate) fn either(variable: impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    [name.to_owned(), name.to_lowercase()]
        .into_iter()
        .find_map(|name| variable(&name).filter(|value| !value.is_empty()))
}

/// Returns the port of a server.
pub(crate) fn port(server: &Uri) -> u16 {
    server.port_u16().unwrap_or(match server.scheme_str() {
        Some("http") => 80,
        _ => 443,
    })
}

/// Returns a host in lower case, without the brackets of an address and without the dot at the end of a name.
pub(crate) fn plain(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.trim_end_matches('.').to_lowercase()
}

/// Checks whether a host, as [`plain`] returns it, is this machine by its text.
pub(crate) fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Parses the URL of a proxy; without a scheme it is HTTP.
pub(crate) fn url(name: &str, text: &str) -> Result<Uri, NoProxyUrl> {
    let whole = match text.contains("://") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let invalid = |error: String| NoProxyUrl {
        name: name.to_owned(),
        error,
    };
    let url: Uri = whole
        .parse()
        .map_err(|error: InvalidUri| invalid(error.to_string()))?;
    // A slash in a password ends the authority, and the user and a part of the password would be the proxy's address.
    let authority = url.authority().map_or("", |it| it.as_str());
    if text.contains('@') && !authority.contains('@') {
        return Err(invalid(
            "user and password must be percent-encoded".to_owned(),
        ));
    }
    Ok(url)
}

/// Checks whether an entry of `NO_PROXY` covers the host: `*`, an address, a network, `example.com`
/// with all names below it, or `.example.com` without the name itself; each with an optional port.
fn is_listed(entry: &str, host: &str, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    let entry = entry.to_lowercase();
    if let Some((network, bits)) = entry.split_once('/') {
        return is_in(network, bits, host);
    }
    if let Ok(address) = entry.parse::<IpAddr>() {
        return host.parse().is_ok_and(|host: IpAddr| host == address);
    }
    let (name, only) = match entry.rsplit_once(':') {
        Some((name, only)) => (name, only.parse::<u16>().ok()),
        None => (entry.as_str(), None),
    };
    if name.is_empty() || only.is_some_and(|only| only != port) {
        return false;
    }
    let below = name.trim_start_matches('*');
    match below.strip_prefix('.') {
        Some(_) => host.ends_with(below),
        None => host == below || host.ends_with(&format!(".{below}")),
    }
}

fn is_in(network: &str, bits: &str, host: &str) -> bool {
    let (Ok(network), Ok(host), Ok(bits)) = (
        network.parse::<IpAddr>(),
        host.parse::<IpAddr>(),
        bits.parse::<u32>(),
    ) else {
        return false;
    };
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32_u32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let ((network, width), (host, other)) = (number(network), number(host));
    let shift = width.saturating_sub(bits);
    width == other && network.checked_shr(shift) == host.checked_shr(shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(server: &str, named: Option<&str>, set: &[(&str, &str)]) -> Option<String> {
        let server = server.parse().unwrap();
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let proxy = find(&server, named, variable).unwrap();
        proxy.map(|proxy| proxy.to_string())
    }

    #[test]
    fn proxy_of_kubeconfig_overrides_environment() {
        let set = [("HTTPS_PROXY", "http://other:1"), ("NO_PROXY", "*")];
        let found = proxy("https://10.0.0.1", Some("socks5://mine:2"), &set);
        assert_eq!(found.as_deref(), Some("socks5://mine:2/"));
    }

    #[test]
    fn the_environments_proxy_is_for_other_machines_that_are_not_listed() {
        let server = "https://api.example.com:6443";
        for (listed, proxied) in [
            ("", true),
            ("example.com", false),
            (".example.com", false),
            ("*.example.com", false),
            ("api.example.com", false),
            ("example.com:6443", false),
            ("example.com:443", true),
            ("le.com", true),
            ("other.org, API.example.com", false),
            ("*", false),
            ("proxy", true),
            ("10.0.0.0/8", true),
        ] {
            let set = [("https_proxy", "proxy:3128"), ("NO_PROXY", listed)];
            let found = proxy(server, None, &set);
            assert_eq!(found.is_some(), proxied, "{listed}");
        }
        let set = [
            ("HTTPS_PROXY", "http://proxy:3128"),
            ("no_proxy", "10.96.0.0/12,::1"),
        ];
        assert_eq!(proxy("https://10.96.0.1", None, &set), None);
        assert!(proxy("https://10.112.0.1", None, &set).is_some());
        for here in [
            "https://localhost:6443",
            "https://127.0.0.1:6443",
            "https://[::1]:6443",
            "https://LOCALHOST:6443",
            "https://localhost.:6443",
        ] {
            assert_eq!(proxy(here, None, &set), None, "{here}");
        }
        assert_eq!(proxy("http://10.112.0.1", None, &set), None);
        let set = [("HTTP_PROXY", "proxy:3128")];
        let found = proxy("http://10.112.0.1", None, &set);
        assert_eq!(found.as_deref(), Some("http://proxy:3128/"));
    }
    #[test]
    fn fault_of_proxy_is_reported_without_its_password() {
        let server = "https://api.example.com".parse().unwrap();
        for text in [
            "http://oz:secret@",
            "http://oz:secret@a b",
            "oz:secret@[::1",
            "http://oz:1234/secret@proxy:3128",
            "http://oz:1234#secret@proxy",
            "oz:1234?secret@proxy",
        ] {
            let found = find(&server, None, |name| {
                (name == "HTTPS_PROXY").then(|| text.to_owned())
            });
            let why = found.unwrap_err().to_string();
            assert!(why.starts_with("HTTPS_PROXY is not the URL"), "{why}");
            assert!(!why.contains("secret") && !why.contains("1234"), "{why}");
        }
    }
}
