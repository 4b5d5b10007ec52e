//! The decisions of the gate, and the messages at the end of a session.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::rbac::v1::Subject;
use oz_api::duration::GoDuration;
use oz_api::{Operation, Requester};
use oz_core::access::grant::SessionTerms;
use oz_core::access::seal::Keys;
use oz_core::gate::ticket::Ticket;
use oz_core::gate::{GateAccount, prefix};
use oz_core::lifecycle::window::Window;
use oz_trail::{PodRef, RequestRef};
use proptest::prelude::*;
use serde_json::json;

use super::front_proxy::FrontProxy;
use super::messages::{Framing, MAX_MESSAGE, MAX_PIECE, Piece, farewell, notice};
use super::path::{Path, Rest, read};
use super::peer::Word;
use super::*;
use crate::recording::SessionKey;

const PREFIX: &str = "/apis/gate.oz.wizardofoz.co/v1alpha1/namespaces/shop/gates/debug/proxy";

fn gate() -> GateAccount {
    "oz-system/oz-gate".parse().unwrap()
}

fn timestamp(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    start + SignedDuration::from_secs(seconds)
}

fn user(name: &str) -> Requester {
    Requester {
        user: name.into(),
        uid: String::new(),
        groups: vec!["devs".into()],
    }
}

/// Returns a grant: alice may exec into db-0 for five minutes, as in the tests of `oz_core::connect`.
pub(crate) fn grant() -> Grant {
    let five = GoDuration::from_secs(300);
    Grant {
        request: RequestRef {
            kind: "ExecAccessRequest".into(),
            namespace: "shop".into(),
            name: "debug".into(),
            uid: "0a1b2c3d-0000-4000-8000-000000000001".into(),
        },
        requester: user("alice"),
        subjects: vec![Subject {
            kind: "User".into(),
            name: "alice".into(),
            ..Subject::default()
        }],
        pod: PodRef {
            name: "db-0".into(),
            uid: "pod-uid".into(),
            container: None,
        },
        not_ready: false,
        operations: vec![Operation::Exec],
        window: Window::new(timestamp(0), Some(five), five, five),
        granted_at: timestamp(0),
        template: "shell".into(),
        template_digest: String::new(),
        revoke_on_template_change: false,
        access_message: String::new(),
        reason: None,
        following: None,
        sessions: SessionTerms {
            of_pod: vec!["app".into(), "sidecar".into()],
            ..SessionTerms::default()
        },
        own_pod: None,
        stamp: None,
        role: None,
        approvals: Vec::new(),
        on_call: None,
        policies: Vec::new(),
        ticket: None,
        emergency: None,
        rules: None,
    }
}

/// Returns the standing of a grant: alice may exec into db-0 for five minutes, through the gate.
fn standing() -> GrantState {
    let mut grant = grant();
    grant.sessions.gate = Some(gate());
    GrantState {
        grant: Arc::new(grant),
        ended: false,
    }
}

fn path(rest: &str) -> Path {
    let line = format!("{PREFIX}{rest}");
    let (path, query) = match line.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (line.as_str(), None),
    };
    read("GET", path, query).unwrap()
}

const EXEC: &str = "/api/v1/namespaces/shop/pods/db-0/exec?command=sh&container=app";

fn reason(
    user: &Requester,
    now: Timestamp,
    path: &Path,
    standing: Option<&GrantState>,
) -> &'static str {
    let asked = GateRequest { now, user, path };
    match decide(asked, standing, None) {
        Ok(()) => "Allowed",
        Err(refusal) => {
            assert!(!refusal.message.is_empty());
            refusal.reason
        }
    }
}

