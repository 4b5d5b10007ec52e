//! Downloads from a server of the test.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;

use super::*;

const fn module(name: &'static str, go_mod: &'static str) -> Module {
    Module {
        name,
        version: "1.2.3",
        packages: 0,
        takes: "",
        go_mod,
        go_sum: "",
        source: None,
        variables: &[],
    }
}

static KWOK: Module = module("kwok", "");
static KUBERNETES: Module = module(
    "Kubernetes",
    "\tgo.etcd.io/etcd/server/v3 v3.6.5 // indirect\n",
);
static OTHER: Module = module("Helm", "");

/// A response of the server: a body, or none at all.
enum Response {
    Body(Vec<u8>),
    Never,
}

/// A server that answers the end of an address, and records the requests. Its connections without a response stay open
/// until the process ends.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(responses: Vec<(&str, Response)>) -> Self {
        let responses = responses
            .into_iter()
            .map(|(end, response)| (end.to_owned(), response));
        let responses: BTreeMap<String, Response> = responses.collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming().flatten() {
                let path = read(&stream);
                seen.lock().push(path.clone());
                let found = responses.iter().find(|(end, _)| path.ends_with(*end));
                match found.map(|(_, response)| response) {
                    Some(Response::Body(body)) => write(stream, "200 OK", body),
                    Some(Response::Never) => open.push(stream),
                    None => write(stream, "404 Not Found", b""),
                }
            }
        });
        Self { port, requests }
    }

    /// Returns the rules of downloads from this server.
    fn downloads(&self, lock: String) -> Downloads {
        Downloads {
            lock,
            origin: format!("http://127.0.0.1:{}/", self.port),
            learns: false,
            is_disabled: false,
            connect_timeout: CONNECT_TIMEOUT,
            timeout: TIMEOUT,
        }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

/// Reads a request, and returns its path.
fn read(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let path = first.split_whitespace().nth(1);
    path.unwrap_or_default().to_owned()
}

fn write(mut stream: TcpStream, status: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
}

/// Returns the content of the lock file with the digest of a program.
fn locked(module: &Module, tool: Tool, content: &[u8]) -> String {
    let published = Published::find(module, tool, processor().unwrap()).unwrap();
    let bytes = Sha256::digest(content);
    let digest: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("# A comment.\n{digest}  {}\n", published.name)
}

/// Returns the downloaded programs with their contents.
fn fetch(downloads: &Downloads, module: &Module, tools: &[Tool]) -> Vec<(Tool, Vec<u8>)> {
    let cache = tempfile::tempdir().unwrap();
    let (scratch, fetched) = downloads.fetch(module, tools, cache.path()).unwrap();
    let content = |(tool, stamp): (Tool, String)| {
        assert_eq!(downloads.stamp(module, tool), Some(stamp));
        let path = output(scratch.path(), tool);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{path:?} is not executable");
        (tool, std::fs::read(path).unwrap())
    };
    fetched.into_iter().map(content).collect()
}

#[test]
fn program_with_locked_digest_is_used() {
    let server = Server::start(vec![("", Response::Body(b"kwok".to_vec()))]);
    let downloads = server.downloads(locked(&KWOK, Tool::Kwok, b"kwok"));
    let fetched = fetch(&downloads, &KWOK, &[Tool::Kwok]);
    assert_eq!(fetched, [(Tool::Kwok, b"kwok".to_vec())]);
    let processor = processor().unwrap();
    let path =
        format!("/github.com/kubernetes-sigs/kwok/releases/download/v1.2.3/kwok-linux-{processor}");
    assert_eq!(server.requests(), [path]);
}

#[test]
fn program_is_taken_from_its_archive() {
    let stem = format!("etcd-v3.6.5-linux-{}", processor().unwrap());
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in [("README.md", "text"), ("etcd", "program")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        let path = format!("{stem}/{name}");
        archive
            .append_data(&mut header, path, content.as_bytes())
            .unwrap();
    }
    let archive = archive.into_inner().unwrap().finish().unwrap();
    let lock = locked(&KUBERNETES, Tool::Etcd, &archive);
    let server = Server::start(vec![(".tar.gz", Response::Body(archive))]);
    let fetched = fetch(&server.downloads(lock), &KUBERNETES, &[Tool::Etcd]);
    assert_eq!(fetched, [(Tool::Etcd, b"program".to_vec())]);
}

#[test]
fn program_with_other_digest_is_refused() {
    let server = Server::start(vec![("", Response::Body(b"other".to_vec()))]);
    let downloads = server.downloads(locked(&KWOK, Tool::Kwok, b"kwok"));
    assert!(fetch(&downloads, &KWOK, &[Tool::Kwok]).is_empty());
    let published = Published::find(&KWOK, Tool::Kwok, processor().unwrap()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let program = file.path().with_extension("program");
    let refused = downloads.unpack(&published, file.path(), &program);
    let said = format!("{:#}", refused.unwrap_err());
    let expected = downloads.digest(&published.name).unwrap();
    assert!(
        said.contains(expected) && said.contains(LOCK_FILE),
        "{said}"
    );
    assert!(!program.exists());
}

#[test]
fn program_without_digest_is_downloaded_on_request_only_and_never_used() {
    let server = Server::start(vec![("", Response::Body(b"kwok".to_vec()))]);
    let mut downloads = server.downloads(String::new());
    assert!(fetch(&downloads, &KWOK, &[Tool::Kwok]).is_empty());
    assert_eq!(server.requests().len(), 0);

    downloads.learns = true;
    assert!(fetch(&downloads, &KWOK, &[Tool::Kwok]).is_empty());
    assert_eq!(server.requests().len(), 1);

    let published = Published::find(&KWOK, Tool::Kwok, processor().unwrap()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"kwok").unwrap();
    let refused = downloads.unpack(
        &published,
        file.path(),
        &file.path().with_extension("program"),
    );
    let said = format!("{:#}", refused.unwrap_err());
    // The line that the message prints is that of the lock file.
    let line = locked(&KWOK, Tool::Kwok, b"kwok");
    let line = line.lines().last().unwrap().to_owned();
    assert!(said.ends_with(&line), "{said}");
}

#[test]
fn server_without_response_is_given_up_with_the_programs_after_it() {
    let server = Server::start(vec![("", Response::Never)]);
    let tools = [Tool::ApiServer, Tool::Scheduler];
    let lock: String = tools.map(|tool| locked(&KUBERNETES, tool, b"a")).concat();
    let downloads = Downloads {
        timeout: Duration::from_secs(1),
        ..server.downloads(lock)
    };
    assert!(fetch(&downloads, &KUBERNETES, &tools).is_empty());
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn programs_before_a_failure_are_used() {
    let server = Server::start(vec![("kube-apiserver", Response::Body(b"a".to_vec()))]);
    let tools = [Tool::ApiServer, Tool::Scheduler];
    let lock: String = tools.map(|tool| locked(&KUBERNETES, tool, b"a")).concat();
    let fetched = fetch(&server.downloads(lock), &KUBERNETES, &tools);
    assert_eq!(fetched, [(Tool::ApiServer, b"a".to_vec())]);
}

#[test]
fn closed_port_is_a_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let server = Server {
        port,
        requests: Arc::default(),
    };
    let downloads = server.downloads(locked(&KWOK, Tool::Kwok, b"kwok"));
    assert!(fetch(&downloads, &KWOK, &[Tool::Kwok]).is_empty());
}

#[test]
fn disabled_downloads_connect_to_no_server() {
    let server = Server::start(vec![("", Response::Body(b"kwok".to_vec()))]);
    let downloads = Downloads {
        is_disabled: true,
        ..server.downloads(locked(&KWOK, Tool::Kwok, b"kwok"))
    };
    assert!(fetch(&downloads, &KWOK, &[Tool::Kwok]).is_empty());
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn stamp_follows_digest_and_only_published_programs_have_one() {
    let server = Server::start(Vec::new());
    let stamp = |content: &[u8]| {
        let downloads = server.downloads(locked(&KWOK, Tool::Kwok, content));
        downloads.stamp(&KWOK, Tool::Kwok)
    };
    assert!(stamp(b"a").is_some());
    assert_ne!(stamp(b"a"), stamp(b"b"));
    assert_ne!(stamp(b"a"), Some(KWOK.stamp(Tool::Kwok)));
    let downloads = server.downloads(locked(&KWOK, Tool::Kwok, b"a"));
    assert_eq!(downloads.stamp(&KUBERNETES, Tool::ApiServer), None);
    assert_eq!(downloads.stamp(&OTHER, Tool::Helm), None);
}

/// The lock file of the repository is valid: every line is a digest and the name of a program that is published.
#[test]
fn lock_file_has_digests_of_published_programs() {
    let downloads = Downloads::from_environment();
    for line in downloads.lock.lines().filter(|line| !line.starts_with('#')) {
        let (digest, name) = line.split_once("  ").unwrap();
        let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        assert!(
            digest.len() == 64 && digest.bytes().all(is_hexadecimal),
            "{line}"
        );
        assert!(!name.is_empty() && name.contains("-linux-"), "{line}");
    }
    assert_eq!(downloads.connect_timeout, Duration::from_secs(5));
    assert_eq!(downloads.timeout, Duration::from_mins(1));
}
