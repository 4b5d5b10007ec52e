//! The creation and parsing of the two kinds of certificate: the authority and the leaf.
//!
//! The module uses neither a clock nor Kubernetes; the only external input is the randomness of new keys.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use crate::crypto::provider;

/// The time by which certificates are backdated, for clocks that are behind the clock of the manager.
const BACKDATED: SignedDuration = SignedDuration::from_secs(300);

/// The reason for which a certificate could not be created or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The creation of a key or a certificate failed.
    #[error("failed to make a certificate")]
    Make(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The key is not usable for serving.
    #[error("failed to load a serving key")]
    Key(#[from] rustls::Error),
    /// A time is outside the range of certificates.
    #[error("failed to compute the end of a certificate")]
    Time(#[from] jiff::Error),
    /// The PEM is unreadable; the value names its content.
    #[error("failed to read the {0}")]
    Unreadable(&'static str),
    /// The certificate may not sign others.
    #[error("failed to use the certificate as an authority: it is not a CA certificate")]
    NotAuthority,
    /// The certificate and the key do not belong together.
    #[error("failed to use the authority: its key belongs to another certificate")]
    KeyMismatch,
    /// The certificate has expired.
    #[error("failed to use the certificate: it ended at {0}")]
    Ended(Timestamp),
    /// The certificate is for another name.
    #[error("failed to use the certificate: it is not for {0}")]
    Name(String),
}

impl Error {
    /// Wraps an error, because the certificate library is an implementation detail.
    fn make(error: rcgen::Error) -> Self {
        Self::Make(error.into())
    }
}

/// A certificate that signs leaves, with its key.
pub(crate) struct Authority {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    issuer: Issuer<'static, KeyPair>,
}

/// The output omits the key.
impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("from", &self.from)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.certificate == other.certificate
    }
}

impl Authority {
    /// Creates an authority that begins at `now`.
    pub(crate) fn generate(
        fingerprint: &str,
        now: Timestamp,
        life: std::time::Duration,
    ) -> Result<Self, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::make)?;
        let until = now.checked_add(SignedDuration::try_from(life)?)?;
        let mut params = CertificateParams::default();
        // Two authorities of one product exist at the same time during a rotation; the second of their
        // creation distinguishes them for users and for chain builders.
        let name = format!("{fingerprint} admission {}", now.as_second());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        validity(&mut params, now, until);
        let certificate = params.self_signed(&key).map_err(Error::make)?.pem();
        Self::parse(&certificate, &key.serialize_pem())
    }

    /// Parses an authority. The function does not check whether it is still valid.
    pub(crate) fn parse(certificate: &str, key: &str) -> Result<Self, Error> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| Error::Unreadable("certificate of the authority"))?;
        let (_, x509) = x509_parser::parse_x509_certificate(&der)
            .map_err(|_| Error::Unreadable("certificate of the authority"))?;
        let pair = KeyPair::from_pem(key).map_err(|_| Error::Unreadable("key of the authority"))?;
        if !x509.is_ca() {
            return Err(Error::NotAuthority);
        }
        if x509.public_key().subject_public_key.data.as_ref() != pair.public_key_raw() {
            return Err(Error::KeyMismatch);
        }
        let (from, until) = lifetime(&x509)?;
        let issuer = Issuer::from_ca_cert_der(&der, pair).map_err(Error::make)?;
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            from,
            until,
            issuer,
        })
    }

    /// Signs a leaf for `names`, which never outlives the authority.
    pub(crate) fn sign(
        &self,
        names: &[String],
        now: Timestamp,
        life: std::time::Duration,
    ) -> Result<Leaf, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::make)?;
        let until = now
            .checked_add(SignedDuration::try_from(life)?)?
            .min(self.until);
        let mut params = CertificateParams::new(names.to_vec()).map_err(Error::make)?;
        let name = names.first().map_or("admission", String::as_str);
        // A common name holds 64 characters; clients read the alternative names anyway.
        let name: String = name.chars().take(64).collect();
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
        validity(&mut params, now, until);
        let certificate = params.signed_by(&key, &self.issuer).map_err(Error::make)?;
        let certificate = certificate.der().clone();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signer = provider::sign::any_supported_type(&private)?;
        Ok(Leaf {
            key: Arc::new(CertifiedKey::new(vec![certificate], signer)),
            issuer: Some(self.certificate.clone()),
            from: now,
            until,
        })
    }
}

/// A serving certificate.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) key: Arc<CertifiedKey>,
    /// The certificate (PEM) of the manager's authority that signed the leaf.
    pub(crate) issuer: Option<String>,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Leaf {
    /// Returns the certificate (PEM) of the manager's authority that signed the leaf, until the leaf
    /// expires.
    pub(crate) fn serving(&self, now: Timestamp) -> Option<&str> {
        self.issuer.as_deref().filter(|_| now < self.until)
    }
}

/// Returns the start and the expiry of a certificate.
pub(crate) fn lifetime(
    x509: &x509_parser::certificate::X509Certificate<'_>,
) -> Result<(Timestamp, Timestamp), Error> {
    let validity = x509.validity();
    let from = Timestamp::from_second(validity.not_before.timestamp())?;
    let until = Timestamp::from_second(validity.not_after.timestamp())?;
    Ok((from.checked_add(BACKDATED)?.min(until), until))
}

fn validity(params: &mut CertificateParams, from: Timestamp, until: Timestamp) {
    let at = |instant: Timestamp| {
        let seconds = instant.as_second().max(0).unsigned_abs();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    params.not_before = at(from.checked_sub(BACKDATED).unwrap_or(from));
    params.not_after = at(until);
}
