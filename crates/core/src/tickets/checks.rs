//! Ticket checks: which server is asked about a ticket, and what its answer means.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use oz_api::duration::{DurationError, GoDuration};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::CheckTerms;
use super::secret::{CheckError, CheckSecret};
use crate::validate::dns_label;

/// The maximum number of checks.
const MOST_CHECKS: usize = 32;
/// The longest URL, in bytes.
const MAX_URL: usize = 2048;
/// The placeholder of the change ticket in a URL.
const PLACE: &str = "{ticket}";
/// The minimum and maximum timeout of a server.
const TIMEOUT: [SignedDuration; 2] = [
    SignedDuration::from_millis(100),
    SignedDuration::from_secs(30),
];
/// The minimum and maximum interval between two queries.
const EVERY: [SignedDuration; 2] = [SignedDuration::from_secs(1), SignedDuration::from_hours(1)];

/// The effect of a server that does not answer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema, strum::Display,
)]
pub enum FailurePolicy {
    /// Requests wait; granted access ends if the state lasts.
    #[default]
    Fail,
    /// Requests are granted, and nothing ends.
    Ignore,
}

/// Ticket checks: the servers that the operator asks whether a change ticket is open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Checks {
    /// The checks by name, which templates and access policies use.
    pub checks: BTreeMap<String, Check>,
    /// Hosts that may have a loopback or link-local address. The operator asks no other host with such an address.
    pub allowed_hosts: BTreeSet<String>,
}

/// A ticket check.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Check {
    /// URL of the server, with {ticket} in its path or query.
    #[serde(deserialize_with = "url")]
    url: String,
    /// The Secret of the check, in oz's namespace.
    #[serde(default)]
    pub secret: CheckSecret,
    /// Trust the certificate authorities of the Web, by Mozilla's list. Excludes secret.ca.
    #[serde(default)]
    pub public_roots: bool,
    /// CEL over `status` and `body` of the response: true if the ticket permits access.
    pub accept: String,
    /// Timeout of the server, from 100ms to 30s.
    #[serde(
        default = "CheckTerms::default_timeout",
        deserialize_with = "timeout",
        serialize_with = "text"
    )]
    #[schemars(with = "String", regex(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"))]
    timeout: SignedDuration,
    /// The effect of a server that does not answer.
    #[serde(default)]
    failure_policy: FailurePolicy,
    /// Interval between two queries about a ticket while access lasts, from 1s to 1h.
    #[serde(
        default = "CheckTerms::default_interval",
        deserialize_with = "interval",
        serialize_with = "text"
    )]
    #[schemars(with = "String", regex(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"))]
    interval: SignedDuration,
}

/// The reason why the URL of a check is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum CheckUrlInvalid {
    /// The URL is too long.
    #[error("must be at most {MAX_URL} bytes")]
    Length,
    /// The scheme is neither `https` nor `http`.
    #[error("must begin with https:// or http://")]
    Scheme,
    /// A fragment.
    #[error("must have no #: the client does not send a fragment")]
    Fragment,
    /// The place of the ticket.
    #[error("must have {PLACE} in its path or query")]
    Place,
}

/// The reason why a duration of a check is invalid.
#[derive(Debug, thiserror::Error)]
enum CheckDurationInvalid {
    /// The text is not a duration.
    #[error(transparent)]
    Text(#[from] DurationError),
    /// The duration is too short or too long.
    #[error("must be {least:#} to {most:#}")]
    Bounds {
        /// The minimum.
        least: SignedDuration,
        /// The maximum.
        most: SignedDuration,
    },
}

impl Checks {
    /// Checks the number and the names of the checks.
    ///
    /// # Errors
    /// The field with a fault.
    pub fn check(&self) -> Result<(), CheckError> {
        if self.checks.len() > MOST_CHECKS {
            return Err(CheckError {
                at: "checks".to_owned(),
                why: format!("must be at most {MOST_CHECKS}"),
            });
        }
        for (name, check) in &self.checks {
            let at = format!("checks.{name}");
            if let Err(why) = dns_label(name) {
                let why = format!("the name {why}");
                return Err(CheckError { at, why });
            }
            check.secret.check(&at, check.public_roots)?;
        }
        Ok(())
    }

    /// Returns the terms of decisions, by the names of checks.
    #[must_use]
    pub fn terms(&self) -> BTreeMap<String, CheckTerms> {
        let each = self.checks.iter();
        each.map(|(name, check)| (name.clone(), check.terms()))
            .collect()
    }
}

impl Check {
    /// Returns the terms of decisions.
    #[must_use]
    pub const fn terms(&self) -> CheckTerms {
        CheckTerms {
            timeout: self.timeout,
            failure_policy: self.failure_policy,
            interval: self.interval,
        }
    }

    /// Returns the URL of the query about a ticket. No character of the ticket has a meaning in the URL.
    #[must_use]
    pub fn url(&self, ticket: &str) -> String {
        self.url.replace(PLACE, &encoded(ticket))
    }

    /// Returns the directory of the check's Secret, in the directory of Secrets; `name` is the check's.
    #[must_use]
    pub fn directory(secrets: &Path, name: &str) -> PathBuf {
        secrets.join("tickets").join(name)
    }
}

impl CheckTerms {
    const fn default_timeout() -> SignedDuration {
        Self::UNKNOWN.timeout
    }

