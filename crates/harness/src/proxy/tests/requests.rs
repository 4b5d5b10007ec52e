//! Requests: the credential instead of its placeholder, and refusals.

use http::{Request, StatusCode};
use http_body_util::Full;
use oz_api::harness::wire::{CredentialPlace, EgressCount, EgressReason, HostGrant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::world::{HOST, KEY, PLACEHOLDER, World, get, lent, read};

#[tokio::test]
async fn request_with_a_placeholder_arrives_with_the_key() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    assert_eq!(client.ask().await, (StatusCode::OK, "hello".to_owned()));
    assert_eq!(
        world.upstream.header("authorization").unwrap(),
        format!("Bearer {KEY}")
    );
    assert_eq!(world.upstream.header("host").unwrap(), HOST);
    // Kept alive: the next request uses the same connections, and the same lent value.
    assert_eq!(client.ask().await.0, StatusCode::OK);
    assert_eq!(*world.upstream.seen.connections.lock(), 1);
    assert_eq!(world.broker.lends(), 1);
    // So does another connection, with the value in memory.
    let mut other = world.client(HOST).await;
    assert_eq!(other.ask().await.0, StatusCode::OK);
    assert_eq!(world.broker.lends(), 1);
}

#[tokio::test]
async fn request_without_a_credential_passes_unchanged() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    let request = get("/a?b=c").header("x-mine", "1");
    let answer = read(client.send(request.body(Full::default()).unwrap()).await).await;
    assert_eq!(answer.0, StatusCode::OK);
    assert_eq!(world.upstream.header("x-mine").unwrap(), "1");
    assert_eq!(world.upstream.header("authorization"), None);
    assert_eq!(world.broker.lends(), 0);
}

#[tokio::test]
async fn query_parameter_gets_the_key() {
    let world = World::start().await;
    let place = CredentialPlace::Query {
        name: "sig".to_owned(),
    };
    world
        .broker
        .change(|grants| grants.credentials[0].place = place)
        .await;
    let mut client = world.client(HOST).await;
    let request = get(&format!("/?a=b&sig={PLACEHOLDER}"));
    let answer = read(client.send(request.body(Full::default()).unwrap()).await).await;
    assert_eq!(answer.0, StatusCode::OK);
    let heads = world.upstream.seen.heads.lock();
    let query = heads.last().unwrap().uri.query().unwrap().to_owned();
    assert_eq!(query, format!("a=b&sig={KEY}"));
}

/// A key of the attacker in another place: refused, and nothing arrives.
#[tokio::test]
async fn foreign_key_is_refused() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    for (name, value) in [("x-api-key", "mine"), ("authorization", "Bearer mine")] {
        let request = get("/").header(name, value);
        let answer = read(client.send(request.body(Full::default()).unwrap()).await).await;
        assert_eq!(answer.0, StatusCode::FORBIDDEN, "{name}: {}", answer.1);
        assert!(answer.1.contains("API_KEY"), "{}", answer.1);
    }
    assert_eq!(world.upstream.requests(), 0);
}

/// A placeholder in a header that is not its place: refused, and no value is lent.
#[tokio::test]
async fn placeholder_in_another_place_is_refused() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    let request = get("/").header("x-note", PLACEHOLDER);
    let answer = read(client.send(request.body(Full::default()).unwrap()).await).await;
    assert_eq!(answer.0, StatusCode::FORBIDDEN, "{}", answer.1);
    assert_eq!(world.broker.lends(), 0);
}

/// A request for another host than that of the handshake: refused.
#[tokio::test]
async fn host_that_differs_from_the_connection_is_refused() {
    let world = World::start().await;
    let mut client = world.client(HOST).await;
    for request in [
        Request::get("/").header("host", "other.example.com"),
        Request::get("https://other.example.com/").header("host", HOST),
    ] {
        let answer = read(client.send(request.body(Full::default()).unwrap()).await).await;
        assert_eq!(answer.0, StatusCode::MISDIRECTED_REQUEST, "{}", answer.1);
    }
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn host_without_a_grant_is_refused_with_an_alert() {
    let world = World::start().await;
    let error = world.tls("other.example.com").await.unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    // A granted host on another port.
    world.set_port(8443);
    let error = world.tls(HOST).await.unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    let egress = world.broker.reported(|egress| egress.len() == 2).await;
    for one in egress {
        assert_eq!(one.reason, Some(EgressReason::HostNotGranted));
        assert_eq!((one.granted, one.refused), (0, 1));
    }
}

#[tokio::test]
async fn plain_request_passes_without_a_credential_only() {
    let world = World::start().await;
    let mut client = world.plain_client().await;
    let request = get("/").body(Full::default()).unwrap();
    assert_eq!(read(client.send(request).await).await.0, StatusCode::OK);
    let (status, text) = client.ask().await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    assert!(text.contains("https"), "{text}");
    let request = Request::get("/").header("host", "other.example.com");
    let refused = read(client.send(request.body(Full::default()).unwrap()).await).await;
    assert_eq!(refused.0, StatusCode::FORBIDDEN, "{}", refused.1);
    assert!(refused.1.contains("other.example.com"), "{}", refused.1);
    assert_eq!(world.upstream.requests(), 1);
}

/// The proxy of the original ignores the failure.
#[tokio::test]
async fn f24_credential_that_is_not_lent_is_no_request() {
    let world = World::start().await;
    let refusals = &world.broker.state.refusals;
    refusals
        .lock()
        .insert("/v1/credential".to_owned(), StatusCode::SERVICE_UNAVAILABLE);
    let mut client = world.client(HOST).await;
    let (status, text) = client.ask().await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        text.contains("API_KEY") && text.contains("the test refuses"),
        "{text}"
    );
    assert!(!text.contains(KEY));
    assert_eq!(world.upstream.requests(), 0);
}

