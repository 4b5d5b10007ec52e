//! Extra attributes of a requester: the values of the API server's `userInfo.extra` with the keys that the configuration
//! names. The webhook seals them in the stamp, and access policies read them as `requester.extra`. Without a
//! configured key, oz reads none: an identity provider may write any personal data there.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

/// The extra attributes of a user, by key.
pub type Extra = BTreeMap<String, Vec<String>>;

/// The maximum size of the extra attributes in a stamp, in bytes of JSON.
pub const MAX_BYTES: usize = 4 << 10;
/// The reason of the denial of a request with larger ones.
pub const TOO_LARGE: &str = "RequesterExtraTooLarge";
/// The key of the session token that the gate sends the API server, see [`Ticket`](crate::gate::ticket::Ticket).
pub const SESSION_TOKEN: &str = "oz-ticket";
/// The maximum length of a key.
const MAX_KEY: usize = 256;
/// The domain of the keys that Kubernetes writes about a credential, such as its ID and the pod of a service account.
const OF_KUBERNETES: &str = "authentication.kubernetes.io";
/// The domain of oz's own keys, and those of its subdomains.
const OF_OZ: &str = "wizardofoz.co";

/// A key of extra attributes that the configuration may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraKey(String);

/// The reason why a text is no key that the configuration may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtraKeyError {
    /// The text is empty, too long, or has characters that no key has.
    #[error("must be 1 to {MAX_KEY} printable ASCII characters without spaces")]
    Form,
    /// The key is one of Kubernetes.
    #[error(
        "must not be a key of {OF_KUBERNETES}: Kubernetes writes these about the credential; name \
         a key that your identity provider writes"
    )]
    OfKubernetes,
    /// The key is one of oz.
    #[error("must not be a key of oz; name a key that your identity provider writes")]
    OfOz,
}

impl FromStr for ExtraKey {
    type Err = ExtraKeyError;

    fn from_str(text: &str) -> Result<Self, ExtraKeyError> {
        let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.is_empty() || text.len() > MAX_KEY || !is_printable {
            return Err(ExtraKeyError::Form);
        }
        // Headers, by which proxies forward keys, do not distinguish cases.
        let lower = text.to_ascii_lowercase();
        let domain = lower.split_once('/').map_or(&*lower, |(domain, _)| domain);
        let is_of = |owner: &str| {
            let rest = domain.strip_suffix(owner);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if is_of(OF_KUBERNETES) {
            return Err(ExtraKeyError::OfKubernetes);
        }
        if is_of(OF_OZ) || lower == SESSION_TOKEN {
            return Err(ExtraKeyError::OfOz);
        }
        Ok(Self(text.to_owned()))
    }
}

impl Display for ExtraKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The keys of the extra attributes that the configuration names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraKeys(Arc<[ExtraKey]>);

impl FromIterator<ExtraKey> for ExtraKeys {
    fn from_iter<I: IntoIterator<Item = ExtraKey>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl ExtraKeys {
    /// Checks whether the configuration names no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns those extra attributes of a user that have one of the keys.
    ///
    /// # Errors
    /// They are larger than [`MAX_BYTES`] together.
    pub fn select(&self, all: &Extra) -> Result<Extra, ExtraTooLarge> {
        let keys = self.0.iter().map(|key| &key.0);
        let selected: Extra = keys
            .filter_map(|key| Some((key.clone(), all.get(key)?.clone())))
            .collect();
        let size = serde_json::to_vec(&selected).map_or(usize::MAX, |text| text.len());
        if size <= MAX_BYTES {
            return Ok(selected);
        }
        let keys: Vec<String> = selected.into_keys().collect();
        Err(ExtraTooLarge {
            keys: keys.join(", "),
            size,
        })
    }
}

/// The extra attributes of a user are too large for a stamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the extra attributes of the user ({keys}) have {size} bytes together, and the maximum is {MAX_BYTES}; \
     have an administrator shorten their values in the identity provider, or remove a key from \
     webhook.requesterExtra of the configuration"
)]
pub struct ExtraTooLarge {
    /// The configured keys that the user has.
    keys: String,
    /// The size, in bytes of JSON.
    size: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> ExtraKeys {
        keys.iter().map(|key| key.parse().unwrap()).collect()
    }