#[test]
fn path_is_accepted_in_single_form_only() {
    let pod = |operation, container: Option<&str>| Rest::Pod {
        namespace: "shop".into(),
        pod: "db-0".into(),
        operation,
        container: container.map(ToOwned::to_owned),
    };
    for (rest, expected) in [
        ("/api?timeout=32s", None),
        ("/api", Some(Rest::Versions)),
        ("/apis", Some(Rest::Groups)),
        ("/api/v1", Some(Rest::Resources)),
        ("/api/v1/namespaces/shop/pods/db-0", Some(pod(None, None))),
        (EXEC, Some(pod(Some(Operation::Exec), Some("app")))),
        (
            "/api/v1/namespaces/shop/pods/db-0/exec?command=a%20b&command=c;d&stdin=true",
            None,
        ),
        (
            "/api/v1/namespaces/shop/pods/db-0/log?follow=true",
            Some(pod(Some(Operation::Log), None)),
        ),
        (
            "/api/v1/namespaces/shop/pods/db-0/portforward",
            Some(pod(Some(Operation::PortForward), None)),
        ),
        (
            "/api/v1/namespaces/shop/pods/db-0/attach?tty=true&container=",
            Some(pod(Some(Operation::Attach), None)),
        ),
    ] {
        let line = format!("{PREFIX}{rest}");
        let (path, query) = line.split_once('?').unwrap_or((&line, ""));
        let read = read("GET", path, Some(query)).ok();
        if rest == "/api?timeout=32s" {
            assert_eq!(
                read.map(|path| path.rest),
                Some(Rest::Versions),
                "as kubectl asks"
            );
            continue;
        }
        assert_eq!(read.map(|path| path.rest), expected, "{rest}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn ambiguous_request_is_refused() {
    let pod = "/api/v1/namespaces/shop/pods/db-0";
    for rest in [
        "",
        "/",
        "/api/",
        "//api",
        "/api/v1/",
        "/apis/apps/v1",
        "/version",
        "/metrics",
        "/api/v1/pods",
        "/api/v1/namespaces/shop/pods",
        "/api/v1/namespaces/shop/pods/",
        "/api/v1/namespaces/shop/pods/..",
        "/api/v1/namespaces/shop/pods/db-0/",
        "/api/v1/namespaces/shop/pods/db-0//exec",
        "/api/v1/namespaces/shop/pods/db-0/exec/",
        "/api/v1/namespaces/shop/pods/db-0/exec/..",
        "/api/v1/namespaces/shop/pods/db-0%2fexec",
        "/api/v1/namespaces/shop/pods/db%2d0",
        "/api/v1/namespaces/shop/pods/DB-0",
        "/api/v1/namespaces/shop/pods/db-0/proxy",
        "/api/v1/namespaces/shop/pods/db-0/proxy/x",
        "/api/v1/namespaces/shop/pods/db-0/eviction",
        "/api/v1/namespaces/shop/secrets/db-0",
        "/api/v1/namespaces/../namespaces/shop/pods/db-0",
        "/api/v1/watch/namespaces/shop/pods/db-0",
        "/api/v1/nodes/n/proxy/exec",
    ] {
        assert!(
            read("GET", &format!("{PREFIX}{rest}"), None).is_err(),
            "{rest}"
        );
    }
    for whole in [
        "/apis/gate.oz.wizardofoz.co/v1alpha1/namespaces/shop/gates/debug",
        "/apis/gate.oz.wizardofoz.co/v1alpha1/namespaces/shop/gates/debug/Proxy/api",
        "/apis/gate.oz.wizardofoz.co/v1alpha1/namespaces//gates/debug/proxy/api",
        "/apis/gate.oz.wizardofoz.co/v1alpha1/namespaces/../gates/debug/proxy/api",
        "/apis/gate.oz.wizardofoz.co/v1alpha1/gates/debug/proxy/api",
        "/apis/gate.oz.wizardofoz.co/v1alpha2/namespaces/shop/gates/debug/proxy/api",
        "/api/v1/namespaces/shop/pods/db-0",
        "",
    ] {
        assert!(read("GET", whole, None).is_err(), "{whole}");
    }
    for query in [
        "container=app&container=sidecar",
        "%63ontainer=sidecar",
        "container=app%2e",
        "container=app;container=b",
        "container=..",
        "env=LD_PRELOAD",
        "a+b=c",
        "timeout=1s",
        "tty=true&tty=false",
        "command=%ff",
    ] {
        let path = format!("{PREFIX}{pod}/exec");
        assert!(read("GET", &path, Some(query)).is_err(), "{query}");
    }
    let long = format!("command={}", "a".repeat(query::MAX_QUERY));
    assert!(read("GET", &format!("{PREFIX}{pod}/exec"), Some(&long)).is_err());
    for (method, sub, good) in [
        ("POST", "/exec", true),
        ("POST", "/portforward", true),
        ("POST", "/log", false),
        ("POST", "", false),
        ("PUT", "/exec", false),
        ("DELETE", "", false),
        ("HEAD", "", false),
        ("get", "", false),
        ("GET", "/ephemeralcontainers", false),
        ("POST", "/ephemeralcontainers", false),
        ("PUT", "/ephemeralcontainers", false),
        ("PATCH", "/ephemeralcontainers", true),
        ("PATCH", "", false),
        ("PATCH", "/exec", false),
    ] {
        let read = read(method, &format!("{PREFIX}{pod}{sub}"), None);
        assert_eq!(read.is_ok(), good, "{method} {sub}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn every_row_of_who_passes() {
    let exec = path(EXEC);
    let pod = path("/api/v1/namespaces/shop/pods/db-0");
    let alice = user("alice");
    let good = standing();
    assert_eq!(reason(&alice, timestamp(10), &exec, Some(&good)), "Allowed");
    assert_eq!(reason(&alice, timestamp(10), &pod, Some(&good)), "Allowed");
    assert_eq!(
        reason(&alice, timestamp(10), &path("/api"), Some(&good)),
        "Allowed"
    );
    // The denial does not reveal whether the request of another user exists.
    assert_eq!(
        reason(&user("mallory"), timestamp(10), &exec, Some(&good)),
        "NoGrant"
    );
    assert_eq!(reason(&alice, timestamp(10), &exec, None), "NoGrant");
    let of_others = decide(
        GateRequest {
            now: timestamp(10),
            user: &user("mallory"),
            path: &exec,
        },
        Some(&good),
        None,
    );
    let of_none = decide(
        GateRequest {
            now: timestamp(10),
            user: &user("mallory"),
            path: &exec,
        },
        None,
        None,
    );
    assert_eq!(of_others, of_none);
    // The gate has no grant for its own account.
    let itself = user("system:serviceaccount:oz-system:oz-gate");
    assert_eq!(
        reason(&itself, timestamp(10), &exec, Some(&good)),
        "NoGrant"
    );
    assert_eq!(
        reason(&alice, timestamp(299), &exec, Some(&good)),
        "Allowed"
    );
    assert_eq!(
        reason(&alice, timestamp(300), &exec, Some(&good)),
        "Expired"
    );
    let mut ended = standing();
    ended.ended = true;
    assert_eq!(
        reason(&alice, timestamp(10), &exec, Some(&ended)),
        "Revoked"
    );
    let direct = GrantState {
        grant: Arc::new(grant()),
        ended: false,
    };
    assert_eq!(
        reason(&alice, timestamp(10), &exec, Some(&direct)),
        "GateNotUsed"
    );
    for (rest, expected) in [
        ("/api/v1/namespaces/shop/pods/db-1/exec", "PodMismatch"),
        ("/api/v1/namespaces/bank/pods/db-0/exec", "PodMismatch"),
        (
            "/api/v1/namespaces/shop/pods/db-0/attach",
            "OperationNotGranted",
        ),
        (
            "/api/v1/namespaces/shop/pods/db-0/portforward",
            "OperationNotGranted",
        ),
        (
            "/api/v1/namespaces/shop/pods/db-0/log",
            "OperationNotGranted",
        ),
    ] {
        assert_eq!(
            reason(&alice, timestamp(10), &path(rest), Some(&good)),
            expected,
            "{rest}"
        );
    }
    let mut narrow = standing();
    Arc::make_mut(&mut narrow.grant).sessions.containers = vec!["app".into()];
    for (container, expected) in [
        ("?container=app", "Allowed"),
        ("?container=sidecar", "ContainerNotGranted"),
        ("", "ContainerNotGranted"),
    ] {
        let rest = format!("/api/v1/namespaces/shop/pods/db-0/exec{container}");
        assert_eq!(
            reason(&alice, timestamp(10), &path(&rest), Some(&narrow)),
            expected
        );
    }
    // A request of the same name in another namespace is another request.
    let mut elsewhere = standing();
    Arc::make_mut(&mut elsewhere.grant).request.namespace = "bank".into();
    assert_eq!(
        reason(&alice, timestamp(10), &exec, Some(&elsewhere)),
        "NoGrant"
    );
}

#[test]
fn only_the_granted_pod_is_the_granted_pod() {
    let grant = standing().grant;
    assert!(is_granted_pod(&grant, Some("pod-uid")).is_ok());
    assert!(is_granted_pod(&grant, Some("another")).is_err());
    assert!(is_granted_pod(&grant, None).is_err());
}

#[test]
fn a_replica_believes_another_for_one_request_and_for_a_moment() {
    let keys = Keys::with_every_owner([[7; 32]]);
    let key = SessionKey::read("shop/debug/s-1").unwrap();
    let (path, alice) = (live::session(&key), user("alice"));
    let target = format!("{path}?reason=late");
    let sealed = |method: &str, target: &str| {
        let word = Word::new(&alice, method, target, timestamp(10));
        word.seal(&keys).unwrap()
    };
    let word = sealed("DELETE", &target);
    assert!(word.bytes().all(|byte| byte.is_ascii_graphic()));
    let open = |keys: &Keys, word: &str, method: &str, target: &str, now: i64| {
        Word::open(keys, word, method, target, timestamp(now))
    };
    let found = open(&keys, &word, "DELETE", &target, 12);
    assert_eq!(found, Some(alice.clone()));
    let others = Keys::with_every_owner([[8; 32]]);
    let ticket = Ticket::new(&grant(), &alice, timestamp(10))
        .seal(&keys)
        .unwrap();
    let mut altered = word.clone();
    altered.replace_range(40..41, if &word[40..41] == "A" { "B" } else { "A" });
    for (why, keys, word, method, target, now) in [
        ("expired", &keys, &word, "DELETE", &target, 21),
        ("of the future", &keys, &word, "DELETE", &target, -1),
        ("other key", &others, &word, "DELETE", &target, 12),
        ("other method", &keys, &word, "GET", &target, 12),
        ("other query", &keys, &word, "DELETE", &path, 12),
        (
            "other session",
            &keys,
            &word,
            "DELETE",
            &format!("{path}1"),
            12,
        ),
        ("altered", &keys, &altered, "DELETE", &target, 12),
        ("a ticket", &keys, &ticket, "DELETE", &target, 12),
        ("nothing", &keys, &String::new(), "DELETE", &target, 12),
    ] {
        assert_eq!(open(keys, word, method, target, now), None, "{why}");
    }
    // A peer token for a request with another subject than open sessions is invalid, even if it is sealed.
    for target in [format!("{PREFIX}{EXEC}"), recordings("shop", "debug")] {
        let word = sealed("GET", &target);
        assert_eq!(open(&keys, &word, "GET", &target, 12), None, "{target}");
    }
}

#[test]
fn long_message_is_divided_into_messages_that_mean_the_same() {
    let content: Vec<u8> = (0..=255).cycle().take(2 * MAX_PIECE + 3).collect();
    let message = [&[0], content.as_slice()].concat();
    for framing in [Framing::Channels, Framing::Base64] {
        let parts: Vec<_> = framing.divide(&message).collect();
        let lengths: Vec<_> = parts.iter().map(|(_, part)| part.len()).collect();
        assert_eq!(lengths, [MAX_PIECE, MAX_PIECE, 3]);
        assert!(parts.iter().all(|(channel, _)| *channel == Some(0)));
        let joined: Vec<u8> = parts.iter().flat_map(|(_, part)| part.to_vec()).collect();
        assert_eq!(joined, content);
    }
    assert_eq!(MAX_PIECE % 4, 0, "base64 is divided where four letters end");
    let parts: Vec<_> = Framing::Stream.divide(&message).collect();
    assert!(parts.iter().all(|(channel, _)| channel.is_none()));
    let joined: Vec<u8> = parts.iter().flat_map(|(_, part)| part.to_vec()).collect();
    assert_eq!(joined, message);
    let alone: Vec<_> = Framing::Channels.divide(&[1]).collect();
    assert_eq!(alone, [(Some(1), &[][..])], "a channel is opened by it");
    assert_eq!(Framing::Channels.divide(&[]).count(), 0);
    assert_eq!(Framing::Stream.divide(&[]).count(), 0);
    // The frame length that `golang.org/x/net/websocket` accepts.
    assert_eq!(MAX_MESSAGE, 32 << 20);
}

#[test]
fn client_receives_end_on_terminal_and_as_status() {
    for (tty, channel) in [(true, 1), (false, 2)] {
        let [line, status] = farewell("it is over", tty);
        assert_eq!(line, notice("it is over", tty));
        let line = Piece::read(&line).unwrap();
        assert_eq!(
            (line.channel, line.bytes),
            (channel, &b"\r\noz: it is over\r\n"[..])
        );
        let status = Piece::read(&status).unwrap();
        assert_eq!(status.channel, 3);
        let status: Value = serde_json::from_slice(status.bytes).unwrap();
        assert_eq!(status["message"], "oz: it is over");
    }
    assert_eq!(Piece::read(&[]), None);
}

proptest! {
    #[test]
    fn no_bytes_are_read_as_a_path_but_those_of_one(text in "[a-z0-9./%-]{0,80}") {
        if let Ok(path) = read("GET", &format!("{PREFIX}/{text}"), None)
            && let Some(upstream) = path.rest.upstream()
        {
            prop_assert_eq!(upstream, format!("/{text}"));
        }
    }
}

fn proxy_data() -> std::collections::BTreeMap<String, String> {
    [
        ("requestheader-client-ca-file", "PEM"),
        ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
        ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
        ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

#[test]
fn a_user_is_read_from_the_headers_that_the_api_server_names() {
    let proxy = FrontProxy::read(&proxy_data()).unwrap();
    let read = |headers: &[(&str, &'static [u8])]| {
        proxy.user(|name| {
            let these = headers.iter().filter(|(header, _)| *header == name);
            these.map(|(_, value)| *value).collect()
        })
    };
    let alice = read(&[
        ("X-Remote-User", b"alice"),
        ("X-Remote-Uid", b"7"),
        ("X-Remote-Group", b"devs"),
        ("X-Remote-Group", b"system:authenticated"),
        ("X-Remote-Extra-Scopes", b"all"),
    ]);
    let expected = Requester {
        user: "alice".into(),
        uid: "7".into(),
        groups: vec!["devs".into(), "system:authenticated".into()],
    };
    assert_eq!(alice, Some(expected));
    for headers in [
        &[][..],
        &[("X-Remote-User", &b""[..])],
        &[("X-Remote-User", b"\xff")],
        &[("X-Remote-User", b"alice"), ("X-Remote-User", b"admin")],
        &[
            ("X-Remote-User", b"alice"),
            ("X-Remote-Uid", b"1"),
            ("X-Remote-Uid", b"2"),
        ],
        &[("X-Remote-User", b"alice"), ("X-Remote-Group", b"\xff")],
        &[("X-Remote-Group", b"system:masters")],
    ] {
        assert_eq!(read(headers), None, "{headers:?}");
    }
}

#[test]
fn front_proxy_without_required_entries_is_rejected() {
    for name in [
        "requestheader-client-ca-file",
        "requestheader-allowed-names",
        "requestheader-username-headers",
        "requestheader-group-headers",
    ] {
        for value in [None, Some(""), Some("[")] {
            let mut data = proxy_data();
            match value {
                None => drop(data.remove(name)),
                Some(value) => drop(data.insert(name.to_owned(), value.to_owned())),
            }
            let read = FrontProxy::read(&data);
            let is_pem = name == "requestheader-client-ca-file" && value == Some("[");
            assert_eq!(read.is_ok(), is_pem, "{name} {value:?}");
        }
    }
    let mut before = proxy_data();
    before.remove("requestheader-uid-headers");
    assert!(
        FrontProxy::read(&before).is_ok(),
        "as Kubernetes 1.30 has it"
    );
}

#[test]
fn target_has_the_options_as_they_were_read() {
    let pods = "/api/v1/namespaces/shop/pods";
    for (rest, target) in [
        ("/db-0/exec?command=a%20b&%tty=True", None),
        (
            "/db-0/exec?command=a%20b&tty=True&&stdin",
            Some("/db-0/exec?command=a+b&tty=true&stdin=true"),
        ),
        ("/db-0/attach?tty=0", Some("/db-0/attach?tty=false")),
        ("/db-0/attach?command=sh", None),
        (
            "/db-0/portforward?ports=8080%2C1",
            Some("/db-0/portforward?ports=8080%2C1"),
        ),
        (
            "/db-0/log?follow=False&tailLines=1",
            Some("/db-0/log?follow=false&tailLines=1"),
        ),
        ("/db-0?", Some("/db-0")),
        (
            "?fieldSelector=metadata.name=db-0&watch=1",
            Some("?fieldSelector=metadata.name%3Ddb-0&watch=true"),
        ),
    ] {
        let line = format!("{PREFIX}{pods}{rest}");
        let (path, query) = line.split_once('?').unwrap();
        let read = read("GET", path, Some(query)).ok();
        let expected = target.map(|target| format!("{pods}{target}"));
        assert_eq!(read.and_then(|path| path.target()), expected, "{rest}");
    }
}

#[test]
fn the_exit_code_is_what_the_kubelet_says() {
    let failed = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
    for (status, code) in [
        (r#"{"status":"Success"}"#, Some(0)),
        (failed, Some(7)),
        (
            r#"{"status":"Failure","message":"no such container"}"#,
            None,
        ),
        ("{", None),
        ("", None),
    ] {
        let mut exit = Exit::default();
        for (channel, text) in [(1, failed), (3, status)] {
            for bytes in text.as_bytes().chunks(10) {
                exit.said(Piece { channel, bytes });
            }
        }
        assert_eq!(exit.code(), code, "{status}");
    }
}

#[test]
fn recordings_have_one_form_of_a_path() {
    let all = super::recordings("default", "mine");
    let read = path::read_recordings(&all).unwrap();
    assert_eq!(
        (read.namespace.as_str(), read.request.as_str(), read.part),
        ("default", "mine", None)
    );
    let part = path::read_recordings(&format!("{all}/s-1/000002.cast.zst"))
        .unwrap()
        .part
        .unwrap();
    assert_eq!(
        (part.session.to_string().as_str(), part.number),
        ("default/mine/s-1", 2)
    );
    for rest in [
        "/",
        "/s-1",
        "/s-1/",
        "/../s/000002.cast.zst",
        "/s-1/2.cast.zst",
        "/s-1/000002.cast.zst/x",
    ] {
        assert_eq!(
            path::read_recordings(&format!("{all}{rest}")),
            None,
            "{rest}"
        );
    }
    assert_eq!(path::read_recordings(&prefix("default", "mine")), None);
    // The gate does not forward a path of recordings.
    assert!(path::read("GET", &all, None).is_err());
}

#[test]
fn a_list_is_of_one_pod_by_its_name_in_one_form() {
    let pods = format!("{PREFIX}/api/v1/namespaces/shop/pods");
    let one = "fieldSelector=metadata.name%3Ddb-0";
    for (query, expected) in [
        (one.to_owned(), Some(false)),
        (format!("{one}&limit=500&resourceVersion=0"), Some(false)),
        (
            format!(
                "allowWatchBookmarks=true&{one}&resourceVersion=7&resourceVersionMatch=NotOlderThan\
                 &sendInitialEvents=true&timeout=9s&timeoutSeconds=9&watch=true"
            ),
            Some(true),
        ),
        (String::new(), None),
        ("watch=true".to_owned(), None),
        (format!("{one}&{one}"), None),
        (format!("{one}&fieldSelector="), None),
        (format!("{one}&watch=true&watch=false"), None),
        // The API server watches for all of these values.
        (format!("{one}&watch=maybe"), Some(true)),
        (format!("{one}&watch=True"), Some(true)),
        (format!("{one}&watch"), Some(true)),
        (format!("{one}&watch=%30"), Some(false)),
        (format!("{one}&labelSelector=a"), None),
        (format!("{one}&continue=x"), None),
        (format!("{one},status.phase%3DRunning"), None),
        (format!("{one}%2Cstatus.phase%3DRunning"), None),
        ("fieldSelector=metadata.name%21%3Ddb-0".to_owned(), None),
        ("fieldSelector=metadata.name=db-0".to_owned(), Some(false)),
        ("fieldSelector=metadata.name%3D".to_owned(), None),
        ("fieldSelector=metadata.namespace%3Dshop".to_owned(), None),
        ("FieldSelector=metadata.name%3Ddb-0".to_owned(), None),
    ] {
        let read = read("GET", &pods, Some(&query)).ok().map(|path| path.rest);
        let wanted = expected.map(|watch| Rest::Listed {
            namespace: "shop".into(),
            pod: "db-0".into(),
            watch,
        });
        assert_eq!(read, wanted, "{query}");
    }
    for method in ["POST", "DELETE", "PATCH"] {
        assert!(read(method, &pods, Some(one)).is_err());
    }
    let of = |rest: &str| {
        let line = format!("{PREFIX}{rest}");
        let (path, query) = line.split_once('?').unwrap();
        read("GET", path, Some(query)).unwrap()
    };
    for (rest, expected) in [
        (format!("/api/v1/namespaces/shop/pods?{one}"), "Allowed"),
        (
            format!("/api/v1/namespaces/shop/pods?{one}1"),
            "PodMismatch",
        ),
        (format!("/api/v1/namespaces/bank/pods?{one}"), "PodMismatch"),
    ] {
        let passes = reason(&user("alice"), timestamp(10), &of(&rest), Some(&standing()));
        assert_eq!(passes, expected, "{rest}");
    }
}

#[test]
fn with_debug_alone_only_what_came_by_the_grant_is_entered() {
    let mut granted = standing();
    let grant = Arc::make_mut(&mut granted.grant);
    grant.operations = vec![Operation::Debug];
    let (mark, uid) = (oz_core::connect::cut::MARK, grant.request.uid.clone());
    let by = |name: &str, uid: &str| json!({"name": name, "env": [{"name": mark, "value": uid}]});
    let pod = json!({"spec": {
        "containers": [by("app", &uid)],
        "ephemeralContainers": [by("mine", &uid), by("yours", "another"), {"name": "none"}],
    }});
    let alice = user("alice");
    let settled = |rest: &str, uid: Option<&str>| {
        let line = format!("{PREFIX}/api/v1/namespaces/shop/pods/db-0/{rest}");
        let (path, query) = line.split_once('?').unwrap_or((&line, ""));
        let method = if rest.starts_with("eph") {
            "PATCH"
        } else {
            "GET"
        };
        let path = read(method, path, Some(query)).unwrap();
        let passes = reason(&alice, timestamp(10), &path, Some(&granted));
        if passes != "Allowed" {
            return passes.to_owned();
        }
        let whole = sees_pod(&granted.grant, &path.rest);
        let found = Found {
            uid,
            pod: whole.then_some(&pod),
        };
        match settle(&granted.grant, &path.rest, found) {
            Ok(entered) => format!("Allowed {}", entered.unwrap_or("-")),
            Err(refusal) => refusal.reason.to_owned(),
        }
    };
    let same = Some("pod-uid");
    for (rest, expected) in [
        ("attach?container=mine&tty=true", "Allowed mine"),
        ("log?container=mine", "Allowed mine"),
        ("attach?container=yours", "OperationNotGranted"),
        ("attach?container=none", "OperationNotGranted"),
        ("attach?container=app", "OperationNotGranted"),
        ("attach", "OperationNotGranted"),
        ("log?container=app", "OperationNotGranted"),
        ("exec?container=mine", "OperationNotGranted"),
        ("portforward", "OperationNotGranted"),
        ("ephemeralcontainers", "Allowed -"),
    ] {
        assert_eq!(settled(rest, same), expected, "{rest}");
        if expected.starts_with("Allowed") {
            assert_eq!(settled(rest, Some("another")), "PodReplaced", "{rest}");
            assert_eq!(settled(rest, None), "PodReplaced", "{rest}");
        }
    }
    // Without the operation Debug, a user cannot add a container, nor enter one that was added.
    Arc::make_mut(&mut granted.grant).operations = vec![Operation::Exec];
    let path = path("/api/v1/namespaces/shop/pods/db-0/attach");
    assert!(!sees_pod(&granted.grant, &path.rest));
    let line = format!("{PREFIX}/api/v1/namespaces/shop/pods/db-0/ephemeralcontainers");
    let path = read("PATCH", &line, None).unwrap();
    let passes = reason(&alice, timestamp(10), &path, Some(&granted));
    assert_eq!(passes, "OperationNotGranted");
}
