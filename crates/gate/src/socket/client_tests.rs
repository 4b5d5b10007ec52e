//! Clients that wait for their session: the received notices, the kept input, and the detection of lost clients.

use futures::future::join;
use oz_gating::messages::{RESIZE, STDERR, STDOUT, notice};
use oz_gating::upgrade::Subprotocol;
use tokio::io::{DuplexStream, duplex};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::super::relay;
use super::super::tests::spoken;
use super::*;
use crate::idle::Idle;
use crate::relay::Beside;

type Socket = WebSocketStream<DuplexStream>;

/// A client that waits, and the user's side of its connection.
async fn waiting() -> (Client<DuplexStream>, Socket) {
    let (alice, client) = duplex(1 << 20);
    let client = Client::new(client, &MessageRoom::default()).await;
    let alice = WebSocketStream::from_raw_socket(alice, Role::Client, None).await;
    (client, alice)
}

fn exec(query: &str) -> Spoken {
    spoken(Subprotocol::V5, query, "exec")
}

fn words(spoken: Spoken) -> Words {
    spoken.words.unwrap()
}

/// Returns the next message that is no ping.
async fn heard(alice: &mut Socket) -> Option<Message> {
    loop {
        match alice.next().await.and_then(Result::ok) {
            Some(Message::Ping(_)) => {}
            other => return other,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_client_receives_lines_on_standard_error_or_the_terminal() {
    for (query, channel) in [("stdin=true", STDERR), ("stdin=true&tty=true", STDOUT)] {
        let (mut client, mut alice) = waiting().await;
        let traffic = Traffic::default();
        traffic.tell("it waits".to_owned());
        let line = tokio::select! {
            left = client.waits(&traffic, words(exec(query))) => panic!("{left:?}"),
            line = heard(&mut alice) => line.unwrap().into_data(),
        };
        assert_eq!(line[0], channel, "{query}");
        assert_eq!(line, notice("it waits", query.contains("tty")), "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_client_that_answers_pings_is_kept_and_a_silent_one_is_gone_within_30_seconds() {
    let (mut client, mut alice) = waiting().await;
    let (traffic, words) = (Traffic::default(), words(exec("stdin=true")));
    let answers = async { while heard(&mut alice).await.is_some() {} };
    let waits = timeout(Duration::from_secs(600), client.waits(&traffic, words));
    tokio::select! {
        waited = waits => assert!(waited.is_err(), "it is gone although it answers"),
        () = answers => panic!("the connection was closed"),
    }
    // From now on the user's side reads nothing, and answers nothing.
    let since = Instant::now();
    assert_eq!(client.waits(&traffic, words).await, None);
    assert!(
        since.elapsed() <= Duration::from_secs(30),
        "{:?}",
        since.elapsed()
    );
    assert!(since.elapsed() >= SILENT);
}

#[tokio::test(start_paused = true)]
async fn waiting_client_that_closes_or_breaks_off_is_gone_at_once() {
    let (traffic, words) = (Traffic::default(), words(exec("stdin=true")));
    let since = Instant::now();
    let (mut client, mut alice) = waiting().await;
    alice.close(None).await.unwrap();
    assert_eq!(client.waits(&traffic, words).await, None);
    let (mut client, alice) = waiting().await;
    drop(alice);
    assert_eq!(client.waits(&traffic, words).await, None);
    assert_eq!(since.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_on_a_terminal_stops_the_wait_and_is_input_elsewhere() {
    let interrupt = || Message::binary(&b"\0\x03"[..]);
    let traffic = Traffic::default();
    for (query, message, stops) in [
        ("stdin=true&tty=true", interrupt(), true),
        ("stdin=true&tty=true", Message::binary(&b"\0c"[..]), false),
        (
            "stdin=true&tty=true",
            Message::binary([&[RESIZE], &[CTRL_C][..]].concat()),
            false,
        ),
        ("stdin=true", interrupt(), false),
    ] {
        let (mut client, mut alice) = waiting().await;
        alice.send(message).await.unwrap();
        let waits = timeout(PING_EVERY, client.waits(&traffic, words(exec(query))));
        let why = waits.await.ok().flatten();
        assert_eq!(why.is_some(), stops, "{query}: {why:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_frame_of_a_waiting_client_is_the_reason_it_is_sent() {
    let (alice, client) = duplex(1_000);
    let mut client = Client::new(client, &MessageRoom::default()).await;
    let mut alice = alice;
    // Not masked.
    tokio::io::AsyncWriteExt::write_all(&mut alice, &[0x82, 1, 0])
        .await
        .unwrap();
    let spoken = exec("stdin=true");
    let why = client
        .waits(&Traffic::default(), words(spoken))
        .await
        .unwrap();
    assert_eq!(why.reason, super::super::wire::MALFORMED);
    client.leave(&why, spoken).await;
    let mut alice = WebSocketStream::from_raw_socket(alice, Role::Client, None).await;
    let mut text = String::new();
    while let Some(Ok(message)) = alice.next().await {
        text.push_str(&String::from_utf8_lossy(&message.into_data()));
    }
    assert!(text.contains("oz: the client sent"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn input_during_the_wait_passes_first_and_in_its_order() {
    let (mut client, mut alice) = waiting().await;
    let (traffic, spoken) = (Traffic::default(), exec("stdin=true"));
    for word in [&b"\0one"[..], b"\0two"] {
        alice.send(Message::binary(word)).await.unwrap();
    }
    // The wait may be broken off and begun again.
    for _ in 0..2 {
        let waits = timeout(PING_EVERY / 2, client.waits(&traffic, words(spoken)));
        assert!(waits.await.is_err());
    }
    alice.send(Message::binary(&b"\0three"[..])).await.unwrap();
    alice.close(None).await.unwrap();
    let (pod, upstream) = duplex(1 << 20);
    let idle = Idle::new(None);
    let beside = Beside {
        traffic: &traffic,
        tape: None,
        idle: &idle,
    };
    let relayed = relay(client, upstream, std::future::pending(), spoken, beside);
    let pod = async {
        let mut pod = WebSocketStream::from_raw_socket(pod, Role::Server, None).await;
        let mut input = Vec::new();
        while let Some(Ok(message)) = pod.next().await {
            if message.is_binary() {
                input.push(message.into_data());
            }
        }
        input
    };
    let (_, input) = join(relayed, pod).await;
    assert_eq!(input, [&b"\0one"[..], b"\0two", b"\0three"]);
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_waiting_client_are_kept_up_to_a_limit_and_take_room_until_they_pass() {
    let (mut client, mut alice) = waiting().await;
    let (traffic, spoken) = (Traffic::default(), exec("stdin=true"));
    let message = vec![0; 16 << 10];
    for _ in 0..32 {
        alice.send(Message::binary(message.clone())).await.unwrap();
    }
    // The client is not gone although it is not read.
    let waits = timeout(
        Duration::from_secs(300),
        client.waits(&traffic, words(spoken)),
    );
    assert!(waits.await.is_err());
    let kept = client.from.size;
    assert!(
        kept >= MAX_EARLY && kept < MAX_EARLY + 2 * message.len(),
        "{kept}"
    );
    // It is gone as soon as nothing can be written to it.
    drop(alice);
    assert_eq!(client.waits(&traffic, words(spoken)).await, None);
}
