//! The TLS of a client. kubectl presents X.509 certificates of version 1, which a plain `openssl x509 -req` creates;
//! the TLS library cannot read them, and needs to only to compare a client's certificate with its key.
//! See <https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.1>.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::client::RustlsTlsError;
use kube::{Client, Config};
use rustls::crypto::{CryptoProvider, KeyProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{Signer, SigningKey};
use rustls::{CertificateError, SignatureAlgorithm, SignatureScheme};

use crate::failure::{Failure, Result};

/// True after a certificate was found that cannot be compared with its key.
static INCOMPARABLE: AtomicBool = AtomicBool::new(false);

/// Installs the cryptography of this process. A second call has no effect.
pub fn install() {
    let provider = CryptoProvider {
        key_provider: &Keys,
        ..aws_lc_rs::default_provider()
    };
    let _ = provider.install_default();
}

/// Creates a client from this configuration, with any version of its certificate: the API server also compares
/// certificate and key.
pub(crate) fn client(config: Config) -> kube::Result<Client> {
    match oz_runtime::connect(config.clone()) {
        Err(kube::Error::RustlsTls(RustlsTlsError::InvalidPrivateKey(
            rustls::Error::InvalidCertificate(CertificateError::Other(_)),
        ))) => {
            INCOMPARABLE.store(true, Ordering::Relaxed);
            oz_runtime::connect(config)
        }
        made => made,
    }
}

/// Reads the certificates of a PEM file.
///
/// # Errors
/// The file cannot be read, or contains no certificate.
pub fn certificates(file: &Path) -> Result<Vec<Vec<u8>>> {
    let failed = |reason: String| {
        let failure = format!(
            "failed to read certificates from {}: {reason}",
            file.display()
        );
        Failure::new(failure).next("name a file with certificates in PEM")
    };
    let mut found = Vec::new();
    for certificate in
        CertificateDer::pem_file_iter(file).map_err(|error| failed(error.to_string()))?
    {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        found.push(certificate.to_vec());
    }
    match found.is_empty() {
        true => Err(failed("it contains none".to_owned())),
        false => Ok(found),
    }
}

/// The provider that loads private keys.
#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(
        &self,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        let key = aws_lc_rs::default_provider()
            .key_provider
            .load_private_key(key)?;
        Ok(match INCOMPARABLE.load(Ordering::Relaxed) {
            true => Arc::new(Incomparable(key)),
            false => key,
        })
    }
}

/// A private key that does not report its public half, and is compared with no certificate.
#[derive(Debug)]
struct Incomparable(Arc<dyn SigningKey>);

impl SigningKey for Incomparable {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.0.choose_scheme(offered)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}
