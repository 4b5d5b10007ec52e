//! The data that reaches each side of a session, for every kind of frames that a client sends.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use oz_api::{RecordedInput, RecordingConfig, RecordingMode};
use oz_gating::messages::{ERROR, Framing, MAX_MESSAGE, MAX_PIECE, STDIN, STDOUT};
use oz_gating::path;
use oz_gating::recording::{Code, Part};
use oz_gating::upgrade::{Agreed, Subprotocol};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::wire::{MALFORMED, TOO_LONG};
use super::*;
use crate::idle::Idle;
use crate::message_room::MessageRoom;
use crate::tape::Tape;
use crate::tape::tests::{about, place};
use crate::traffic::{Traffic, View};

type Socket = WebSocketStream<DuplexStream>;

/// Relays a session of a client that did not wait.
pub(super) async fn relay(
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
    ended: impl Future<Output = Refusal>,
    (spoken, room): (Spoken, &MessageRoom),
    beside: Beside<'_>,
) -> (Option<Refusal>, Carried) {
    let client = Client::new(client, room).await;
    super::relay(client, upstream, ended, spoken, beside).await
}

const ALL: RecordingConfig = RecordingConfig {
    mode: RecordingMode::Required,
    input: RecordedInput::All,
    non_interactive: None,
};

/// Returns the meaning of a session with this sub-protocol, query and operation.
pub(super) fn spoken(protocol: Subprotocol, query: &str, way: &str) -> Spoken {
    let pod = oz_core::gate::prefix("default", "mine") + "/api/v1/namespaces/default/pods/web";
    let path = path::read("GET", &format!("{pod}/{way}"), Some(query)).unwrap();
    let agreed = Agreed::WebSocket(Some(protocol));
    Spoken::new(&agreed, &path.options, way).unwrap()
}

fn on_a_terminal() -> Spoken {
    spoken(Subprotocol::V5, "stdin=true&tty=true", "exec")
}

/// An open session.
struct Session {
    /// The client's side, as bytes.
    alice: DuplexStream,
    /// The API server's side.
    pod: Socket,
    traffic: Arc<Traffic>,
    idle: Arc<Idle>,
    end: oneshot::Sender<Refusal>,
    relayed: JoinHandle<(Option<Refusal>, Carried)>,
}

impl Session {
    async fn open(spoken: Spoken) -> Self {
        Self::with_buffers(spoken, 1 << 20).await
    }

    async fn with_buffers(spoken: Spoken, bytes: usize) -> Self {
        Self::recorded(spoken, bytes, None).await
    }

    async fn recorded(spoken: Spoken, bytes: usize, tape: Option<Arc<Tape>>) -> Self {
        let (alice, client) = duplex(bytes);
        let (pod, upstream) = duplex(bytes);
        let (traffic, idle) = (
            Arc::new(Traffic::default()),
            Idle::new(Some(jiff::SignedDuration::from_mins(1))),
        );
        let (end, ended) = oneshot::channel();
        let relayed = tokio::spawn({
            let (traffic, idle) = (Arc::clone(&traffic), Arc::clone(&idle));
            async move {
                let ended = async {
                    match ended.await {
                        Ok(why) => why,
                        Err(_) => pending().await,
                    }
                };
                let beside = Beside {
                    traffic: &traffic,
                    tape: tape.as_deref(),
                    idle: &idle,
                };
                let how = (spoken, &MessageRoom::default());
                relay(client, upstream, ended, how, beside).await
            }
        });
        Self {
            alice,
            pod: WebSocketStream::from_raw_socket(pod, Role::Server, None).await,
            traffic,
            idle,
            end,
            relayed,
        }
    }

    /// Returns the next message at the API server's side; `None` at the end.
    async fn heard(&mut self) -> Option<Message> {
        self.pod.next().await.and_then(Result::ok)
    }

    async fn says(&mut self, bytes: impl AsRef<[u8]>) {
        self.alice.write_all(bytes.as_ref()).await.unwrap();
    }

    fn watch(&self) -> View {
        self.traffic
            .watch(&about("default/mine/s-1"), &ALL)
            .unwrap()
    }
}

/// Returns the input that a viewer has seen.
fn typed(view: &mut View) -> String {
    let mut text = view.header.to_vec();
    while let Ok(lines) = view.lines.try_recv() {
        text.extend(lines);
    }
    let part = Part::read(&text).unwrap();
    let typed = part.events.iter().filter(|event| event.1 == Code::Input);
    typed.map(|event| event.2.as_str()).collect()
}

