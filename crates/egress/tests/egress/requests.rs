//! The destination of requests, and requests that two servers could understand differently.

use http::request::Parts;
use http::{StatusCode, Version};
use oz_api::harness::wire::EgressReason;
use oz_egress::request::{Connection, Route, route};

use crate::world::{PLAIN, decided, head, tls, to};

const HOST: &str = "free.example.com";

fn status(connection: &Connection<'_>, head: &Parts) -> Result<Route, (u16, EgressReason)> {
    let route = route(connection, head);
    route.map_err(|refused| (refused.status.as_u16(), refused.reason))
}

#[test]
fn request_for_the_host_of_its_connection_has_a_route() {
    let route = |port| {
        let host = HOST.to_owned();
        Ok(Route { host, port })
    };
    for text in [
        "GET /\nHost: free.example.com",
        "GET /\nHost: FREE.Example.com",
        "GET /\nHost: free.example.com.",
        "GET /\nHost: free.example.com:443",
        "GET /\nHost: free.example.com:",
        "GET https://free.example.com/\nHost: free.example.com",
        "GET https://free.example.com:443\nHost: free.example.com",
        "OPTIONS *\nHost: free.example.com",
        // The user information is refused by the decision about the request.
        "GET https://user@free.example.com/\nHost: free.example.com",
    ] {
        assert_eq!(status(&tls(HOST), &head(text)), route(443), "{text}");
    }
    let text = "GET /\nHost: free.example.com";
    assert_eq!(status(&PLAIN, &head(text)), route(80));
    let other_port = Connection {
        port: 8443,
        ..tls(HOST)
    };
    assert_eq!(status(&other_port, &head(text)), route(8443));
    let text = "GET /\nHost: free.example.com:8443";
    assert_eq!(status(&other_port, &head(text)), route(8443));
    let mut old = head("GET /");
    old.version = Version::HTTP_10;
    assert_eq!(status(&tls(HOST), &old), route(443));
}

#[test]
fn f22_request_for_another_host_than_its_connection_is_refused() {
    for text in [
        "GET /\nHost: evil.org",
        "GET /\nHost: example.com",
        "GET /\nHost: free.example.com.evil.org",
        "GET /\nHost: free.example.com:8443",
        "GET https://evil.org/\nHost: free.example.com",
        "GET https://free.example.com/\nHost: evil.org",
        "GET https://free.example.com@evil.org/\nHost: free.example.com",
        "GET https://free.example.com:80/\nHost: free.example.com",
        "GET http://free.example.com/\nHost: free.example.com",
        "GET ftp://free.example.com/\nHost: free.example.com",
    ] {
        let refused = Err((421, EgressReason::HostMismatch));
        assert_eq!(status(&tls(HOST), &head(text)), refused, "{text}");
    }
    let text = "GET https://free.example.com/\nHost: free.example.com";
    assert_eq!(
        status(&PLAIN, &head(text)),
        Err((421, EgressReason::HostMismatch))
    );
    let text = "GET http://evil.org/\nHost: free.example.com";
    assert_eq!(
        status(&PLAIN, &head(text)),
        Err((421, EgressReason::HostMismatch))
    );
}

#[test]
fn request_with_malformed_or_missing_host_is_refused() {
    for text in [
        "GET /",
        "GET /\nHost:",
        "GET /\nHost: free.example.com\nHost: free.example.com",
        "GET /\nHost: free.example.com\nHost: evil.org",
        "GET /\nHost: free.example.com, evil.org",
        "GET /\nHost: user@free.example.com",
        "GET /\nHost: user:password@free.example.com",
        "GET /\nHost: free.example.com/path",
        "GET /\nHost: free.example.com:0",
        "GET /\nHost: free.example.com:+443",
        "GET /\nHost: free.example.com:443x",
        "GET /\nHost: free.example.com:65979",
        "GET /\nHost: free.example.com:443:443",
        "GET /\nHost: free%2eexample.com",
        "GET /\nHost: free.example.com\t.evil.org",
        "GET free.example.com:443\nHost: free.example.com",
        "GET *\nHost: free.example.com",
    ] {
        let refused = Err((400, EgressReason::Protocol));
        assert_eq!(status(&tls(HOST), &head(text)), refused, "{text}");
    }
    let mut old = head("GET /");
    old.version = Version::HTTP_10;
    assert_eq!(status(&PLAIN, &old), Err((400, EgressReason::Protocol)));
    for text in [
        "GET /\nHost: 10.0.0.1",
        "GET /\nHost: 127.1:80",
        "GET /\nHost: [::1]",
        "GET /\nHost: [::1]:80",
        "GET http://169.254.169.254/\nHost: free.example.com",
    ] {
        assert_eq!(
            status(&PLAIN, &head(text)),
            Err((403, EgressReason::NoHost)),
            "{text}"
        );
    }
}

#[test]
fn request_with_more_than_one_meaning_is_refused() {
    for (headers, code) in [
        ("Content-Length: 5\nTransfer-Encoding: chunked", 400),
        ("Content-Length: 5\nContent-Length: 5", 400),
        ("Content-Length: 5\nContent-Length: 6", 400),
        ("Content-Length: 5, 5", 400),
        ("Content-Length: +5", 400),
        ("Content-Length:", 400),
        (
            "Transfer-Encoding: chunked\nTransfer-Encoding: chunked",
            400,
        ),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: chunked, identity", 501),
        ("Transfer-Encoding: xchunked", 501),
        ("Connection: content-length\nContent-Length: 5", 400),
        ("Connection: close, Host", 400),
        ("Expect: 200-maybe", 417),
        ("Expect: 100-continue\nExpect: other", 417),
    ] {
        let refused = Err((code, EgressReason::Protocol));
        assert_eq!(
            status(&tls(HOST), &to(HOST, "/", headers)),
            refused,
            "{headers}"
        );
    }
    for headers in [
        "Content-Length: 5",
        "Transfer-Encoding: Chunked",
        "Expect: 100-Continue\nContent-Length: 5",
        "Connection: keep-alive, x-other",
    ] {
        assert!(
            status(&tls(HOST), &to(HOST, "/", headers)).is_ok(),
            "{headers}"
        );
    }
    let mut old = to(HOST, "/", "Transfer-Encoding: chunked");
    old.version = Version::HTTP_10;
    assert_eq!(status(&tls(HOST), &old), Err((400, EgressReason::Protocol)));
}

#[test]
fn other_protocols_and_tunnels_are_refused() {
    for version in [Version::HTTP_09, Version::HTTP_2, Version::HTTP_3] {
        let mut head = to(HOST, "/", "");
        head.version = version;
        assert_eq!(
            status(&tls(HOST), &head),
            Err((505, EgressReason::Protocol))
        );
    }
    let connect = head("CONNECT free.example.com:443\nHost: free.example.com:443");
    assert_eq!(
        status(&tls(HOST), &connect),
        Err((405, EgressReason::Protocol))
    );
}

#[test]
fn request_for_a_host_or_port_that_is_not_granted_names_both() {
    let refused = decided("evil.org", &to("evil.org", "/", "")).unwrap_err();
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(refused.reason, EgressReason::HostNotGranted);
    assert!(refused.message.contains("evil.org, port 443"), "{refused}");
}
