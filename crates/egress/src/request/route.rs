//! The destination of a request: `Host`, the name in the handshake, and the host of an absolute URI agree, or the
//! request is refused.

use http::header;
use http::request::Parts;
use http::{StatusCode, Version};
use oz_api::harness::wire::EgressReason;

use super::{Connection, Refused, Route, framing};
use crate::name::{self, NameError};

/// A host with the port that its URL or header names.
pub(super) struct Authority {
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

/// Returns the destination of a request.
///
/// # Errors
/// A request that is malformed or that two servers could understand differently; one for another host or port than
/// those of its connection; one for an address.
pub fn route(connection: &Connection<'_>, head: &Parts) -> Result<Route, Refused> {
    framing::check(head)?;
    let in_uri = in_uri(connection, head)?;
    let in_header = in_header(head)?;
    if in_header.is_none() && (head.version != Version::HTTP_10 || connection.host.is_none()) {
        return Err(Refused::malformed("the request has no Host"));
    }
    let mut hosts = in_uri.iter().chain(&in_header);
    let ports = in_uri.iter().chain(&in_header);
    let host = connection.host.map(str::to_owned);
    let host = host.or_else(|| in_header.as_ref().map(|header| header.host.clone()));
    let Some(host) = host else {
        return Err(Refused::malformed("the request has no Host"));
    };
    if let Some(other) = hosts.find(|authority| authority.host != host) {
        return Err(other_host(format!(
            "the request is for {}, but the connection is for {host}",
            other.host
        )));
    }
    let other_port = |authority: &Authority| authority.port.filter(|&port| port != connection.port);
    if let Some(port) = ports.filter_map(other_port).next() {
        return Err(other_host(format!(
            "the request is for port {port}, but the connection is to port {}",
            connection.port
        )));
    }
    Ok(Route {
        host,
        port: connection.port,
    })
}

fn other_host(message: String) -> Refused {
    Refused::new(
        StatusCode::MISDIRECTED_REQUEST,
        EgressReason::HostMismatch,
        message,
    )
}

/// Returns the host of an absolute URI; `None` if the target is a path.
fn in_uri(connection: &Connection<'_>, head: &Parts) -> Result<Option<Authority>, Refused> {
    let Some(scheme) = head.uri.scheme_str() else {
        return match head.uri.authority() {
            Some(_) => Err(Refused::malformed("the target of the request has no path")),
            None => Ok(None),
        };
    };
    let of_connection = if connection.tls { "https" } else { "http" };
    if scheme != of_connection {
        return Err(other_host(format!(
            "the request is for a URL of {scheme}, but the connection is {of_connection}"
        )));
    }
    let authority = head
        .uri
        .authority()
        .map_or("", |authority| authority.as_str());
    // The user information is a place where credentials are sent: `decide` refuses it.
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, rest)| rest);
    parse(authority.as_bytes()).map(Some)
}

/// Returns the host of the header `Host`.
pub(super) fn in_header(head: &Parts) -> Result<Option<Authority>, Refused> {
    let mut values = head.headers.get_all(header::HOST).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Refused::malformed("the request has Host more than once"));
    }
    parse(value.as_bytes()).map(Some)
}

/// Parses a host with an optional port: RFC 9110, section 7.2. User information is malformed.
/// See <https://www.rfc-editor.org/rfc/rfc9110#section-7.2>.
fn parse(authority: &[u8]) -> Result<Authority, Refused> {
    let text = std::str::from_utf8(authority).unwrap_or_default();
    let (host, port) = match text.rsplit_once(':') {
        // Within brackets, the colons are those of an address.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let host = name::read(host.as_bytes()).map_err(|error| match error {
        NameError::Address => Refused::forbidden(
            EgressReason::NoHost,
            "the request is for an address: policies grant names only",
        ),
        NameError::Malformed => Refused::malformed("the host of the request is malformed"),
    })?;
    Ok(Authority {
        host,
        port: parse_port(port)?,
    })
}

fn parse_port(port: Option<&str>) -> Result<Option<u16>, Refused> {
    let malformed = || Refused::malformed("the port of the request is malformed");
    match port {
        // RFC 3986, section 3.2.3: an empty port is the default one.
        None | Some("") => Ok(None),
        // `u16` also parses a sign.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let port = digits.parse().ok().filter(|&port| port > 0);
            port.map(Some).ok_or_else(malformed)
        }
        Some(_) => Err(malformed()),
    }
}
