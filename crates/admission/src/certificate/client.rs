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
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Error};

use crate::crypto::provider;

/// The certificates that the peer of a connection presented. The peer holds the key of the first one; no
/// other property is verified.
#[derive(Debug)]
pub struct ClientCertificate(Vec<CertificateDer<'static>>);

impl ClientCertificate {
    pub(crate) fn from_connection(connection: &ServerConnection) -> Option<Self> {
        let shown = connection.peer_certificates()?;
        (!shown.is_empty()).then(|| {
            let owned = shown.iter().map(|one| one.clone().into_owned());
            Self(owned.collect())
        })
    }
}

/// The error for certificates that cannot be the authorities of clients.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// The text is no PEM.
    #[error("it is not PEM: {why}")]
    Pem {
        /// The error of the parser.
        why: String,
    },
    /// A certificate is no authority.
    #[error("it is not a certificate authority: {why}")]
    Certificate {
        /// The reason.
        why: String,
    },
    /// The authorities verify no clients, for instance because there are none.
    #[error("{why}")]
    Verifier {
        /// The reason.
        why: String,
    },
}

/// The error for a client that proves no accepted name.
#[derive(Debug, thiserror::Error)]
pub enum UnprovenClient {
    /// The client showed no certificate.
    #[error("no client certificate was presented")]
    NoCertificate,
    /// No authority signed the certificate, or it is not valid now.
    #[error(transparent)]
    Certificate(#[from] rustls::Error),
    /// The certificate cannot be read.
    #[error(transparent)]
    Malformed(#[from] x509_parser::nom::Err<X509Error>),
    /// The certificate does not have one common name.
    #[error("the certificate has no common name, or several")]
    Nameless,
    /// The name is not accepted.
    #[error("{name:?} is not among the allowed names")]
    Forbidden {
        /// The common name.
        name: String,
    },
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
    pub fn new(pem: &[u8], names: Vec<String>) -> Result<Self, AuthorityError> {
        let verifier = client_verifier(pem)?;
        Ok(Self { verifier, names })
    }

    /// Returns the common name that a client proves.
    ///
    /// # Errors
    /// The client proves none of the accepted names.
    pub fn verify(
        &self,
        shown: &ClientCertificate,
        now: Timestamp,
    ) -> Result<String, UnprovenClient> {
        let [leaf, intermediates @ ..] = shown.0.as_slice() else {
            return Err(UnprovenClient::NoCertificate);
        };
        let seconds = now.as_second().max(0).unsigned_abs();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        self.verifier.verify_client_cert(leaf, intermediates, now)?;
        let (_, parsed) = X509Certificate::from_der(leaf)?;
        let mut names = parsed.subject().iter_common_name();
        let name = names.next().and_then(|name| name.as_str().ok());
        let name = name.filter(|_| names.next().is_none());
        let name = name.ok_or(UnprovenClient::Nameless)?.to_owned();
        if self.names.is_empty() || self.names.contains(&name) {
            return Ok(name);
        }
        Err(UnprovenClient::Forbidden { name })
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
pub(crate) fn client_verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, AuthorityError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| AuthorityError::Pem {
            why: error.to_string(),
        })?;
        roots
            .add(certificate)
            .map_err(|error| AuthorityError::Certificate {
                why: error.to_string(),
            })?;
    }
    let provider = Arc::new(provider::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| AuthorityError::Verifier {
        why: error.to_string(),
    })
}
