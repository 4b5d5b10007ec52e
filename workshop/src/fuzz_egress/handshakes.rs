//! TLS handshakes, and their comparison with rustls, which serves them in the proxy.

use anyhow::{Result, ensure};
use oz_egress::hello::{First, MAX_HELLO, first};
use rustls::server::Acceptor;

use crate::random::Xorshift;

const NAMES: [&[u8]; 14] = [
    b"api.anthropic.com",
    b"API.Anthropic.COM",
    b"api.anthropic.com.",
    b"a_b.example.com",
    b"10.0.0.1",
    b"127.1",
    b"::1",
    b"",
    b".",
    b"a..b",
    b"a\0.example.com",
    b"-a.example.com",
    b"a-.example.com",
    b"*.example.com",
];

fn part(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], content].concat()
}

fn extension(random: &mut Xorshift) -> Vec<u8> {
    let name = random.one(&NAMES).copied().unwrap_or_default();
    let entry = |name: &[u8]| [&[0][..], &part(name)].concat();
    let (kind, content): (u16, Vec<u8>) = match random.below(12) {
        0..=3 => (0, part(&entry(name))),
        4 => (0, part(&[entry(name), entry(b"evil.org")].concat())),
        5 => (0, part(&[&[1][..], &part(name)].concat())),
        6 | 7 => (16, part(b"\x02h2\x08http/1.1")),
        8 => (0xfe0d, vec![0; random.below(80)]),
        9 => (0xffce, vec![0; random.below(80)]),
        10 => (0x0a0a, Vec::new()),
        _ => (43, b"\x02\x03\x04".to_vec()),
    };
    [&kind.to_be_bytes()[..], &part(&content)].concat()
}

/// Returns a handshake, in records of any size, that may be changed.
pub(crate) fn generate(random: &mut Xorshift) -> Vec<u8> {
    // Without these, rustls refuses a handshake before it reads the name.
    let mut extensions = vec![
        b"\x00\x0d\x00\x04\x00\x02\x04\x03".to_vec(),
        b"\x00\x0a\x00\x04\x00\x02\x00\x1d".to_vec(),
    ];
    for _ in 0..random.below(5) {
        extensions.push(extension(random));
    }
    let mut extensions = extensions.concat();
    if random.below(4) == 0 {
        super::mutate(random, &mut extensions, &NAMES);
    }
    let mut body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &part(&[0x13, 1, 0xc0, 0x2b]),
        &[1, 0],
    ]
    .concat();
    if random.below(20) > 0 {
        body.extend(part(&extensions));
    }
    let message = [&[1, 0][..], &part(&body)].concat();
    let size = match random.below(3) {
        0 => 1 + random.below(8),
        1 => 1 + random.below(message.len()),
        _ => message.len(),
    };
    let record = |piece: &[u8]| [&[22, 3, 1][..], &part(piece)].concat();
    let mut bytes: Vec<u8> = message.chunks(size).flat_map(record).collect();
    if random.below(4) == 0 {
        super::mutate(
            random,
            &mut bytes,
            &[b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"\x15\x03\x03"],
        );
    }
    bytes.truncate(MAX_HELLO - 1);
    bytes
}

/// Checks one handshake. Returns whether it has a name.
pub(crate) fn check(bytes: &[u8]) -> Result<bool> {
    let result = first(bytes);
    // The bytes arrive in pieces: a decision is final.
    for length in [
        bytes.len() / 3,
        bytes.len() / 2,
        bytes.len().saturating_sub(1),
    ] {
        let before = first(&bytes[..length]);
        ensure!(
            before == First::Incomplete || before == result,
            "{before:?} after {length} bytes, then {result:?}"
        );
    }
    let First::Tls { name, alpn } = result else {
        return Ok(false);
    };
    ensure!(
        !name.is_empty() && name.len() <= 253 && name == name.to_ascii_lowercase(),
        "{name:?} is no name"
    );
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() && acceptor.read_tls(&mut rest).is_ok() {}
    // What rustls refuses, the proxy does not serve.
    if let Ok(Some(accepted)) = acceptor.accept() {
        let hello = accepted.client_hello();
        let theirs = hello.server_name().map(str::to_ascii_lowercase);
        let theirs = theirs.map(|name| name.trim_end_matches('.').to_owned());
        ensure!(
            theirs.as_ref() == Some(&name),
            "rustls reads the name {theirs:?}, not {name}"
        );
        let theirs: Vec<Vec<u8>> = hello
            .alpn()
            .map(|protocols| protocols.map(<[u8]>::to_vec).collect())
            .unwrap_or_default();
        ensure!(theirs == alpn, "rustls reads the protocols {theirs:?}");
    }
    Ok(true)
}
