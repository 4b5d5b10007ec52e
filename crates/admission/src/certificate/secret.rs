//! The Secret that replicas share: its keys, and how it is read and written.
//!
//! It holds authorities, and the key of the paths of hooks. The active authority signs, the next one is
//! published before it takes over, and previous ones stay published until none of their leaves is left.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::core::ObjectMeta;
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{
    authority::{Authority, lifetime},
    rotation::Reason,
};
use crate::{
    caller::known::{self, Vouched},
    registration::FINGERPRINT_LABEL,
    server::paths::PathKeys,
};

/// The annotation that requests a rotation of the authority; any new value requests one.
pub const ROTATE_ANNOTATION: &str = "oz-admission/rotate";
/// The value of [`ROTATE_ANNOTATION`] that was last carried out.
const ROTATED_ANNOTATION: &str = "oz-admission/rotated";
/// The annotation with the instant at which the active authority took over.
const PROMOTED_AT_ANNOTATION: &str = "oz-admission/promoted-at";
/// The annotation with the instant at which the keys of the paths last changed.
const PATHS_AT_ANNOTATION: &str = "oz-admission/path-key-changed-at";

const ACTIVE: (&str, &str) = ("ca.crt", "ca.key");
const NEXT: (&str, &str) = ("next.crt", "next.key");
const PREVIOUS: &str = "previous.crt";
/// The addresses of known callers.
const CALLERS: &str = "callers";

/// The content of a readable Secret.
#[derive(Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) active: Arc<Authority>,
    pub(crate) next: Option<Arc<Authority>>,
    /// The previous certificates without keys, PEM.
    pub(crate) previous: Vec<String>,
    /// The keys of the paths; `None` in a Secret of an earlier version, or after a user removed them.
    pub(crate) paths: Option<PathKeys>,
    /// The instant at which the keys of the paths last changed; `None` if a new key is requested, or if the
    /// instant is unknown.
    pub(crate) paths_at: Option<Timestamp>,
    /// The callers that replicas know.
    pub(crate) callers: Vouched,
    pub(crate) promoted_at: Option<Timestamp>,
    /// The requested rotation, and the last rotation that was carried out.
    pub(crate) rotate: Option<String>,
    pub(crate) rotated: Option<String>,
}

impl Stored {
    /// Creates the content with one authority and no history.
    pub(crate) fn new(active: Arc<Authority>, paths: Option<PathKeys>) -> Self {
        Self {
            active,
            next: None,
            previous: Vec::new(),
            paths,
            paths_at: None,
            callers: Vouched::new(),
            promoted_at: None,
            rotate: None,
            rotated: None,
        }
    }

