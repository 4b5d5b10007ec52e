//! The protocol to which the connection of a session switches. The gate reads the headers of a request once into a
//! value. By this value the gate plans, records and shows the session, and writes the headers for the API server. API
//! server and kubelet choose by `Upgrade` alone, so the gate rejects a request that names two protocols.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use oz_core::connect::Refusal;
use strum::IntoEnumIterator as _;

/// The header names, as HTTP/2 and hyper write them.
pub const UPGRADE: &str = "upgrade";
const CONNECTION: &str = "connection";
const KEY: &str = "sec-websocket-key";
const VERSION: &str = "sec-websocket-version";
/// The header with the sub-protocols that a client offers, or the one that a server accepts.
/// See <https://www.rfc-editor.org/rfc/rfc6455#section-11.3.4>.
pub const PROTOCOL: &str = "sec-websocket-protocol";
/// The same header of SPDY.
pub const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
/// A value of `Upgrade`.
pub const WEB_SOCKET: &str = "websocket";
/// A value of `Upgrade`.
pub const SPDY: &str = "SPDY/3.1";
/// The only version of WebSockets ([RFC 6455, 4.1](https://www.rfc-editor.org/rfc/rfc6455#section-4.1)).
pub const WEB_SOCKET_VERSION: &str = "13";
/// The reason for the end of a session for which the API server accepted a protocol that was not offered.
pub const DIFFERS: &str = "ProtocolDiffers";
/// The length of a key, in bytes.
const KEY_LENGTH: usize = 16;
/// The maximum number of stream versions that a client offers, and the maximum length of the name of a version.
const MAX_VERSIONS: usize = 8;
const MAX_VERSION: usize = 64;

/// A sub-protocol of a WebSocket.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumIter,
    strum::EnumString,
    strum::IntoStaticStr,
)]
pub enum Subprotocol {
    /// Messages on channels, of which the client can close one.
    #[strum(serialize = "v5.channel.k8s.io")]
    V5,
    /// Messages on channels, with a Status at the end.
    #[strum(serialize = "v4.channel.k8s.io")]
    V4,
    /// The same as V4, as text.
    #[strum(serialize = "v4.base64.channel.k8s.io")]
    V4Base64,
    /// Messages on channels.
    #[strum(serialize = "channel.k8s.io")]
    Channels,
    /// The same as Channels, as text.
    #[strum(serialize = "base64.channel.k8s.io")]
    Base64,
    /// A SPDY connection that carries port-forwards.
    /// See <https://kep.k8s.io/4006>.
    #[strum(serialize = "SPDY/3.1+portforward.k8s.io")]
    Tunnel,
}

impl Subprotocol {
    /// Checks whether all data of this sub-protocol can be recorded and shown.
    #[must_use]
    pub fn is_recorded(self) -> bool {
        matches!(self, Self::V5 | Self::V4)
    }
}

/// The protocols that a client offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// A WebSocket.
    WebSocket {
        /// The key, which the response proves to have been read.
        key: String,
        /// The sub-protocols, in the client's order.
        protocols: Vec<Subprotocol>,
    },
    /// SPDY, with the versions of its streams in the client's order.
    Spdy {
        /// The versions of the streams.
        versions: Vec<String>,
    },
}

/// The protocol that client and API server agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// A WebSocket; without a sub-protocol if none was offered.
    WebSocket(Option<Subprotocol>),
    /// SPDY, with the version of its streams if the server named one.
    Spdy(Option<String>),
}

impl Upgrade {
    /// Reads the headers of a request; `values` returns all values of a header. Returns `None` if the request asks for
    /// no other protocol.
    ///
    /// # Errors
    /// If a second reader could read the headers differently, or they name a protocol that the gate does not know.
    pub fn read<'a>(
        values: impl Fn(&'static str) -> Vec<&'a [u8]>,
    ) -> Result<Option<Self>, Refusal> {
        let upgrades = values(UPGRADE);
        let upgrade = match upgrades.as_slice() {
            [] => return Ok(None),
            [one] => *one,
            _ => return Err(malformed("it has several headers Upgrade")),
        };
        // The API server reads the first of several headers.
        let first: Vec<&[u8]> = values(CONNECTION).into_iter().take(1).collect();
        let mut connection = tokens(&first)?.into_iter();
        if !connection.any(|token| token.eq_ignore_ascii_case(UPGRADE)) {
            return Err(malformed("its header Connection does not name Upgrade"));
        }
        if upgrade.eq_ignore_ascii_case(WEB_SOCKET.as_bytes()) {
            return web_socket(values).map(Some);
        }
        if upgrade.eq_ignore_ascii_case(SPDY.as_bytes()) {
            return spdy(values).map(Some);
        }
        Err(malformed(
            "its header Upgrade is neither websocket nor SPDY/3.1",
        ))
    }

