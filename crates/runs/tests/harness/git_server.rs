//! An https git server for tests of seeds: git's own program behind TLS with a new authority, and a list of all
//! requests. It is in a separate file as it contains no tests.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The user with access to `/private`.
pub(crate) const USER: &str = "builder";
/// The password of that user.
pub(crate) const PASSWORD: &str = "pa55 w0rd/@:é";

/// A request to the server.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

/// A server; it ends with the process.
pub(crate) struct GitServer {
    address: SocketAddr,
    authority: String,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// The content of a server.
struct Served {
    /// Folder with the repositories.
    root: PathBuf,
    /// The base URL of redirects below `/moved`.
    moved_to: Option<String>,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl GitServer {
    /// Serves the repositories in a folder. Below `/private` they require the user and password; `/moved` redirects to
    /// `moved_to`; `/plain` serves files without the git protocol.
    pub(crate) fn start(root: &Path, moved_to: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (config, authority) = tls(address);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let served = Arc::new(Served {
            root: root.to_owned(),
            moved_to,
            asked: Arc::clone(&asked),
        });
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (socket, served, config) =
                    (socket.unwrap(), Arc::clone(&served), Arc::clone(&config));
                thread::spawn(move || drop(served.answer(socket, config)));
            }
        });
        Self {
            address,
            authority,
            asked,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/{path}", self.address.port())
    }

    /// The certificate by which it is known.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().clone()
    }
}

fn tls(address: SocketAddr) -> (Arc<ServerConfig>, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    // Of two with one name, clients may look at the wrong one.
    let name = format!("the authority of {address}");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (Arc::new(config), authority.pem())
}

struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        let found = all.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

type Stream = StreamOwned<ServerConnection, TcpStream>;

fn read(stream: Stream) -> std::io::Result<(Request, Stream)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(ToOwned::to_owned);
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request {
        method,
        target,
        headers,
        body: Vec::new(),
    };
    let length = request
        .header("content-length")
        .map_or(0, |it| it.parse().unwrap());
    request.body = vec![0; length];
    reader.read_exact(&mut request.body)?;
    Ok((request, reader.into_inner()))
}

impl Served {
    fn answer(&self, socket: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<()> {
        let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
        let (request, mut stream) = read(StreamOwned::new(connection, socket))?;
        let (path, query) = request
            .target
            .split_once('?')
            .unwrap_or((&request.target, ""));
        self.asked.lock().push(ReceivedRequest {
            path: path.to_owned(),
            authorization: request.header("authorization").map(ToOwned::to_owned),
        });
        let (head, body) = self.said(&request, path, query);
        write!(stream, "HTTP/1.1 {head}\r\nConnection: close\r\n")?;
        write!(stream, "Content-Length: {}\r\n\r\n", body.len())?;
        stream.write_all(&body)?;
        stream.conn.send_close_notify();
        stream.flush()
    }

    /// The status and further headers, and the content.
    fn said(&self, request: &Request, path: &str, query: &str) -> (String, Vec<u8>) {
        if let Some(rest) = path.strip_prefix("/moved") {
            let to = self.moved_to.as_deref().unwrap_or_default();
            let head = format!("302 Found\r\nLocation: {to}{rest}?{query}");
            return (head, Vec::new());
        }
        if let Some(rest) = path.strip_prefix("/plain") {
            return match fs::read(self.root.join(rest.trim_start_matches('/'))) {
                Ok(content) => ("200 OK\r\nContent-Type: text/plain".to_owned(), content),
                Err(_) => ("404 Not Found".to_owned(), Vec::new()),
            };
        }
        if let Some(rest) = path.strip_prefix("/private") {
            let known = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
            if request.header("authorization") != Some(&format!("Basic {known}")) {
                let head = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"";
                return (head.to_owned(), Vec::new());
            }
            return self.by_git(request, rest, query);
        }
        self.by_git(request, path, query)
    }

    fn by_git(&self, request: &Request, path: &str, query: &str) -> (String, Vec<u8>) {
        let header = |name: &str| request.header(name).unwrap_or_default().to_owned();
        let mut process = Command::new("git")
            .arg("http-backend")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("GIT_PROTOCOL", header("git-protocol"))
            .env("PATH_INFO", path)
            .env("QUERY_STRING", query)
            .env("REQUEST_METHOD", &request.method)
            .env("CONTENT_TYPE", header("content-type"))
            .env("CONTENT_LENGTH", request.body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        process
            .stdin
            .take()
            .unwrap()
            .write_all(&request.body)
            .unwrap();
        let output = process.wait_with_output().unwrap().stdout;
        let end = output.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = output.split_at(end.unwrap());
        let head = String::from_utf8(head.to_vec()).unwrap();
        let (status, rest): (Vec<_>, Vec<_>) =
            head.lines().partition(|line| line.starts_with("Status: "));
        let status = status
            .first()
            .map_or("200 OK", |line| &line["Status: ".len()..]);
        let head = [&[status], rest.as_slice()].concat().join("\r\n");
        (head, body[4..].to_vec())
    }
}