    /// Returns all certificates that a client must trust now, the active one first.
    pub(crate) fn trusted(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.active.certificate.as_str())
            .chain(self.next.iter().map(|next| next.certificate.as_str()))
            .chain(self.previous.iter().map(String::as_str))
    }

    /// Reads the Secret.
    pub(crate) fn read(secret: &Secret) -> Result<Self, Reason> {
        let certificate = text(secret, ACTIVE.0).ok_or(Reason::Incomplete)?;
        let key = text(secret, ACTIVE.1).ok_or(Reason::Incomplete)?;
        let active = Arc::new(Authority::parse(certificate, key).map_err(Reason::from)?);
        let next = text(secret, NEXT.0)
            .zip(text(secret, NEXT.1))
            // A damaged successor does not count: the rotation begins again.
            .and_then(|(certificate, key)| Authority::parse(certificate, key).ok())
            .map(Arc::new);
        Ok(Self {
            active,
            next,
            previous: text(secret, PREVIOUS)
                .into_iter()
                .flat_map(certificates)
                .collect(),
            paths: path_keys(secret),
            paths_at: instant(secret, PATHS_AT_ANNOTATION),
            callers: text(secret, CALLERS)
                .into_iter()
                .flat_map(known::read)
                .collect(),
            promoted_at: instant(secret, PROMOTED_AT_ANNOTATION),
            rotate: annotation(secret, ROTATE_ANNOTATION).map(str::to_owned),
            rotated: annotation(secret, ROTATED_ANNOTATION).map(str::to_owned),
        })
    }

    /// Writes the content into `base`; its resourceVersion, labels and other annotations stay.
    pub(crate) fn write(&self, base: Option<&Secret>, home: &SecretAddress) -> Secret {
        let mut secret = base.cloned().unwrap_or_else(|| home.empty());
        let labels = secret.metadata.labels.get_or_insert_default();
        labels.insert(FINGERPRINT_LABEL.to_owned(), home.fingerprint.clone());
        let annotations = secret.metadata.annotations.get_or_insert_default();
        set(annotations, ROTATED_ANNOTATION, self.rotated.clone());
        set(
            annotations,
            PROMOTED_AT_ANNOTATION,
            self.promoted_at.map(|at| at.to_string()),
        );

        set(
            annotations,
            PATHS_AT_ANNOTATION,
            self.paths_at.map(|at| at.to_string()),
        );

        let mut data: BTreeMap<String, ByteString> = BTreeMap::new();
        let mut put = |key: &str, value: &str| {
            data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
        };
        put(ACTIVE.0, &self.active.certificate);
        put(ACTIVE.1, &self.active.key);
        if let Some(next) = &self.next {
            put(NEXT.0, &next.certificate);
            put(NEXT.1, &next.key);
        }
        if !self.previous.is_empty() {
            put(PREVIOUS, &self.previous.concat());
        }
        if !self.callers.is_empty() {
            put(CALLERS, &known::write(&self.callers));
        }
        let keys = self.paths.iter().flat_map(PathKeys::entries);
        data.extend(keys.map(|(name, key)| (name.to_owned(), ByteString(key.bytes().to_vec()))));
        secret.data = Some(data);
        secret.string_data = None;
        secret
    }
}

/// The address of the Secret and its owner.
#[derive(Clone, Debug)]
pub(crate) struct SecretAddress {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) fingerprint: String,
}

impl SecretAddress {
    fn empty(&self) -> Secret {
        Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        }
    }
}

/// Returns the keys of the paths, if there are any.
pub(crate) fn path_keys(secret: &Secret) -> Option<PathKeys> {
    let data = secret.data.as_ref()?;
    PathKeys::read(|name| Some(data.get(name)?.0.as_slice()))
}

/// Returns the certificates of a damaged Secret of which leaves may still be in use.
pub(crate) fn salvage(secret: &Secret, now: Timestamp) -> Vec<String> {
    [ACTIVE.0, NEXT.0, PREVIOUS]
        .iter()
        .filter_map(|key| text(secret, key))
        .flat_map(certificates)
        .filter(|pem| is_valid_authority(pem, now))
        .collect()
}

fn is_valid_authority(pem: &str, now: Timestamp) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(pem.as_bytes()) else {
        return false;
    };
    let Ok((_, x509)) = x509_parser::parse_x509_certificate(&der) else {
        return false;
    };
    x509.is_ca() && lifetime(&x509).is_ok_and(|(_, until)| now < until)
}

/// Splits a bundle into single PEM blocks, each with its line end.
pub(crate) fn certificates(bundle: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    bundle
        .split_inclusive(END)
        .filter_map(|part| {
            part.find("-----BEGIN CERTIFICATE-----")
                .map(|begin| &part[begin..])
        })
        .filter(|block| block.ends_with(END))
        .map(|block| format!("{block}\n"))
        .collect()
}

fn text<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    let value = secret.data.as_ref()?.get(key)?;
    std::str::from_utf8(&value.0).ok()
}

fn annotation<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    secret
        .metadata
        .annotations
        .as_ref()?
        .get(key)
        .map(String::as_str)
}

fn instant(secret: &Secret, key: &str) -> Option<Timestamp> {
    annotation(secret, key)?.parse().ok()
}

fn set(annotations: &mut BTreeMap<String, String>, key: &str, value: Option<String>) {
    match value {
        Some(value) => annotations.insert(key.to_owned(), value),
        None => annotations.remove(key),
    };
}
