//! Properties for any input.

use hickory_proto::op::{Message, ResponseCode};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};
use oz_egress::dns::{Answer, Families, answer};
use oz_egress::heads::Heads;
use oz_egress::hello::{First, MAX_HELLO, first};
use oz_egress::request::is_websocket;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::hello::Hello;
use crate::world::{VALUE, forwarded, granted, placeholder};

const HOSTS: [&str; 7] = [
    "api.anthropic.com",
    "bearer.example.com",
    "plain.example.com",
    "query.example.com",
    "git.example.org",
    "two.example.com",
    "free.example.com",
];

/// Returns a text that may hold a placeholder: as it is, in another case, encoded, or among other text.
fn text() -> impl Strategy<Value = String> {
    let placeholder = prop::sample::select(vec!['a', 'b', 'c', 'd', 'e', '1', '2', '3', '9']);
    let form = prop::sample::select(vec![0, 1, 2, 3, 4, 5, 6, 7]);
    let other = "[ -~]{0,12}";
    let with = (placeholder, form, other).prop_map(|(digit, form, other)| {
        use base64::Engine as _;
        let one = placeholder_of(digit);
        match form {
            0 => one,
            1 => format!("Bearer {one}"),
            2 => one.to_uppercase(),
            3 => one.replace('-', "%2D"),
            4 => one.replace('-', "%25252d"),
            5 => format!("{other}{one}"),
            6 => {
                let pair = format!("user:{one}");
                let pair = base64::engine::general_purpose::STANDARD.encode(pair);
                format!("Basic {pair}")
            }
            _ => format!("{one}{other}"),
        }
    });
    prop_oneof![with, other]
}

/// Returns a part of requests, or other bytes.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let parts = [
        "GET / HTTP/1.1\r\n",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Host: a\r\n",
        "\r\n",
        "\n",
        "3\r\nabc\r\n",
        "0\r\n",
        "abc",
        ":",
    ];
    let part = prop::sample::select(parts.to_vec()).prop_map(|it| it.as_bytes().to_vec());
    prop_oneof![9 => part, 1 => vec(any::<u8>(), 0..9)]
}

fn placeholder_of(digit: char) -> String {
    placeholder(digit)
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "authorization",
            "x-api-key",
            "x-token",
            "cookie",
            "connection",
            "upgrade",
            "x-forwarded-for",
            "proxy-authorization",
            "te",
            "x-other",
            "content-length",
            "transfer-encoding",
            "private-token",
        ])
        .prop_map(str::to_owned),
        "[a-z][a-z0-9-]{0,12}",
    ]
}

fn target() -> impl Strategy<Value = String> {
    let encoded = |text: String| {
        text.replace(
            [' ', '"', '<', '>', '#', '?', '\\', '^', '`', '{', '|', '}'],
            "_",
        )
    };
    let key = prop::sample::select(vec!["api-token", "secret", "key", "token", "a", "API_KEY"]);
    let pair = (key, text()).prop_map(move |(key, text)| format!("{key}={}", encoded(text)));
    let path = prop_oneof![3 => Just(String::new()), 1 => text().prop_map(encoded)];
    (path, vec(pair, 0..3)).prop_map(|(path, pairs)| match pairs.as_slice() {
        [] => format!("/{path}"),
        pairs => format!("/{path}?{}", pairs.join("&")),
    })
}

prop_compose! {
    fn request()(
        host in prop::sample::select(HOSTS.to_vec()),
        method in prop::sample::select(vec![Method::GET, Method::POST, Method::OPTIONS, Method::TRACE]),
        target in target(),
        headers in vec((name(), text()), 0..5),
        named in vec(name(), 0..3),
    ) -> (String, Parts) {
        let mut request = Request::builder().method(method).uri(
            target.parse::<Uri>().unwrap_or_default(),
        );
        request = request.header("host", host);
        for (name, text) in headers {
            if let Ok(value) = HeaderValue::try_from(text) {
                request = request.header(name, value);
            }
        }
        if !named.is_empty() {
            request = request.header("connection", named.join(", "));
        }
        (host.to_owned(), request.body(()).unwrap().into_parts().0)
    }
}

/// Returns every text of a head, also decoded.
fn texts(head: &Parts) -> Vec<String> {
    use base64::Engine as _;
    let mut texts = vec![head.method.to_string(), head.uri.to_string()];
    for (name, value) in &head.headers {
        texts.push(name.to_string());
        texts.push(String::from_utf8_lossy(value.as_bytes()).into_owned());
        for word in value.as_bytes().split(|&byte| byte == b' ') {
            let decoded = base64::engine::general_purpose::STANDARD.decode(word);
            texts.push(String::from_utf8_lossy(&decoded.unwrap_or_default()).into_owned());
        }
    }
    for at in 0..texts.len() {
        let mut text = texts[at].clone();
        for _ in 0..4 {
            let decoded = percent_encoding::percent_decode_str(&text).decode_utf8_lossy();
            text = decoded.into_owned();
            texts.push(text.clone());
        }
    }
    texts
}

fn has_placeholder(head: &Parts) -> bool {
    let texts = texts(head);
    let mut texts = texts.iter().map(|text| text.to_lowercase());
    texts.any(|text| {
        "abcde1239"
            .chars()
            .any(|digit| text.contains(&placeholder(digit)))
    })
}

