//! The heads of requests and responses as the other side gets them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Response, StatusCode, Version};
use oz_api::harness::wire::EgressReason;
use oz_egress::request::{Connection, Route, forward, is_websocket, response};

use crate::world::{
    PLAIN, VALUE, forwarded, forwarded_with, granted, head, placeholder, tls, to, value,
};

fn names(head: &http::request::Parts) -> Vec<&str> {
    let mut names: Vec<&str> = head.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn r18_value_replaces_the_placeholder_in_each_place() {
    let api = "api.anthropic.com";
    let sent = to(
        api,
        "/v1/messages?beta=true",
        &format!("X-Api-Key: {}", placeholder('a')),
    );
    let sent = forwarded(api, sent).unwrap();
    assert_eq!(value(&sent, "x-api-key"), Some(VALUE));
    assert!(sent.headers["x-api-key"].is_sensitive());
    assert_eq!(sent.uri, "/v1/messages?beta=true");
    let host = "bearer.example.com";
    let sent = to(
        host,
        "/",
        &format!("authorization: bearer {}", placeholder('b')),
    );
    let sent = forwarded(host, sent).unwrap();
    assert_eq!(
        value(&sent, "authorization"),
        Some("Bearer sk-real/value+1=")
    );
}

#[test]
fn r19_query_and_basic_are_injected() {
    let host = "query.example.com";
    let target = format!("/p?a=%20b&api-token={}&c=d;e&f", placeholder('d'));
    let sent = forwarded(host, to(host, &target, "")).unwrap();
    assert_eq!(
        sent.uri,
        "/p?a=%20b&api-token=sk-real%2Fvalue%2B1%3D&c=d;e&f"
    );
    let host = "git.example.org";
    let basic = STANDARD.encode(format!("git:{}", placeholder('e')));
    let sent = to(host, "/", &format!("Authorization: Basic {basic}"));
    let sent = forwarded(host, sent).unwrap();
    let expected = format!(
        "Basic {}",
        STANDARD.encode(format!("x-access-token:{VALUE}"))
    );
    assert_eq!(value(&sent, "authorization"), Some(expected.as_str()));
}

#[test]
fn f21_headers_beside_a_credential_are_removed() {
    let host = "plain.example.com";
    let own = format!("X-Token: {}", placeholder('c'));
    let sent = to(
        host,
        "/",
        &format!(
            "{own}\nCookie: a=b\nCookie: c=d\nForwarded: for=10.0.0.1\nX-Forwarded-For: 10.0.0.1\nX-Forwarded-Host: \
             evil.org\nX-FORWARDED-ANYTHING: x\nX-Other: kept\nAccept: */*\nTE: trailers\nTrailer: x-token\n\
             Keep-Alive: 5\nProxy-Connection: close\nHTTP2-Settings: x\nConnection: close"
        ),
    );
    let sent = forwarded(host, sent).unwrap();
    assert_eq!(names(&sent), ["accept", "host", "x-other", "x-token"]);
    // Without a credential, only the headers of this hop are removed.
    let free = "free.example.com";
    let headers = "Cookie: a=b\nForwarded: for=10.0.0.1\nX-Forwarded-For: 10.0.0.1\nTE: trailers\nProxy-Authorization: x";
    let sent = forwarded(free, to(free, "/", headers)).unwrap();
    assert_eq!(
        names(&sent),
        ["cookie", "forwarded", "host", "x-forwarded-for"]
    );
}

#[test]
fn f21_only_published_headers_reach_anthropic() {
    let host = "api.anthropic.com";
    let kept = [
        "accept",
        "accept-encoding",
        "anthropic-beta",
        "anthropic-dangerous-direct-browser-access",
        "anthropic-version",
        "content-length",
        "content-type",
        "user-agent",
        "x-app",
        "x-claude-code-session-id",
        "x-client-request-id",
        "x-stainless-helper-method",
        "x-stainless-lang",
    ];
    let removed = [
        "accept-language",
        "anthropic-organization",
        "anthropic-workspace-id",
        "cookie",
        "forwarded",
        "origin",
        "referer",
        "te",
        "x-forwarded-for",
        "x-http-method-override",
        "x-stainless",
        "anthropic-version-2",
    ];
    let mut headers = format!("x-api-key: {}", placeholder('a'));
    for name in kept.iter().chain(&removed) {
        headers.push_str(&format!("\n{name}: 1"));
    }
    let sent = forwarded(host, to(host, "/v1/messages", &headers)).unwrap();
    let mut expected = [&kept[..], &["host", "x-api-key"]].concat();
    expected.sort_unstable();
    assert_eq!(names(&sent), expected);
    // A request without the key keeps its headers, but for those of this hop.
    let sent = forwarded(host, to(host, "/", "x-other: 1\nTE: trailers")).unwrap();
    assert_eq!(names(&sent), ["host", "x-other"]);
}

#[test]
fn connection_does_not_strip_the_injected_header() {
    for (host, header, sent) in [
        (
            "bearer.example.com",
            "authorization",
            format!("Bearer {}", placeholder('b')),
        ),
        ("api.anthropic.com", "x-api-key", placeholder('a')),
        ("plain.example.com", "x-token", placeholder('c')),
    ] {
        let headers = format!(
            "Connection: close, {header}\nConnection: X-One,\tX-Two , a b, \nx-one: 1\nx-two: 2\n{header}: {sent}"
        );
        let sent = forwarded(host, to(host, "/", &headers)).unwrap();
        let mut expected = ["host", header];
        expected.sort_unstable();
        assert_eq!(names(&sent), expected);
        assert!(value(&sent, header).unwrap().contains(VALUE));
    }
}

#[test]
fn target_has_origin_form_and_host_is_the_route() {
    let host = "free.example.com";
    for (target, named, expected, expected_host) in [
        ("/a?b=c", "FREE.example.com.", "/a?b=c", host),
        ("https://free.example.com", host, "/", host),
        ("https://free.example.com/a//b?c", host, "/a//b?c", host),
        ("https://free.example.com?a=b", host, "/?a=b", host),
        ("//evil.org/a", host, "//evil.org/a", host),
        ("/", "free.example.com:443", "/", "free.example.com:443"),
    ] {
        let sent = forwarded(host, to(named, target, "")).unwrap();
        assert_eq!(sent.uri, expected, "{target}");
        assert_eq!(sent.uri.authority(), None);
        assert_eq!(value(&sent, "host"), Some(expected_host), "{target}");
    }
    let options = head("OPTIONS *\nHost: free.example.com");
    assert_eq!(forwarded(host, options).unwrap().uri, "*");
    let mut old = head("GET /");
    old.version = Version::HTTP_10;
    let port = Connection {
        port: 8443,
        ..tls(host)
    };
    let sent = forwarded_with(&granted(), &port, old, VALUE).unwrap();
    assert_eq!(value(&sent, "host"), Some("free.example.com:8443"));
    assert_eq!(sent.version, Version::HTTP_11);
}

#[test]
fn expectation_is_met_by_the_proxy() {
    let host = "free.example.com";
    let sent = to(host, "/", "Expect: 100-continue\nContent-Length: 5");
    assert_eq!(
        names(&forwarded(host, sent).unwrap()),
        ["content-length", "host"]
    );
}

#[test]
fn upgrade_to_a_websocket_is_forwarded_and_no_other_is() {
    let host = "plain.example.com";
    let own = format!("X-Token: {}", placeholder('c'));
    let headers = format!(
        "{own}\nConnection: keep-alive, Upgrade\nUpgrade: WebSocket\nSec-WebSocket-Key: x\nSec-WebSocket-Version: 13"
    );
    let sent = to(host, "/", &headers);
    assert!(is_websocket(&sent));
    let sent = forwarded(host, sent).unwrap();
    assert_eq!(value(&sent, "connection"), Some("upgrade"));
    assert_eq!(value(&sent, "upgrade"), Some("websocket"));
    assert_eq!(value(&sent, "sec-websocket-key"), Some("x"));
    assert_eq!(value(&sent, "x-token"), Some(VALUE));
    for headers in [
        "Connection: upgrade\nUpgrade: h2c\nHTTP2-Settings: x",
        "Connection: upgrade\nUpgrade: websocket, h2c",
        "Connection: upgrade\nUpgrade: h2c\nUpgrade: websocket",
        "Connection: upgrade\nUpgrade: TLS/1.2",
        "Connection: close\nUpgrade: websocket",
        "Upgrade: websocket",
        "Connection: upgrade\nUpgrade: websocket\nContent-Length: 5",
        "Connection: upgrade\nUpgrade: websocket\nTransfer-Encoding: chunked",
        "Connection: upgrade",
    ] {
        let sent = to(host, "/", headers);
        assert!(!is_websocket(&sent), "{headers}");
        let sent = forwarded(host, sent).unwrap();
        assert!(!sent.headers.contains_key("upgrade"), "{headers}");
        assert!(!sent.headers.contains_key("connection"), "{headers}");
    }
    let post = head(&format!(
        "POST /\nHost: {host}\nConnection: upgrade\nUpgrade: websocket"
    ));
    assert!(!is_websocket(&post));
    // Anthropic's API has no published headers for it.
    let api = "api.anthropic.com";
    let headers = format!(
        "x-api-key: {}\nConnection: upgrade\nUpgrade: websocket",
        placeholder('a')
    );
    assert_eq!(
        names(&forwarded(api, to(api, "/", &headers)).unwrap()),
        ["host", "x-api-key"]
    );
}

#[test]
fn value_that_its_place_cannot_hold_is_not_sent() {
    let host = "plain.example.com";
    let sent = || to(host, "/", &format!("X-Token: {}", placeholder('c')));
    for text in ["a\r\nX-Evil: b", "a\nb", "a\0b"] {
        let refused = forwarded_with(&granted(), &tls(host), sent(), text).unwrap_err();
        assert_eq!(
            (refused.status.as_u16(), refused.reason),
            (502, EgressReason::CredentialNotLent)
        );
        assert_eq!(refused.credential.as_deref(), Some("PLAIN"));
        assert!(!refused.message.contains(text));
    }
    let host = "query.example.com";
    let sent = to(host, &format!("/?api-token={}", placeholder('d')), "");
    let text = "a&b=c#d e\r\n\u{e9}%";
    let sent = forwarded_with(&granted(), &tls(host), sent, text).unwrap();
    assert_eq!(sent.uri, "/?api-token=a%26b%3Dc%23d%20e%0D%0A%C3%A9%25");
    let sent = to(host, &format!("/?api-token={}", placeholder('d')), "");
    let refused = forwarded_with(&granted(), &tls(host), sent, &"\u{e9}".repeat(20_000));
    assert_eq!(refused.unwrap_err().reason, EgressReason::CredentialNotLent);
}

#[test]
fn placeholder_is_not_forwarded_without_a_decision() {
    let granted = granted();
    let route = Route {
        host: "plain.example.com".to_owned(),
        port: 443,
    };
    let own = format!("X-Token: {}", placeholder('c'));
    let mut sent = to("plain.example.com", "/", &own);
    let refused = forward(&granted, &route, &mut sent, None).unwrap_err();
    assert_eq!(
        (refused.status.as_u16(), refused.reason),
        (403, EgressReason::Placeholder)
    );
    assert_eq!(refused.credential.as_deref(), Some("PLAIN"));
    let mut sent = to(
        "plain.example.com",
        "/",
        &format!("{own}\nX-Other: {}", placeholder('c')),
    );
    let lent = granted.credential("PLAIN").map(|plain| (plain, VALUE));
    assert!(forward(&granted, &route, &mut sent, lent).is_err());
    assert!(!format!("{sent:?}").contains(VALUE));
}

#[test]
fn plain_http_is_forwarded_without_credential() {
    let sent = to("plain.example.com", "/", "Accept: */*");
    let sent = forwarded_with(&granted(), &PLAIN, sent, VALUE).unwrap();
    assert_eq!(names(&sent), ["accept", "host"]);
}

#[test]
fn response_loses_the_headers_of_this_hop() {
    let parts = |status: StatusCode| {
        let response = Response::builder()
            .status(status)
            .header("Connection", "close, X-One")
            .header("X-One", "1")
            .header("Keep-Alive", "timeout=5")
            .header("Transfer-Encoding", "chunked")
            .header("Trailer", "x-two")
            .header("Upgrade", "h2c, websocket")
            .header("Proxy-Authenticate", "Basic")
            .header("Alt-Svc", "h3=\":443\"")
            .header("Set-Cookie", "a=b")
            .header("Content-Type", "text/event-stream");
        let mut parts = response.body(()).unwrap().into_parts().0;
        response_of(&mut parts);
        let mut names: Vec<String> = parts.headers.keys().map(ToString::to_string).collect();
        names.sort_unstable();
        (names, parts.headers)
    };
    let (names, _) = parts(StatusCode::OK);
    assert_eq!(names, ["content-type", "set-cookie"]);
    let (names, headers) = parts(StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(
        names,
        ["connection", "content-type", "set-cookie", "upgrade"]
    );
    assert_eq!(headers["connection"], "upgrade");
    assert_eq!(headers["upgrade"], "websocket");
}

fn response_of(parts: &mut http::response::Parts) {
    response(parts);
}