/// Returns a masked frame of a client.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 8, 9, 10];
    let mut bytes = head(first, payload.len() as u64);
    bytes.extend(mask);
    bytes.extend(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    bytes
}

/// Returns a masked head, without its mask.
fn head(first: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![first];
    match u16::try_from(length) {
        Ok(length) if length < 126 => bytes.push(0x80 | length.to_be_bytes()[1]),
        Ok(length) => {
            bytes.push(0x80 | 126);
            bytes.extend(length.to_be_bytes());
        }
        Err(_) => {
            bytes.push(0x80 | 127);
            bytes.extend(length.to_be_bytes());
        }
    }
    bytes
}

/// Returns all messages that a client receives from now on.
async fn rest(alice: DuplexStream) -> Vec<Message> {
    let socket = WebSocketStream::from_raw_socket(alice, Role::Client, None).await;
    let heard = socket.filter_map(|message| std::future::ready(message.ok()));
    heard.collect().await
}

fn text(message: &Message) -> String {
    String::from_utf8_lossy(&message.clone().into_data()).into_owned()
}

fn code(messages: &[Message]) -> Option<u16> {
    messages.iter().find_map(|message| match message {
        Message::Close(Some(close)) => Some(close.code.into()),
        _ => None,
    })
}

fn over() -> Refusal {
    Refusal {
        reason: "Expired",
        message: "it is over".to_owned(),
    }
}

#[tokio::test]
async fn fragmented_message_is_joined_shown_and_sent_whole() {
    let mut session = Session::open(on_a_terminal()).await;
    let mut view = session.watch();
    session.says(frame(0x02, &[STDIN, b'r', b'm'])).await;
    session.says(frame(0x89, b"ping")).await;
    session.says(frame(0x00, b" -rf")).await;
    session.says(frame(0x80, b" /\r")).await;
    let ping = Message::Ping("ping".into());
    assert_eq!(session.heard().await, Some(ping), "it is passed on as well");
    let whole = Message::binary(&b"\0rm -rf /\r"[..]);
    assert_eq!(session.heard().await, Some(whole));
    assert_eq!(typed(&mut view), "rm -rf /\r");
    assert_eq!(session.traffic.bytes(), (10, 0));
    let mut pong = [0; 6];
    session.alice.read_exact(&mut pong).await.unwrap();
    assert_eq!(pong, *b"\x8a\x04ping");
}

#[tokio::test]
async fn frame_that_is_none_closes_the_session_and_nothing_of_it_passes() {
    let long = (MAX_MESSAGE + 1) as u64;
    let unmasked = vec![0x82, 3, STDIN, b'i', b'd'];
    let mut frames = vec![
        ("unmasked", unmasked, 1002),
        ("a continuation of nothing", frame(0x80, b"\0id"), 1002),
        ("a ping in two frames", frame(0x09, b"\0id"), 1002),
        ("a ping that is too long", frame(0x89, &[0; 126]), 1002),
        ("text that is no UTF-8", frame(0x81, b"\0\xff"), 1002),
        ("a close of one byte", frame(0x88, &[3]), 1002),
        ("a length with its top bit", head(0x82, 1 << 63), 1009),
        ("a length of all bits", head(0x82, u64::MAX), 1009),
        ("a message that is too long", head(0x82, long), 1009),
        ("one that is no data and long", head(0x8b, 1 << 63), 1002),
    ];
    for opcode in (3..8).chain(11..16) {
        frames.push(("a reserved opcode", frame(0x80 | opcode, b"\0id"), 1002));
    }
    for bit in [0x40, 0x20, 0x10, 0x70] {
        frames.push(("a reserved bit", frame(0x82 | bit, b"\0id"), 1002));
    }
    for (what, bytes, expected) in frames {
        let mut session = Session::open(on_a_terminal()).await;
        let mut view = session.watch();
        session.says(frame(0x82, b"\0ls\r")).await;
        // Bytes after the invalid frame are not read.
        let behind = frame(0x82, b"\0rm\r");
        session.says([bytes, vec![0; 4], behind].concat()).await;
        let (why, carried) = session.relayed.await.unwrap();
        let reason = if expected == 1009 {
            TOO_LONG
        } else {
            MALFORMED
        };
        assert_eq!(why.map(|why| why.reason), Some(reason), "{what}");
        assert_eq!(carried.inward, 4, "{what}");
        let heard: Vec<_> = session.pod.collect().await;
        let heard: Vec<_> = heard.into_iter().filter_map(Result::ok).collect();
        assert_eq!(heard, [Message::binary(&b"\0ls\r"[..])], "{what}");
        assert_eq!(typed(&mut view), "ls\r", "{what}");
        let told = rest(session.alice).await;
        assert_eq!(code(&told), Some(expected), "{what}: {told:?}");
        assert!(text(&told[0]).contains("oz: the client sent"), "{what}");
    }
}

