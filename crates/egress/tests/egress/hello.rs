//! The first bytes of connections.

use oz_api::harness::wire::EgressReason;
use oz_egress::hello::{First, MAX_HELLO, first};

/// A `ClientHello` that a test changes.
pub(crate) struct Hello {
    pub(crate) extensions: Vec<(u16, Vec<u8>)>,
}

fn u16s(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap().to_be_bytes()
}

fn part(content: &[u8]) -> Vec<u8> {
    [&u16s(content.len())[..], content].concat()
}

/// The content of the extension with the name of a host.
pub(crate) fn sni(name: &[u8]) -> Vec<u8> {
    part(&[&[0][..], &part(name)].concat())
}

impl Hello {
    pub(crate) fn with_name(name: &[u8]) -> Self {
        let alpn = part(b"\x02h2\x08http/1.1");
        Self {
            extensions: vec![(0x0a0a, Vec::new()), (0, sni(name)), (16, alpn)],
        }
    }

    fn with(mut self, kind: u16, content: &[u8]) -> Self {
        self.extensions.push((kind, content.to_vec()));
        self
    }

    fn without(mut self, kind: u16) -> Self {
        self.extensions.retain(|(other, _)| *other != kind);
        self
    }

    /// The message of the handshake.
    fn message(&self) -> Vec<u8> {
        let extension =
            |(kind, content): &(u16, Vec<u8>)| [&kind.to_be_bytes()[..], &part(content)].concat();
        let extensions: Vec<u8> = self.extensions.iter().flat_map(extension).collect();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[4, 1, 2, 3, 4],
            &part(&[0x13, 1, 0x13, 2]),
            &[1, 0],
            &part(&extensions),
        ]
        .concat();
        [&[1, 0][..], &part(&body)].concat()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        records(&self.message(), 1 << 14)
    }
}

/// Returns a message in records of at most this size.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let record = |piece: &[u8]| [&[22, 3, 1][..], &part(piece)].concat();
    message.chunks(size).flat_map(record).collect()
}

fn name(bytes: &[u8]) -> Option<String> {
    match first(bytes) {
        First::Tls { name, .. } => Some(name),
        _ => None,
    }
}

fn reason(bytes: &[u8]) -> Option<EgressReason> {
    match first(bytes) {
        First::Refused(reason, _) => Some(reason),
        _ => None,
    }
}

#[test]
fn handshake_names_host_and_protocols() {
    for (text, expected) in [
        ("api.anthropic.com", "api.anthropic.com"),
        ("API.Anthropic.COM", "api.anthropic.com"),
        ("api.anthropic.com.", "api.anthropic.com"),
        ("my_host.example.com", "my_host.example.com"),
    ] {
        let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let name = expected.to_owned();
        let bytes = Hello::with_name(text.as_bytes()).bytes();
        assert_eq!(first(&bytes), First::Tls { name, alpn });
    }
    let without = Hello::with_name(b"a.example.com").without(16).bytes();
    let (name, alpn) = ("a.example.com".to_owned(), Vec::new());
    assert_eq!(first(&without), First::Tls { name, alpn });
}

#[test]
fn name_that_is_none_is_refused() {
    let longest = vec![b"a".repeat(63); 4].join(&b'.');
    for (text, expected) in [
        (&b""[..], EgressReason::NoHost),
        (b".", EgressReason::NoHost),
        (b"a..example.com", EgressReason::NoHost),
        (b"10.0.0.1", EgressReason::NoHost),
        (b"2130706433", EgressReason::NoHost),
        (b"::1", EgressReason::NoHost),
        (b"[::1]", EgressReason::NoHost),
        (b"api.anthropic.com\0.evil.org", EgressReason::NoHost),
        (b"api.anthropic.com\0", EgressReason::NoHost),
        (b"api.anthropic.com:443", EgressReason::NoHost),
        (b"*.anthropic.com", EgressReason::NoHost),
        (b"b\xc3\xbccher.example", EgressReason::NoHost),
        (&longest, EgressReason::NoHost),
        (&b"a".repeat(64), EgressReason::NoHost),
        (&b"a".repeat(300), EgressReason::NoHost),
    ] {
        let bytes = Hello::with_name(text).bytes();
        assert_eq!(reason(&bytes), Some(expected), "{text:?}");
    }
    assert_eq!(longest.len(), 255);
}

