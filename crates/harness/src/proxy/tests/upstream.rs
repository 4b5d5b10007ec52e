//! A host for tests, over TLS and plain HTTP: it remembers the requests, echoes bodies, switches to another protocol, and
//! writes event streams.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

pub(super) type Body = BoxBody<Bytes, hyper::Error>;

/// The certificate of a host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Certificate {
    Valid,
    Expired,
    OtherName,
    SelfSigned,
}

#[derive(Default)]
pub(super) struct UpstreamState {
    pub(super) heads: Mutex<Vec<Parts>>,
    /// The number of connections.
    pub(super) connections: Mutex<usize>,
    /// The reader of the next event stream.
    pub(super) events: Mutex<Option<mpsc::Receiver<Bytes>>>,
}

pub(super) struct FakeUpstream {
    pub(super) address: SocketAddr,
    pub(super) plain: SocketAddr,
    /// The certificate of its authority.
    pub(super) ca: String,
    pub(super) seen: Arc<UpstreamState>,
}

impl FakeUpstream {
    pub(super) async fn start(host: &str, certificate: Certificate) -> Self {
        let (config, ca) = config(host, certificate);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let seen = Arc::new(UpstreamState::default());
        let secure = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Self {
            address: secure.local_addr().unwrap(),
            plain: plain.local_addr().unwrap(),
            ca,
            seen: Arc::clone(&seen),
        };
        let seen_plain = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (stream, _) = secure.accept().await.unwrap();
                let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, seen).await;
                    }
                });
            }
        });
        tokio::spawn(async move {
            loop {
                let (stream, _) = plain.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&seen_plain)));
            }
        });
        upstream
    }

    pub(super) fn header(&self, name: &str) -> Option<String> {
        let heads = self.seen.heads.lock();
        let value = heads.last().and_then(|head| head.headers.get(name));
        value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    pub(super) fn requests(&self) -> usize {
        self.seen.heads.lock().len()
    }
}

fn config(host: &str, certificate: Certificate) -> (ServerConfig, String) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    let name = rcgen::DnType::CommonName;
    authority
        .distinguished_name
        .push(name, "authority of a host");
    authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let name = match certificate {
        Certificate::OtherName => "other.example.com",
        _ => host,
    };
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    if matches!(certificate, Certificate::Expired) {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    let leaf: CertificateDer<'static> = match certificate {
        Certificate::SelfSigned => params.self_signed(&key).unwrap().into(),
        _ => params.signed_by(&key, &issuer).unwrap().into(),
    };
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![leaf], private)
        .unwrap();
    (config, ca)
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    seen: Arc<UpstreamState>,
) {
    *seen.connections.lock() += 1;
    let service = service_fn(|request| {
        let seen = Arc::clone(&seen);
        async move { Ok::<_, Infallible>(answer(&seen, request)) }
    });
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ = served.with_upgrades().await;
}

fn answer(seen: &UpstreamState, mut request: Request<Incoming>) -> Response<Body> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    seen.heads.lock().push(head.clone());
    match head.uri.path() {
        "/echo" => Response::new(body.boxed()),
        "/events" => {
            let events = seen.events.lock().take().unwrap();
            let stream = futures::stream::unfold(events, |mut events| async {
                let event = events.recv().await?;
                Some((Ok(Frame::data(event)), events))
            });
            let mut response = Response::new(StreamBody::new(stream).boxed());
            let kind = "text/event-stream".parse().unwrap();
            response.headers_mut().insert("content-type", kind);
            response
        }
        "/ws" => {
            tokio::spawn(async move {
                let upgraded = upgrade.await.unwrap();
                let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
            let mut response = text("");
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = response.headers_mut();
            headers.insert("connection", "upgrade".parse().unwrap());
            headers.insert("upgrade", "websocket".parse().unwrap());
            response
        }
        _ => text("hello"),
    }
}

fn text(text: &'static str) -> Response<Body> {
    let body = Full::new(Bytes::from_static(text.as_bytes()));
    Response::new(body.map_err(|never| match never {}).boxed())
}