    fn extra(pairs: &[(&str, &[&str])]) -> Extra {
        let pair = |(key, values): &(&str, &[&str])| {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            ((*key).to_owned(), values)
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn key_of_kubernetes_or_oz_is_refused() {
        use ExtraKeyError::{Form, OfKubernetes, OfOz};
        let long = "k".repeat(257);
        for (text, expected) in [
            ("acr", None),
            ("example.org/auth-time", None),
            ("iam.example.com/user-assertion", None),
            ("sessionName", None),
            ("scopes.authorization.example.io", None),
            ("kubernetes.io/acr", None),
            ("notauthentication.kubernetes.io/acr", None),
            ("notwizardofoz.co/acr", None),
            ("example.org/wizardofoz.co", None),
            (&long[1..], None),
            ("", Some(Form)),
            (long.as_str(), Some(Form)),
            ("a b", Some(Form)),
            ("a\n", Some(Form)),
            ("sch\u{fc}tz", Some(Form)),
            (
                "authentication.kubernetes.io/credential-id",
                Some(OfKubernetes),
            ),
            ("Authentication.Kubernetes.io/pod-name", Some(OfKubernetes)),
            ("authentication.kubernetes.io", Some(OfKubernetes)),
            ("x.authentication.kubernetes.io/y", Some(OfKubernetes)),
            ("oz-ticket", Some(OfOz)),
            ("OZ-Ticket", Some(OfOz)),
            ("crds.wizardofoz.co/requester", Some(OfOz)),
            ("oz.WizardOfOz.co/grant", Some(OfOz)),
            ("wizardofoz.co/acr", Some(OfOz)),
        ] {
            assert_eq!(text.parse::<ExtraKey>().err(), expected, "{text:?}");
        }
    }

    #[test]
    fn only_configured_keys_are_selected() {
        let all = extra(&[
            ("acr", &["mfa"]),
            ("amr", &["otp", "pwd"]),
            ("none", &[]),
            ("token", &["secret"]),
        ]);
        for (named, expected) in [
            (&[][..], extra(&[])),
            (&["acr"][..], extra(&[("acr", &["mfa"])])),
            // Keys are compared as the API server sends them.
            (&["ACR", "absent"][..], extra(&[])),
            (
                &["none", "amr", "acr", "acr"][..],
                extra(&[("acr", &["mfa"]), ("amr", &["otp", "pwd"]), ("none", &[])]),
            ),
        ] {
            assert_eq!(keys(named).select(&all).unwrap(), expected, "{named:?}");
        }
    }

    #[test]
    fn attributes_above_maximum_are_refused_and_never_cut() {
        let named = keys(&["a", "b"]);
        // {"a":["…"]} has 10 bytes besides the value.
        let most = "x".repeat(MAX_BYTES - 10);
        let fits = extra(&[("a", &[&most])]);
        assert_eq!(named.select(&fits).unwrap(), fits);
        for too_large in [
            extra(&[("a", &[&format!("{most}x")])]),
            extra(&[("a", &[&most]), ("b", &["x"])]),
            extra(&[("a", &[&most, ""])]),
            // A quotation mark has two bytes in JSON.
            extra(&[("a", &[&format!("{}\"", &most[1..])])]),
        ] {
            let why = named.select(&too_large).unwrap_err().to_string();
            assert!(why.contains("maximum is 4096"), "{why}");
            assert!(why.contains("webhook.requesterExtra"), "{why}");
        }
        // What no key names does not count.
        let others = extra(&[("a", &["x"]), ("c", &[&"x".repeat(1 << 20)])]);
        assert_eq!(named.select(&others).unwrap(), extra(&[("a", &["x"])]));
    }
}
