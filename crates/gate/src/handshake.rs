//! The change to another protocol, on both sides of the gate: the gate writes the headers from the values that it read,
//! and never copies them.

use axum::body::Body;
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use oz_gating::upgrade::{self, Agreed, Upgrade, WEB_SOCKET_VERSION};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::answer::Refused;

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static(upgrade::STREAM_PROTOCOL);

/// Writes the headers that request another protocol.
/// See <https://www.rfc-editor.org/rfc/rfc6455#section-4.1>.
pub(crate) fn ask(headers: &mut HeaderMap, asked: &Upgrade, key: &str) -> Result<(), Refused> {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    match asked {
        Upgrade::WebSocket { protocols, .. } => {
            headers.insert(UPGRADE, HeaderValue::from_static(upgrade::WEB_SOCKET));
            let version = HeaderValue::from_static(WEB_SOCKET_VERSION);
            headers.insert(SEC_WEBSOCKET_VERSION, version);
            headers.insert(SEC_WEBSOCKET_KEY, value(key)?);
            let offered: Vec<&str> = protocols.iter().map(|&one| one.into()).collect();
            if !offered.is_empty() {
                headers.insert(SEC_WEBSOCKET_PROTOCOL, value(&offered.join(", "))?);
            }
        }
        Upgrade::Spdy { versions } => {
            headers.insert(UPGRADE, HeaderValue::from_static(upgrade::SPDY));
            for version in versions {
                headers.append(STREAM_PROTOCOL, value(version)?);
            }
        }
    }
    Ok(())
}

/// Returns the protocol that the API server chose, if the client offered it and the response is to this request.
pub(crate) fn agreed(asked: &Upgrade, key: &str, headers: &HeaderMap) -> Result<Agreed, Refused> {
    let agreed = asked.agreed(|name| values(headers, name));
    let agreed =
        agreed.map_err(|why| Refused::new(StatusCode::BAD_GATEWAY, why.reason, why.message))?;
    let mut accepted = headers.get_all(SEC_WEBSOCKET_ACCEPT).iter();
    let is_answer = match agreed {
        Agreed::Spdy(_) => true,
        Agreed::WebSocket(_) => {
            accepted
                .next()
                .is_some_and(|one| one == &derive_accept_key(key.as_bytes()))
                && accepted.next().is_none()
        }
    };
    if is_answer {
        return Ok(agreed);
    }
    let message = "the response of the API server is not for this request; try again";
    let status = StatusCode::BAD_GATEWAY;
    Err(Refused::new(status, upgrade::DIFFERS, message))
}

/// Returns the response to a client with an open session.
pub(crate) fn switching(asked: &Upgrade, agreed: &Agreed) -> Result<Response<Body>, Refused> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    match agreed {
        Agreed::WebSocket(protocol) => {
            headers.insert(UPGRADE, HeaderValue::from_static(upgrade::WEB_SOCKET));
            if let Upgrade::WebSocket { key, .. } = asked {
                let accept = derive_accept_key(key.as_bytes());
                headers.insert(SEC_WEBSOCKET_ACCEPT, value(&accept)?);
            }
            if let Some(protocol) = protocol {
                let protocol = HeaderValue::from_static((*protocol).into());
                headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
            }
        }
        Agreed::Spdy(version) => {
            headers.insert(UPGRADE, HeaderValue::from_static(upgrade::SPDY));
            if let Some(version) = version {
                headers.insert(STREAM_PROTOCOL, value(version)?);
            }
        }
    }
    Ok(response)
}

fn value(text: &str) -> Result<HeaderValue, Refused> {
    HeaderValue::from_str(text).map_err(|_| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Refused::new(status, "Internal", "a protocol does not fit into a header")
    })
}

/// Returns the values of a header.
pub(crate) fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    let values = headers.get_all(name).iter();
    values.map(HeaderValue::as_bytes).collect()
}

#[cfg(test)]
mod tests {
    use oz_gating::upgrade::Subprotocol;

    use super::*;

    #[test]
    fn protocol_that_was_read_is_asked_for_and_answered() {
        let all = |headers: &HeaderMap| {
            let mut all: Vec<String> = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            all.sort();
            all
        };
        let socket = Upgrade::WebSocket {
            key: "dGhlIHNhbXBsZSBub25jZQ==".to_owned(),
            protocols: vec![Subprotocol::V5, Subprotocol::V4],
        };
        let mut headers = HeaderMap::new();
        ask(&mut headers, &socket, "b3RoZXI=").unwrap();
        assert_eq!(
            all(&headers),
            [
                "connection: Upgrade",
                "sec-websocket-key: b3RoZXI=",
                "sec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io",
                "sec-websocket-version: 13",
                "upgrade: websocket",
            ]
        );
        let taken = Agreed::WebSocket(Some(Subprotocol::V4));
        let answer = switching(&socket, &taken).unwrap();
        assert_eq!(
            all(answer.headers()),
            [
                "connection: Upgrade",
                // The example of RFC 6455, 1.3.
                "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
                "sec-websocket-protocol: v4.channel.k8s.io",
                "upgrade: websocket",
            ]
        );
        let (key, read) = ("dGhlIHNhbXBsZSBub25jZQ==", answer.headers());
        assert_eq!(agreed(&socket, key, read), Ok(taken));
        let replayed = agreed(&socket, "b3RoZXI=", read).unwrap_err();
        assert_eq!(replayed.reason, upgrade::DIFFERS);
        let spdy = Upgrade::Spdy {
            versions: vec![
                "v4.channel.k8s.io".to_owned(),
                "v3.channel.k8s.io".to_owned(),
            ],
        };
        assert_eq!(
            agreed(&spdy, key, read).unwrap_err().reason,
            upgrade::DIFFERS
        );
        let mut headers = HeaderMap::new();
        ask(&mut headers, &spdy, key).unwrap();
        assert_eq!(
            all(&headers),
            [
                "connection: Upgrade",
                "upgrade: SPDY/3.1",
                "x-stream-protocol-version: v3.channel.k8s.io",
                "x-stream-protocol-version: v4.channel.k8s.io",
            ]
        );
        let taken = Agreed::Spdy(Some("v4.channel.k8s.io".to_owned()));
        let answer = switching(&spdy, &taken).unwrap();
        assert_eq!(agreed(&spdy, key, answer.headers()), Ok(taken));
    }
}
