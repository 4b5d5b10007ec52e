//! The verification of an API server's certificate by the roots of a kubeconfig. A root may be the server's own
//! certificate, self-signed or not: Go's verifier, and so kubectl, accepts a certificate that is among the roots, and
//! checks its names, dates and purpose. WebPKI accepts only certificates that a root issued.
//! See `Certificate.Verify` in <https://pkg.go.dev/crypto/x509>.

use std::sync::Arc;
use std::time::Duration;

use kube::client::RustlsTlsError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::time::ASN1Time;

/// The roots of a kubeconfig: certificate authorities, and certificates of servers.
#[derive(Debug)]
pub(crate) struct Roots {
    certificates: Vec<CertificateDer<'static>>,
    /// The verifier of certificates that a root issued, and of the signatures of handshakes.
    issued: Arc<WebPkiServerVerifier>,
}

impl Roots {
    /// Creates the verifier for these certificates in DER.
    ///
    /// # Errors
    /// When a certificate cannot be read.
    pub(crate) fn new(
        roots: &[Vec<u8>],
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, RustlsTlsError> {
        let mut certificates = Vec::new();
        let mut authorities = RootCertStore::empty();
        for root in roots {
            let root = CertificateDer::from(root.clone());
            authorities
                .add(root.clone())
                .map_err(|error| RustlsTlsError::AddRootCertificate(Box::new(error)))?;
            certificates.push(root);
        }
        let provider = Arc::clone(provider);
        let issued = WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), provider)
            .build()
            .map_err(|error| RustlsTlsError::AddRootCertificate(Box::new(error)))?;
        Ok(Self {
            certificates,
            issued,
        })
    }
}

impl ServerCertVerifier for Roots {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if !self.certificates.iter().any(|root| root == end_entity) {
            return self.issued.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
        }
        is_for_server(end_entity, now)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.issued
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.issued
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}

/// Checks that a certificate is valid now, and may identify a server.
fn is_for_server(certificate: &[u8], now: UnixTime) -> Result<(), CertificateError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_malformed| CertificateError::BadEncoding)?;
    let validity = parsed.validity();
    let (not_before, not_after) = (
        unix_time(&validity.not_before),
        unix_time(&validity.not_after),
    );
    if now < not_before {
        return Err(CertificateError::NotValidYetContext {
            time: now,
            not_before,
        });
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext {
            time: now,
            not_after,
        });
    }
    let purposes = parsed
        .extended_key_usage()
        .map_err(|_malformed| CertificateError::BadEncoding)?;
    match purposes {
        Some(purposes) if !purposes.value.any && !purposes.value.server_auth => {
            Err(CertificateError::InvalidPurpose)
        }
        _ => Ok(()),
    }
}

