//! Names: their addresses, and the pod's name server.

use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use oz_api::harness::wire::EgressReason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::world::{HOST, World};
use crate::proxy::dns;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A granted name that resolves to addresses inside: refused.
#[tokio::test]
async fn name_with_a_private_address_is_refused() {
    for inside in [
        "10.1.2.3:443",
        "169.254.169.254:443",
        "127.0.0.2:443",
        "203.0.113.5:443",
        "198.18.0.1:443",
        "[::1]:443",
        "[fd00::1]:443",
        "[::ffff:10.0.0.1]:443",
    ] {
        let world = World::start().await;
        world
            .answers
            .lock()
            .names
            .insert(HOST.to_owned(), vec![vec![address(inside)]]);
        let (status, text) = world.client(HOST).await.ask().await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{inside}: {text}");
        assert!(text.contains("public addresses"), "{text}");
        assert_eq!(world.upstream.requests(), 0);
        let is_counted =
            |one: &oz_api::harness::wire::EgressCount| one.reason == Some(EgressReason::Address);
        world
            .broker
            .reported(|egress| egress.iter().any(is_counted))
            .await;
    }
}

#[tokio::test]
async fn name_without_an_address_is_refused() {
    let world = World::start().await;
    world
        .answers
        .lock()
        .names
        .insert(HOST.to_owned(), vec![Vec::new()]);
    let mut client = world.client(HOST).await;
    assert_eq!(client.ask().await.0, StatusCode::BAD_GATEWAY);
    world.answers.lock().names.clear();
    let (status, text) = client.ask().await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(text.contains("failed to resolve"), "{text}");
}

/// A name that resolves to a public address first, and to a private one later (F-22): each connection is checked.
#[tokio::test]
async fn each_connection_resolves_the_name_and_checks_its_address() {
    let world = World::start().await;
    let public = world.upstream.address;
    let lists = vec![
        vec![address("10.0.0.1:443"), public],
        vec![address("10.0.0.1:443")],
        vec![public],
    ];
    world.answers.lock().names.insert(HOST.to_owned(), lists);
    for status in [StatusCode::OK, StatusCode::FORBIDDEN, StatusCode::OK] {
        assert_eq!(world.client(HOST).await.ask().await.0, status);
    }
    assert_eq!(world.answers.lock().lookups.len(), 3);
}

/// The answer of the pod's own name server to a question of the proxy: asked again.
#[tokio::test]
async fn answer_of_the_own_name_server_is_not_used() {
    let world = World::start().await;
    let own = || vec![address("198.19.1.2:443")];
    let lists = vec![own(), own(), vec![world.upstream.address]];
    world.answers.lock().names.insert(HOST.to_owned(), lists);
    assert_eq!(world.client(HOST).await.ask().await.0, StatusCode::OK);
    assert_eq!(world.answers.lock().lookups.len(), 3);
}

/// A question with this name, of type A.
fn question(name: &str) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len().try_into().unwrap());
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

fn code(answer: &[u8]) -> u8 {
    assert_eq!(&answer[..2], [0x12, 0x34]);
    answer[3] & 0xf
}

#[tokio::test]
async fn granted_names_are_resolved_and_others_do_not_exist() {
    let world = World::start().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = socket.local_addr().unwrap();
    let serving = tokio::spawn(dns::serve_udp(Arc::clone(&world.proxy), socket));
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(server).await.unwrap();
    let mut answer = [0; 512];
    // No answer to what is no question: the next one gets its answer.
    client.send(&[1, 2, 3]).await.unwrap();
    for (name, expected) in [(HOST, 0), ("secret-data.attacker.example", 3)] {
        client.send(&question(name)).await.unwrap();
        let length = client.recv(&mut answer).await.unwrap();
        assert_eq!(code(&answer[..length]), expected, "{name}");
    }
    // The last four bytes of the answer for an A record, without further records, are the address.
    client.send(&question(HOST)).await.unwrap();
    let length = client.recv(&mut answer).await.unwrap();
    let text = &answer[..length];
    assert!(
        text.windows(2)
            .any(|bytes| bytes == [198, 18] || bytes == [198, 19])
    );
    let egress = world.broker.reported(|egress| !egress.is_empty()).await;
    assert_eq!(egress[0].host, "secret-data.attacker.example");
    assert_eq!((egress[0].port, egress[0].refused), (0, 1));
    assert_eq!(egress[0].reason, Some(EgressReason::HostNotGranted));
    // No name was looked up outside.
    assert!(world.answers.lock().lookups.is_empty());
    serving.abort();
}

#[tokio::test]
async fn names_over_tcp_are_answered_one_after_another() {
    let world = World::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let serving = tokio::spawn(dns::serve_tcp(Arc::clone(&world.proxy), listener));
    let mut client = TcpStream::connect(server).await.unwrap();
    for (name, expected) in [(HOST, 0), ("other.example.com", 3), (HOST, 0)] {
        let question = question(name);
        client.write_u16(question.len() as u16).await.unwrap();
        client.write_all(&question).await.unwrap();
        let length = client.read_u16().await.unwrap();
        let mut answer = vec![0; length.into()];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(code(&answer), expected, "{name}");
    }
    serving.abort();
}

#[tokio::test]
async fn name_server_fails_while_no_grants_are_known() {
    let world = World::start().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = socket.local_addr().unwrap();
    let serving = tokio::spawn(dns::serve_udp(Arc::clone(&world.proxy), socket));
    let state = &world.broker.state;
    let mut seen = world.proxy.grants.subscribe();
    let path = "/v1/grants".to_owned();
    state.refusals.lock().insert(path, StatusCode::FORBIDDEN);
    state.grants.send_modify(|grants| grants.digest += "b");
    seen.wait_for(|state| state.granted().is_err())
        .await
        .unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(server).await.unwrap();
    client.send(&question(HOST)).await.unwrap();
    let mut answer = [0; 512];
    let length = client.recv(&mut answer).await.unwrap();
    assert_eq!(code(&answer[..length]), 2);
    serving.abort();
}