    /// Checks whether a session can be recorded and shown with every protocol that the API server may accept.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        match self {
            Self::WebSocket { protocols, .. } => {
                !protocols.is_empty() && protocols.iter().all(|one| one.is_recorded())
            }
            Self::Spdy { .. } => false,
        }
    }

    /// Returns the client's first sub-protocol as the only one that is offered, and the agreement on it; `None` if the
    /// client offers none. A client can be answered by it before the API server, which then has no other choice.
    #[must_use]
    pub fn preferred(&self) -> Option<(Self, Agreed)> {
        let Self::WebSocket { key, protocols } = self else {
            return None;
        };
        let first = *protocols.first()?;
        let alone = Self::WebSocket {
            key: key.clone(),
            protocols: vec![first],
        };
        Some((alone, Agreed::WebSocket(Some(first))))
    }

    /// Reads the headers of the API server's response.
    ///
    /// # Errors
    /// If the API server accepted a protocol that was not offered.
    pub fn agreed<'a>(
        &self,
        values: impl Fn(&'static str) -> Vec<&'a [u8]>,
    ) -> Result<Agreed, Refusal> {
        let one = |name| match values(name).as_slice() {
            [] => Ok(None),
            [one] => text(one).map(Some),
            _ => Err(other()),
        };
        let upgraded = one(UPGRADE)?;
        let (protocol, version) = (one(PROTOCOL)?, one(STREAM_PROTOCOL)?);
        let is = |name: &str| upgraded.is_some_and(|one| one.eq_ignore_ascii_case(name));
        match self {
            Self::WebSocket { protocols, .. } if is(WEB_SOCKET) && version.is_none() => {
                let taken = protocol.map(|one| one.parse::<Subprotocol>());
                match taken {
                    None if protocols.is_empty() => Ok(Agreed::WebSocket(None)),
                    Some(Ok(taken)) if protocols.contains(&taken) => {
                        Ok(Agreed::WebSocket(Some(taken)))
                    }
                    _ => Err(other()),
                }
            }
            Self::Spdy { versions } if is(SPDY) && protocol.is_none() => {
                let offered = |one: &str| versions.iter().any(|version| version == one);
                match version {
                    None => Ok(Agreed::Spdy(None)),
                    Some(taken) if offered(taken) => Ok(Agreed::Spdy(Some(taken.to_owned()))),
                    Some(_) => Err(other()),
                }
            }
            _ => Err(other()),
        }
    }
}

impl Agreed {
    /// Checks whether all data in this protocol can be recorded and shown.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        matches!(self, Self::WebSocket(Some(protocol)) if protocol.is_recorded())
    }
}

fn web_socket<'a>(values: impl Fn(&'static str) -> Vec<&'a [u8]>) -> Result<Upgrade, Refusal> {
    if !values(STREAM_PROTOCOL).is_empty() {
        return Err(malformed(
            "it asks for a WebSocket and names versions of SPDY (X-Stream-Protocol-Version)",
        ));
    }
    let versions = values(VERSION);
    if versions.as_slice() != [WEB_SOCKET_VERSION.as_bytes()] {
        return Err(malformed("its Sec-WebSocket-Version is not 13"));
    }
    let keys = values(KEY);
    let key = match keys.as_slice() {
        [key] => text(key)?,
        _ => return Err(malformed("it has no Sec-WebSocket-Key, or several")),
    };
    let length = BASE64_STANDARD.decode(key).map(|key| key.len());
    if length != Ok(KEY_LENGTH) {
        return Err(malformed("its Sec-WebSocket-Key is invalid"));
    }
    let mut protocols = Vec::new();
    for token in tokens(&values(PROTOCOL))? {
        let Ok(protocol) = token.parse::<Subprotocol>() else {
            let known: Vec<_> = Subprotocol::iter().map(|one| one.to_string()).collect();
            return Err(malformed(&format!(
                "it offers an unsupported Sec-WebSocket-Protocol; the gate supports {}",
                known.join(", ")
            )));
        };
        if !protocols.contains(&protocol) {
            protocols.push(protocol);
        }
    }
    Ok(Upgrade::WebSocket {
        key: key.to_owned(),
        protocols,
    })
}

fn spdy<'a>(values: impl Fn(&'static str) -> Vec<&'a [u8]>) -> Result<Upgrade, Refusal> {
    if [PROTOCOL, KEY, VERSION]
        .iter()
        .any(|name| !values(name).is_empty())
    {
        return Err(malformed(
            "it asks for SPDY and has headers of a WebSocket (Sec-WebSocket-…)",
        ));
    }
    let versions: Vec<String> = tokens(&values(STREAM_PROTOCOL))?
        .into_iter()
        .map(ToOwned::to_owned)
        .collect();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./+-_".contains(&byte);
    let good = |version: &String| version.len() <= MAX_VERSION && version.bytes().all(plain);
    if versions.len() > MAX_VERSIONS || !versions.iter().all(good) {
        return Err(malformed("its X-Stream-Protocol-Version cannot be read"));
    }
    Ok(Upgrade::Spdy { versions })
}

/// Returns the tokens of all values of a header, separated by commas.
fn tokens<'a>(values: &[&'a [u8]]) -> Result<Vec<&'a str>, Refusal> {
    let mut all = Vec::new();
    for value in values {
        let parts = text(value)?.split(',').map(str::trim);
        all.extend(parts.filter(|part| !part.is_empty()));
    }
    Ok(all)
}

fn text(value: &[u8]) -> Result<&str, Refusal> {
    match std::str::from_utf8(value) {
        Ok(text) if text.is_ascii() => Ok(text),
        _ => Err(malformed("its headers are not ASCII")),
    }
}

fn malformed(why: &str) -> Refusal {
    Refusal::new(
        "UpgradeMalformed",
        format!(
            "the request names its protocol ambiguously: {why}; use kubectl 1.30 or newer, or ozctl"
        ),
    )
}

fn other() -> Refusal {
    Refusal::new(
        DIFFERS,
        "the API server chose a protocol that it was not offered, so the gate closed both sides; \
         no data was forwarded",
    )
}

#[cfg(test)]
#[path = "upgrade_tests.rs"]
mod tests;
