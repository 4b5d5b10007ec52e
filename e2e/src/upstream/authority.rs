//! The certificates of the upstream: an authority that a program trusts only if a test configures it, and certificates
//! that are not valid for the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{default_provider, sign::any_supported_type};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// A host with an expired certificate.
pub const EXPIRED: &str = "expired.test";
/// A host with the certificate of another host.
pub const MISNAMED: &str = "misnamed.test";
/// A host with a certificate that no authority signed.
pub const SELF_SIGNED: &str = "self-signed.test";
/// The name in the certificate of [`MISNAMED`].
const ANOTHER: &str = "another.test";

/// The authority of the upstream.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate of the authority, as PEM.
    pub(super) certificate: String,
}

impl Authority {
    pub(super) fn new() -> Result<Self> {
        let key = new_key()?;
        let mut params = CertificateParams::default();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "authority of the upstream");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).context("failed to sign")?.pem();
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// Returns the configuration of a server of these hosts, and of those with certificates that are not valid.
    pub(super) fn server(&self, hosts: &[&str]) -> Result<ServerConfig> {
        let valid = self.certified(leaf(hosts)?)?;
        let mut expired = leaf(&[EXPIRED])?;
        expired.not_before = date_time_ymd(2020, 1, 1);
        expired.not_after = date_time_ymd(2021, 1, 1);
        let key = new_key()?;
        let self_signed = leaf(&[SELF_SIGNED])?.self_signed(&key)?;
        let others = BTreeMap::from([
            (EXPIRED, self.certified(expired)?),
            (MISNAMED, self.certified(leaf(&[ANOTHER])?)?),
            (SELF_SIGNED, certified(self_signed.der().clone(), &key)?),
        ]);
        let chosen = Chosen { valid, others };
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(chosen));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    fn certified(&self, params: CertificateParams) -> Result<Arc<CertifiedKey>> {
        let key = new_key()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        certified(certificate.der().clone(), &key)
    }
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("failed to make a key")
}

fn leaf(hosts: &[&str]) -> Result<CertificateParams> {
    let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).context("failed to name the hosts")?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn certified(certificate: CertificateDer<'static>, key: &KeyPair) -> Result<Arc<CertifiedKey>> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = any_supported_type(&key).context("failed to read the key")?;
    Ok(Arc::new(CertifiedKey::new(vec![certificate], key)))
}

/// The certificates by the name that a client sends.
#[derive(Debug)]
struct Chosen {
    valid: Arc<CertifiedKey>,
    others: BTreeMap<&'static str, Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Chosen {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let other = self.others.get(hello.server_name().unwrap_or_default());
        Some(Arc::clone(other.unwrap_or(&self.valid)))
    }
}
