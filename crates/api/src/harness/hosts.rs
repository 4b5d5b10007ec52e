//! Hosts and ports: the form in which policies grant them and templates require them.

use std::fmt;
use std::str::FromStr;

/// A host, or all hosts below a domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hosts {
    /// This host.
    One(String),
    /// All hosts below this domain, at any depth, without the domain itself.
    Below(String),
}

/// The reason why a text is not a valid host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The text is not a host name.
    #[error(
        "must be a host name in lower case, such as api.example.com, or *. and a domain for all hosts below it"
    )]
    Name,
    /// The text matches every host.
    #[error("must not be a catch-all: name the domain, such as *.example.com")]
    CatchAll,
    /// The text is an address.
    #[error("must be a name, not an IP address")]
    Address,
    /// The text has a port.
    #[error("must not have a port: ports have a field of their own")]
    Port,
    /// The text is a name inside the cluster.
    #[error("must not be a name inside the cluster")]
    Internal,
}

/// Domains of hosts in the cluster, in the network of its nodes or in the pod itself.
const INTERNAL: [&str; 3] = ["svc", "local", "localhost"];

impl FromStr for Hosts {
    type Err = HostError;

    /// Reads a host of a policy or template.
    fn from_str(text: &str) -> Result<Self, HostError> {
        let (below, name) = match text.strip_prefix("*.") {
            Some(domain) => (true, domain),
            None => (false, text),
        };
        if text == "*" || (below && !name.is_empty() && !name.contains('.') && !name.contains('*'))
        {
            return Err(HostError::CatchAll);
        }
        if name.parse::<std::net::IpAddr>().is_ok() || is_numeric(name) {
            return Err(HostError::Address);
        }
        if name.contains([':', '/', '@']) {
            return Err(if has_port(name) {
                HostError::Port
            } else {
                HostError::Name
            });
        }
        if crate::form::dns_subdomain(name).is_err() {
            return Err(HostError::Name);
        }
        let last = name.rsplit_once('.').map_or(name, |(_, last)| last);
        let is_service = name.ends_with(".svc") || name.contains(".svc.");
        // A single word is completed by the resolver, in the namespace's own domain first.
        if INTERNAL.contains(&last) || is_service || !name.contains('.') {
            return Err(HostError::Internal);
        }
        Ok(if below {
            Self::Below(name.to_owned())
        } else {
            Self::One(name.to_owned())
        })
    }
}

fn has_port(name: &str) -> bool {
    let port = name.rsplit_once(':').map(|(_, port)| port);
    port.is_some_and(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Checks whether resolvers read a name as an address: its last label is a number, decimal or with `0x`
/// (<https://url.spec.whatwg.org/#ends-in-a-number-checker>).
fn is_numeric(name: &str) -> bool {
    let last = name.rsplit_once('.').map_or(name, |(_, last)| last);
    let digits = last.strip_prefix("0x").unwrap_or(last);
    let is_hex = digits.len() < last.len() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    !last.is_empty() && (is_hex || last.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Hosts {
    /// Checks whether a host is one of these, in upper or lower case, with or without a dot at its end.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        match self {
            Self::One(name) => host == *name,
            Self::Below(domain) => is_below(&host, domain),
        }
    }

    /// Checks whether all of those hosts are among these.
    #[must_use]
    pub fn cover(&self, others: &Self) -> bool {
        match (self, others) {
            (_, Self::One(name)) => self.matches(name),
            (Self::One(_), Self::Below(_)) => false,
            (Self::Below(domain), Self::Below(other)) => other == domain || is_below(other, domain),
        }
    }
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain)
        .and_then(|labels| labels.strip_suffix('.'))
        .is_some_and(|labels| !labels.is_empty() && !labels.split('.').any(str::is_empty))
}

impl fmt::Display for Hosts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(name) => write!(formatter, "{name}"),
            Self::Below(domain) => write!(formatter, "*.{domain}"),
        }
    }
}

