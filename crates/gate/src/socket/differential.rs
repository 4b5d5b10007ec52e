//! A differential fuzz test of the gate against the reader of Kubernetes: its package `wsstream` over
//! `golang.org/x/net/websocket`, in the program `hack/tools/wsstream`. That reader takes each frame for a message, and
//! ignores reserved bits and the top bit of a length. So the gate may forward less than the reader takes from the
//! client's own bytes, and never anything else.
//!
//! `make test` compares a few streams of frames, `make fuzz` as many as a minute allows. `OZ_FUZZ_SECONDS` sets the
//! duration, and `OZ_FUZZ_SEED` the first seed.

use std::cell::RefCell;
use std::fmt;
use std::future::pending;
use std::io::{BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use oz_api::{RecordedInput, RecordingConfig, RecordingMode};
use oz_gating::messages::{MAX_MESSAGE, MAX_PIECE, RESIZE, STDIN};
use oz_gating::recording::{Code, Event, Form, Part, Recorder, SessionKey};
use oz_gating::upgrade::Subprotocol;
use oz_testkit::{Tool, Tools};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex, sink, split};
use tokio::runtime::Runtime;

use super::tests::{relay, spoken};
use super::*;
use crate::idle::Idle;
use crate::message_room::MessageRoom;
use crate::spool::Spool;
use crate::storage::Storage;
use crate::tape::Tape;
use crate::tape::tests::{about, place};
use crate::traffic::Traffic;

/// The number of streams between two checks of the elapsed time.
const BATCH: u32 = 128;
/// The first byte of the close of a channel in v5.
const CLOSE: u8 = 255;
const CHANNELS: usize = 5;

type Reached = [Vec<u8>; CHANNELS];

/// The sub-protocol of a session, and its option `stdin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct How {
    protocol: Subprotocol,
    stdin: bool,
}

/// A frame of the client.
#[derive(Clone)]
struct Frame {
    /// The first byte: FIN, reserved bits and opcode.
    first: u8,
    length: Length,
    mask: Option<[u8; 4]>,
    payload: Vec<u8>,
}

/// The encoding of the length of a payload.
#[derive(Clone, Copy, Debug)]
enum Length {
    Shortest,
    TwoBytes,
    EightBytes,
    /// A wrong length, in eight bytes.
    Another(u64),
}

impl Frame {
    fn new(first: u8, payload: Vec<u8>) -> Self {
        Self {
            first,
            length: Length::Shortest,
            mask: Some([7, 8, 9, 10]),
            payload,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let masked = if self.mask.is_some() { 0x80 } else { 0 };
        let length = self.payload.len() as u64;
        let mut bytes = vec![self.first];
        match (self.length, u16::try_from(length)) {
            (Length::Shortest, Ok(short @ 0..126)) => bytes.push(masked | short.to_be_bytes()[1]),
            (Length::Shortest | Length::TwoBytes, Ok(short)) => {
                bytes.push(masked | 126);
                bytes.extend(short.to_be_bytes());
            }
            (Length::Another(another), _) => {
                bytes.push(masked | 127);
                bytes.extend(another.to_be_bytes());
            }
            _ => {
                bytes.push(masked | 127);
                bytes.extend(length.to_be_bytes());
            }
        }
        let mask = self.mask.unwrap_or_default();
        bytes.extend(self.mask.iter().flatten());
        let masked = self.payload.iter().zip(mask.iter().cycle());
        bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
        bytes
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            first,
            length,
            mask,
            payload,
        } = self;
        let shown = payload[..payload.len().min(64)].escape_ascii();
        write!(
            formatter,
            "{first:#04x} {length:?} mask {mask:?}: {} bytes \"{shown}\"",
            payload.len()
        )
    }
}

/// The bytes that a client sends.
#[derive(Clone, Debug)]
struct Sent {
    how: How,
    frames: Vec<Frame>,
    /// Bytes after the frames.
    rest: Vec<u8>,
    /// The number of bytes that the client sends at once.
    piece: usize,
}

impl Sent {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.frames.iter().flat_map(Frame::bytes).collect();
        bytes.extend(&self.rest);
        bytes
    }
}

/// The end of a stream of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The end of a message.
    Between,
    /// The middle of a frame or a message.
    Within,
    /// A close.
    Closed,
    /// An error by RFC 6455 or by the sub-protocol.
    Refused,
}

