//! Certificates that another component maintains: a Secret (cert-manager's, for instance) or files. The
//! manager only reads them; an invalid one never replaces a valid one.

use std::{collections::HashMap, path::Path, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::ParsedCertificate,
    sign::CertifiedKey,
};

use super::{
    authority::{Error, Leaf, lifetime},
    secret::{certificates, path_keys},
};
use crate::crypto::provider;
use crate::server::paths::{self, PathKeys};

/// A serving certificate and, if known, the authorities (PEM) behind it.
#[derive(Clone, Debug)]
pub(crate) struct Supplied {
    pub(crate) leaf: Leaf,
    pub(crate) bundle: Option<Vec<String>>,
    /// The keys of paths, if the component that supplies the certificate also supplies them.
    pub(crate) paths: Option<PathKeys>,
}

/// Combines a certificate chain and a key.
pub(crate) fn load(chain: &[u8], key: &[u8], bundle: Option<&[u8]>) -> Result<Supplied, Error> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|_| Error::Unreadable("certificate chain (tls.crt)"))?;
    let first = chain
        .first()
        .ok_or(Error::Unreadable("certificate chain (tls.crt)"))?;
    let (_, x509) = x509_parser::parse_x509_certificate(first)
        .map_err(|_| Error::Unreadable("certificate chain (tls.crt)"))?;
    let (from, until) = lifetime(&x509)?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| Error::Unreadable("private key (tls.key)"))?;
    let signer = provider::sign::any_supported_type(&key)?;
    let certified = CertifiedKey::new(chain, signer);
    certified.keys_match()?;
    Ok(Supplied {
        leaf: Leaf {
            key: Arc::new(certified),
            issuer: None,
            from,
            until,
        },
        bundle: bundle.map(authorities).transpose()?.flatten(),
        paths: None,
    })
}

/// Returns the certificates of a bundle; `None` for an empty one, as from issuers that do not know their
/// authority.
fn authorities(bundle: &[u8]) -> Result<Option<Vec<String>>, Error> {
    const WHAT: &str = "certificates of the authorities (ca.crt)";
    let text = std::str::from_utf8(bundle).map_err(|_| Error::Unreadable(WHAT))?;
    let certificates = certificates(text);
    if certificates.is_empty() && !text.trim().is_empty() {
        return Err(Error::Unreadable(WHAT));
    }
    Ok((!certificates.is_empty()).then_some(certificates))
}

/// Reads a Secret of type `kubernetes.io/tls`.
pub(crate) fn from_secret(secret: &Secret) -> Result<Supplied, Error> {
    let get = |key: &str| {
        secret
            .data
            .as_ref()
            .and_then(|data| data.get(key))
            .map(|v| v.0.as_slice())
    };
    let supplied = load(
        get("tls.crt").ok_or(Error::Unreadable("certificate chain (tls.crt)"))?,
        get("tls.key").ok_or(Error::Unreadable("private key (tls.key)"))?,
        get("ca.crt"),
    )?;
    Ok(Supplied {
        paths: path_keys(secret),
        ..supplied
    })
}

/// Reads the files of a directory.
pub(crate) async fn from_files(directory: &Path) -> Result<Supplied, Error> {
    let chain = tokio::fs::read(directory.join("tls.crt")).await;
    let key = tokio::fs::read(directory.join("tls.key")).await;
    let bundle = tokio::fs::read(directory.join("ca.crt")).await.ok();
    let supplied = load(
        &chain.map_err(|_| Error::Unreadable("certificate chain (tls.crt)"))?,
        &key.map_err(|_| Error::Unreadable("private key (tls.key)"))?,
        bundle.as_deref(),
    )?;
    let mut keys = HashMap::new();
    for name in [paths::ACTIVE, paths::NEXT, paths::PREVIOUS] {
        if let Ok(key) = tokio::fs::read(directory.join(name)).await {
            keys.insert(name, key);
        }
    }
    Ok(Supplied {
        paths: PathKeys::read(|name| keys.get(name).map(Vec::as_slice)),
        ..supplied
    })
}

/// Refuses a certificate that clients would refuse: an expired one, or one for another name than the name
/// that the API server requires.
pub(crate) fn check(
    supplied: &Supplied,
    name: Option<&str>,
    now: jiff::Timestamp,
) -> Result<(), Error> {
    if supplied.leaf.until <= now {
        return Err(Error::Ended(supplied.leaf.until));
    }
    let (Some(certificate), Some(name)) = (supplied.leaf.key.cert.first(), name) else {
        return Ok(());
    };
    let parsed = ParsedCertificate::try_from(certificate)?;
    let server = ServerName::try_from(name.to_owned()).map_err(|_| Error::Name(name.to_owned()))?;
    verify_server_name(&parsed, &server).map_err(|_| Error::Name(name.to_owned()))
}
