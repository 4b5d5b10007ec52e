//! The data that reaches each side of a session, for every kind of frames that a client sends.

mod differential;
mod flow;
mod frames;

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