/// A value with a line break, which would begin another header: refused.
#[tokio::test]
async fn value_with_a_line_break_is_refused() {
    let world = World::start().await;
    let values = &world.broker.state.values;
    values
        .lock()
        .insert("API_KEY".to_owned(), lent("a\r\nx: y", "1"));
    let (status, text) = world.client(HOST).await.ask().await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    assert_eq!(world.upstream.requests(), 0);
}

/// Connections to the proxy itself, to loopback and to the pod: refused without a byte.
#[tokio::test]
async fn own_ports_are_refused() {
    let world = World::start().await;
    let own = [[127, 0, 0, 1], [10, 0, 0, 7], [0, 0, 0, 0]];
    for address in own {
        world.set_destination(address, 15001);
        assert!(world.tls(HOST).await.is_err());
    }
    // Not redirected.
    world.answers.lock().destination = Err(std::io::ErrorKind::NotFound.into());
    assert!(world.tls(HOST).await.is_err());
    let counted = |egress: &[_]| {
        let counts = egress.iter();
        let refused = |one: &oz_api::harness::wire::EgressCount| match one.reason {
            Some(EgressReason::ProxyPort) => one.refused,
            _ => 0,
        };
        counts.map(refused).sum::<u64>() >= 1
    };
    world.broker.reported(counted).await;
    assert_eq!(world.upstream.requests(), 0);
}

#[tokio::test]
async fn another_protocol_is_refused() {
    let world = World::start().await;
    let mut stream = world.tcp().await;
    stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"");
    // HTTP/2 only.
    let mut roots = rustls::RootCertStore::empty();
    let authority = world.proxy.acceptor.authority().certificate().clone();
    roots.add(authority).unwrap();
    let error = world.tls_with(HOST, roots, &["h2"]).await.unwrap_err();
    assert!(
        error.to_string().contains("NoApplicationProtocol"),
        "{error}"
    );
    let is_protocol = |one: &oz_api::harness::wire::EgressCount| {
        one.reason == Some(EgressReason::Protocol) && one.refused == 1
    };
    let egress = world.broker.reported(|egress| egress.len() == 2).await;
    assert!(egress.iter().all(is_protocol), "{egress:?}");
}

/// Requests with more than one length, which hyper would forward with one: refused, reported, and the end of the
/// connection, also after requests with bodies.
#[tokio::test]
async fn request_with_more_than_one_length_is_refused_and_reported() {
    let world = World::start().await;
    let head = format!("POST /echo HTTP/1.1\r\nhost: {HOST}\r\n");
    let before = [
        String::new(),
        format!("{head}content-length: 2\r\n\r\n\r\n"),
        format!("{head}transfer-encoding: chunked\r\n\r\n2\r\n\r\n\r\n0\r\n\r\n"),
    ];
    let lengths = [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "content-length: 5\r\ncontent-length: 5",
        "content-length: 5\r\ncontent-length: 6",
    ];
    let mut sent = 0;
    for (before, lengths) in before
        .iter()
        .flat_map(|before| lengths.iter().map(move |it| (before, it)))
    {
        let smuggled = format!("{head}x-smuggled: yes\r\n\r\n");
        let request = format!("{before}{head}{lengths}\r\n\r\n0\r\n\r\n{smuggled}");
        let mut stream = world.tls(HOST).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The end of a connection without the end of TLS is an error.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        sent += usize::from(!before.is_empty());
        assert_eq!(
            answer.matches("HTTP/1.1 400").count(),
            1,
            "{request}: {answer}"
        );
        let passed = answer.matches("HTTP/1.1 200").count();
        assert_eq!(
            passed,
            usize::from(!before.is_empty()),
            "{request}: {answer}"
        );
        assert_eq!(world.upstream.requests(), sent, "{request}");
        assert_eq!(world.upstream.header("x-smuggled"), None);
    }
    tokio::time::pause();
    let refused = |egress: &[EgressCount]| {
        let refused = egress
            .iter()
            .filter(|one| one.reason == Some(EgressReason::Protocol) && one.host == HOST);
        refused.map(|one| one.refused).sum::<u64>()
    };
    world.broker.reported(|egress| refused(egress) == 12).await;
}

#[tokio::test]
async fn wildcard_host_gets_its_credential() {
    let world = World::start().await;
    world
        .broker
        .change(|grants| {
            grants.hosts.push(HostGrant {
                host: "*.example.com".to_owned(),
                ports: Vec::new(),
            });
        })
        .await;
    // Granted, and without an address.
    let mut client = world.client("b.example.com").await;
    let request = Request::get("/").header("host", "b.example.com");
    let answer = read(client.send(request.body(Full::default()).unwrap()).await).await;
    assert_eq!(answer.0, StatusCode::BAD_GATEWAY, "{}", answer.1);
}
