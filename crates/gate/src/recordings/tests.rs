//! A property of sessions that must be recorded: for every mixture of headers and every spelling of the query, the gate
//! refuses the request, or sends the API server headers and a query by which the session is recorded.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use futures::FutureExt as _;
use oz_api::duration::GoDuration;
use oz_api::{Operation, RecordedInput};
use oz_core::access::grant::SessionTerms;
use oz_core::access::window::Window;
use oz_gating::path::{self, Path};
use oz_gating::upgrade::Agreed;
use oz_trail::{PodRef, RequestRef};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::*;
use crate::handshake::{agreed, ask, values};
use crate::socket::Spoken;
use crate::tape::tests::place;

/// The keys of the client and of the gate.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const GATES_KEY: &str = "b3RoZXIgc2FtcGxlIG5vbg==";
const REQUIRED: RecordingConfig = RecordingConfig {
    mode: RecordingMode::Required,
    input: RecordedInput::Echoed,
    non_interactive: None,
};

/// Returns storage for recordings, with room.
async fn recordings() -> (TempDir, Recordings) {
    let directory = tempfile::tempdir().unwrap();
    let (spool, storage, ..) = place(directory.path(), 64 << 20).await;
    (directory, Recordings::new(spool, storage))
}

/// Returns a grant of which every session must be recorded.
pub(crate) fn grant() -> Grant {
    let (five, now) = (GoDuration::from_secs(300), jiff::Timestamp::UNIX_EPOCH);
    let alice = Requester {
        user: "alice".to_owned(),
        uid: String::new(),
        groups: Vec::new(),
    };
    Grant {
        request: RequestRef {
            kind: "ExecAccessRequest".to_owned(),
            namespace: "shop".to_owned(),
            name: "debug".to_owned(),
            uid: "request-uid".to_owned(),
        },
        requester: alice,
        subjects: Vec::new(),
        pod: PodRef {
            name: "db-0".to_owned(),
            uid: "pod-uid".to_owned(),
            container: None,
        },
        not_ready: false,
        operations: vec![Operation::Exec, Operation::Attach],
        window: Window::new(now, Some(five), five, five),
        granted_at: now,
        template: "shell".to_owned(),
        template_digest: String::new(),
        revoke_on_template_change: false,
        access_message: String::new(),
        reason: None,
        following: None,
        sessions: SessionTerms {
            recording: Some(REQUIRED),
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

type Headers = Vec<(&'static str, String)>;

fn map(headers: &Headers) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).unwrap();
        map.append(HeaderName::from_static(name), value);
    }
    map
}

/// A request to the API server.
struct Sent {
    asked: Upgrade,
    path: Path,
    headers: HeaderMap,
    plan: Plan,
}

/// Returns the request to the API server, in the order of the router, or the reason of the refusal.
fn sent(
    recordings: &Recordings,
    (way, query): (&str, &str),
    headers: &HeaderMap,
) -> Result<Sent, &'static str> {
    let pod = oz_core::gate::prefix("shop", "debug") + "/api/v1/namespaces/shop/pods/db-0";
    let path = path::read("GET", &format!("{pod}/{way}"), Some(query));
    let path = path.map_err(|refusal| refusal.reason)?;
    let asked = Upgrade::read(|name| values(headers, name)).map_err(|refusal| refusal.reason)?;
    let asked = asked.ok_or("NoUpgrade")?;
    let grant = grant();
    let user = (&grant, &grant.requester);
    let plan = Plan::decide(Some(recordings), user, path.rest.title(), Some(&asked));
    // The user's share has room, so the plan does not wait.
    let plan = plan.now_or_never().ok_or("Waits")?;
    let plan = plan.map_err(|refused| refused.reason)?;
    let mut headers = HeaderMap::new();
    ask(&mut headers, &asked, GATES_KEY).map_err(|refused| refused.reason)?;
    Ok(Sent {
        asked,
        path,
        headers,
        plan,
    })
}

/// Returns the first value of a header, as Go reads it.
fn first(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).map(HeaderValue::as_bytes);
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}

/// Returns the sub-protocols that Kubernetes reads in these headers; `None` if it reads no WebSocket.
fn protocols_by_kubernetes(headers: &HeaderMap) -> Option<Vec<String>> {
    let connection = first(headers, "connection").to_lowercase();
    let mut parts = connection.split(',').map(str::trim);
    let is_socket = first(headers, "upgrade").eq_ignore_ascii_case("websocket")
        && parts.any(|part| part == "upgrade");
    let protocols = first(headers, "sec-websocket-protocol");
    let protocols = protocols.split(',').map(|one| one.trim().to_owned());
    is_socket.then(|| protocols.collect())
}