/// A message about the size of a terminal, as the gate writes it.
const SIZE: &[u8] = b"\x04{\"Width\":1,\"Height\":2}";

#[tokio::test]
async fn message_that_the_api_server_does_not_read_is_dropped_and_not_recorded() {
    let mut session = Session::open(on_a_terminal()).await;
    let mut view = session.watch();
    session.says(frame(0x82, b"\0ls\r")).await;
    for message in [&b"\x01forged\r"[..], b"\x07forged\r", b""] {
        session.says(frame(0x82, message)).await;
    }
    // A channel that the client has closed takes no more input.
    session.says(frame(0x82, b"\xff\0")).await;
    session.says(frame(0x82, b"\0forged\r")).await;
    for message in [
        &b"\x04{}"[..],
        b"\x04{\"Width\":1,\"Height\":2}{\"Width\":9,\"Height\":9}",
    ] {
        session.says(frame(0x82, message)).await;
    }
    session
        .says(frame(0x82, b"\x04{\"Height\": 2, \"Width\": 1}\n"))
        .await;
    for heard in [&b"\0ls\r"[..], b"\xff\0", SIZE] {
        assert_eq!(session.heard().await, Some(Message::binary(heard)));
    }
    assert_eq!(typed(&mut view), "ls\r");
    assert_eq!(session.traffic.bytes(), (4 + 2 + 23, 0));
    let without = spoken(Subprotocol::V4, "stdin=false&tty=true", "attach");
    let mut session = Session::open(without).await;
    let mut view = session.watch();
    session.says(frame(0x82, b"\0forged\r")).await;
    session.says(frame(0x82, SIZE)).await;
    assert_eq!(session.heard().await, Some(Message::binary(SIZE)));
    assert_eq!(typed(&mut view), "");
}

#[tokio::test]
async fn malformed_close_of_a_channel_ends_the_session() {
    for message in [&b"\xff"[..], b"\xff\x05", b"\xff\0\0"] {
        let mut session = Session::open(on_a_terminal()).await;
        session.says(frame(0x82, message)).await;
        session.says(frame(0x82, b"\0forged\r")).await;
        let (why, carried) = session.relayed.await.unwrap();
        assert_eq!(why.map(|why| why.reason), Some(MALFORMED), "{message:?}");
        assert_eq!(carried.inward, 0);
    }
}

#[tokio::test]
async fn forwarded_port_passes_as_bytes_without_messages_of_oz() {
    // The Python client has two channels for each port.
    let ports = spoken(Subprotocol::V4, "ports=80,81", "portforward");
    assert_eq!(ports.words, None);
    let mut session = Session::open(ports).await;
    for message in [&b"\0GET"[..], b"\x02GET", b"\xff\0"] {
        session.says(frame(0x82, message)).await;
        assert_eq!(session.heard().await, Some(Message::binary(message)));
    }
    let failed = Message::binary(&b"\x03{\"status\":\"Success\"}"[..]);
    session.pod.send(failed.clone()).await.unwrap();
    session.traffic.tell("for a terminal".to_owned());
    session.end.send(over()).unwrap();
    let (why, carried) = session.relayed.await.unwrap();
    assert_eq!((why, carried.exit), (Some(over()), None));
    let told = rest(session.alice).await;
    let data: Vec<_> = told.iter().filter(|one| one.is_binary()).collect();
    assert!(data.is_empty() || data == [&failed], "{told:?}");
    assert_eq!(code(&told), Some(1000));
}

#[tokio::test]
async fn message_that_is_too_long_in_its_parts_closes_the_session() {
    let mut session = Session::open(on_a_terminal()).await;
    let part = vec![0; 4 << 20];
    let mut first = 0x02;
    for _ in 0..=MAX_MESSAGE / part.len() {
        // The last frame may find the connection closed.
        let _ = session.alice.write_all(&frame(first, &part)).await;
        first = 0x00;
    }
    let (why, carried) = session.relayed.await.unwrap();
    assert_eq!(why.map(|why| why.reason), Some(TOO_LONG));
    assert_eq!(carried.inward, 0);
}

