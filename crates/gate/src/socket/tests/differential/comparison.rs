//! The gate and the reader of Kubernetes, and the comparison of both.

use super::*;

/// The reader of Kubernetes.
pub(super) struct Kubernetes {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Kubernetes {
    pub(super) fn start() -> Self {
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
pub(super) struct Gate {
    runtime: Runtime,
    spool: Arc<Spool>,
    storage: Storage,
    sessions: usize,
    _directory: TempDir,
}

impl Gate {
    pub(super) fn start() -> Self {
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
pub(super) struct Compared {
    streams: usize,
    pub(super) refused: usize,
    pub(super) in_parts: usize,
    pub(super) with_input: usize,
}

pub(super) struct Comparison {
    pub(super) gate: Gate,
    pub(super) kubernetes: Kubernetes,
    pub(super) compared: Compared,
}

impl Comparison {
    /// Compares the gate with the reader of Kubernetes.
    ///
    /// # Errors
    /// When they differ; the error contains the difference.
    pub(super) fn compare(&mut self, sent: &Sent) -> Result<(), String> {
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
