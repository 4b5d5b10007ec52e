//! The certificate authority of the proxy: its key, the certificates of hosts that it signs, and the file that agents
//! trust. The key is made in the pod and stays in a memory volume that only the proxy mounts.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// The file with the key and the certificate, as PEM.
const FILE: &str = "authority.pem";
/// The time by which certificates are backdated: clocks of containers may be emulated, and those of nodes differ.
const BACKDATED: SignedDuration = SignedDuration::from_hours(24);
/// The validity of certificates. Some clients accept no certificate that is valid for more than 398 days.
const VALIDITY: SignedDuration = SignedDuration::from_hours(24 * 365);
/// The maximum number of certificates of hosts in memory.
const MAX_LEAVES: usize = 256;

/// The certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    leaves: Mutex<Leaves>,
}

/// The certificates of hosts, in the order in which they were made.
#[derive(Default)]
struct Leaves {
    by_host: HashMap<String, Arc<CertifiedKey>>,
    order: VecDeque<String>,
    /// The number of certificates that were made.
    made: u64,
}

impl Authority {
    /// Reads the authority in this directory, or makes one. `owner` is a part of its name, for users.
    ///
    /// # Errors
    /// When the authority cannot be made or stored.
    pub(crate) fn open(directory: &Path, owner: &str) -> Result<Self> {
        let path = directory.join(FILE);
        match fs::read_to_string(&path) {
            // An incomplete file is that of a proxy that was killed before it served.
            Ok(pem) => Self::read(&pem).or_else(|_| Self::make(&path, owner)),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::make(&path, owner),
            Err(error) => Err(error).with_context(|| format!("failed to read {}", path.display())),
        }
    }

    fn read(pem: &str) -> Result<Self> {
        let key = KeyPair::from_pem(pem).context("failed to read the key of the authority")?;
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .context("failed to read the certificate of the authority")?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)
            .context("failed to use the certificate of the authority")?;
        Ok(Self {
            issuer,
            certificate,
            leaves: Mutex::default(),
        })
    }

    fn make(path: &Path, owner: &str) -> Result<Self> {
        let key = new_key()?;
        let mut params = CertificateParams::default();
        let name = format!("oz proxy of {owner}");
        // The standard limits a common name to 64 characters.
        let name: String = name.chars().take(64).collect();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params);
        let certificate = params
            .self_signed(&key)
            .context("failed to make the certificate of the authority")?;
        let pem = zeroize::Zeroizing::new(format!("{}{}", key.serialize_pem(), certificate.pem()));
        write(path, pem.as_bytes(), 0o600)?;
        Ok(Self {
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            leaves: Mutex::default(),
        })
    }

    /// Writes the file that agents trust: this authority, and the public ones. An unchanged file stays, since it is
    /// mounted in other containers.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn publish(&self, path: &Path) -> Result<()> {
        let mut bundle = pem(&self.certificate);
        for root in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
            bundle += &pem(root);
        }
        if fs::read(path).is_ok_and(|before| before == bundle.as_bytes()) {
            return Ok(());
        }
        write(path, bundle.as_bytes(), 0o644)
    }

    /// Returns the certificate of a host with its key. Each is made once, by the first connection that needs it; the
    /// others wait for it, for less than a millisecond.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub(crate) fn leaf(&self, host: &str) -> Result<Arc<CertifiedKey>> {
        let mut leaves = self.leaves.lock();
        if let Some(leaf) = leaves.by_host.get(host) {
            return Ok(Arc::clone(leaf));
        }
        let leaf = Arc::new(self.sign(host)?);
        leaves.made += 1;
        if leaves.order.len() >= MAX_LEAVES
            && let Some(oldest) = leaves.order.pop_front()
        {
            leaves.by_host.remove(&oldest);
        }
        leaves.order.push_back(host.to_owned());
        leaves.by_host.insert(host.to_owned(), Arc::clone(&leaf));
        Ok(leaf)
    }

    fn sign(&self, host: &str) -> Result<CertifiedKey> {
        // A key for each: the serial number is the digest of the key, and has to differ.
        let key = new_key()?;
        let mut params = CertificateParams::new(vec![host.to_owned()])
            .with_context(|| format!("failed to make a certificate for {host}"))?;
        params
            .distinguished_name
            .push(DnType::CommonName, "oz proxy");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
        // Python verifies strictly: without this extension it does not accept the certificate.
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params);
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("failed to sign a certificate for {host}"))?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signer = rustls::crypto::aws_lc_rs::sign::any_supported_type(&private)?;
        Ok(CertifiedKey::new(vec![certificate.der().clone()], signer))
    }

    #[cfg(test)]
    pub(crate) const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    #[cfg(test)]
    pub(crate) fn made(&self) -> u64 {
        self.leaves.lock().made
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.leaves.lock().by_host.len()
    }
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("failed to make a key")
}

fn set_validity(params: &mut CertificateParams) {
    let at = |instant: Timestamp| {
        let seconds = instant.as_second().max(0).unsigned_abs();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    let now = Timestamp::now();
    params.not_before = at(now.checked_sub(BACKDATED).unwrap_or(now));
    params.not_after = at(now.checked_add(VALIDITY).unwrap_or(now));
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let encoded = STANDARD.encode(certificate);
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text += line;
        text.push('\n');
        rest = after;
    }
    text + "-----END CERTIFICATE-----\n"
}

/// Writes a file completely, or not at all.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let next = path.with_extension("next");
    let write = || -> std::io::Result<()> {
        // One of a proxy that was killed, possibly with another mode.
        match fs::remove_file(&next) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&next)?;
        file.write_all(content)?;
        drop(file);
        fs::rename(&next, path)
    };
    write().with_context(|| format!("failed to write {}", path.display()))
}