/// The meaning of a stream of frames by RFC 6455: the messages before its end.
#[derive(Debug)]
struct Meaning {
    messages: Vec<Vec<u8>>,
    /// True if a message has several frames.
    in_parts: bool,
    end: End,
}

impl Meaning {
    fn new(how: How, bytes: &[u8]) -> Self {
        let mut this = Self {
            messages: Vec::new(),
            in_parts: false,
            end: End::Between,
        };
        this.end = this.read(how, bytes);
        this
    }

    fn read(&mut self, how: How, mut bytes: &[u8]) -> End {
        // A message that is not complete, and whether it is text.
        let mut begun: Option<(bool, Vec<u8>)> = None;
        while let [first, ..] = *bytes {
            let (last, opcode) = (first & 0x80 != 0, first & 0x0f);
            let Some((masked, length, head)) = head(bytes) else {
                return End::Within;
            };
            if matches!(opcode, 3..8 | 11..16) || length > MAX_MESSAGE as u64 {
                return End::Refused;
            }
            let length = length as usize;
            let Some(whole) = bytes.get(..head + length) else {
                return End::Within;
            };
            bytes = &bytes[head + length..];
            if first & 0x70 != 0 || !masked {
                return End::Refused;
            }
            let mask = &whole[head - 4..head];
            let payload = whole[head..].iter().zip(mask.iter().cycle());
            let payload: Vec<u8> = payload.map(|(byte, mask)| byte ^ mask).collect();
            if opcode >= 8 {
                if !last || length > 125 {
                    return End::Refused;
                }
                if opcode == 8 {
                    let reason = payload.get(2..).unwrap_or_default();
                    let good = length != 1 && std::str::from_utf8(reason).is_ok();
                    return if good { End::Closed } else { End::Refused };
                }
                continue;
            }
            self.in_parts |= !last;
            let (text, message) = match (opcode, begun.take()) {
                (0, Some((text, mut before))) => {
                    before.extend(payload);
                    (text, before)
                }
                (1 | 2, None) => (opcode == 1, payload),
                _ => return End::Refused,
            };
            if !last {
                begun = Some((text, message));
                continue;
            }
            let is_text = text || how.protocol == Subprotocol::V4Base64;
            if is_text && std::str::from_utf8(&message).is_err() || !closes_well(how, &message) {
                return End::Refused;
            }
            self.messages.push(message);
        }
        if begun.is_some() {
            End::Within
        } else {
            End::Between
        }
    }
}

