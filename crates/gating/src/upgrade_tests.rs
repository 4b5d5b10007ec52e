//! The protocol that a request asks for, and the one that API server and kubelet speak with the same headers.

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};

use super::*;

const SAMPLE_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

type Headers = Vec<(&'static str, String)>;

fn read(headers: &[(&'static str, String)]) -> Result<Option<Upgrade>, &'static str> {
    Upgrade::read(|name| values(headers, name)).map_err(|refusal| refusal.reason)
}

fn values<'a>(headers: &'a [(&'static str, String)], wanted: &str) -> Vec<&'a [u8]> {
    let found = headers.iter().filter(|(name, _)| *name == wanted);
    found.map(|(_, value)| value.as_bytes()).collect()
}

fn owned(headers: &[(&'static str, &str)]) -> Headers {
    let owned = headers
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()));
    owned.collect()
}

/// Returns the headers of a WebSocket, with others added.
fn with(others: &[(&'static str, &str)]) -> Headers {
    let mut headers = owned(&[
        (UPGRADE, "websocket"),
        (CONNECTION, "Upgrade"),
        (VERSION, "13"),
        (KEY, SAMPLE_KEY),
    ]);
    headers.retain(|(name, _)| !others.iter().any(|(other, _)| other == name));
    headers.extend(owned(others));
    headers
}

#[test]
fn request_of_each_client_is_read() {
    let socket = |protocols: &[Subprotocol]| {
        Ok(Some(Upgrade::WebSocket {
            key: SAMPLE_KEY.to_owned(),
            protocols: protocols.to_vec(),
        }))
    };
    for (headers, expected, recorded) in [
        (
            with(&[(PROTOCOL, "v5.channel.k8s.io")]),
            socket(&[Subprotocol::V5]),
            true,
        ),
        (
            with(&[(PROTOCOL, "v5.channel.k8s.io,v4.channel.k8s.io")]),
            socket(&[Subprotocol::V5, Subprotocol::V4]),
            true,
        ),
        (
            with(&[
                (UPGRADE, "WebSocket"),
                (CONNECTION, "keep-alive, upgrade"),
                (PROTOCOL, "v4.channel.k8s.io"),
                (PROTOCOL, "v4.base64.channel.k8s.io"),
            ]),
            socket(&[Subprotocol::V4, Subprotocol::V4Base64]),
            false,
        ),
        (
            with(&[(PROTOCOL, "SPDY/3.1+portforward.k8s.io")]),
            socket(&[Subprotocol::Tunnel]),
            false,
        ),
        (with(&[]), socket(&[]), false),
        (
            owned(&[
                (UPGRADE, "SPDY/3.1"),
                (CONNECTION, "Upgrade"),
                (STREAM_PROTOCOL, "v4.channel.k8s.io"),
                (STREAM_PROTOCOL, "v3.channel.k8s.io"),
            ]),
            Ok(Some(Upgrade::Spdy {
                versions: vec![
                    "v4.channel.k8s.io".to_owned(),
                    "v3.channel.k8s.io".to_owned(),
                ],
            })),
            false,
        ),
        (owned(&[(CONNECTION, "Upgrade")]), Ok(None), false),
    ] {
        let found = read(&headers);
        assert_eq!(found, expected, "{headers:?}");
        let is_recorded = found.ok().flatten().is_some_and(|one| one.is_recorded());
        assert_eq!(is_recorded, recorded, "{headers:?}");
    }
}

#[test]
fn request_that_could_be_read_as_another_protocol_is_refused() {
    let channels = (PROTOCOL, "v5.channel.k8s.io");
    for headers in [
        with(&[channels, (UPGRADE, "SPDY/3.1")]),
        with(&[channels, (UPGRADE, "websocket"), (UPGRADE, "SPDY/3.1")]),
        with(&[channels, (UPGRADE, "SPDY/3.1"), (UPGRADE, "websocket")]),
        with(&[channels, (UPGRADE, "websocket"), (UPGRADE, "websocket")]),
        with(&[channels, (UPGRADE, "websocket, SPDY/3.1")]),
        with(&[channels, (UPGRADE, "SPDY/3.1, websocket")]),
        with(&[channels, (UPGRADE, "websocket ")]),
        with(&[channels, (UPGRADE, "h2c")]),
        with(&[channels, (UPGRADE, "")]),
        with(&[channels, (CONNECTION, "close")]),
        with(&[channels, (CONNECTION, "")]),
        with(&[channels, (STREAM_PROTOCOL, "v4.channel.k8s.io")]),
        with(&[channels, (STREAM_PROTOCOL, "")]),
        with(&[channels, (VERSION, "8")]),
        with(&[channels, (VERSION, "13, 8")]),
        with(&[channels, (VERSION, "13"), (VERSION, "13")]),
        with(&[channels, (KEY, SAMPLE_KEY), (KEY, SAMPLE_KEY)]),
        with(&[channels, (KEY, "c2hvcnQ=")]),
        with(&[(PROTOCOL, "v9.channel.k8s.io")]),
        with(&[(PROTOCOL, "v5.channel.k8s.io, chat")]),
        with(&[(PROTOCOL, "v5.channel.k8s.i\u{f6}")]),
        owned(&[
            (UPGRADE, "SPDY/3.1"),
            (CONNECTION, "Upgrade"),
            (STREAM_PROTOCOL, "v4.channel.k8s.io\u{1b}"),
        ]),
    ] {
        assert_eq!(read(&headers), Err("UpgradeMalformed"), "{headers:?}");
    }
}

#[test]
fn upgrade_response_beyond_offer_is_refused() {
    let socket = read(&with(&[(PROTOCOL, "v5.channel.k8s.io")]))
        .unwrap()
        .unwrap();
    let spdy = Upgrade::Spdy {
        versions: vec!["v4.channel.k8s.io".to_owned()],
    };
    let plain = read(&with(&[])).unwrap().unwrap();
    let v5 = (PROTOCOL, "v5.channel.k8s.io");
    for (asked, answer, agreed) in [
        (
            &socket,
            &[(UPGRADE, "websocket"), v5][..],
            Some(Agreed::WebSocket(Some(Subprotocol::V5))),
        ),
        (&socket, &[(UPGRADE, "SPDY/3.1"), v5], None),
        (
            &socket,
            &[(UPGRADE, "websocket"), (UPGRADE, "SPDY/3.1"), v5],
            None,
        ),
        (&socket, &[v5], None),
        (&socket, &[(UPGRADE, "websocket")], None),
        (&socket, &[(UPGRADE, "websocket"), v5, v5], None),
        (
            &socket,
            &[(UPGRADE, "websocket"), (PROTOCOL, "v4.channel.k8s.io")],
            None,
        ),
        (
            &socket,
            &[
                (UPGRADE, "websocket"),
                v5,
                (STREAM_PROTOCOL, "v4.channel.k8s.io"),
            ],
            None,
        ),
        (
            &plain,
            &[(UPGRADE, "WebSocket")],
            Some(Agreed::WebSocket(None)),
        ),
        (&plain, &[(UPGRADE, "websocket"), v5], None),
        (
            &spdy,
            &[
                (UPGRADE, "SPDY/3.1"),
                (STREAM_PROTOCOL, "v4.channel.k8s.io"),
            ],
            Some(Agreed::Spdy(Some("v4.channel.k8s.io".to_owned()))),
        ),
        (&spdy, &[(UPGRADE, "SPDY/3.1")], Some(Agreed::Spdy(None))),
        (&spdy, &[(UPGRADE, "websocket")], None),
        (
            &spdy,
            &[
                (UPGRADE, "SPDY/3.1"),
                (STREAM_PROTOCOL, "v3.channel.k8s.io"),
            ],
            None,
        ),
    ] {
        let answer = owned(answer);
        let found = asked.agreed(|name| values(&answer, name)).ok();
        assert_eq!(found, agreed, "{asked:?} {answer:?}");
    }
}

/// Checks whether Kubernetes reads these headers as a WebSocket (`wsstream.IsWebSocketRequest`); otherwise Kubernetes
/// speaks SPDY. Go's `Header.Get` reads the first value of a name.
fn is_web_socket_by_kubernetes(headers: &[(&'static str, String)]) -> bool {
    let first = |wanted| {
        let value = values(headers, wanted).first().copied();
        String::from_utf8_lossy(value.unwrap_or_default()).to_lowercase()
    };
    let connection = first(CONNECTION);
    let mut parts = connection.split(',').map(str::trim);
    first(UPGRADE) == WEB_SOCKET && parts.any(|part| part == UPGRADE)
}

fn header() -> impl Strategy<Value = (&'static str, String)> {
    let of = |name: &'static str, values: &'static str| {
        values.prop_map(move |value| (name, value)).boxed()
    };
    prop_oneof![
        4 => of(UPGRADE, "(websocket|WebSocket|SPDY/3\\.1|spdy/3\\.1|websocket, SPDY/3\\.1|h2c|websocket |)"),
        3 => of(CONNECTION, "(Upgrade|upgrade|keep-alive, Upgrade|close|upgrade,websocket|)"),
        2 => of(VERSION, "(13|8|13, 13|)"),
        2 => of(KEY, "(dGhlIHNhbXBsZSBub25jZQ==|c2hvcnQ=|)"),
        3 => of(
            PROTOCOL,
            "(v5\\.channel\\.k8s\\.io|v4\\.channel\\.k8s\\.io|v5\\.channel\\.k8s\\.io, v4\\.channel\\.k8s\\.io|v4\\.base64\\.channel\\.k8s\\.io\
             |v5\\.channel\\.k8s\\.io,v4\\.base64\\.channel\\.k8s\\.io|SPDY/3\\.1\\+portforward\\.k8s\\.io|channel\\.k8s\\.io|chat|)",
        ),
        1 => of(STREAM_PROTOCOL, "(v4\\.channel\\.k8s\\.io|v5\\.channel\\.k8s\\.io|)"),
    ]
}

/// Generates a complete request, or any mixture of headers.
fn mixture() -> impl Strategy<Value = Headers> {
    let any = prop::collection::vec(header(), 0..7);
    let near = prop::collection::vec(header(), 0..3).prop_map(|others| {
        let mut all = with(&[(PROTOCOL, "v5.channel.k8s.io")]);
        all.extend(others);
        all
    });
    let replaced = (with_one(), header()).prop_map(|(mut all, other)| {
        all.retain(|(name, _)| *name != other.0);
        all.push(other);
        all
    });
    let before = prop::collection::vec(header(), 0..3).prop_map(|mut all| {
        all.extend(with(&[(PROTOCOL, "v5.channel.k8s.io")]));
        all
    });
    prop_oneof![any, near, before, replaced]
}

fn with_one() -> impl Strategy<Value = Headers> {
    Just(with(&[(PROTOCOL, "v5.channel.k8s.io")]))
}

/// A way to read requests: that of the gate, or one with a seeded defect.
#[derive(Clone, Copy)]
struct Reading {
    what: &'static str,
    /// The selection of the headers of a request that this way reads.
    sees: fn(Headers) -> Headers,
    /// The decision whether a session is recorded.
    is_recorded: fn(&Upgrade) -> bool,
}

const GATE: Reading = Reading {
    what: "the gate",
    sees: |headers| headers,
    is_recorded: Upgrade::is_recorded,
};

impl Reading {
    /// Checks that a session that must be recorded is recorded, for every response, and that Kubernetes reads the same
    /// protocol in the same headers.
    fn holds(&self, headers: &Headers, answers: &Headers) -> Result<(), TestCaseError> {
        let Ok(Some(asked)) = read(&(self.sees)(headers.clone())) else {
            return Ok(());
        };
        let is_socket = matches!(asked, Upgrade::WebSocket { .. });
        prop_assert_eq!(
            is_socket,
            is_web_socket_by_kubernetes(headers),
            "{:?}",
            headers
        );
        if (self.is_recorded)(&asked) {
            prop_assert!(is_socket);
            // The agreed protocol is recorded too, for every response.
            if let Ok(agreed) = asked.agreed(|name| values(answers, name)) {
                prop_assert!(agreed.is_recorded(), "{:?} {:?}", asked, answers);
            }
        }
        Ok(())
    }
}

fn requests() -> impl Strategy<Value = (Headers, Headers)> {
    let taken = "(v5\\.channel\\.k8s\\.io|v4\\.channel\\.k8s\\.io|v4\\.base64\\.channel\\.k8s\\.io|channel\\.k8s\\.io)";
    let taken = taken.prop_map(|taken| vec![(UPGRADE, WEB_SOCKET.to_owned()), (PROTOCOL, taken)]);
    let any = prop::collection::vec(header(), 0..4);
    (mixture(), prop_oneof![any, taken])
}

/// Returns the headers with one value for a name, or with none.
fn only(headers: Headers, wanted: &'static str, value: Option<String>) -> Headers {
    let mut others = headers;
    others.retain(|(name, _)| *name != wanted);
    others.extend(value.map(|value| (wanted, value)));
    others
}

fn all_of(headers: &Headers, wanted: &str) -> Vec<String> {
    let found = headers.iter().filter(|(name, _)| *name == wanted);
    found.map(|(_, value)| value.clone()).collect()
}

#[test]
fn seeded_defect_of_the_reader_is_found() {
    let defects = [
        Reading {
            what: "reads the last Upgrade",
            sees: |headers| {
                let last = all_of(&headers, UPGRADE).pop();
                only(headers, UPGRADE, last)
            },
            ..GATE
        },
        Reading {
            what: "takes an Upgrade with several protocols for a WebSocket",
            sees: |headers| {
                let upgrades = all_of(&headers, UPGRADE).join(",").to_lowercase();
                match upgrades.contains(WEB_SOCKET) {
                    true => only(headers, UPGRADE, Some(WEB_SOCKET.to_owned())),
                    false => headers,
                }
            },
            ..GATE
        },
        Reading {
            what: "ignores Connection",
            sees: |headers| only(headers, CONNECTION, Some("Upgrade".to_owned())),
            ..GATE
        },
        Reading {
            what: "records a session if one of its protocols is recorded",
            is_recorded: |asked| match asked {
                Upgrade::WebSocket { protocols, .. } => {
                    protocols.iter().any(|one| one.is_recorded())
                }
                Upgrade::Spdy { .. } => false,
            },
            ..GATE
        },
        Reading {
            what: "takes every WebSocket for one that is recorded",
            is_recorded: |asked| matches!(asked, Upgrade::WebSocket { .. }),
            ..GATE
        },
    ];
    for reading in defects {
        let config = ProptestConfig {
            cases: 4096,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let found = TestRunner::new_with_rng(config, random)
            .run(&requests(), |(headers, answers)| {
                reading.holds(&headers, &answers)
            });
        assert!(
            matches!(found, Err(TestError::Fail(..))),
            "a reader that {} is not found",
            reading.what
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn session_is_recorded_or_refused_for_any_header_mix((headers, answers) in requests()) {
        GATE.holds(&headers, &answers)?;
    }
}
