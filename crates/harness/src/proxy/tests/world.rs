//! The proxy with a broker, a host, and a network in which loopback is public.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use oz_api::harness::wire::{
    CredentialPlace, HostGrant, InjectedCredential, LentCredential, RunGrants,
};
use oz_egress::address::Denied;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::broker::FakeBroker;
use super::upstream::{Certificate, FakeUpstream};
use crate::broker::Broker;
use crate::proxy::Proxy;
use crate::proxy::authority::Authority;
use crate::proxy::listen::accept;
use crate::proxy::network::{Network, PodNetwork};

pub(super) const HOST: &str = "api.example.com";
pub(super) const PLACEHOLDER: &str = "pdk-0123456789abcdef0123456789abcdef0123456789abcdef";
pub(super) const KEY: &str = "the-real-key";

/// The answers of a test's network.
pub(super) struct Answers {
    pub(super) destination: io::Result<SocketAddr>,
    /// The addresses of names: one list for each lookup, the last one for all further ones.
    pub(super) names: HashMap<String, Vec<Vec<SocketAddr>>>,
    /// The lookups so far.
    pub(super) lookups: Vec<String>,
}

pub(super) struct TestNetwork {
    answers: Arc<Mutex<Answers>>,
    real: PodNetwork,
}

impl Network for TestNetwork {
    fn destination(&self, _: &TcpStream) -> io::Result<SocketAddr> {
        match &self.answers.lock().destination {
            Ok(address) => Ok(*address),
            Err(error) => Err(error.kind().into()),
        }
    }

    async fn lookup(&self, host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        let mut answers = self.answers.lock();
        answers.lookups.push(host.to_owned());
        let Some(lists) = answers.names.get_mut(host) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        Ok(match lists.len() {
            0 | 1 => lists.first().cloned().unwrap_or_default(),
            _ => lists.remove(0),
        })
    }

    fn check(&self, host: &str, address: IpAddr) -> Result<(), String> {
        match address {
            IpAddr::V4(Ipv4Addr::LOCALHOST) => Ok(()),
            _ => self.real.check(host, address),
        }
    }
}

pub(super) struct World {
    pub(super) proxy: Arc<Proxy<TestNetwork>>,
    pub(super) address: SocketAddr,
    pub(super) broker: FakeBroker,
    pub(super) upstream: FakeUpstream,
    pub(super) answers: Arc<Mutex<Answers>>,
    _tasks: JoinSet<()>,
    _directory: TempDir,
}

pub(super) fn header_place() -> CredentialPlace {
    CredentialPlace::Header {
        name: "authorization".to_owned(),
        prefix: "Bearer ".to_owned(),
    }
}

pub(super) fn lent(value: &str, version: &str) -> LentCredential {
    LentCredential {
        value: value.to_owned(),
        version: version.to_owned(),
        seconds: 300,
    }
}

/// Grants of one host on 443 and 80, with one credential.
pub(super) fn grants(ca: &str) -> RunGrants {
    RunGrants {
        digest: "d".to_owned(),
        hosts: vec![HostGrant {
            host: HOST.to_owned(),
            ports: vec![80, 443],
        }],
        credentials: vec![InjectedCredential {
            name: "API_KEY".to_owned(),
            placeholder: PLACEHOLDER.to_owned(),
            hosts: vec![HOST.to_owned()],
            place: header_place(),
            version: "1".to_owned(),
        }],
        certificates: ca.to_owned(),
    }
}

impl World {
    pub(super) async fn start() -> Self {
        Self::with(Certificate::Valid).await
    }

    pub(super) async fn with(certificate: Certificate) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let upstream = FakeUpstream::start(HOST, certificate).await;
        let fake = FakeBroker::start(grants(&upstream.ca)).await;
        fake.state
            .values
            .lock()
            .insert("API_KEY".to_owned(), lent(KEY, "1"));
        let directory = tempfile::tempdir().unwrap();
        let token = FakeBroker::token(directory.path());
        let broker = Broker::new(&fake.url, &fake.ca, &token).unwrap();
        let answers = Arc::new(Mutex::new(Answers {
            destination: Ok(SocketAddr::from(([198, 18, 0, 1], 443))),
            names: HashMap::from([(HOST.to_owned(), vec![vec![upstream.address]])]),
            lookups: Vec::new(),
        }));
        let network = TestNetwork {
            answers: Arc::clone(&answers),
            real: PodNetwork::new(Denied::parse("203.0.113.0/24").unwrap()),
        };
        let authority = Authority::open(directory.path(), "team/hello").unwrap();
        let own = vec![IpAddr::from([10, 0, 0, 7])];
        let proxy = Arc::new(Proxy::new(network, broker, authority, own).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(Arc::clone(&proxy), listener));
        let following = Arc::clone(&proxy);
        tasks.spawn(async move { following.follow(|_| {}).await });
        let reporting = Arc::clone(&proxy);
        tasks.spawn(async move { reporting.report().await });
        proxy.grants.current().await.unwrap();
        Self {
            proxy,
            address,
            broker: fake,
            upstream,
            answers,
            _tasks: tasks,
            _directory: directory,
        }
    }

    /// Sends further connections to this port, of any address.
    pub(super) fn set_port(&self, port: u16) {
        self.set_destination([198, 18, 0, 1], port);
    }

    pub(super) fn set_destination(&self, address: [u8; 4], port: u16) {
        self.answers.lock().destination = Ok(SocketAddr::from((address, port)));
    }

    pub(super) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Connects as an agent that trusts the proxy's authority.
    pub(super) async fn tls(&self, host: &str) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let authority = self.proxy.acceptor.authority().certificate().clone();
        roots.add(authority).unwrap();
        self.tls_with(host, roots, &[]).await
    }

    pub(super) async fn tls_with(
        &self,
        host: &str,
        roots: RootCertStore,
        alpn: &[&str],
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, self.tcp().await).await
    }

    /// Opens a connection for requests to a host.
    pub(super) async fn client(&self, host: &str) -> Client {
        Client::new(self.tls(host).await.unwrap()).await
    }

    /// Opens a connection without TLS.
    pub(super) async fn plain_client(&self) -> Client {
        self.set_port(80);
        let plain = self.upstream.plain;
        let names = HashMap::from([(HOST.to_owned(), vec![vec![plain]])]);
        self.answers.lock().names = names;
        Client::new(self.tcp().await).await
    }
}

/// A connection of an agent.
pub(super) struct Client {
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// Ends with the connection.
    pub(super) ended: tokio::task::JoinHandle<()>,
}

impl Client {
    pub(super) async fn new(
        stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let ended = tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Self { sender, ended }
    }

    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.try_send(request).await.unwrap()
    }

    pub(super) async fn try_send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }

    /// Sends a request with the placeholder.
    pub(super) async fn ask(&mut self) -> (StatusCode, String) {
        let request = get("/").header("authorization", format!("Bearer {PLACEHOLDER}"));
        read(self.send(request.body(Full::default()).unwrap()).await).await
    }
}

pub(super) fn get(path: &str) -> http::request::Builder {
    Request::get(path).header("host", HOST)
}

pub(super) async fn read(response: Response<Incoming>) -> (StatusCode, String) {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}
