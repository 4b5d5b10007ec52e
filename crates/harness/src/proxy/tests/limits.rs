//! Many connections, and slow clients.

use http::StatusCode;
use oz_api::harness::wire::{EgressCount, EgressReason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::world::{HOST, World};
use crate::proxy::state::MAX_CONNECTIONS;

/// 2,000 connections at once: those above the limit are refused and counted, the others stay.
#[tokio::test]
async fn two_thousand_connections_are_served_up_to_the_limit() {
    // Each is three files of this process.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: files.maximum,
        ..files
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let world = World::start().await;
    let mut clients = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        clients.push(world.client(HOST).await);
    }
    for _ in MAX_CONNECTIONS..2000 {
        assert!(world.tls(HOST).await.is_err());
    }
    for client in [0, MAX_CONNECTIONS - 1] {
        assert_eq!(clients[client].ask().await.0, StatusCode::OK);
    }
    let refused = |egress: &[EgressCount]| {
        let too_many = egress
            .iter()
            .filter(|one| one.reason == Some(EgressReason::TooMany));
        too_many.map(|one| one.refused).sum::<u64>()
    };
    tokio::time::pause();
    world
        .broker
        .reported(|egress| refused(egress) == 2000 - MAX_CONNECTIONS as u64)
        .await;
    tokio::time::resume();
    // A place is free again as soon as a connection ends.
    drop(clients.pop());
    while world.proxy.places.available_permits() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.client(HOST).await.ask().await.0, StatusCode::OK);
}

/// A client that sends a part of a handshake: its connection ends.
#[tokio::test]
async fn slow_handshake_ends() {
    let world = World::start().await;
    for bytes in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01", b"GE"] {
        let mut stream = world.tcp().await;
        stream.write_all(bytes).await.unwrap();
        tokio::time::pause();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        tokio::time::resume();
        // At most an alert.
        assert!(answer.len() <= 7, "{answer:?}");
    }
}

/// Many requests at once that need the same credential: the broker is asked once.
#[tokio::test]
async fn credential_is_lent_once_to_many_requests() {
    let world = World::start().await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(world.client(HOST).await);
    }
    let asked = clients.iter_mut().map(super::world::Client::ask);
    for (status, text) in futures::future::join_all(asked).await {
        assert_eq!(status, StatusCode::OK, "{text}");
    }
    assert_eq!(world.broker.lends(), 1);
}
