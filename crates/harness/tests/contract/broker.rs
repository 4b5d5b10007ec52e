//! A broker for tests: TLS on a local port, configured responses, and a list of all requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::world::{DEADLINE, eventually};

/// A request, as the broker got it.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    pub(crate) token: String,
    pub(crate) body: String,
}

/// Status and body of the answer to a request line, given how many came with that line before.
type Answers = dyn Fn(&str, usize) -> (u16, String) + Send + Sync;

#[derive(Default)]
struct RequestLog {
    asked: Mutex<Vec<ReceivedRequest>>,
    changed: Condvar,
}

impl RequestLog {
    /// Returns the number of earlier requests with the same line.
    fn add(&self, one: ReceivedRequest) -> usize {
        let mut asked = self.asked.lock();
        let before = asked.iter().filter(|other| other.line == one.line);
        let before = before.count();
        asked.push(one);
        self.changed.notify_all();
        before
    }
}

pub(crate) struct Broker {
    pub(crate) url: String,
    pub(crate) ca: String,
    seen: Arc<RequestLog>,
}

/// The usual answers: a prompt, and no content for reports.
pub(crate) fn usual(line: &str, _: usize) -> (u16, String) {
    match line {
        "GET /v1/run" => (200, r#"{"prompt":"PROMPT do it"}"#.to_owned()),
        "POST /v1/report" => (204, String::new()),
        _ => (404, String::new()),
    }
}

impl Broker {
    pub(crate) fn start(
        answers: impl Fn(&str, usize) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = rcgen::KeyPair::generate().unwrap();
        let name = vec!["127.0.0.1".to_owned()];
        let certificate = rcgen::CertificateParams::new(name).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let seen = Arc::<RequestLog>::default();
        let (counted, answers): (_, Arc<Answers>) = (Arc::clone(&seen), Arc::new(answers));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (config, seen) = (Arc::clone(&config), Arc::clone(&counted));
                let answers = Arc::clone(&answers);
                // Whoever goes away in the middle is no failure of the test.
                std::thread::spawn(move || serve(config, &stream?, &seen, &*answers));
            }
        });
        Self {
            url,
            ca: certificate.pem(),
            seen,
        }
    }

    pub(crate) fn asked(&self, line: &str) -> Vec<ReceivedRequest> {
        let asked = self.seen.asked.lock();
        asked
            .iter()
            .filter(|one| one.line == line)
            .cloned()
            .collect()
    }

    /// The bodies of the reports so far.
    pub(crate) fn reports(&self) -> Vec<String> {
        let asked = self.asked("POST /v1/report");
        asked.into_iter().map(|one| one.body).collect()
    }

    /// Waits for a report that has this in it.
    pub(crate) fn reported(&self, text: &str) {
        eventually(&format!("a report of {text}"), || {
            let reports = self.reports();
            match reports.iter().any(|body| body.contains(text)) {
                true => Ok(()),
                false => Err(format!("{reports:?}")),
            }
        });
    }

    /// Waits until so many requests with this line came.
    pub(crate) fn wait(&self, line: &str, count: usize) {
        let mut asked = self.seen.asked.lock();
        let too_few = |asked: &mut Vec<ReceivedRequest>| {
            asked.iter().filter(|one| one.line == line).count() < count
        };
        let changed = &self.seen.changed;
        let waited = changed.wait_while_for(&mut asked, too_few, DEADLINE);
        assert!(
            !waited.timed_out(),
            "{line} did not come {count} times: {asked:?}"
        );
    }

    pub(crate) fn token(directory: &Path) -> PathBuf {
        directory.join("token")
    }
}

fn serve(
    config: Arc<ServerConfig>,
    stream: &TcpStream,
    seen: &RequestLog,
    answers: &Answers,
) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, stream.try_clone()?));
    let (mut line, mut token, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut line)?;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => value.trim_start_matches("Bearer ").clone_into(&mut token),
            "content-length" => length = value.parse().map_err(std::io::Error::other)?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let line = line.trim().trim_end_matches(" HTTP/1.1").to_owned();
    let before = seen.add(ReceivedRequest {
        line: line.clone(),
        token,
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    let (status, body) = answers(&line, before);
    let length = body.len();
    write!(
        reader.get_mut(),
        "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )?;
    reader.get_mut().flush()
}
