//! The head of a request as the upstream gets it, and the head of a response as the client gets it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{StatusCode, Uri, Version};
use oz_api::harness::wire::{CredentialPlace, EgressReason, InjectedCredential};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Refused, Route, framing, places, route};
use crate::grants::{self, Granted};

/// The characters that are not encoded in a query: RFC 3986, section 2.3.
/// See <https://www.rfc-editor.org/rfc/rfc3986#section-2.3>.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The headers that requests to Anthropic's API keep. The first seven are those of the original; Claude Code and the
/// client libraries send the others.
const ANTHROPIC: [&str; 11] = [
    "content-type",
    "content-length",
    "accept",
    "accept-encoding",
    "user-agent",
    "anthropic-version",
    "anthropic-beta",
    "x-app",
    "x-client-request-id",
    "x-claude-code-session-id",
    "anthropic-dangerous-direct-browser-access",
];
/// The beginning of further headers that requests to Anthropic's API keep.
const ANTHROPIC_PREFIX: &str = "x-stainless-";

/// Rewrites a request that [`decide`](super::decide) let pass into the one for the upstream: in origin form, without
/// the headers of this hop, and with the value of the credential instead of its placeholder.
///
/// # Errors
/// A placeholder that would be forwarded; a value that its place cannot hold. The head may be changed then, but has no
/// value in it.
pub fn forward(
    granted: &Granted,
    route: &Route,
    head: &mut Parts,
    lent: Option<(&InjectedCredential, &str)>,
) -> Result<(), Refused> {
    let is_websocket = framing::is_websocket(head);
    let host = host(route, head)?;
    framing::remove_hop_by_hop(&mut head.headers);
    // The proxy itself asks for the body.
    head.headers.remove(header::EXPECT);
    head.headers.remove(header::HOST);
    head.uri = origin_form(&head.uri)?;
    head.version = Version::HTTP_11;
    if is_websocket {
        let upgrade = HeaderValue::from_static("websocket");
        head.headers.insert(header::UPGRADE, upgrade);
        let connection = HeaderValue::from_static("upgrade");
        head.headers.insert(header::CONNECTION, connection);
    }
    let injection = match lent {
        Some((credential, value)) => {
            remove_smuggled(&mut head.headers, &credential.place);
            let injection = Injection::new(credential, value, head)?;
            injection.clear(head)?;
            Some(injection)
        }
        None => None,
    };
    if let Some((found, place)) = places::stray(head, None) {
        let name = granted.by_placeholder(&found);
        let name = name.map(|credential| credential.injected.name.clone());
        let message = format!("{place} has a placeholder, which is not forwarded");
        return Err(Refused {
            credential: name,
            ..Refused::forbidden(EgressReason::Placeholder, message)
        });
    }
    if let Some(injection) = injection {
        injection.write(head);
    }
    head.headers.insert(header::HOST, host);
    Ok(())
}

/// Returns the header `Host`: with a port if the client named one, since some signatures cover this header.
fn host(to: &Route, head: &Parts) -> Result<HeaderValue, Refused> {
    let named = route::in_header(head)?.map(|authority| authority.port.is_some());
    let has_port = named.unwrap_or(!matches!(to.port, 80 | 443));
    let text = if has_port {
        format!("{}:{}", to.host, to.port)
    } else {
        to.host.clone()
    };
    HeaderValue::try_from(text)
        .map_err(|_| Refused::malformed("the host of the request is malformed"))
}

/// Returns the path and the query. An absolute URI may have an empty path.
fn origin_form(uri: &Uri) -> Result<Uri, Refused> {
    let query = uri
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let path = PathAndQuery::try_from(format!("{}{query}", uri.path()));
    Ok(Uri::from(path.map_err(|_| malformed_target())?))
}

fn malformed_target() -> Refused {
    Refused::malformed("the target of the request is malformed")
}