/// Checks whether a list of ports means any port: it is empty, or contains 0.
#[must_use]
pub fn is_any_port(ports: &[i32]) -> bool {
    ports.is_empty() || ports.contains(&0)
}

/// Checks whether a port is in a list, or the list means any port.
#[must_use]
pub fn has_port_in(ports: &[i32], port: i32) -> bool {
    is_any_port(ports) || ports.contains(&port)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_names_of_the_world_outside_are_hosts() {
        for text in [
            "api.example.com",
            "*.example.com",
            "a.b.c.example.com",
            "xn--bcher-kva.example",
            "localhost.example.com",
        ] {
            assert_eq!(text.parse::<Hosts>().unwrap().to_string(), text);
        }
        for (text, error) in [
            ("", HostError::Name),
            ("*.", HostError::Name),
            ("*.*.example.com", HostError::Name),
            ("api.*.com", HostError::Name),
            ("*api.example.com", HostError::Name),
            ("API.example.com", HostError::Name),
            ("api.example.com.", HostError::Name),
            ("api..example.com", HostError::Name),
            ("https://api.example.com", HostError::Name),
            ("api.example.com/v1", HostError::Name),
            ("user@example.com", HostError::Name),
            ("b\u{fc}cher.example", HostError::Name),
            ("*", HostError::CatchAll),
            ("*.com", HostError::CatchAll),
            ("10.0.0.1", HostError::Address),
            ("::1", HostError::Address),
            ("fe80::1", HostError::Address),
            // Of an address, resolvers take more than one form.
            ("127.1", HostError::Address),
            ("2130706433", HostError::Address),
            ("0x7f000001", HostError::Address),
            ("*.0.0.1", HostError::Address),
            ("api.example.com:443", HostError::Port),
            ("db", HostError::Internal),
            ("localhost", HostError::Internal),
            ("kubernetes.default.svc", HostError::Internal),
            ("*.svc.cluster.local", HostError::Internal),
            ("db.team.svc.example.com", HostError::Internal),
            ("printer.local", HostError::Internal),
        ] {
            assert_eq!(text.parse::<Hosts>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn host_matches_case_insensitively_and_wildcard_excludes_domain() {
        for (hosts, host, matches) in [
            ("api.example.com", "api.example.com", true),
            ("api.example.com", "API.Example.COM", true),
            ("api.example.com", "api.example.com.", true),
            ("api.example.com", "v1.api.example.com", false),
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "v1.api.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "notexample.com", false),
            ("*.example.com", ".example.com", false),
            ("*.example.com", "a..example.com", false),
            ("*.example.com", "example.com.evil.org", false),
            ("*.example.com", "", false),
        ] {
            let hosts: Hosts = hosts.parse().unwrap();
            assert_eq!(hosts.matches(host), matches, "{hosts} on {host:?}");
        }
    }

    #[test]
    fn a_grant_covers_no_more_than_its_own() {
        for (grant, need, covers) in [
            ("api.example.com", "api.example.com", true),
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "*.example.com", true),
            ("*.example.com", "*.api.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.api.example.com", "*.example.com", false),
            ("api.example.com", "*.example.com", false),
            ("api.example.com", "*.api.example.com", false),
        ] {
            let (grant, need): (Hosts, Hosts) = (grant.parse().unwrap(), need.parse().unwrap());
            assert_eq!(grant.cover(&need), covers, "{grant} over {need}");
        }
    }

    proptest! {
        #[test]
        fn covering_host_pattern_matches_all_covered_hosts(
            grant in "(\\*\\.)?([ab]\\.){1,3}example",
            need in "(\\*\\.)?([ab]\\.){1,3}example",
            host in "([ab]\\.){0,5}example",
        ) {
            let (grant, need): (Hosts, Hosts) = (grant.parse().unwrap(), need.parse().unwrap());
            if grant.cover(&need) && need.matches(&host) {
                prop_assert!(grant.matches(&host));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}", host in ".{0,40}") {
            let _ = text.parse::<Hosts>().map(|hosts| hosts.matches(&host));
        }
    }
}