#[tokio::test]
async fn long_message_arrives_in_several_and_the_limit_is_met() {
    let mut session = Session::open(on_a_terminal()).await;
    let content: Vec<u8> = (0..=250).cycle().take(MAX_MESSAGE - 1).collect();
    let message = frame(0x82, &[&[STDIN], content.as_slice()].concat());
    let (mut alice, sent) = (session.alice, content.len());
    let writing = tokio::spawn(async move {
        alice.write_all(&message).await.unwrap();
        alice
    });
    let mut heard = Vec::with_capacity(sent);
    while heard.len() < sent {
        let message = session.pod.next().await.unwrap().unwrap().into_data();
        assert!(message.len() <= MAX_PIECE + 1);
        assert_eq!(message[0], STDIN);
        heard.extend_from_slice(&message[1..]);
    }
    assert!(heard == content);
    drop(writing.await.unwrap());
}

#[tokio::test]
async fn text_on_channels_arrives_as_bytes_and_base64_as_text() {
    let mut session = Session::open(on_a_terminal()).await;
    session.says(frame(0x81, "\0\u{e9}".as_bytes())).await;
    let bytes = Message::binary("\0\u{e9}".as_bytes().to_vec());
    assert_eq!(session.heard().await, Some(bytes));
    let spoken = Spoken {
        framing: Framing::new(Some(Subprotocol::V4Base64)),
        words: None,
    };
    let mut session = Session::open(spoken).await;
    session.says(frame(0x81, b"0bHMK")).await;
    assert_eq!(session.heard().await, Some(Message::text("0bHMK")));
    session.says(frame(0x82, b"0\xff")).await;
    let (why, _) = session.relayed.await.unwrap();
    assert_eq!(why.map(|why| why.reason), Some(MALFORMED));
    // The gate closes without a message on channels that the sub-protocol does not have.
    let told = rest(session.alice).await;
    assert_eq!((told.len(), code(&told)), (1, Some(1002)), "{told:?}");
}