    const fn default_interval() -> SignedDuration {
        Self::UNKNOWN.interval
    }
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let url = String::deserialize(deserializer)?;
    placed(&url).map_err(D::Error::custom)?;
    Ok(url)
}

fn timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SignedDuration, D::Error> {
    length(&String::deserialize(deserializer)?, TIMEOUT).map_err(D::Error::custom)
}

fn interval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SignedDuration, D::Error> {
    length(&String::deserialize(deserializer)?, EVERY).map_err(D::Error::custom)
}

fn text<S: Serializer>(duration: &SignedDuration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&GoDuration::from(*duration))
}

/// Checks that the placeholder of the ticket is in the path or query of a URL: a ticket must not choose the host, and
/// clients do not send fragments.
fn placed(url: &str) -> Result<(), CheckUrlInvalid> {
    if url.len() > MAX_URL {
        return Err(CheckUrlInvalid::Length);
    }
    let server = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let server = server.ok_or(CheckUrlInvalid::Scheme)?;
    if url.contains('#') {
        return Err(CheckUrlInvalid::Fragment);
    }
    let after = server.find(['/', '?', '\\']);
    match (after, server.find(PLACE)) {
        (Some(after), Some(place)) if after < place => Ok(()),
        _ => Err(CheckUrlInvalid::Place),
    }
}

fn length(
    text: &str,
    [least, most]: [SignedDuration; 2],
) -> Result<SignedDuration, CheckDurationInvalid> {
    let length = SignedDuration::from(text.parse::<GoDuration>()?);
    if length < least || length > most {
        return Err(CheckDurationInvalid::Bounds { least, most });
    }
    Ok(length)
}

/// All but what has no meaning anywhere in a URL is written as its bytes.
fn encoded(ticket: &str) -> String {
    let mut encoded = String::new();
    for byte in ticket.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn all(value: Value) -> Result<Checks, String> {
        let checks: Checks = serde_json::from_value(value).map_err(|error| error.to_string())?;
        checks.check().map_err(|error| error.to_string())?;
        Ok(checks)
    }

    fn read(check: Value) -> Result<Check, String> {
        let checks = all(json!({"checks": {"jira": check}}))?;
        Ok(checks.checks["jira"].clone())
    }

    fn check_json(url: &str) -> Value {
        json!({"url": url, "accept": "status == 200"})
    }

    #[test]
    fn a_check_has_what_it_does_not_say() {
        let check = read(check_json("https://jira.test/issue/{ticket}")).unwrap();
        assert_eq!(check.terms().timeout, SignedDuration::from_secs(3));
        assert_eq!(check.terms().interval, SignedDuration::from_secs(60));
        assert_eq!(check.terms().failure_policy, FailurePolicy::Fail);
    }

    #[test]
    fn nothing_in_a_ticket_means_anything_to_a_url() {
        let check = read(check_json(
            "https://jira.test/issue/{ticket}?fields=state&key={ticket}",
        ))
        .unwrap();
        for (ticket, encoded) in [
            ("INC-42", "INC-42"),
            ("a/b?c#d", "a%2Fb%3Fc%23d"),
            ("{ticket}", "%7Bticket%7D"),
            ("=1&x", "%3D1%26x"),
            ("%2e", "%252e"),
            (r"a\b@c:d", "a%5Cb%40c%3Ad"),
        ] {
            let expected = format!("https://jira.test/issue/{encoded}?fields=state&key={encoded}");
            assert_eq!(check.url(ticket), expected);
        }
    }

    #[test]
    fn invalid_ticket_check_is_rejected_with_field() {
        let long = format!("https://jira.test/{{ticket}}{}", "x".repeat(MAX_URL));
        for url in [
            "https://{ticket}/",
            "https://jira.test",
            "https://jira.test/",
            "https://x{ticket}.test/a",
            "https://jira.test/#{ticket}",
            "ftp://jira.test/{ticket}",
            "jira.test/{ticket}",
            "https://jira.test:{ticket}/",
            "https://{ticket}@jira.test/",
            &long,
        ] {
            assert!(read(check_json(url)).unwrap_err().contains("must"), "{url}");
        }
        for (field, value) in [
            ("timeout", "0s"),
            ("timeout", "31s"),
            ("timeout", "soon"),
            ("interval", "0s"),
            ("interval", "2h"),
            ("interval", "-1m"),
            ("failurePolicy", "Maybe"),
            ("token", "secret"),
        ] {
            let mut check = check_json("https://jira.test/{ticket}");
            check[field] = json!(value);
            assert!(read(check).is_err(), "{field}: {value}");
        }
        for (field, value, why) in [
            (
                "secret",
                json!({"authorization": "a"}),
                "checks.jira.secret.name: is required",
            ),
            (
                "secret",
                json!({"headers": {"X-Api-Key": "k"}}),
                "checks.jira.secret.name: is required",
            ),
            (
                "secret",
                json!({"name": "s", "token": "t", "authorization": "a"}),
                "checks.jira.secret.authorization: excludes",
            ),
            (
                "secret",
                json!({"name": "s", "ca": "ca.crt"}),
                "checks.jira.publicRoots: excludes",
            ),
            (
                "secret",
                json!({"name": "s", "headers": {"TE": "k"}}),
                "TE cannot be set",
            ),
        ] {
            let mut check = check_json("https://jira.test/{ticket}");
            check["publicRoots"] = json!(true);
            check[field] = value;
            let error = read(check).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let name = all(json!({"checks": {"Jira!": check_json("https://jira.test/{ticket}")}}));
        assert!(name.unwrap_err().contains("the name"));
        let many: BTreeMap<String, Value> = (0..=MOST_CHECKS)
            .map(|number| {
                (
                    format!("c{number}"),
                    check_json("https://jira.test/{ticket}"),
                )
            })
            .collect();
        assert!(all(json!({"checks": many})).is_err());
    }
}
