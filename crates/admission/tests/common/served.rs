//! A server on a real socket, without a cluster.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use oz_admission::{
    CancellationToken, CertSource, Cx, Error, Hook, ManagerBuilder, Notes, RegistrationMode,
    Rejection, Review, Validate,
};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::{io::AsyncReadExt, net::TcpStream, task::JoinHandle};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::ServiceExt;

use super::{manager, pod, review_of};

pub const LONG: Duration = Duration::from_secs(30);

pub struct Yes;

impl Validate for Yes {
    type Object = Pod;

    async fn validate(&self, _: &Cx, _: &Review<Pod>) -> Result<Notes, Rejection> {
        Ok(Notes::none())
    }
}

/// A manager that serves with a certificate from files.
pub struct Served {
    pub address: SocketAddr,
    pub root: CertificateDer<'static>,
    pub plain: axum::Router,
    pub shutdown: CancellationToken,
    pub abort: CancellationToken,
    pub ended: JoinHandle<Result<(), Error>>,
    pub files: tempfile::TempDir,
}

/// Writes a certificate for the loopback address to the place where a manager reads it.
pub fn write_certificate(directory: &std::path::Path) -> CertificateDer<'static> {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
    std::fs::write(directory.join("tls.crt"), certificate.pem()).unwrap();
    certificate.der().clone()
}

impl Served {
    pub async fn start(builder: ManagerBuilder) -> Self {
        let files = tempfile::tempdir().unwrap();
        let root = write_certificate(files.path());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let manager = builder
            .listener(listener)
            .certificates(CertSource::Files {
                dir: files.path().to_owned(),
            })
            .registration(RegistrationMode::Never)
            .build()
            .unwrap();
        let plain = manager.plain_router();
        let (shutdown, abort) = (CancellationToken::new(), CancellationToken::new());
        let run = manager.run_until(
            shutdown.clone().cancelled_owned(),
            abort.clone().cancelled_owned(),
        );
        let served = Self {
            address,
            root,
            plain,
            shutdown,
            abort,
            ended: tokio::spawn(run),
            files,
        };
        served.until_ready(true).await;
        served
    }

    pub async fn ready(&self) -> bool {
        let request = Request::get("/readyz")
            .body(axum::body::Body::empty())
            .unwrap();
        self.plain.clone().oneshot(request).await.unwrap().status() == 200
    }

    pub async fn until_ready(&self, wanted: bool) {
        let began = Instant::now();
        while self.ready().await != wanted {
            assert!(began.elapsed() < LONG, "readiness is never {wanted}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn connect(
        &self,
        protocol: &[u8],
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> TlsStream<TcpStream> {
        self.connect_with(protocol, versions, &self.root)
            .await
            .unwrap()
    }

    pub async fn connect_with(
        &self,
        protocol: &[u8],
        versions: &[&'static rustls::SupportedProtocolVersion],
        root: &CertificateDer<'static>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        connect(self.address, protocol, versions, root).await
    }

    pub async fn connect1(&self) -> TlsStream<TcpStream> {
        self.connect(b"http/1.1", rustls::ALL_VERSIONS).await
    }

    pub async fn metric(&self, line: &str) -> bool {
        let request = Request::get("/metrics")
            .body(axum::body::Body::empty())
            .unwrap();
        let response = self.plain.clone().oneshot(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8_lossy(&body)
            .lines()
            .any(|found| found == line)
    }
}

/// Performs a handshake with the server at `address`.
pub async fn connect(
    address: SocketAddr,
    protocol: &[u8],
    versions: &[&'static rustls::SupportedProtocolVersion],
    root: &CertificateDer<'static>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

pub fn yes() -> ManagerBuilder {
    manager("acme")
        .hook(Hook::validating("yes", Yes))
        .drain(Duration::ZERO)
}

pub fn request(path: &str) -> Request<Full<Bytes>> {
    let body = serde_json::to_vec(&review_of(&pod())).unwrap();
    Request::post(path)
        .header("host", "127.0.0.1")
        .body(Full::new(body.into()))
        .unwrap()
}

pub async fn call1(
    stream: TlsStream<TcpStream>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, hyper::Error> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.send_request(request).await
}

/// Reads until the peer closes.
pub async fn read_to_end(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    // A connection that is dropped instead of closed ends in an error; the bytes before it count.
    let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut bytes))
        .await
        .expect("still open");
    String::from_utf8_lossy(&bytes).into_owned()
}
