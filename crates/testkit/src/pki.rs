//! The cluster's certificate authority, made in process: no openssl command is needed.

use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};

use crate::files::write_private;
use crate::subject::{of_version_1, with_subject};

/// A certificate and its private key, both PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The authority that signs every certificate of one cluster: of servers, components and users.
#[derive(Debug)]
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority and stores it as `ca.crt` and `ca.key` in `directory`.
    pub(crate) fn create(directory: &Path) -> Result<Self> {
        let key = new_key()?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "oz-testkit");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let certificate = params
            .self_signed(&key)
            .context("failed to sign the cluster's authority")?
            .pem();
        write_private(&directory.join("ca.crt"), certificate.as_bytes())?;
        write_private(&directory.join("ca.key"), key.serialize_pem().as_bytes())?;
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// Reads the authority that [`Authority::create`] left in `directory`.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read_to_string(&path)
                .with_context(|| format!("failed to read {}", path.display()))
        };
        let certificate = read("ca.crt")?;
        let key = KeyPair::from_pem(&read("ca.key")?).context("failed to parse ca.key")?;
        let issuer =
            Issuer::from_ca_cert_pem(&certificate, key).context("failed to parse ca.crt")?;
        Ok(Self {
            certificate,
            issuer,
        })
    }

    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns a client certificate: Kubernetes takes the user from CN and the groups from O.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Identity> {
        let (certificate, key) = self.client_certificate(user, groups)?;
        Ok(identity(&certificate, &key))
    }

    /// Returns such a certificate of X.509 version 1.
    pub(crate) fn client_of_version_1(&self, user: &str, groups: &[&str]) -> Result<Identity> {
        let (certificate, key) = self.client_certificate(user, groups)?;
        let certificate = of_version_1(&certificate, self.issuer.key())?;
        Ok(identity(&certificate, &key))
    }

    fn client_certificate(&self, user: &str, groups: &[&str]) -> Result<(Vec<u8>, KeyPair)> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.sign(params, user)?;
        let certificate = with_subject(certificate.der(), user, groups, self.issuer.key())?;
        Ok((certificate, key))
    }

    /// Returns a serving certificate for `names` (DNS names and IP addresses).
    pub(crate) fn server(&self, name: &str, names: &[&str]) -> Result<Identity> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names)
            .with_context(|| format!("failed to name the serving certificate of {name}"))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) = self.sign(params, name)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    fn sign(&self, mut params: CertificateParams, name: &str) -> Result<(Certificate, KeyPair)> {
        let key = new_key()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("failed to sign a certificate for {name}"))?;
        Ok((certificate, key))
    }
}

fn identity(certificate: &[u8], key: &KeyPair) -> Identity {
    Identity {
        certificate: pem("CERTIFICATE", certificate),
        key: key.serialize_pem(),
    }
}

/// Returns the key pair that signs service account tokens: (private, public), both PEM.
pub(crate) fn service_account_keys() -> Result<(String, String)> {
    let key = new_key()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// Returns the textual encoding of RFC 7468.
/// See <https://www.rfc-editor.org/rfc/rfc7468#section-2>.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for (column, character) in text.chars().enumerate() {
        if column > 0 && column % 64 == 0 {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem.push_str(&format!("\n-----END {label}-----\n"));
    pem
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("failed to make a key")
}