#[tokio::test]
async fn exit_status_and_close_of_the_api_server_reach_the_client() {
    for closed in [1000_u16, 1001, 1011, 4000] {
        let mut session = Session::open(on_a_terminal()).await;
        let status = [&[ERROR], br#"{"status":"Success"}"#.as_slice()].concat();
        let close = CloseFrame {
            code: closed.into(),
            reason: "done".into(),
        };
        session
            .pod
            .send(Message::binary(vec![STDOUT]))
            .await
            .unwrap();
        session
            .pod
            .send(Message::binary(status.clone()))
            .await
            .unwrap();
        session
            .pod
            .send(Message::Close(Some(close.clone())))
            .await
            .unwrap();
        let expected = [
            Message::binary(vec![STDOUT]),
            Message::binary(status),
            Message::Close(Some(close)),
        ];
        let told = tokio::spawn(rest(session.alice));
        // The pod receives the reply to its close; then it closes the connection.
        while let Some(Ok(_)) = session.pod.next().await {}
        drop(session.pod);
        assert_eq!(told.await.unwrap(), expected);
        let (why, carried) = session.relayed.await.unwrap();
        assert_eq!((why, carried.exit), (None, Some(0)));
    }
}

#[tokio::test]
async fn api_server_that_breaks_off_and_client_that_closes_end_the_session() {
    let session = Session::open(on_a_terminal()).await;
    drop(session.pod);
    let told = rest(session.alice).await;
    assert_eq!(code(&told), Some(1011), "{told:?}");
    assert_eq!(session.relayed.await.unwrap().0, None);

    let mut session = Session::open(on_a_terminal()).await;
    session
        .says(frame(0x88, &[0x03, 0xe9, b'b', b'y', b'e']))
        .await;
    let close = CloseFrame {
        code: CloseCode::Away,
        reason: "bye".into(),
    };
    assert_eq!(session.heard().await, Some(Message::Close(Some(close))));
    drop(session.pod);
    assert_eq!(session.relayed.await.unwrap().0, None);

    // Also without a close: the client has nothing more to send, and may receive output.
    let mut session = Session::open(on_a_terminal()).await;
    session.alice.shutdown().await.unwrap();
    assert_eq!(session.heard().await, Some(Message::Close(None)));
    drop(session.pod);
    assert_eq!(session.relayed.await.unwrap().0, None);
}

#[tokio::test]
async fn client_receives_reason_of_session_end_within_message() {
    let mut session = Session::open(on_a_terminal()).await;
    // Half of a message in each direction.
    session.says(&frame(0x82, b"\0half")[..8]).await;
    session
        .pod
        .get_mut()
        .write_all(&[0x82, 9, STDOUT, b'h'])
        .await
        .unwrap();
    session.end.send(over()).unwrap();
    assert_eq!(session.relayed.await.unwrap().0, Some(over()));
    let told = rest(session.alice).await;
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(text(&told[0]), "\u{1}\r\noz: it is over\r\n");
    assert!(text(&told[1]).contains(r#""message":"oz: it is over""#));
    assert_eq!(code(&told), Some(1000));
    let heard: Vec<_> = session.pod.collect().await;
    assert!(heard.iter().all(Result::is_err), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn while_it_is_held_nothing_passes_but_what_oz_says_and_nothing_is_lost() {
    let mut session = Session::open(on_a_terminal()).await;
    // Both directions wait for data to read when the session is held.
    tokio::task::yield_now().await;
    session.traffic.hold(true);
    session.traffic.tell("held".to_owned());
    session
        .pod
        .send(Message::binary(&b"\x01out"[..]))
        .await
        .unwrap();
    session.says(frame(0x82, b"\0in")).await;
    let mut alice = WebSocketStream::from_raw_socket(session.alice, Role::Client, None).await;
    let told = alice.next().await.unwrap().unwrap();
    assert_eq!(text(&told), "\u{1}\r\noz: held\r\n");
    session.traffic.alive();
    let alive = alice.next().await.unwrap().unwrap();
    assert_eq!(alive, Message::Pong(Bytes::new()));
    let second = Duration::from_secs(1);
    assert!(
        timeout(second, alice.next()).await.is_err(),
        "something passed out"
    );
    assert!(
        timeout(second, session.pod.next()).await.is_err(),
        "something passed in"
    );
    assert_eq!(session.traffic.bytes(), (0, 0));
    session.traffic.hold(false);
    assert_eq!(text(&alice.next().await.unwrap().unwrap()), "\u{1}out");
    assert_eq!(text(&session.pod.next().await.unwrap().unwrap()), "\0in");
}

#[tokio::test(start_paused = true)]
async fn while_its_user_has_no_room_to_record_nothing_passes_and_nothing_is_lost() {
    const SHARE: usize = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let (spool, _storage, recorder, key) = place(directory.path(), 8 * SHARE as u64).await;
    let writer = Tape::begin(recorder, spool.begin(key, "alice"), false)
        .await
        .unwrap();
    let tape = Some(Arc::clone(writer.tape()));
    let mut session = Session::recorded(on_a_terminal(), 1 << 20, tape).await;
    tokio::task::yield_now().await;
    let share = spool.share("alice");
    share.expects(SHARE);
    let out = Message::binary(&b"\x01out"[..]);
    session.pod.send(out.clone()).await.unwrap();
    session.says(frame(0x82, b"\0in")).await;
    let mut alice = WebSocketStream::from_raw_socket(session.alice, Role::Client, None).await;
    let second = Duration::from_secs(1);
    assert!(timeout(second, alice.next()).await.is_err());
    assert!(timeout(second, session.pod.next()).await.is_err());
    assert_eq!(session.traffic.bytes(), (0, 0));
    session.traffic.tell("slowed".to_owned());
    let told = alice.next().await.unwrap().unwrap();
    assert_eq!(text(&told), "\u{1}\r\noz: slowed\r\n");
    share.came(SHARE);
    assert_eq!(text(&alice.next().await.unwrap().unwrap()), "\u{1}out");
    assert_eq!(text(&session.pod.next().await.unwrap().unwrap()), "\0in");
}

#[tokio::test(start_paused = true)]
async fn message_prolongs_a_session_and_a_ping_does_not() {
    let minute = Duration::from_secs(60);
    let mut session = Session::open(on_a_terminal()).await;
    for round in 0..6 {
        tokio::time::advance(minute / 2).await;
        if round % 2 == 0 {
            session.says(frame(0x82, b"\0l")).await;
            session.heard().await.unwrap();
        } else {
            session
                .pod
                .send(Message::binary(&b"\x01$"[..]))
                .await
                .unwrap();
            session.alice.read_exact(&mut [0; 4]).await.unwrap();
        }
        let over = timeout(minute / 4, session.idle.over()).await;
        assert!(over.is_err(), "it ended in round {round}");
    }
    let used = tokio::time::Instant::now();
    let idle = Arc::clone(&session.idle);
    let pings = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            session.says(frame(0x89, b"")).await;
            session.heard().await.unwrap();
            session.pod.send(Message::Ping(Bytes::new())).await.unwrap();
        }
    };
    tokio::select! {
        _ = idle.over() => {}
        () = pings => {}
    }
    assert!(used.elapsed() <= minute, "a ping prolonged it");
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_nothing_keeps_no_session_open() {
    let mut session = Session::with_buffers(on_a_terminal(), 16).await;
    let flood = tokio::spawn(async move {
        let message = || Message::binary(vec![STDOUT; 1024]);
        while session.pod.send(message()).await.is_ok() {}
    });
    session.end.send(over()).unwrap();
    let (why, _) = session.relayed.await.unwrap();
    assert_eq!(why, Some(over()));
    flood.await.unwrap();
}

/// Returns the standard input of a command, from all bytes that the API server received. The reader sends no replies: a
/// client that pings may have disconnected.
async fn standard_input(bytes: Vec<u8>) -> Vec<u8> {
    let sent = tokio::io::join(std::io::Cursor::new(bytes), tokio::io::sink());
    let mut sent = WebSocketStream::from_raw_socket(sent, Role::Server, None).await;
    let mut input = Vec::new();
    while let Some(Ok(message)) = sent.next().await {
        if let Message::Binary(message) = message
            && let Some((&STDIN, content)) = message.split_first()
        {
            input.extend_from_slice(content);
        }
    }
    input
}

/// Returns frames with any head, or valid frames on the channel of the standard input.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let content = "[a-z]{0,6}";
    let good = (prop_oneof![Just(0x82_u8), Just(0x81)], content);
    let fragments = (
        prop_oneof![Just(0x02_u8), Just(0x00), Just(0x80), Just(0x89)],
        content,
    );
    let odd = (any::<u8>(), content);
    let masked = prop_oneof![6 => good, 4 => fragments, 1 => odd].prop_map(|(first, content)| {
        let starts = first & 0x0f != 0;
        let channel: &[u8] = if starts { &[STDIN] } else { &[] };
        frame(first, &[channel, content.as_bytes()].concat())
    });
    let bytes = prop::collection::vec(any::<u8>(), 0..12);
    let unmasked = "[a-z]{1,4}".prop_map(|content| {
        let mut bytes = vec![0x82, 1, STDIN];
        bytes.extend(content.as_bytes());
        bytes
    });
    prop_oneof![12 => masked, 1 => bytes, 1 => unmasked]
}

proptest! {
    #[test]
    fn command_input_equals_recorded_input_for_any_client_frames(
        frames in prop::collection::vec(any_frame(), 1..10),
        cut in 1_usize..40,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let (heard, typed) = runtime.unwrap().block_on(async {
            let mut session = Session::open(on_a_terminal()).await;
            let mut view = session.watch();
            for piece in frames.concat().chunks(cut) {
                // The connection may be closed.
                let _ = session.alice.write_all(piece).await;
                tokio::task::yield_now().await;
            }
            let _ = session.alice.shutdown().await;
            let mut pod = session.pod.into_inner();
            pod.shutdown().await.unwrap();
            let mut bytes = Vec::new();
            pod.read_to_end(&mut bytes).await.unwrap();
            let heard = standard_input(bytes).await;
            (String::from_utf8_lossy(&heard).into_owned(), typed(&mut view))
        });
        prop_assert_eq!(heard, typed);
    }
}

#[tokio::test(start_paused = true)]
async fn ping_that_came_while_a_session_was_held_is_answered_and_not_passed_on() {
    let mut session = Session::open(on_a_terminal()).await;
    session.traffic.hold(true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    session.says(frame(0x89, b"held")).await;
    session.says(frame(0x82, b"\0in")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    session.traffic.hold(false);
    // The input that followed the ping is the first message that passes.
    let input = Message::binary(&b"\0in"[..]);
    assert_eq!(session.heard().await, Some(input));
    let mut pong = [0; 6];
    session.alice.read_exact(&mut pong).await.unwrap();
    assert_eq!(pong, *b"\x8a\x04held");
    tokio::time::sleep(Duration::from_secs(5)).await;
    session.says(frame(0x89, b"late")).await;
    let ping = Message::Ping("late".into());
    assert_eq!(session.heard().await, Some(ping));
}
