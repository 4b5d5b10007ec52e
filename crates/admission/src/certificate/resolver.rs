//! The certificate that the next TLS handshake is answered with.
//!
//! A rustls resolver over an atomic pointer: swapping touches no connection that is
//! already open, and no lock is taken on the way of a handshake.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::authority::Leaf;

/// Holds the current leaf. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Current(Arc<ArcSwapOption<Leaf>>);

impl Current {
    pub(crate) fn swap(&self, leaf: Leaf) {
        self.0.store(Some(Arc::new(leaf)));
    }

    pub(crate) fn leaf(&self) -> Option<Arc<Leaf>> {
        self.0.load_full()
    }

    /// TLS 1.2 and 1.3, HTTP/2 preferred. The provider is named rather than taken from
    /// the process, so that it does not matter what else the process links.
    pub(crate) fn server_config(&self) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load().as_ref().map(|leaf| leaf.key.clone())
    }
}
