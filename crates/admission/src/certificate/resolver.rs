//! The certificate for the next TLS handshake.
//!
//! A rustls resolver over an atomic pointer: a swap does not affect open connections, and a handshake takes
//! no lock.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::sync::Notify;

use super::authority::Leaf;
use super::client::{AnyClient, AuthorityError, client_verifier};
use crate::crypto::provider;

/// The current leaf. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Current {
    leaf: Arc<ArcSwapOption<Leaf>>,
    taken_up: Arc<Notify>,
}

impl Current {
    pub(crate) fn swap(&self, leaf: Leaf) {
        self.leaf.store(Some(Arc::new(leaf)));
        self.taken_up.notify_waiters();
    }

    /// Waits until there is a leaf.
    pub(crate) async fn available(&self) {
        let taken_up = self.taken_up.notified();
        if self.leaf.load().is_none() {
            taken_up.await;
        }
    }

    pub(crate) fn leaf(&self) -> Option<Arc<Leaf>> {
        self.leaf.load_full()
    }

    /// Builds a configuration with TLS 1.2 and 1.3, HTTP/2 preferred. The provider is named instead of
    /// taken from the process, so that other linked libraries do not matter. With `client_authority` (PEM),
    /// the server accepts only clients with a certificate that it signed.
    pub(crate) fn server_config(
        &self,
        client_authority: Option<&[u8]>,
    ) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(provider::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let verifier = client_verifier(pem);
                let general = |error: AuthorityError| rustls::Error::General(error.to_string());
                builder.with_client_cert_verifier(verifier.map_err(general)?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Builds a configuration for HTTP/1.1 alone, which requests a certificate from clients and accepts
    /// any.
    pub(crate) fn front_proxy_config(&self) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(provider::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = builder.with_client_cert_verifier(Arc::new(AnyClient::default()));
        let mut config = builder.with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.leaf.load().as_ref().map(|leaf| leaf.key.clone())
    }
}