/// Returns a flag, as the API server reads it in the query that it receives.
fn flag_by_kubernetes(query: &str, wanted: &str) -> bool {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs
        .find(|(name, _)| name == wanted)
        .is_some_and(|(_, value)| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// Checks that the gate reads the session as Kubernetes does.
fn is_read(sent: &Sent, way: &str, agreed: &Agreed) -> Result<(), TestCaseError> {
    let spoken = Spoken::new(agreed, &sent.path.options, way);
    let Some(words) = spoken.and_then(|spoken| spoken.words) else {
        return Err(TestCaseError::fail(format!("{agreed:?} is not read")));
    };
    let query = sent.path.options.to_query();
    prop_assert_eq!(words.tty, flag_by_kubernetes(&query, "tty"), "{}", query);
    let mut channels = words.channels;
    let stdin = flag_by_kubernetes(&query, "stdin");
    prop_assert_eq!(channels.reads(b"\0x"), Ok(stdin), "{}", query);
    Ok(())
}

/// Checks that the gate refuses the request or records its session, for every answer of the API server.
fn is_recorded_or_refused(
    recordings: &Recordings,
    (way, query): (&str, &str),
    headers: &Headers,
    answers: &Headers,
) -> Result<(), TestCaseError> {
    let Ok(sent) = sent(recordings, (way, query), &map(headers)) else {
        return Ok(());
    };
    prop_assert!(sent.plan.is_required(), "{:?}", sent.plan);
    let protocols = protocols_by_kubernetes(&sent.headers);
    let protocols = protocols.ok_or_else(|| TestCaseError::fail("it would be SPDY"))?;
    prop_assert_eq!(values(&sent.headers, "sec-websocket-protocol").len(), 1);
    let accept = derive_accept_key(GATES_KEY.as_bytes());
    for protocol in protocols {
        let answer: Headers = vec![
            ("upgrade", "websocket".to_owned()),
            ("sec-websocket-accept", accept.clone()),
            ("sec-websocket-protocol", protocol),
        ];
        let agreed = agreed(&sent.asked, GATES_KEY, &map(&answer));
        let agreed = agreed.map_err(|refused| TestCaseError::fail(refused.message))?;
        is_read(&sent, way, &agreed)?;
    }
    let mut answer = answers.clone();
    answer.push(("sec-websocket-accept", accept));
    match agreed(&sent.asked, GATES_KEY, &map(&answer)) {
        Ok(agreed) => is_read(&sent, way, &agreed),
        Err(_) => Ok(()),
    }
}

fn headers_of(protocols: &str) -> Headers {
    let headers = [
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", KEY),
        ("sec-websocket-protocol", protocols),
    ];
    let headers = headers.map(|(name, value)| (name, value.to_owned()));
    headers.to_vec()
}

#[tokio::test]
async fn session_of_each_client_is_recorded_or_refused() {
    let (_directory, recordings) = recordings().await;
    let query = "command=sh&stdin=True&stdout=true&tty=1";
    let spdy: Headers = vec![
        ("upgrade", "SPDY/3.1".to_owned()),
        ("connection", "Upgrade".to_owned()),
        ("x-stream-protocol-version", "v4.channel.k8s.io".to_owned()),
    ];
    for (headers, refused) in [
        (headers_of("v5.channel.k8s.io"), None),
        (headers_of("v5.channel.k8s.io, v4.channel.k8s.io"), None),
        (headers_of("v4.channel.k8s.io"), None),
        (headers_of("v4.base64.channel.k8s.io"), Some("NotRecorded")),
        (
            headers_of("v5.channel.k8s.io, v4.base64.channel.k8s.io"),
            Some("NotRecorded"),
        ),
        (
            headers_of("SPDY/3.1+portforward.k8s.io"),
            Some("NotRecorded"),
        ),
        (headers_of(""), Some("NotRecorded")),
        (spdy, Some("NotRecorded")),
        (Vec::new(), Some("NoUpgrade")),
    ] {
        let found = sent(&recordings, ("exec", query), &map(&headers)).err();
        assert_eq!(found, refused, "{headers:?}");
        is_recorded_or_refused(&recordings, ("exec", query), &headers, &Vec::new()).unwrap();
    }
}

#[tokio::test]
async fn failure_of_a_recording_is_shown_to_its_user_only_and_without_names() {
    let (_directory, recordings) = recordings().await;
    let grant = grant();
    let (alice, options) = (&grant.requester, Options::default());
    let key = SessionKey::read("shop/debug/s-1").unwrap();
    let opening = Opening {
        grant: &grant,
        user: alice,
        way: "exec",
        key: &key,
        options: &options,
        at: jiff::Timestamp::UNIX_EPOCH,
    };
    let _first = recordings.begin(&opening, &REQUIRED).await.unwrap();
    // The directory of the session exists already, and the error of the spool names it.
    let failed = recordings.begin(&opening, &REQUIRED).await.err().unwrap();
    let bob = Requester {
        user: "bob".to_owned(),
        ..alice.clone()
    };
    let again = async |user: &Requester| {
        let plan = Plan::decide(Some(&recordings), (&grant, user), "exec", None).await;
        plan.unwrap_err().message
    };
    let other = again(&bob).await;
    assert!(other.contains("its protocol cannot be recorded"), "{other}");
    for message in [failed.message, again(alice).await] {
        let why = "failed to begin the recording: the gate failed to write to its disk";
        assert!(message.contains(why), "{message}");
        for name in ["alice", "shop", "debug", "s-1"] {
            assert!(!message.contains(name), "{message}");
        }
    }
    let once = again(alice).await;
    assert!(once.contains("its protocol cannot be recorded"), "{once}");
}

fn header() -> impl Strategy<Value = (&'static str, String)> {
    let of = |name: &'static str, values: &'static str| {
        values.prop_map(move |value| (name, value)).boxed()
    };
    prop_oneof![
        4 => of("upgrade", "(websocket|WebSocket|SPDY/3\\.1|spdy/3\\.1|websocket, SPDY/3\\.1|h2c|)"),
        3 => of("connection", "(Upgrade|upgrade|keep-alive, Upgrade|close|upgrade,websocket|)"),
        1 => of("sec-websocket-version", "(13|8|13, 13|)"),
        1 => of("sec-websocket-key", "(dGhlIHNhbXBsZSBub25jZQ==|c2hvcnQ=|)"),
        4 => of(
            "sec-websocket-protocol",
            "(v5\\.channel\\.k8s\\.io|v4\\.channel\\.k8s\\.io|v5\\.channel\\.k8s\\.io, v4\\.channel\\.k8s\\.io|v4\\.base64\\.channel\\.k8s\\.io\
             |v5\\.channel\\.k8s\\.io,v4\\.base64\\.channel\\.k8s\\.io|SPDY/3\\.1\\+portforward\\.k8s\\.io|channel\\.k8s\\.io|chat|)",
        ),
        2 => of("x-stream-protocol-version", "(v4\\.channel\\.k8s\\.io|v5\\.channel\\.k8s\\.io|)"),
    ]
}

/// Returns complete requests with more headers or with replaced ones, and arbitrary mixtures.
fn mixture() -> impl Strategy<Value = Headers> {
    let protocols = "(v5\\.channel\\.k8s\\.io|v4\\.channel\\.k8s\\.io|v5\\.channel\\.k8s\\.io, v4\\.channel\\.k8s\\.io)";
    let others = || prop::collection::vec(header(), 0..3);
    let more = (protocols, others()).prop_map(|(protocols, others)| {
        let mut all = headers_of(&protocols);
        all.extend(others);
        all
    });
    let replaced = (protocols, others()).prop_map(|(protocols, others)| {
        let mut all = headers_of(&protocols);
        all.retain(|(name, _)| others.iter().all(|(other, _)| other != name));
        all.extend(others);
        all
    });
    prop_oneof![
        2 => more,
        4 => replaced,
        1 => prop::collection::vec(header(), 0..7),
    ]
}

/// Returns options in many spellings.
fn query() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        6 => Just("tty".to_owned()),
        6 => Just("stdin".to_owned()),
        2 => Just("stdout".to_owned()),
        1 => Just("%74ty".to_owned()),
        1 => Just("TTY".to_owned()),
    ];
    let value = prop_oneof![
        8 => "=(true|True|TRUE|1|t|yes|false|False|FALSE|0|f|no|%74rue|%66alse|%30|)",
        2 => Just(String::new()),
        1 => "=[a-z0-9%+;=&]{0,4}",
    ];
    let option = (name, value).prop_map(|(name, value)| format!("{name}{value}"));
    prop::collection::vec(option, 0..4).prop_map(|options| options.join("&"))
}

#[test]
fn required_session_is_recorded_or_refused_for_every_request() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (_directory, recordings) = runtime.block_on(recordings());
    let _entered = runtime.enter();
    let opened = std::cell::Cell::new(0);
    let way = prop_oneof![Just("exec"), Just("attach")];
    let answers = prop::collection::vec(header(), 0..4);
    let config = ProptestConfig::with_cases(4096);
    proptest!(config, |(way in way, query in query(), headers in mixture(), answers in answers)| {
        if sent(&recordings, (way, &query), &map(&headers)).is_ok() {
            opened.set(opened.get() + 1);
        }
        is_recorded_or_refused(&recordings, (way, &query), &headers, &answers)?;
    });
    assert!(opened.get() > 200, "{} of 4096 are opened", opened.get());
}
