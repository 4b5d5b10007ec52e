//! Connections to the hosts that requests are for. The proxy resolves the name itself, connects only to addresses that
//! runs may reach, and verifies the certificate for the name.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use http::StatusCode;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use oz_api::harness::wire::EgressReason;
use oz_egress::address::is_of_names;
use oz_egress::request::Route;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::network::Network;

/// The timeout of resolving a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of attempts to get an answer that is not one of the pod's own name server.
const LOOKUPS: usize = 4;
/// The timeout of connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of addresses of a name that the proxy tries.
const MAX_ADDRESSES: usize = 4;
/// The time after which the kernel checks whether a silent peer still exists.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// The maximum size of the head of a request or a response in bytes. Buffers of bodies are at most as large.
pub(crate) const MAX_HEAD: usize = 32 * 1024;

/// The reason why there is no connection to a host.
#[derive(Debug)]
pub(crate) struct Unreachable {
    pub(crate) status: StatusCode,
    pub(crate) reason: EgressReason,
    pub(crate) message: String,
}

impl Unreachable {
    fn new(reason: EgressReason, message: String) -> Self {
        Self {
            status: StatusCode::BAD_GATEWAY,
            reason,
            message,
        }
    }
}

/// A connection to a host. It closes when it is dropped.
pub(crate) struct Upstream {
    pub(crate) route: Route,
    pub(crate) sender: SendRequest<Incoming>,
    _driver: AbortOnDropHandle<()>,
}

/// The certificate authorities that the proxy trusts, which change with the grants.
#[derive(Default)]
pub(crate) struct Trust {
    current: Mutex<Option<(String, TlsConnector)>>,
}

impl Trust {
    /// Returns the TLS client that trusts the public authorities and these (PEM).
    ///
    /// # Errors
    /// When the PEM has a certificate that cannot be read.
    pub(crate) fn client(&self, certificates: &str) -> Result<TlsConnector> {
        let mut current = self.current.lock();
        if let Some((trusted, client)) = &*current
            && trusted == certificates
        {
            return Ok(client.clone());
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
        for certificate in CertificateDer::pem_slice_iter(certificates.as_bytes()) {
            let certificate = certificate.context("harness.upstreamCA is not PEM")?;
            roots
                .add(certificate)
                .context("a certificate in harness.upstreamCA is not usable")?;
        }
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let client = TlsConnector::from(Arc::new(config));
        *current = Some((certificates.to_owned(), client.clone()));
        Ok(client)
    }
}

/// Connects to the host of a route: over TLS with this client, or without.
///
/// # Errors
/// The reason why there is no connection.
pub(crate) async fn connect(
    network: &impl Network,
    tls: Option<&TlsConnector>,
    route: &Route,
) -> Result<Upstream, Unreachable> {
    let addresses = resolve(network, route).await?;
    let failed = |error: anyhow::Error| {
        let message = format!(
            "failed to reach {}:{}: {error:#}; check the host and its certificate",
            route.host, route.port
        );
        Unreachable::new(EgressReason::Upstream, message)
    };
    let stream = dial(&addresses).await.map_err(failed)?;
    let connected = match tls {
        None => handshake(stream).await,
        Some(tls) => match secure(tls, &route.host, stream).await {
            Ok(stream) => handshake(stream).await,
            Err(error) => Err(error),
        },
    };
    let (sender, driver) = connected.map_err(failed)?;
    Ok(Upstream {
        route: route.clone(),
        sender,
        _driver: driver,
    })
}

/// Returns the addresses of a host that runs may reach.
async fn resolve(network: &impl Network, route: &Route) -> Result<Vec<SocketAddr>, Unreachable> {
    let Route { host, port } = route;
    let found = match timeout(LOOKUP_TIMEOUT, lookup(network, host, *port)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            let message = format!("failed to resolve {host}: {error}; check the name");
            return Err(Unreachable::new(EgressReason::Address, message));
        }
        Err(_) => {
            let message = format!("failed to resolve {host}: no response in {LOOKUP_TIMEOUT:?}");
            return Err(Unreachable::new(EgressReason::Address, message));
        }
    };
    let mut refused = None;
    let mut fine = Vec::new();
    for address in found {
        match network.check(host, address.ip()) {
            Ok(()) if fine.len() < MAX_ADDRESSES => fine.push(address),
            Ok(()) => {}
            Err(why) => refused = Some(why),
        }
    }
    match refused {
        _ if !fine.is_empty() => Ok(fine),
        None => {
            let message = format!("failed to resolve {host}: it has no address; check the name");
            Err(Unreachable::new(EgressReason::Address, message))
        }
        Some(why) => Err(Unreachable {
            status: StatusCode::FORBIDDEN,
            reason: EgressReason::Address,
            message: format!(
                "{host} has no address that runs may reach: {why}; a run reaches public addresses only"
            ),
        }),
    }
}

/// Returns the addresses of a host. Asks again if the answer is one of the pod's own name server: the kernel redirects a
/// question from a port from which the agent asked a moment ago, since the NAT of a UDP flow outlives its socket.
async fn lookup(network: &impl Network, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    for _ in 0..LOOKUPS {
        found = network.lookup(host, port).await?;
        if !found.iter().any(|address| is_of_names(address.ip())) {
            break;
        }
    }
    Ok(found)
}

async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream> {
    let mut last = anyhow!("no address");
    for address in addresses {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
                rustix::net::sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = anyhow!(error).context(format!("{address}")),
            Err(_) => {
                last = anyhow!("{address} did not accept the connection in {CONNECT_TIMEOUT:?}")
            }
        }
    }
    Err(last)
}

async fn secure(
    tls: &TlsConnector,
    host: &str,
    stream: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned())?;
    timeout(HANDSHAKE_TIMEOUT, tls.connect(name, stream))
        .await
        .with_context(|| format!("no TLS handshake in {HANDSHAKE_TIMEOUT:?}"))?
        .context("the TLS handshake failed")
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<(SendRequest<Incoming>, AbortOnDropHandle<()>)> {
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await?;
    let driver = tokio::spawn(async {
        // A failure is one of the request, too.
        let _ = connection.with_upgrades().await;
    });
    Ok((sender, AbortOnDropHandle::new(driver)))
}