/// Compares an answer with what another reader of DNS finds in the question and in the answer.
fn compare(question: &[u8], answer: &Answer) -> Result<(), TestCaseError> {
    let response = Message::from_vec(&answer.bytes);
    let response = response.map_err(|error| TestCaseError::fail(error.to_string()))?;
    let question = Message::from_vec(question);
    let code = response.metadata.response_code;
    if let Ok(question) = &question {
        prop_assert_eq!(response.metadata.id, question.metadata.id);
        prop_assert_eq!(response.metadata.op_code, question.metadata.op_code);
    }
    let is_read = !matches!(code, ResponseCode::FormErr | ResponseCode::NotImp);
    prop_assert_eq!(response.queries.len(), usize::from(is_read));
    if let (true, Ok(question)) = (is_read, question) {
        prop_assert_eq!(&response.queries, &question.queries);
        prop_assert_eq!(response.edns.is_some(), question.edns.is_some());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("OZ_LONG").is_some() { 20_000 } else { 2_000 }))]

    #[test]
    fn forwarded_request_has_no_placeholder((host, head) in request()) {
        if let Ok(sent) = forwarded(&host, head) {
            prop_assert!(!has_placeholder(&sent), "{sent:?}");
            prop_assert_eq!(sent.uri.authority(), None);
            prop_assert_eq!(sent.version, Version::HTTP_11);
            prop_assert_eq!(sent.headers.get("host").unwrap(), host.as_str());
        }
    }

    #[test]
    fn heads_are_read_alike_in_pieces_of_any_size(parts in vec(piece(), 0..40), size in 1_usize..9) {
        let bytes = parts.concat();
        let at_once = Heads::default().read(&bytes);
        let mut heads = Heads::default();
        prop_assert_eq!(at_once, bytes.chunks(size).find_map(|part| heads.read(part)));
    }

    #[test]
    fn header_that_connection_names_is_not_forwarded((host, head) in request()) {
        let named = |head: &Parts| -> Vec<HeaderName> {
            let values = head.headers.get_all("connection").iter();
            let words = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
            words.filter_map(|word| HeaderName::from_bytes(word.trim_ascii()).ok()).collect()
        };
        let (named, upgrades) = (named(&head), is_websocket(&head));
        if let Ok(sent) = forwarded(&host, head) {
            for name in named {
                let injected = sent.headers.get(&name).is_some_and(HeaderValue::is_sensitive);
                let is_upgrade = upgrades && (name == "upgrade" || name == "connection");
                prop_assert!(injected || is_upgrade || !sent.headers.contains_key(&name), "{name}");
            }
        }
    }

    #[test]
    fn value_is_in_one_place_if_a_credential_is_injected((host, head) in request()) {
        let carried = has_placeholder(&head);
        if let Ok(sent) = forwarded(&host, head) {
            use base64::Engine as _;
            let basic = base64::engine::general_purpose::STANDARD.encode(format!("x-access-token:{VALUE}"));
            let text = format!("{:?} {}", sent.uri, sent.headers.values()
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .collect::<Vec<_>>().join("\n"));
            let count = [VALUE, "sk-real%2Fvalue%2B1%3D", &basic]
                .iter().map(|form| text.matches(form).count()).sum::<usize>();
            prop_assert_eq!(count, usize::from(carried), "{}", text);
        }
    }

    #[test]
    fn any_bytes_are_a_handshake_a_request_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        let _ = first(&bytes);
        let mut record = vec![22, 3, 1, 1, 0x90, 1, 0, 1, 0x8c];
        record.extend(&bytes);
        let _ = first(&record);
    }

    #[test]
    fn changed_handshake_is_read_or_refused(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Hello::with_name(b"api.anthropic.com").bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let First::Tls { name, .. } = first(&bytes) {
            prop_assert!(!name.is_empty() && name.len() <= 253);
            prop_assert!(!name.ends_with('.') && name.to_lowercase() == name);
        }
        let _ = first(&bytes[..length.index(bytes.len())]);
        bytes.resize(MAX_HELLO, 0);
        prop_assert_ne!(first(&bytes), First::Incomplete);
    }

    #[test]
    fn any_bytes_are_answered_or_ignored_by_the_name_server(
        id in any::<[u8; 2]>(),
        flags in any::<[u8; 2]>(),
        bytes in vec(any::<u8>(), 0..300),
        name in prop::sample::select(vec![&b""[..], b"\x01a\x00\x00\x01\x00\x01", b"\x03api\x09anthropic\x03com\x00\x00\x1c\x00\x01"]),
        counts in prop_oneof![Just([0, 1, 0, 0, 0, 0, 0, 0]), Just([0, 1, 0, 0, 0, 0, 0, 1]), any::<[u8; 8]>()],
    ) {
        let families = Families { v4: true, v6: true };
        let message = [&id[..], &flags, &counts, name, &bytes].concat();
        for message in [&message[..], &bytes[..]] {
            if let Some(answer) = answer(&granted(), families, message) {
                prop_assert!(answer.bytes.len() <= 512 && answer.name.len() <= 255);
                prop_assert_eq!(&answer.bytes[..2], &message[..2]);
                compare(message, &answer)?;
            }
        }
    }
}
