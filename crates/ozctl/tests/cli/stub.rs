//! An API server that answers from a table, and records the requests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{self, Child, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use assert_cmd::Command;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The timeout of a program that the test waits for.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// A request to the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedRequest {
    /// Method and path, without the query.
    pub(crate) what: String,
    /// The query.
    pub(crate) query: String,
    /// The headers, by names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl ReceivedRequest {
    /// Returns a header; empty if it was not sent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// The code and the body of a response.
pub(crate) type Answer = (u16, Value);

/// A function that takes a connection over, if the response is not in one piece.
pub(crate) type Stream = dyn Fn(&ReceivedRequest, &TcpStream) -> bool + Send + Sync;

/// The additional behaviour of a server.
#[derive(Default)]
struct More {
    stream: Option<Arc<Stream>>,
    date: Option<String>,
}

/// A server at a port of this machine, for the lifetime of the process.
pub(crate) struct Stub {
    pub(crate) address: SocketAddr,
    pub(crate) directory: tempfile::TempDir,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    more: Arc<Mutex<More>>,
}

impl Stub {
    pub(crate) fn start(
        answer: impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let answer = Arc::new(answer);
        let more = Arc::new(Mutex::new(More::default()));
        let does = Arc::clone(&more);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                let does = Arc::clone(&does);
                std::thread::spawn(move || serve(stream, &seen, &*answer, &does));
            }
        });
        Self {
            address,
            directory: tempfile::tempdir().unwrap(),
            asked,
            more,
        }
    }

    /// Has some responses written piece by piece.
    pub(crate) fn streams(
        &self,
        stream: impl Fn(&ReceivedRequest, &TcpStream) -> bool + Send + Sync + 'static,
    ) {
        self.more.lock().stream = Some(Arc::new(stream));
    }

    /// Adds a date to every response.
    pub(crate) fn dates(&self, date: &str) {
        self.more.lock().date = Some(date.to_owned());
    }

    /// Returns all requests so far.
    pub(crate) fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().clone()
    }

    /// Writes a kubeconfig of one context, `here`: this server, in namespace shop, as `user`.
    pub(crate) fn kubeconfig(&self, user: &Value) -> PathBuf {
        let server = json!({"server": format!("http://{}", self.address)});
        self.write("kubeconfig", &config("here", &server, user, "shop"))
    }

    pub(crate) fn write(&self, name: &str, content: &Value) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path
    }

    /// Returns `ozctl` as alice, who reaches this server.
    pub(crate) fn ozctl(&self, words: &[&str]) -> Command {
        let kubeconfig = self.kubeconfig(&json!({"token": "alices"}));
        let mut command = ozctl(words);
        command.env("KUBECONFIG", kubeconfig);
        command
    }

    /// Returns the command for a child that the test communicates with while it runs, without
    /// input.
    pub(crate) fn command(&self, words: &[&str]) -> process::Command {
        let mut command = process::Command::new(env!("CARGO_BIN_EXE_ozctl"));
        command
            .args(words)
            .env_clear()
            .env("KUBECONFIG", self.kubeconfig(&json!({"token": "alices"})))
            .env("USER", "alice")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// Sends a signal to the process of this id.
pub(crate) fn send(id: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Returns the output of a child, which ends before the timeout.
pub(crate) fn finished(child: Child) -> Output {
    let id = child.id();
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    let in_time = told.recv_timeout(TIMEOUT);
    let late = in_time.is_err().then(|| {
        send(id, Signal::KILL);
        told.recv()
    });
    assert!(
        late.is_none(),
        "it did not end within {TIMEOUT:?}: {late:?}"
    );
    in_time.unwrap().unwrap()
}

/// Returns the exit code of a child, and its standard error.
pub(crate) fn ended(child: Child) -> (Option<i32>, String) {
    let output = finished(child);
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}

/// Returns the lines that a child writes to standard output. Each arrives before the timeout.
pub(crate) fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let (tell, told) = channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in stdout.lines() {
            if tell.send(line.unwrap()).is_err() {
                break;
            }
        }
    });
    std::iter::from_fn(move || {
        let line = told.recv_timeout(TIMEOUT);
        let late = Err(RecvTimeoutError::Timeout);
        assert!(line != late, "no line came within {TIMEOUT:?}");
        line.ok()
    })
}

/// Returns `ozctl` without the environment of this machine.
pub(crate) fn ozctl(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ozctl"));
    command
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("USER", "alice")
        .timeout(TIMEOUT);
    command
}

/// Returns a kubeconfig with one cluster, user and context, all of one name.
pub(crate) fn config(name: &str, cluster: &Value, user: &Value, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{
            "name": name,
            "context": {"cluster": name, "user": name, "namespace": namespace},
        }],
    })
}

/// Returns a denial in the format of Kubernetes.
pub(crate) fn status(code: u16, message: &str) -> Answer {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "message": message, "reason": "", "code": code,
    });
    (code, body)
}

/// Serves one connection, until it ends.
fn serve(
    stream: TcpStream,
    seen: &Mutex<Vec<ReceivedRequest>>,
    answer: &dyn Fn(&ReceivedRequest) -> Answer,
    more: &Mutex<More>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(asked) = read(&mut reader) {
        seen.lock().push(asked.clone());
        let stream = more.lock().stream.clone();
        if stream.is_some_and(|stream| stream(&asked, &writer)) {
            return;
        }
        let (code, body) = answer(&asked);
        let body = format!("{body}\n");
        let date = more.lock().date.clone();
        let date = date.map_or_else(String::new, |date| format!("date: {date}\r\n"));
        let head = format!(
            "HTTP/1.1 {code} Told\r\ncontent-type: application/json\r\n{date}content-length: \
             {}\r\n\r\n",
            body.len()
        );
        if writer.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<ReceivedRequest> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut first = lines.first()?.split(' ');
    let (method, target) = (first.next()?, first.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: BTreeMap<String, String> = lines
        .iter()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length");
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(ReceivedRequest {
        what: format!("{method} {path}"),
        query: query.to_owned(),
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}
