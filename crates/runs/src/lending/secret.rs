//! The value of a credential, from its Secret.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::encode;
use oz_api::harness::SecretKey;
use oz_api::harness::wire::MAX_VALUE;
use std::collections::BTreeMap;

/// The reason for which a Secret has no value to lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
pub enum SecretRefusal {
    /// The Secret does not exist.
    SecretNotFound,
    /// The broker may not read the Secret.
    SecretUnreadable,
    /// The Secret has no such key.
    SecretKeyMissing,
    /// The value is empty.
    SecretEmpty,
    /// The value is not UTF-8, or contains control characters, which no header can carry.
    SecretInvalid,
    /// The value is larger than [`MAX_VALUE`].
    SecretTooLarge,
}

impl SecretRefusal {
    /// Returns the message for users.
    #[must_use]
    pub fn message(self, namespace: &str, secret: &SecretKey) -> String {
        let SecretKey { name, key } = secret;
        let what = format!("Secret {namespace}/{name}");
        match self {
            Self::SecretNotFound => {
                format!("{what} does not exist: create it with the key {key:?}")
            }
            Self::SecretUnreadable => format!(
                "the broker may not read {what}: bind a Role with get on this name to oz-broker, which ozctl run policy \
                 scaffold prints"
            ),
            Self::SecretKeyMissing => format!("{what} has no key {key:?}: add it"),
            Self::SecretEmpty => format!("the value of key {key:?} of {what} is empty: set it"),
            Self::SecretInvalid => format!(
                "the value of key {key:?} of {what} has control characters or is not UTF-8: write one line of text"
            ),
            Self::SecretTooLarge => {
                format!(
                    "the value of key {key:?} of {what} is larger than {MAX_VALUE} bytes: shorten it"
                )
            }
        }
    }
}

/// Returns the value under `key`, without one line break at its end.
///
/// # Errors
/// The reason for which there is no value to lend.
pub fn value(
    data: Option<&BTreeMap<String, ByteString>>,
    key: &str,
) -> Result<String, SecretRefusal> {
    let Some(ByteString(bytes)) = data.and_then(|data| data.get(key)) else {
        return Err(SecretRefusal::SecretKeyMissing);
    };
    if bytes.len() > MAX_VALUE {
        return Err(SecretRefusal::SecretTooLarge);
    }
    let Ok(text) = str::from_utf8(bytes) else {
        return Err(SecretRefusal::SecretInvalid);
    };
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(SecretRefusal::SecretEmpty);
    }
    if text.contains(char::is_control) {
        return Err(SecretRefusal::SecretInvalid);
    }
    Ok(text.to_owned())
}

/// Returns the version of a Secret: equal as long as the Secret is neither changed nor replaced.
#[must_use]
pub fn version(metadata: &ObjectMeta) -> String {
    encode::digest(&[&metadata.uid, &metadata.resource_version])
}
