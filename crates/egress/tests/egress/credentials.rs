//! The place of each placeholder.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::request::Parts;
use oz_api::harness::wire::{CredentialPlace, EgressReason};
use oz_egress::grants::Granted;
use oz_egress::request::{Pass, Refused, decide, route};

use crate::world::{
    PLAIN, credential, decided, granted, head, header, placeholder, run_grants, tls, to,
};

pub(crate) fn injected(name: &str) -> Result<Pass, Refused> {
    Ok(Pass::Inject {
        credential: name.to_owned(),
    })
}

/// Checks that a request is refused for this reason, about this credential. Returns the message.
pub(crate) fn refused(host: &str, head: &Parts, reason: EgressReason, about: &str) -> String {
    let refused = decided(host, head);
    let Err(refused) = refused else {
        panic!("{} {:?} passes", head.uri, head.headers);
    };
    let name = refused.credential.clone().unwrap_or_default();
    assert_eq!(
        (refused.status.as_u16(), refused.reason, name.as_str()),
        (403, reason, about),
        "{} {:?}: {refused}",
        head.uri,
        head.headers
    );
    refused.message
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Each host with the request that carries its credential in its place: target and headers.
pub(crate) fn in_place() -> Vec<(&'static str, &'static str, String, String)> {
    let slash = || "/".to_owned();
    let p = placeholder;
    vec![
        (
            "ANTHROPIC",
            "api.anthropic.com",
            slash(),
            format!("x-api-key: {}", p('a')),
        ),
        (
            "BEARER",
            "bearer.example.com",
            slash(),
            format!("Authorization: Bearer {}", p('b')),
        ),
        (
            "PLAIN",
            "plain.example.com",
            slash(),
            format!("X-Token: {}", p('c')),
        ),
        (
            "QUERY",
            "query.example.com",
            format!("/?a=b&api-token={}&c", p('d')),
            String::new(),
        ),
        (
            "BASIC",
            "git.example.org",
            slash(),
            format!("Authorization: {}", basic("x-access-token", &p('e'))),
        ),
    ]
}

#[test]
fn r18_r19_placeholder_in_its_place_is_injected() {
    for (name, host, target, headers) in in_place() {
        assert_eq!(decided(host, &to(host, &target, &headers)), injected(name));
    }
    let bearer = "bearer.example.com";
    let headers = format!("authorization: bearer {}", placeholder('b'));
    assert_eq!(
        decided(bearer, &to(bearer, "/", &headers)),
        injected("BEARER")
    );
    let git = "git.example.org";
    for user in ["", "git", "x-access-token"] {
        let value = STANDARD.encode(format!("{user}:{}", placeholder('e')));
        for scheme in ["Basic", "basic"] {
            let headers = format!("Authorization: {scheme} {value}");
            assert_eq!(decided(git, &to(git, "/", &headers)), injected("BASIC"));
        }
    }
    let query = "query.example.com";
    let target = format!("/?api%2Dtoken=%70dk-{}", "d".repeat(48));
    assert_eq!(decided(query, &to(query, &target, "")), injected("QUERY"));
}

#[test]
fn placeholder_outside_its_place_is_refused() {
    let (host, p) = ("plain.example.com", placeholder('c'));
    let upper = p.to_uppercase();
    let (encoded, twice) = (p.replace('-', "%2d"), p.replace('-', "%252D"));
    let every: String = p.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let in_basic = basic("user", &p);
    let unpadded = format!("Basic {}", URL_SAFE_NO_PAD.encode(format!("{p}:x")));
    for text in [&p, &upper, &encoded, &twice, &every] {
        for (target, headers) in [
            (format!("/{text}"), String::new()),
            (format!("/a;b={text}/c"), String::new()),
            (format!("/?x={text}"), String::new()),
            (format!("/?{text}"), String::new()),
            (format!("/?x=1;y={text}"), String::new()),
            ("/".to_owned(), format!("X-Other: {text}")),
            ("/".to_owned(), format!("X-Other: before{text}after")),
            ("/".to_owned(), format!("Cookie: a={text}")),
            (
                "/".to_owned(),
                format!("Referer: https://a.example/?{text}"),
            ),
            ("/".to_owned(), format!("Authorization: Bearer {text}")),
            ("/".to_owned(), format!("User-Agent: {text}")),
            ("/".to_owned(), format!("Connection: {text}")),
            // In its place, and elsewhere too.
            (format!("/{text}"), format!("X-Token: {p}")),
            ("/".to_owned(), format!("X-Token: {p}\nX-Other: {text}")),
            ("/".to_owned(), format!("X-Token: {p}\nX-Token: {text}")),
            ("/".to_owned(), format!("X-Token: Bearer {text}")),
            ("/".to_owned(), format!("X-Token: {text}{text}")),
        ] {
            let head = to(host, &target, &headers);
            let message = refused(host, &head, EgressReason::Placeholder, "PLAIN");
            assert!(message.contains("the header X-Token"), "{message}");
            assert!(!message.to_lowercase().contains(&p), "{message}");
        }
    }
    for headers in [
        format!("X-Other: {in_basic}"),
        format!("Authorization: {in_basic}"),
        format!("Authorization: {unpadded}"),
        format!("Authorization: Digest x, {in_basic}"),
        format!("Proxy-Authorization: {in_basic}"),
        format!("{p}: x"),
        format!("X-Token: {upper}"),
        format!("X-Token: {encoded}"),
    ] {
        refused(
            host,
            &to(host, "/", &headers),
            EgressReason::Placeholder,
            "PLAIN",
        );
    }
    let method = head(&format!("{p} /\nHost: {host}"));
    refused(host, &method, EgressReason::Placeholder, "PLAIN");
    for user in [format!("{p}@"), format!("x:{p}@"), format!("{encoded}:x@")] {
        let url = head(&format!("GET https://{user}{host}/\nHost: {host}"));
        refused(host, &url, EgressReason::Placeholder, "PLAIN");
    }
}

#[test]
fn r19_placeholder_beside_its_place_is_refused() {
    let d = placeholder('d');
    let query = "query.example.com";
    for target in [
        format!("/?api-token={d}&api-token={d}"),
        format!("/?api-token={d}&api-token=x"),
        format!("/?api-token&api-token={d}"),
        format!("/?api-token={d};x=1"),
        format!("/?x=1;api-token={d}"),
        format!("/?API-TOKEN={d}"),
        format!("/?api-token=Bearer+{d}"),
        format!("/?api-token={}", d.replace('-', "%252d")),
        format!("/?token={d}"),
    ] {
        refused(
            query,
            &to(query, &target, ""),
            EgressReason::Placeholder,
            "QUERY",
        );
    }
    let header = format!("api-token: {d}");
    refused(
        query,
        &to(query, "/", &header),
        EgressReason::Placeholder,
        "QUERY",
    );
    let (git, e) = ("git.example.org", placeholder('e'));
    for value in [
        format!("Bearer {e}"),
        basic(&e, ""),
        basic(&e, &e),
        basic("user", &format!("{e}x")),
        basic(&format!("user:{e}"), "x"),
        format!("{},{}", basic("user", &e), basic("user", "x")),
    ] {
        let headers = format!("Authorization: {value}");
        refused(
            git,
            &to(git, "/", &headers),
            EgressReason::Placeholder,
            "BASIC",
        );
    }
    let anthropic = "api.anthropic.com";
    let headers = format!("Authorization: Bearer {}", placeholder('a'));
    let head = to(anthropic, "/", &headers);
    let message = refused(anthropic, &head, EgressReason::Placeholder, "ANTHROPIC");
    assert!(message.contains("the header x-api-key"), "{message}");
}

#[test]
fn f09_placeholder_at_another_host_is_refused_with_its_hosts() {
    let host = "free.example.com";
    for (name, own, target, headers) in in_place() {
        let message = refused(
            host,
            &to(host, &target, &headers),
            EgressReason::Placeholder,
            name,
        );
        assert!(message.contains(own) && message.contains(host), "{message}");
        let at_other = to("two.example.com", &target, &headers);
        refused(
            "two.example.com",
            &at_other,
            EgressReason::Placeholder,
            name,
        );
    }
}

#[test]
fn placeholder_of_no_granted_credential_is_refused() {
    for host in ["free.example.com", "plain.example.com"] {
        let headers = format!("X-Token: {}", placeholder('9'));
        let message = refused(
            host,
            &to(host, "/", &headers),
            EgressReason::Placeholder,
            "",
        );
        assert!(message.contains("granted now"), "{message}");
    }
}

#[test]
fn credential_is_not_sent_over_plain_http_or_with_trace() {
    let host = "plain.example.com";
    let head = to(host, "/", &format!("X-Token: {}", placeholder('c')));
    let decide = |head: &Parts| {
        let route = route(&PLAIN, head).unwrap();
        decide(&granted(), &PLAIN, &route, head)
    };
    let refused = decide(&head).unwrap_err();
    assert_eq!(refused.status, 403);
    assert!(refused.message.contains("https"), "{refused}");
    assert_eq!(decide(&to(host, "/", "")), Ok(Pass::Plain));
    let mut trace = head;
    trace.method = http::Method::TRACE;
    let refused = decided(host, &trace).unwrap_err();
    assert_eq!(
        (refused.status.as_u16(), refused.credential.as_deref()),
        (405, Some("PLAIN"))
    );
}

#[test]
fn placeholder_selects_among_credentials_of_one_host() {
    let two = "two.example.com";
    for (digit, name) in [('1', "ONE"), ('2', "TWO")] {
        let head = to(two, "/", &format!("X-Token: {}", placeholder(digit)));
        assert_eq!(decided(two, &head), injected(name));
    }
    let target = format!("/?secret={}", placeholder('3'));
    assert_eq!(decided(two, &to(two, &target, "")), injected("THREE"));
    let both = to(two, &target, &format!("X-Token: {}", placeholder('1')));
    let message = refused(two, &both, EgressReason::Placeholder, "THREE");
    assert!(message.contains("one credential"), "{message}");
    let headers = format!(
        "X-Token: {}\nX-Token: {}",
        placeholder('1'),
        placeholder('2')
    );
    refused(
        two,
        &to(two, "/", &headers),
        EgressReason::Placeholder,
        "ONE",
    );
}

#[test]
fn parameter_of_a_policy_in_another_case_than_the_list_is_injected() {
    let mut grants = run_grants();
    let place = CredentialPlace::Query {
        name: "Key".to_owned(),
    };
    grants.credentials = vec![
        credential("KEY", 'a', &["a.example.com"], place),
        credential(
            "COOKIE",
            'b',
            &["a.example.com"],
            header("Cookie", "session="),
        ),
    ];
    let granted = Granted::parse(&grants).unwrap();
    let decided = |head: &Parts| {
        let connection = tls("a.example.com");
        decide(&granted, &connection, &route(&connection, head)?, head)
    };
    let target = format!("/?Key={}", placeholder('a'));
    assert_eq!(decided(&to("a.example.com", &target, "")), injected("KEY"));
    let cookie = format!("Cookie: session={}", placeholder('b'));
    assert_eq!(
        decided(&to("a.example.com", "/", &cookie)),
        injected("COOKIE")
    );
}
