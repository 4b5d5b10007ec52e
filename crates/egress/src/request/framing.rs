//! The parts of a head that say where a request ends, and which of its headers are for the next hop only. A request
//! that two servers could understand differently is refused, although hyper would forward it as it understood it.

use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{Method, StatusCode, Version};
use oz_api::harness::wire::EgressReason;

use super::Refused;

/// Headers that the next hop must not have, whether or not `Connection` names them: RFC 9110, section 7.6.1, and those
/// of earlier versions of HTTP. `Trailer` is one of them: without it, trailers are not forwarded, which could hold
/// what the head may not.
/// See <https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1>.
pub(super) const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// Checks that a request has one meaning.
pub(super) fn check(head: &Parts) -> Result<(), Refused> {
    if !matches!(head.version, Version::HTTP_11 | Version::HTTP_10) {
        return Err(Refused::new(
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            EgressReason::Protocol,
            "the proxy supports HTTP/1.1 only",
        ));
    }
    if head.method == Method::CONNECT {
        return Err(Refused::new(
            StatusCode::METHOD_NOT_ALLOWED,
            EgressReason::Protocol,
            "the proxy opens no tunnels: connect to the host itself",
        ));
    }
    if head.uri.path() == "*" && head.method != Method::OPTIONS {
        return Err(Refused::malformed("only OPTIONS may have the target *"));
    }
    check_length(head)?;
    let named = named_by_connection(&head.headers);
    if let Some(name) = named.iter().find(|name| is_of_message(name)) {
        return Err(Refused::malformed(format!(
            "the header Connection names {name}, which every server on the way requires"
        )));
    }
    let mut expectations = head.headers.get_all(header::EXPECT).iter();
    if expectations.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Refused::new(
            StatusCode::EXPECTATION_FAILED,
            EgressReason::Protocol,
            "the proxy supports the expectation 100-continue only",
        ));
    }
    Ok(())
}

/// Checks that a body has one length: RFC 9112, section 6.
/// See <https://www.rfc-editor.org/rfc/rfc9112#section-6.3>.
fn check_length(head: &Parts) -> Result<(), Refused> {
    let values = |name: HeaderName| head.headers.get_all(name).iter();
    let lengths = values(header::CONTENT_LENGTH).count();
    let encodings = values(header::TRANSFER_ENCODING).count();
    if lengths + encodings > 1 {
        return Err(ambiguous());
    }
    let is_number = |value: &[u8]| !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if values(header::CONTENT_LENGTH).any(|value| !is_number(value.as_bytes())) {
        return Err(Refused::malformed("Content-Length is not a number"));
    }
    if encodings > 0 && head.version == Version::HTTP_10 {
        return Err(Refused::malformed("HTTP/1.0 has no Transfer-Encoding"));
    }
    let is_chunked = |value: &[u8]| value.eq_ignore_ascii_case(b"chunked");
    if values(header::TRANSFER_ENCODING).any(|value| !is_chunked(value.as_bytes())) {
        return Err(Refused::new(
            StatusCode::NOT_IMPLEMENTED,
            EgressReason::Protocol,
            "the proxy supports no Transfer-Encoding but chunked",
        ));
    }
    Ok(())
}

/// Returns the refusal of a request with more than one length. hyper hides some of them from [`check`], and
/// [`Heads`](crate::heads::Heads) finds these.
#[must_use]
pub fn ambiguous() -> Refused {
    Refused::malformed(
        "the request has more than one length: send Content-Length or Transfer-Encoding, once",
    )
}

fn is_of_message(name: &HeaderName) -> bool {
    *name == header::HOST || *name == header::CONTENT_LENGTH
}

/// Returns the headers that `Connection` names. Words that are no names of headers name none.
pub(super) fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    words(headers, &header::CONNECTION)
        .filter_map(|word| HeaderName::from_bytes(word).ok())
        .collect()
}

/// Returns the words of a list, such as `a, b`, in all values of a header.
fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).iter();
    let words = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    words
        .map(<[u8]>::trim_ascii)
        .filter(|word| !word.is_empty())
}

/// Checks whether a request asks for a WebSocket, and for nothing else: RFC 6455, section 4.1. Every other upgrade is
/// to a protocol in which the proxy could not see requests, such as `h2c`; such a request is forwarded without the
/// upgrade, as RFC 9110, section 7.8, permits.
///
/// After [`forward`](super::forward), a request that still has the header `Upgrade` is one for a WebSocket.
///
/// See <https://www.rfc-editor.org/rfc/rfc6455#section-4.1>.
#[must_use]
pub fn is_websocket(head: &Parts) -> bool {
    let mut upgrades = words(&head.headers, &header::UPGRADE);
    let is_only = |word: &[u8]| word.eq_ignore_ascii_case(b"websocket");
    let has_body = head.headers.contains_key(header::TRANSFER_ENCODING)
        || head
            .headers
            .get(header::CONTENT_LENGTH)
            .is_some_and(|length| length != "0");
    head.method == Method::GET
        && head.version == Version::HTTP_11
        && !has_body
        && upgrades.next().is_some_and(is_only)
        && upgrades.next().is_none()
        && named_by_connection(&head.headers).contains(&header::UPGRADE)
}

/// Removes the headers that are for this hop only, and those that `Connection` names.
/// See <https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1>.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}
