//! Certificates that clients present. Code that accepts them as proof calls [`ClientAuthority`] at each
//! request: the authority may have changed since the connection was opened.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConnection, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::WebPkiClientVerifier,
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::crypto::provider;

/// The certificates that the peer of a connection presented. The peer holds the key of the first one; no
/// other property is verified.
#[derive(Debug)]
pub struct ClientCertificate(Vec<CertificateDer<'static>>);

impl ClientCertificate {
    pub(crate) fn of(connection: &ServerConnection) -> Option<Self> {
        let shown = connection.peer_certificates()?;
        (!shown.is_empty()).then(|| {
            let owned = shown.iter().map(|one| one.clone().into_owned());
            Self(owned.collect())
        })
    }
}

/// Authorities, and the names for which they are trusted.
#[derive(Clone, Debug)]
pub struct ClientAuthority {
    verifier: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl ClientAuthority {
    /// Creates the authority from the certificates in `pem`. It accepts client certificates with a common
    /// name in `names`, or all if `names` is empty.
    ///
    /// # Errors
    /// `pem` contains no authority, or other data.
    pub fn new(pem: &[u8], names: Vec<String>) -> Result<Self, String> {
        let verifier = client_verifier(pem)?;
        Ok(Self { verifier, names })
    }

    /// Returns the common name that a client proves.
    ///
    /// # Errors
    /// The client proves none of the accepted names.
    pub fn verify(&self, shown: &ClientCertificate, now: Timestamp) -> Result<String, String> {
        let [leaf, intermediates @ ..] = shown.0.as_slice() else {
            return Err("no certificate was shown".to_owned());
        };
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        self.verifier
            .verify_client_cert(leaf, intermediates, now)
            .map_err(|error| error.to_string())?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|error| error.to_string())?;
        let mut names = parsed.subject().iter_common_name();
        let name = names.next().and_then(|name| name.as_str().ok());
        let name = name.filter(|_| names.next().is_none());
        let name = name.ok_or("the certificate has no common name, or several")?;
        if self.names.is_empty() || self.names.iter().any(|one| one == name) {
            return Ok(name.to_owned());
        }
        Err(format!("{name:?} is none of the names that are allowed"))
    }
}

/// A verifier that requests a certificate, and checks that the client holds its key; other code checks the
/// identity.
#[derive(Debug)]
pub(crate) struct AnyClient(Arc<CryptoProvider>);

impl Default for AnyClient {
    fn default() -> Self {
        Self(Arc::new(provider::default_provider()))
    }
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Creates a verifier that accepts clients with a certificate that one of these authorities (PEM) signed.
pub(crate) fn client_verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("it is no PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("it is no authority: {error}"))?;
    }
    let provider = Arc::new(provider::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| error.to_string())
}
