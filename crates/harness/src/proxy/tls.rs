//! The TLS server of the proxy: with a certificate for the host that the client named, signed by the authority that the
//! agent trusts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::authority::Authority;
use super::prefixed::Prefixed;

/// The protocol that the proxy speaks.
pub(crate) const HTTP: &[u8] = b"http/1.1";
/// The timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The description of a fatal alert ([RFC 8446, 6.2](https://www.rfc-editor.org/rfc/rfc8446#section-6.2)).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Alert {
    HandshakeFailure = 40,
    AccessDenied = 49,
    InternalError = 80,
    NoApplicationProtocol = 120,
}

/// The certificate of one connection.
#[derive(Debug)]
struct Fixed(Arc<CertifiedKey>);

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// The TLS server.
pub(crate) struct Acceptor {
    authority: Authority,
    /// The settings of all connections; each has another certificate.
    config: ServerConfig,
}

impl Acceptor {
    pub(crate) fn new(authority: Authority) -> Result<Self> {
        let leaf = Fixed(authority.leaf("localhost")?);
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(leaf));
        config.alpn_protocols = vec![HTTP.to_vec()];
        // A client may resume a session only with the name of that session.
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()
            .context("failed to make the key of session tickets")?;
        config.send_tls13_tickets = 1;
        Ok(Self { authority, config })
    }

    /// Serves TLS for a host.
    ///
    /// # Errors
    /// When the client does not complete the handshake: for example, since it does not trust the authority.
    pub(crate) async fn accept(&self, host: &str, stream: Prefixed) -> Result<TlsStream<Prefixed>> {
        let mut config = self.config.clone();
        config.cert_resolver = Arc::new(Fixed(self.authority.leaf(host)?));
        let accepted = TlsAcceptor::from(Arc::new(config)).accept(stream);
        let accepted = timeout(HANDSHAKE_TIMEOUT, accepted).await;
        accepted
            .with_context(|| format!("no TLS handshake in {HANDSHAKE_TIMEOUT:?}"))?
            .context("the TLS handshake failed")
    }

    #[cfg(test)]
    pub(crate) const fn authority(&self) -> &Authority {
        &self.authority
    }
}

/// Refuses a connection before the handshake.
pub(crate) async fn refuse(mut stream: TcpStream, alert: Alert) {
    let message = [0x15, 3, 3, 0, 2, 2, alert as u8];
    // A client that has gone needs no alert.
    let written = timeout(HANDSHAKE_TIMEOUT, async {
        stream.write_all(&message).await?;
        stream.shutdown().await
    });
    let _ = written.await.is_ok();
}