/// Returns a time since the Unix epoch; an earlier time counts as the epoch.
fn unix_time(time: &ASN1Time) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(
        u64::try_from(time.timestamp()).unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use kube::Config;
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
        date_time_ymd,
    };
    use rustls::pki_types::PrivateKeyDer;
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls::{ClientConnection, ServerConfig, ServerConnection};

    use super::*;
    use crate::connection::tls_config;

    const HOST: &str = "kubernetes.example";

    type Change = fn(&mut CertificateParams);

    /// A certificate, and a key that is its own unless the test says otherwise.
    struct Presented {
        certificate: Vec<u8>,
        key: KeyPair,
    }

    /// Returns parameters for an API server at [`HOST`] and 127.0.0.1.
    fn params(change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
        let names = [HOST, "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        params
    }

    fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> Presented {
        let key = KeyPair::generate().unwrap();
        let certificate = params(change).self_signed(&key).unwrap();
        Presented {
            certificate: certificate.der().to_vec(),
            key,
        }
    }

    fn authority(params: &mut CertificateParams) {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }

    fn expired(params: &mut CertificateParams) {
        params.not_after = date_time_ymd(2020, 1, 1);
    }

    fn expired_authority(params: &mut CertificateParams) {
        authority(params);
        expired(params);
    }

    fn purpose(params: &mut CertificateParams, purpose: ExtendedKeyUsagePurpose) {
        params.extended_key_usages = vec![purpose];
    }

    /// Returns the error of a handshake with a server that presents this certificate, for the client of a kubeconfig
    /// with this root.
    fn handshake(root: &[u8], presented: &Presented, name: &str) -> Option<rustls::Error> {
        let mut config = Config::new("https://kubernetes.example".parse().unwrap());
        config.root_cert = Some(vec![root.to_vec()]);
        let client = Arc::new(tls_config(&config).unwrap());
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(client, name).unwrap();

        let server = ServerConfig::builder();
        let key = PrivateKeyDer::try_from(presented.key.serialize_der()).unwrap();
        let provider = Arc::clone(server.crypto_provider());
        let key = provider.key_provider.load_private_key(key).unwrap();
        let chain = vec![CertificateDer::from(presented.certificate.clone())];
        // Other ways to configure a server compare the certificate with its key.
        let resolver = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let server = server
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();

        while client.is_handshaking() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).unwrap();
            let mut sent = sent.as_slice();
            while !sent.is_empty() {
                server.read_tls(&mut sent).unwrap();
                server.process_new_packets().unwrap();
            }
            let mut answer = Vec::new();
            server.write_tls(&mut answer).unwrap();
            let mut answer = answer.as_slice();
            while !answer.is_empty() {
                client.read_tls(&mut answer).unwrap();
                if let Err(error) = client.process_new_packets() {
                    return Some(error);
                }
            }
        }
        None
    }

    fn result(handshake: Option<rustls::Error>) -> &'static str {
        let error = match handshake {
            None => return "trusted",
            Some(rustls::Error::InvalidCertificate(error)) => error,
            Some(error) => panic!("{error}"),
        };
        match error {
            CertificateError::ExpiredContext { .. } => "expired",
            CertificateError::NotValidYetContext { .. } => "not valid yet",
            CertificateError::NotValidForNameContext { .. } => "other name",
            CertificateError::InvalidPurpose => "other purpose",
            CertificateError::UnknownIssuer | CertificateError::BadSignature => "not trusted",
            error => panic!("{error:?}"),
        }
    }

    #[test]
    fn server_certificate_among_roots_is_verified_as_by_go() {
        let rows: [(&str, Change, &str, &str); 11] = [
            ("leaf", |_| (), HOST, "trusted"),
            ("leaf at its address", |_| (), "127.0.0.1", "trusted"),
            (
                "leaf at another name",
                |_| (),
                "other.example",
                "other name",
            ),
            ("authority", authority, HOST, "trusted"),
            (
                "authority at another name",
                authority,
                "other.example",
                "other name",
            ),
            (
                "authority at another address",
                authority,
                "127.0.0.2",
                "other name",
            ),
            ("expired leaf", expired, HOST, "expired"),
            ("expired authority", expired_authority, HOST, "expired"),
            (
                "future leaf",
                |params| params.not_before = date_time_ymd(3000, 1, 1),
                HOST,
                "not valid yet",
            ),
            (
                "server",
                |params| purpose(params, ExtendedKeyUsagePurpose::ServerAuth),
                HOST,
                "trusted",
            ),
            (
                "client",
                |params| purpose(params, ExtendedKeyUsagePurpose::ClientAuth),
                HOST,
                "other purpose",
            ),
        ];
        for (what, change, name, expected) in rows {
            let pinned = self_signed(change);
            let seen = result(handshake(&pinned.certificate, &pinned, name));
            assert_eq!(seen, expected, "{what}");
        }
    }

    #[test]
    fn server_certificate_that_is_no_root_requires_an_issuer() {
        let pinned = self_signed(|_| ());
        // The subject is the same, and so are all names.
        let other = self_signed(|_| ());
        let thief = Presented {
            certificate: pinned.certificate.clone(),
            key: KeyPair::generate().unwrap(),
        };
        for (what, presented) in [
            ("other certificate", &other),
            ("certificate without its key", &thief),
        ] {
            let seen = result(handshake(&pinned.certificate, presented, HOST));
            assert_eq!(seen, "not trusted", "{what}");
        }

        let root = self_signed(authority);
        let issuer = Issuer::new(params(authority), root.key);
        let key = KeyPair::generate().unwrap();
        let issued = params(|_| ()).signed_by(&key, &issuer).unwrap();
        let issued = Presented {
            certificate: issued.der().to_vec(),
            key,
        };
        for (name, expected) in [(HOST, "trusted"), ("other.example", "other name")] {
            let seen = result(handshake(&root.certificate, &issued, name));
            assert_eq!(seen, expected, "{name}");
        }
    }
}
