//! A differential fuzz test of the gate against the reader of Kubernetes: its package `wsstream` over
//! `golang.org/x/net/websocket`, in the program `hack/tools/wsstream`. That reader takes each frame for a message, and
//! ignores reserved bits and the top bit of a length. So the gate may forward less than the reader takes from the
//! client's own bytes, and never anything else.
//!
//! `make test` compares a few streams of frames, `make fuzz` as many as a minute allows. `OZ_FUZZ_SECONDS` sets the
//! duration, and `OZ_FUZZ_SEED` the first seed.

mod comparison;
mod strategies;

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

use self::comparison::{Compared, Comparison, Gate, Kubernetes};
use self::strategies::sent;
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