/// Removes the headers with which an agent could change what the credential is used for.
fn remove_smuggled(headers: &mut HeaderMap, place: &CredentialPlace) {
    let is_anthropic = matches!(place, CredentialPlace::Anthropic);
    let names: Vec<HeaderName> = headers.keys().cloned().collect();
    for name in names {
        let text = name.as_str();
        let is_kept = if is_anthropic {
            ANTHROPIC.contains(&text) || text.starts_with(ANTHROPIC_PREFIX)
        } else {
            text != "cookie" && text != "forwarded" && !text.starts_with("x-forwarded-")
        };
        if !is_kept {
            headers.remove(name);
        }
    }
}

/// The value of a credential in the form of its place.
enum Injection {
    Header(HeaderName, HeaderValue),
    Target(String, Uri),
}

impl Injection {
    fn new(credential: &InjectedCredential, value: &str, head: &Parts) -> Result<Self, Refused> {
        let unusable = |why: &str| {
            let message = format!("the value of credential {} {why}", credential.name);
            let refused = Refused::new(
                StatusCode::BAD_GATEWAY,
                EgressReason::CredentialNotLent,
                message,
            );
            refused.about(&credential.name)
        };
        let text = match &credential.place {
            CredentialPlace::Header { prefix, .. } => format!("{prefix}{value}"),
            CredentialPlace::Basic { username } => {
                format!("Basic {}", STANDARD.encode(format!("{username}:{value}")))
            }
            CredentialPlace::Anthropic => value.to_owned(),
            CredentialPlace::Query { name } => {
                let target = with_parameter(head, name, value);
                let target = target.ok_or_else(|| unusable("does not fit into the query"))?;
                return Ok(Self::Target(name.clone(), target));
            }
        };
        let name = grants::header_of(&credential.place).ok().flatten();
        let name = name.ok_or_else(|| unusable("has no place"))?;
        let mut text = HeaderValue::try_from(text)
            .map_err(|_| unusable("contains characters that a header cannot hold"))?;
        text.set_sensitive(true);
        Ok(Self::Header(name, text))
    }

    /// Removes the placeholder.
    fn clear(&self, head: &mut Parts) -> Result<(), Refused> {
        match self {
            Self::Header(name, _) => {
                head.headers.remove(name);
            }
            Self::Target(name, _) => {
                head.uri = with_parameter(head, name, "").ok_or_else(malformed_target)?;
            }
        }
        Ok(())
    }

    /// Writes the value.
    fn write(self, head: &mut Parts) {
        match self {
            Self::Header(name, value) => {
                head.headers.insert(name, value);
            }
            Self::Target(_, target) => head.uri = target,
        }
    }
}

/// Returns the target with another value of a parameter.
fn with_parameter(head: &Parts, name: &str, value: &str) -> Option<Uri> {
    let range = places::parameter(head, name)?;
    let mut query = head.uri.query()?.to_owned();
    query.replace_range(range, &utf8_percent_encode(value, RESERVED).to_string());
    let target = format!("{}?{query}", head.uri.path());
    PathAndQuery::try_from(target).ok().map(Uri::from)
}

/// Removes the headers of this hop from a response. A response with status 101 keeps the upgrade: the caller forwards
/// such a response only to a request for a WebSocket, see [`is_websocket`](super::is_websocket). `Alt-Svc` is removed
/// as well, since it names a server that the client could not reach.
pub fn response(head: &mut http::response::Parts) {
    let is_upgrade = head.status == StatusCode::SWITCHING_PROTOCOLS;
    framing::remove_hop_by_hop(&mut head.headers);
    head.headers.remove(header::ALT_SVC);
    if is_upgrade {
        let upgrade = HeaderValue::from_static("websocket");
        head.headers.insert(header::UPGRADE, upgrade);
        let connection = HeaderValue::from_static("upgrade");
        head.headers.insert(header::CONNECTION, connection);
    }
}