/// Returns whether a frame is masked, the length of its payload, and that of its head with the mask; `None` if the head
/// is incomplete.
fn head(bytes: &[u8]) -> Option<(bool, u64, usize)> {
    let second = *bytes.get(1)?;
    let number = |bytes: &[u8]| {
        let digits = bytes.iter();
        digits.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let (length, head) = match second & 0x7f {
        126 => (number(bytes.get(2..4)?), 4),
        127 => (number(bytes.get(2..10)?), 10),
        short => (u64::from(short), 2),
    };
    let masked = second & 0x80 != 0;
    let head = head + if masked { 4 } else { 0 };
    (bytes.len() >= head).then_some((masked, length, head))
}

/// Checks whether a message is anything but a malformed close of a channel.
fn closes_well(how: How, message: &[u8]) -> bool {
    match message {
        [CLOSE, rest @ ..] if how.protocol == Subprotocol::V5 => {
            matches!(rest, [channel] if usize::from(*channel) < CHANNELS)
        }
        _ => true,
    }
}

/// Checks whether the gate forwards a message that its client may send. Of the resize messages that it reads, it
/// forwards those with exactly one size.
fn is_forwarded(how: How, message: &[u8]) -> bool {
    match message {
        [RESIZE, size @ ..] if how.protocol != Subprotocol::V4Base64 => {
            serde_json::from_slice::<serde_json::Value>(size)
                .is_ok_and(|size| size["Width"].is_u64() && size["Height"].is_u64())
        }
        _ => true,
    }
}

/// The reader of Kubernetes.
struct Kubernetes {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Kubernetes {
    fn start() -> Self {
        let tools = Tools::obtain(&[Tool::WsStream]).unwrap();
        let mut command = Command::new(tools.path(Tool::WsStream).unwrap());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self {
            questions: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Returns the bytes that reach each channel.
    fn reads(&mut self, how: How, bytes: &[u8]) -> Reached {
        let (protocol, stdin) = (how.protocol.to_string(), how.stdin.to_string());
        let mut question = Vec::new();
        for part in [protocol.as_bytes(), stdin.as_bytes(), bytes] {
            question.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
            question.extend(part);
        }
        self.questions.write_all(&question).unwrap();
        std::array::from_fn(|_| {
            let mut length = [0; 4];
            self.answers.read_exact(&mut length).unwrap();
            let mut part = vec![0; u32::from_be_bytes(length) as usize];
            self.answers.read_exact(&mut part).unwrap();
            part
        })
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a session of the gate.
struct Passed {
    /// The bytes that the API server received.
    sent: Vec<u8>,
    /// The input in the recording.
    recorded: Vec<u8>,
    refused: Option<Refusal>,
}

/// The gate, from an open session on.
struct Gate {
    runtime: Runtime,
    spool: Arc<Spool>,
    storage: Storage,
    sessions: usize,
    _directory: TempDir,
}

impl Gate {
    fn start() -> Self {
        // Preferably in memory: every session waits for the disk.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (spool, storage, ..) = runtime.block_on(place(directory.path(), 64 << 20));
        Self {
            runtime,
            spool,
            storage,
            sessions: 0,
            _directory: directory,
        }
    }

    fn passes(&mut self, sent: &Sent, bytes: &[u8]) -> Passed {
        self.sessions += 1;
        let key = format!("default/mine/s-{}", self.sessions);
        let key = SessionKey::read(&key).unwrap();
        let (spool, storage) = (&self.spool, &self.storage);
        self.runtime.block_on(async {
            let config = RecordingConfig {
                mode: RecordingMode::Required,
                input: RecordedInput::All,
                non_interactive: None,
            };
            let recorder = Recorder::new(about(&key.to_string()), &config);
            let begun = Tape::begin(recorder, spool.begin(key.clone(), "alice"), false).await;
            let writer = begun.unwrap();
            let (sent, refused) = carried(sent, bytes, writer.tape()).await;
            let ended = writer.end("over").await.unwrap();
            assert_eq!(ended.broken, None);
            let parts = ended.head.unwrap().parts;
            ended.recording.finish().await.unwrap();
            assert!(spool.flush(Duration::from_secs(60)).await.is_ok());
            let mut recorded = Vec::new();
            for number in 0..parts {
                let name = key.part(number, Form::Plain);
                let packed = storage.get(&name, 16 << 20).await.unwrap().unwrap();
                let part = oz_recording::unpack(&packed, 64 << 20).unwrap();
                typed(&Part::read(&part).unwrap().events, &mut recorded);
            }
            Passed {
                sent,
                recorded,
                refused,
            }
        })
    }
}

/// Returns the bytes that the API server receives, and the reason if the gate ends the session.
async fn carried(sent: &Sent, bytes: &[u8], tape: &Tape) -> (Vec<u8>, Option<Refusal>) {
    let (alice, client) = duplex(64 << 10);
    let (pod, upstream) = duplex(64 << 10);
    let (traffic, idle, room) = (Traffic::default(), Idle::new(None), MessageRoom::default());
    let beside = Beside {
        traffic: &traffic,
        tape: Some(tape),
        idle: &idle,
    };
    let stdin = sent.how.stdin;
    let spoken = spoken(
        sent.how.protocol,
        &format!("stdin={stdin}&tty=true"),
        "exec",
    );
    let relayed = relay(client, upstream, pending(), (spoken, &room), beside);
    let (mut heard, mut said) = split(alice);
    let says = async {
        for piece in bytes.chunks(sent.piece) {
            // The gate may have closed the connection.
            if said.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = said.shutdown().await;
    };
    let hears = async {
        let _ = tokio::io::copy(&mut heard, &mut sink()).await;
    };
    let (mut received, mut answered) = split(pod);
    let receives = async {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let read = received.read(&mut buffer).await.unwrap();
            all.extend(&buffer[..read]);
            if read == 0 || is_closed(sent.how, &all) {
                break;
            }
        }
        // The API server closes after it has read everything.
        answered.shutdown().await.unwrap();
        received.read_to_end(&mut all).await.unwrap();
        all
    };
    let ((why, _), (), (), all) = tokio::join!(relayed, says, hears, receives);
    (all, why)
}

fn is_closed(how: How, bytes: &[u8]) -> bool {
    Meaning::new(how, bytes).end == End::Closed
}

/// Appends the input. Input that is not UTF-8 has two events: text, and the exact bytes.
fn typed(events: &[Event], typed: &mut Vec<u8>) {
    for event in events {
        match event.1 {
            Code::Input => typed.extend(event.2.as_bytes()),
            Code::Bytes => {
                let exactly = BASE64_STANDARD.decode(&event.2).unwrap();
                let as_text = String::from_utf8_lossy(&exactly).len();
                typed.truncate(typed.len() - as_text);
                typed.extend(exactly);
            }
            Code::Output | Code::Resize | Code::Mark => {}
        }
    }
}

/// The number of streams that were compared, in all and by kind.
#[derive(Debug, Default)]
struct Compared {
    streams: usize,
    refused: usize,
    in_parts: usize,
    with_input: usize,
}

struct Comparison {
    gate: Gate,
    kubernetes: Kubernetes,
    compared: Compared,
}

impl Comparison {
    /// Compares the gate with the reader of Kubernetes.
    ///
    /// # Errors
    /// When they differ; the error contains the difference.
    fn compare(&mut self, sent: &Sent) -> Result<(), String> {
        let (how, bytes) = (sent.how, sent.bytes());
        let meant = Meaning::new(how, &bytes);
        let passed = self.gate.passes(sent, &bytes);
        let reached = self.kubernetes.reads(how, &passed.sent);
        self.compared.streams += 1;
        self.compared.refused += usize::from(passed.refused.is_some());
        self.compared.in_parts += usize::from(meant.in_parts);
        self.compared.with_input += usize::from(!reached[0].is_empty());

        let written = Meaning::new(how, &passed.sent);
        if written.in_parts || matches!(written.end, End::Refused | End::Within) {
            return Err(format!(
                "the gate sends malformed or incomplete frames: {written:?}"
            ));
        }
        let refused = passed.refused.as_ref().map(|why| why.message.as_str());
        match (meant.end, refused) {
            (End::Refused, None) => {
                return Err(format!("the gate takes malformed frames: {meant:?}"));
            }
            (End::Between | End::Closed, Some(why)) => {
                return Err(format!("the gate refuses well-formed frames: {why}"));
            }
            _ => {}
        }
        let is_recorded = how.protocol != Subprotocol::V4Base64;
        if is_recorded {
            same(
                "the recording differs from what the command reads",
                &passed.recorded,
                &reached[0],
            )?;
        }
        let alone = meant.messages.into_iter();
        let alone: Vec<u8> = alone
            .filter(|message| is_forwarded(how, message))
            .flat_map(|message| Frame::new(0x82, message).bytes())
            .collect();
        let alone = self.kubernetes.reads(how, &alone);
        let direct = self.kubernetes.reads(how, &bytes);
        for channel in 0..CHANNELS {
            let what = |what: &str| format!("channel {channel}: {what}");
            let passed = &reached[channel];
            same(
                &what("the gate forwards other messages than the client sent"),
                passed,
                &alone[channel],
            )?;
            // That reader takes each frame of a message in parts for a message, and reads no sizes.
            if meant.in_parts || channel == usize::from(RESIZE) {
                continue;
            }
            let direct = &direct[channel];
            match meant.end {
                End::Between | End::Closed => {
                    same(
                        &what("the command reads something else without the gate"),
                        passed,
                        direct,
                    )?;
                }
                End::Within | End::Refused if direct.starts_with(passed) => {}
                End::Within | End::Refused => {
                    let what = what("the gate forwards what the command does not read without it");
                    same(&what, passed, direct)?;
                }
            }
        }
        Ok(())
    }
}

fn same(what: &str, one: &[u8], other: &[u8]) -> Result<(), String> {
    if one == other {
        return Ok(());
    }
    let at = one
        .iter()
        .zip(other)
        .take_while(|(one, other)| one == other);
    let at = at.count();
    let shown = |bytes: &[u8]| {
        let from = at.saturating_sub(16);
        let part = &bytes[from..bytes.len().min(at + 32)];
        format!(
            "{} bytes, at {from} \"{}\"",
            bytes.len(),
            part.escape_ascii()
        )
    };
    Err(format!("{what}: {} and {}", shown(one), shown(other)))
}

fn how() -> impl Strategy<Value = How> {
    let protocol = prop_oneof![
        5 => Just(Subprotocol::V5),
        3 => Just(Subprotocol::V4),
        1 => Just(Subprotocol::V4Base64),
    ];
    (protocol, prop::bool::weighted(0.9)).prop_map(|(protocol, stdin)| How { protocol, stdin })
}

/// Returns messages of a client.
fn message(how: How) -> BoxedStrategy<Vec<u8>> {
    let on = |channel: u8, content: &[u8]| [&[channel], content].concat();
    if how.protocol == Subprotocol::V4Base64 {
        let channel = prop_oneof![6 => Just(b'0'), 1 => Just(b'4'), 1 => any::<u8>()];
        let encoded = prop::collection::vec(any::<u8>(), 0..9)
            .prop_map(|content| BASE64_STANDARD.encode(content).into_bytes());
        let content = prop_oneof![
            6 => encoded,
            1 => "[A-Za-z0-9+/= ]{0,9}".prop_map(String::into_bytes),
        ];
        let message = (channel, content).prop_map(move |(channel, content)| on(channel, &content));
        return message.boxed();
    }
    let text = "[a-z\u{e9}\u{20ac}]{0,8}".prop_map(move |text| on(STDIN, text.as_bytes()));
    let bytes = prop::collection::vec(any::<u8>(), 0..9);
    let long = prop_oneof![
        4 => 120_usize..132,
        1 => 65_530_usize..65_545,
        1 => 2 * MAX_PIECE - 2..2 * MAX_PIECE + 3,
    ];
    let long = long.prop_map(move |length| {
        let content: Vec<u8> = (b'a'..=b'z').cycle().take(length).collect();
        on(STDIN, &content)
    });
    let size = (0_u16..300).prop_map(move |width| {
        on(
            RESIZE,
            format!(r#"{{"Width":{width},"Height":24}}"#).as_bytes(),
        )
    });
    let closes = prop_oneof![
        6 => (0_u8..6).prop_map(|channel| vec![CLOSE, channel]),
        1 => prop::collection::vec(any::<u8>(), 0..4).prop_map(move |rest| on(CLOSE, &rest)),
    ];
    prop_oneof![
        12 => text,
        3 => bytes.clone().prop_map(move |bytes| on(STDIN, &bytes)),
        1 => long,
        2 => size,
        2 => closes,
        1 => (any::<u8>(), bytes).prop_map(move |(channel, bytes)| on(channel, &bytes)),
        1 => Just(Vec::new()),
    ]
    .boxed()
}

fn control() -> impl Strategy<Value = Frame> {
    let first = prop_oneof![3 => Just(0x89_u8), 2 => Just(0x8a)];
    (first, "[a-z]{0,8}").prop_map(|(first, payload)| Frame::new(first, payload.into_bytes()))
}

/// Returns messages in several frames, with control frames between them.
fn in_parts(how: How) -> impl Strategy<Value = Vec<Frame>> {
    let cuts = prop::collection::vec((any::<prop::sample::Index>(), control()), 1..4);
    let first = prop_oneof![Just(1_u8), Just(2)];
    (first, message(how), cuts, any::<u8>()).prop_map(|(opcode, message, cuts, with_control)| {
        let mut at: Vec<usize> = cuts
            .iter()
            .map(|(cut, _)| cut.index(message.len() + 1))
            .collect();
        at.sort_unstable();
        let (mut frames, mut from) = (Vec::new(), 0);
        for (number, (to, (_, control))) in at.iter().zip(&cuts).enumerate() {
            let first = if number == 0 { opcode } else { 0 };
            frames.push(Frame::new(first, message[from..*to].to_vec()));
            if with_control & (1 << number) != 0 {
                frames.push(control.clone());
            }
            from = *to;
        }
        frames.push(Frame::new(0x80, message[from..].to_vec()));
        frames
    })
}

/// Returns frames that may be malformed: with an arbitrary head, a wrong length, or without a mask.
fn odd(how: How) -> impl Strategy<Value = Frame> {
    let first = prop_oneof![
        3 => any::<u8>(),
        2 => prop::sample::select(vec![0x00_u8, 0x01, 0x02, 0x08, 0x09, 0x80, 0x81, 0x82]),
        2 => prop::sample::select(vec![0x83_u8, 0x8b, 0xc2, 0xa2, 0x92, 0xc1, 0xc9]),
        2 => Just(0x88_u8),
    ];
    let length = prop_oneof![
        4 => Just(Length::Shortest),
        2 => Just(Length::TwoBytes),
        2 => Just(Length::EightBytes),
        1 => (0_u64..12).prop_map(Length::Another),
        1 => (0_u64..12).prop_map(|length| Length::Another(1 << 63 | length)),
        1 => any::<u64>().prop_map(Length::Another),
        1 => Just(Length::Another(MAX_MESSAGE as u64 + 1)),
    ];
    let mask = prop_oneof![8 => any::<[u8; 4]>().prop_map(Some), 1 => Just(None)];
    let payload = prop_oneof![
        4 => message(how),
        1 => Just(vec![0x03, 0xe8]),
        1 => "\\PC{0,4}".prop_map(|why| [&[0x03, 0xe8], why.as_bytes()].concat()),
        1 => Just(vec![b'x'; 126]),
    ];
    (first, length, mask, payload).prop_map(|(first, length, mask, payload)| Frame {
        first,
        length,
        mask,
        payload,
    })
}

fn sent() -> impl Strategy<Value = Sent> {
    how().prop_flat_map(|how| {
        let whole = (
            prop_oneof![3 => Just(0x82_u8), 1 => Just(0x81)],
            message(how),
        );
        let whole = whole.prop_map(|(first, message)| vec![Frame::new(first, message)]);
        let some = prop_oneof![
            10 => whole,
            4 => in_parts(how),
            2 => control().prop_map(|frame| vec![frame]),
            2 => odd(how).prop_map(|frame| vec![frame]),
        ];
        let frames = prop::collection::vec(some, 1..8);
        let rest = prop_oneof![
            4 => Just(Vec::new()),
            1 => prop::collection::vec(any::<u8>(), 0..12),
            // An incomplete frame.
            1 => (message(how), any::<prop::sample::Index>()).prop_map(|(message, at)| {
                let mut bytes = Frame::new(0x82, message).bytes();
                bytes.truncate(at.index(bytes.len()));
                bytes
            }),
        ];
        let piece = prop_oneof![3 => 1_usize..40, 1 => Just(usize::MAX)];
        (frames, rest, piece).prop_map(move |(frames, rest, piece)| Sent {
            how,
            frames: frames.concat(),
            rest,
            piece,
        })
    })
}

/// Returns a number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap())
}

fn runner(seed: u64) -> TestRunner {
    let config = Config {
        cases: BATCH,
        failure_persistence: None,
        ..Config::default()
    };
    let seed: Vec<u8> = seed.to_le_bytes().repeat(4);
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

#[test]
fn recorded_input_is_what_kubernetes_reads_of_the_frames_that_the_gate_sends() {
    let began = Instant::now();
    let limit = number("OZ_FUZZ_SECONDS").map(Duration::from_secs);
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let first = number("OZ_FUZZ_SEED").unwrap_or_else(|| limit.map_or(1, |_| now()));
    let comparison = RefCell::new(Comparison {
        gate: Gate::start(),
        kubernetes: Kubernetes::start(),
        compared: Compared::default(),
    });
    let mut seed = first;
    loop {
        let compared = runner(seed).run(&sent(), |sent| {
            let compared = comparison.borrow_mut().compare(&sent);
            compared.map_err(TestCaseError::fail)
        });
        match compared {
            Ok(()) => {}
            Err(TestError::Fail(why, sent)) => panic!(
                "OZ_FUZZ_SEED={seed}: {why}\nsmallest reproducer: {sent:#?}\nin bytes: {:02x?}",
                sent.bytes()
            ),
            Err(TestError::Abort(why)) => panic!("{why}"),
        }
        seed = seed.wrapping_add(1);
        if limit.is_none_or(|limit| began.elapsed() >= limit) {
            break;
        }
    }
    let compared = &comparison.borrow().compared;
    eprintln!("seeds {first} to {}: {compared:?}", seed.wrapping_sub(1));
    // Without these, the comparison would prove little.
    assert!(compared.refused > 0 && compared.in_parts > 0 && compared.with_input > 0);
}