#[test]
fn handshake_without_one_readable_name_is_refused() {
    let hello = || Hello::with_name(b"api.anthropic.com");
    let two = part(&[&[0][..], &part(b"a.example"), &[0], &part(b"b.example")].concat());
    let other_kind = part(&[&[1][..], &part(b"a.example")].concat());
    let named = |content: &[u8]| hello().without(0).with(0, content).bytes();
    for (bytes, expected, case) in [
        (hello().without(0).bytes(), EgressReason::NoHost, "no name"),
        (named(&part(b"")), EgressReason::NoHost, "empty list"),
        (
            hello().with(0, &sni(b"evil.org")).bytes(),
            EgressReason::Protocol,
            "the extension twice",
        ),
        (
            hello().with(0, &sni(b"api.anthropic.com")).bytes(),
            EgressReason::Protocol,
            "the same name twice",
        ),
        (named(&two), EgressReason::Protocol, "two names"),
        (named(&other_kind), EgressReason::Protocol, "another kind"),
        (named(b""), EgressReason::Protocol, "empty extension"),
        (
            named(&[&sni(b"a.example")[..], b"x"].concat()),
            EgressReason::Protocol,
            "more bytes",
        ),
        (
            hello().with(0xfe0d, &[0; 40]).bytes(),
            EgressReason::NoHost,
            "encrypted hello",
        ),
        (
            hello().without(0).with(0xfe0d, &[1]).bytes(),
            EgressReason::NoHost,
            "inner encrypted hello",
        ),
        (
            hello().with(0xffce, &[0; 40]).bytes(),
            EgressReason::NoHost,
            "encrypted name",
        ),
    ] {
        assert_eq!(reason(&bytes), Some(expected), "{case}");
    }
}

#[test]
fn handshake_is_read_across_records_and_reads() {
    let hello = Hello::with_name(b"api.anthropic.com");
    let message = hello.message();
    for size in [1, 2, 3, 4, 5, 40, message.len() - 1, message.len()] {
        let bytes = records(&message, size);
        assert_eq!(name(&bytes).as_deref(), Some("api.anthropic.com"), "{size}");
        for length in 0..bytes.len() {
            assert_eq!(
                first(&bytes[..length]),
                First::Incomplete,
                "{size} {length}"
            );
        }
        // The client may send more in the same read.
        let more = [&bytes[..], &[20, 3, 3, 0, 1, 1]].concat();
        assert_eq!(name(&more).as_deref(), Some("api.anthropic.com"));
    }
}

#[test]
fn malformed_handshake_is_refused_as_soon_as_it_is() {
    let bytes = Hello::with_name(b"api.anthropic.com").bytes();
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    // The version and the length of the record, the kind and the length of the message.
    for (at, byte) in [(1, 2), (3, 0xff), (5, 2), (6, 1)] {
        assert_eq!(
            reason(&changed(at, byte)),
            Some(EgressReason::Protocol),
            "{at}"
        );
    }
    assert_eq!(reason(&[22, 3, 1, 0, 0]), Some(EgressReason::Protocol));
    assert_eq!(reason(&[22, 2]), Some(EgressReason::Protocol));
    // An alert between the parts of the message.
    let message = Hello::with_name(b"api.anthropic.com").message();
    let begin = records(&message[..20], 20);
    let alert = [&begin[..], &[21, 3, 3, 0, 2, 1, 0]].concat();
    assert_eq!(reason(&alert), Some(EgressReason::Protocol));
}

#[test]
fn handshake_that_is_too_long_is_refused() {
    // A length of 16 MiB is refused at once, without waiting for the bytes.
    assert_eq!(
        reason(&[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff]),
        Some(EgressReason::Protocol)
    );
    // Records of one byte, each with five bytes of header.
    let message = [&[1, 0, 0x3f, 0][..], &[0; 0x3f00]].concat();
    let bytes = records(&message, 1);
    assert_eq!(first(&bytes[..MAX_HELLO - 1]), First::Incomplete);
    assert_eq!(reason(&bytes[..MAX_HELLO]), Some(EgressReason::Protocol));
}

#[test]
fn request_is_http_and_any_other_protocol_is_refused() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"POST http://a.example.com/ HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"M-SEARCH * HTTP/1.1\r\n",
        b"CONNECT a.example.com:443 HTTP/1.1\r\n",
    ] {
        assert_eq!(first(bytes), First::Http, "{bytes:?}");
    }
    for bytes in [&b""[..], b"G", b"GET", b"GET "] {
        assert_eq!(first(bytes), First::Incomplete, "{bytes:?}");
    }
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2 Debian\r\n",
        b"get / HTTP/1.1\r\n",
        b"\r\nGET / HTTP/1.1\r\n",
        b" / HTTP/1.1\r\n",
        b"GET\r\n",
        b"GET  / HTTP/1.1\r\n",
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
        b"\x80\x2e\x01\x00\x02",
        b"\x15\x03\x01\x00\x02\x01\x00",
        b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        b"* OK IMAP4 ready",
    ] {
        assert_eq!(reason(bytes), Some(EgressReason::Protocol), "{bytes:?}");
    }
}
