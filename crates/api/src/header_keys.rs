//! Headers with which oz authenticates at a server outside the cluster, and the keys of a Secret that hold their values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maximum number of headers of a server.
const MOST_HEADERS: usize = 16;
/// The maximum length of the name of a header.
const LONGEST_NAME: usize = 128;
/// The headers that oz, or the protocol, sets for each request; hop-by-hop headers among them.
const RESERVED: [&str; 16] = [
    "connection",
    "date",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// The names of headers, each with the key of the Secret that holds its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(
    try_from = "BTreeMap<String, String>",
    into = "BTreeMap<String, String>"
)]
#[schemars(with = "BTreeMap<String, String>")]
pub struct HeaderKeys(BTreeMap<String, String>);

/// The reason why a header cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderKeysError {
    /// The number of headers.
    #[error("must be at most {MOST_HEADERS} headers")]
    Number,
    /// The text is not the name of a header.
    #[error("{name:?} is not the name of a header")]
    Name {
        /// The text.
        name: String,
    },
    /// The headers contain the same name twice, in different cases.
    #[error("{name} is given twice, in different cases")]
    Twice {
        /// The name.
        name: String,
    },
    /// The header describes the content or the connection, or oz sets it.
    #[error("{name} cannot be set: it describes the connection or the content, or oz sets it")]
    Reserved {
        /// The name.
        name: String,
    },
    /// The header has a separate field.
    #[error("{name} cannot be set here: set secret.authorization to the key with its value")]
    Authorization {
        /// The name.
        name: String,
    },
    /// The text is not the name of a key of a Secret.
    #[error("{name} has {key:?}, which is not the name of a key of a Secret")]
    Key {
        /// The name of the header.
        name: String,
        /// The text.
        key: String,
    },
}

impl HeaderKeys {
    /// Returns true if there are no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of the headers, each with the file of its value in the directory of the Secret.
    #[must_use]
    pub fn files(&self, directory: &Path) -> Vec<(String, PathBuf)> {
        let files = self.0.iter();
        files
            .map(|(name, key)| (name.clone(), directory.join(key)))
            .collect()
    }
}

impl TryFrom<BTreeMap<String, String>> for HeaderKeys {
    type Error = HeaderKeysError;

    fn try_from(keys: BTreeMap<String, String>) -> Result<Self, HeaderKeysError> {
        if keys.len() > MOST_HEADERS {
            return Err(HeaderKeysError::Number);
        }
        let mut seen = Vec::new();
        for (name, key) in &keys {
            check(name, key)?;
            let lower = name.to_ascii_lowercase();
            if seen.contains(&lower) {
                return Err(HeaderKeysError::Twice { name: name.clone() });
            }
            seen.push(lower);
        }
        Ok(Self(keys))
    }
}

impl From<HeaderKeys> for BTreeMap<String, String> {
    fn from(keys: HeaderKeys) -> Self {
        keys.0
    }
}

fn check(name: &str, key: &str) -> Result<(), HeaderKeysError> {
    // The characters of a token: RFC 9110, section 5.6.2.
    let token = |it: u8| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&it);
    let name = || name.to_owned();
    let lower = name().to_ascii_lowercase();
    if lower.is_empty() || lower.len() > LONGEST_NAME || !lower.bytes().all(token) {
        return Err(HeaderKeysError::Name { name: name() });
    }
    if lower == "authorization" {
        return Err(HeaderKeysError::Authorization { name: name() });
    }
    if RESERVED.contains(&lower.as_str()) || lower.starts_with("content-") {
        return Err(HeaderKeysError::Reserved { name: name() });
    }
    let letter = |it: u8| it.is_ascii_alphanumeric() || b"-._".contains(&it);
    // `.` and `..` are directories.
    if key.is_empty() || !key.bytes().all(letter) || key.bytes().all(|it| it == b'.') {
        let key = key.to_owned();
        return Err(HeaderKeysError::Key { name: name(), key });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<HeaderKeys, HeaderKeysError> {
        let pairs = pairs
            .iter()
            .map(|(name, key)| ((*name).to_owned(), (*key).to_owned()));
        HeaderKeys::try_from(pairs.collect::<BTreeMap<_, _>>())
    }

    #[test]
    fn header_of_connection_or_content_is_rejected_in_any_case() {
        for (name, fine) in [
            ("X-Api-Key", true),
            ("Accept", true),
            ("Private-Token", true),
            ("x-contentful", true),
            ("Host", false),
            ("HOST", false),
            ("Content-Type", false),
            ("content-length", false),
            ("Content-", false),
            ("Transfer-Encoding", false),
            ("TE", false),
            ("Trailer", false),
            ("Upgrade", false),
            ("Connection", false),
            ("Keep-Alive", false),
            ("Proxy-Authorization", false),
            ("Proxy-Connection", false),
            ("Expect", false),
            ("Authorization", false),
            ("aUTHORIZATION", false),
            ("webhook-signature", false),
            ("", false),
            ("X Api", false),
            ("X-Api:", false),
            ("X-Api\r\nHost", false),
            ("X-Äpi", false),
        ] {
            assert_eq!(read(&[(name, "key")]).is_ok(), fine, "{name:?}");
        }
        let same = read(&[("X-Api-Key", "a"), ("x-api-key", "b")]);
        assert!(matches!(same, Err(HeaderKeysError::Twice { .. })));
        let names: Vec<String> = (0..=MOST_HEADERS).map(|it| format!("X-{it}")).collect();
        let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), "key")).collect();
        assert_eq!(read(&pairs), Err(HeaderKeysError::Number));
        assert!(read(&pairs[1..]).is_ok());
    }

    #[test]
    fn key_that_leaves_directory_of_secret_is_rejected() {
        for (key, fine) in [
            ("api-key", true),
            ("..data", true),
            ("", false),
            (".", false),
            ("..", false),
            ("../other/token", false),
            ("a/b", false),
        ] {
            assert_eq!(read(&[("X-Api-Key", key)]).is_ok(), fine, "{key:?}");
        }
        let keys = read(&[("X-Api-Key", "api-key")]).unwrap();
        let file = PathBuf::from("/etc/oz/tickets/jira/api-key");
        assert_eq!(
            keys.files(Path::new("/etc/oz/tickets/jira")),
            [("X-Api-Key".to_owned(), file)]
        );
    }
}
