//! Checks, as `--tickets` has them: which server is asked about a ticket, and what its answer means.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use jiff::SignedDuration;
use oz_api::duration::{DurationError, GoDuration};
use serde::Deserialize;

use super::CheckTerms;
use crate::validate::{FormError, dns_label};

/// How many checks there may be.
const MOST_CHECKS: usize = 32;
/// The longest URL, in bytes.
const MAX_URL: usize = 2048;
/// What stands for the ticket in a URL.
const PLACE: &str = "{ticket}";
/// How long a server may take, at least and at most.
const TIMEOUT: [SignedDuration; 2] = [
    SignedDuration::from_millis(100),
    SignedDuration::from_secs(30),
];
/// How often one is asked.
const EVERY: [SignedDuration; 2] = [SignedDuration::from_secs(1), SignedDuration::from_hours(1)];

/// What holds while a server does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, strum::Display)]
pub enum WhenAway {
    /// What is asked for waits; what was granted ends if it lasts long.
    #[default]
    Refuse,
    /// It is granted, and nothing ends.
    Allow,
}

/// All checks.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// By name.
    pub checks: BTreeMap<String, Check>,
    /// Hosts that may have an address which nobody else's may, such as one of loopback.
    pub allowed_hosts: BTreeSet<String>,
}

/// One check.
#[derive(Clone, Debug)]
pub struct Check {
    /// The URL, with `{ticket}` in its path or query.
    url: String,
    /// A file with a bearer token.
    pub token_file: Option<PathBuf>,
    /// A file with the certificate authorities that vouch for the server.
    pub ca_file: Option<PathBuf>,
    /// CEL over `status` and `body`: whether the ticket lets somebody in.
    pub accept: String,
    /// What decisions go by.
    pub terms: CheckTerms,
}

/// As it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(default)]
    checks: BTreeMap<String, WrittenCheck>,
    #[serde(default)]
    allowed_hosts: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenCheck {
    url: String,
    #[serde(default)]
    token_file: Option<PathBuf>,
    #[serde(default)]
    ca_file: Option<PathBuf>,
    accept: String,
    #[serde(default)]
    timeout: Option<String>,
    #[serde(default)]
    when_away: WhenAway,
    #[serde(default)]
    every: Option<String>,
}

/// The reason why a check cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckInvalid {
    /// The form of its name.
    #[error("its name {0}")]
    Name(FormError),
    /// The length of its URL.
    #[error("url must be at most {MAX_URL} bytes")]
    UrlLength,
    /// The scheme of its URL.
    #[error("url must begin with https:// or http://")]
    UrlScheme,
    /// A fragment in its URL.
    #[error("url must have no #: what follows one is not sent")]
    UrlFragment,
    /// The place of the ticket in its URL.
    #[error("url must have {PLACE} in its path or query")]
    UrlPlace,
    /// A duration that is none.
    #[error("{field} {text:?}: {error}")]
    Duration {
        /// Name of the field.
        field: &'static str,
        /// Its text.
        text: String,
        /// The reason.
        error: DurationError,
    },
    /// A duration that is too short or too long.
    #[error("{field} must be {least:#} to {most:#}")]
    Bounds {
        /// Name of the field.
        field: &'static str,
        /// The minimum.
        least: SignedDuration,
        /// The maximum.
        most: SignedDuration,
    },
}

/// Why checks cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It is not what it should be.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// There are too many.
    #[error("it has more than {MOST_CHECKS} checks")]
    TooMany,
    /// A check says something that cannot be.
    #[error("check {name:?}: {why}")]
    Check {
        /// Which.
        name: String,
        /// What.
        why: CheckInvalid,
    },
}

impl Checks {
    /// Reads the value of `--tickets`.
    ///
    /// # Errors
    /// What is wrong with it, and in which check.
    pub fn read(text: &str) -> Result<Self, CheckError> {
        let written: Written = serde_json::from_str(text)?;
        if written.checks.len() > MOST_CHECKS {
            return Err(CheckError::TooMany);
        }
        let checks = written.checks.into_iter().map(|(name, check)| {
            let read = dns_label(&name)
                .map_err(CheckInvalid::Name)
                .and_then(|()| Check::read(check));
            match read {
                Ok(check) => Ok((name, check)),
                Err(why) => Err(CheckError::Check { name, why }),
            }
        });
        Ok(Self {
            checks: checks.collect::<Result<_, _>>()?,
            allowed_hosts: written.allowed_hosts,
        })
    }

    /// What decisions go by, by the names of checks.
    #[must_use]
    pub fn terms(&self) -> BTreeMap<String, CheckTerms> {
        let each = self.checks.iter();
        each.map(|(name, check)| (name.clone(), check.terms))
            .collect()
    }
}

impl Check {
    fn read(written: WrittenCheck) -> Result<Self, CheckInvalid> {
        placed(&written.url)?;
        let length = |field, text: Option<String>, default, bounds| match text {
            None => Ok(default),
            Some(text) => length(field, &text, bounds),
        };
        let timeout = SignedDuration::from_secs(3);
        Ok(Self {
            url: written.url,
            token_file: written.token_file,
            ca_file: written.ca_file,
            accept: written.accept,
            terms: CheckTerms {
                timeout: length("timeout", written.timeout, timeout, TIMEOUT)?,
                when_away: written.when_away,
                every: length("every", written.every, SignedDuration::from_secs(60), EVERY)?,
            },
        })
    }

    /// Where to ask about a ticket. Whatever the ticket is, nothing in it means anything to a URL.
    #[must_use]
    pub fn url(&self, ticket: &str) -> String {
        self.url.replace(PLACE, &encoded(ticket))
    }
}

/// The ticket must not say whom oz talks to, nor stand where nothing is sent.
fn placed(url: &str) -> Result<(), CheckInvalid> {
    if url.len() > MAX_URL {
        return Err(CheckInvalid::UrlLength);
    }
    let server = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let server = server.ok_or(CheckInvalid::UrlScheme)?;
    if url.contains('#') {
        return Err(CheckInvalid::UrlFragment);
    }
    let after = server.find(['/', '?', '\\']);
    match (after, server.find(PLACE)) {
        (Some(after), Some(place)) if after < place => Ok(()),
        _ => Err(CheckInvalid::UrlPlace),
    }
}

fn length(
    field: &'static str,
    text: &str,
    [least, most]: [SignedDuration; 2],
) -> Result<SignedDuration, CheckInvalid> {
    let parsed: Result<GoDuration, _> = text.parse();
    let parsed = parsed.map_err(|error| CheckInvalid::Duration {
        field,
        text: text.to_owned(),
        error,
    })?;
    let length = SignedDuration::from(parsed);
    if length < least || length > most {
        return Err(CheckInvalid::Bounds { field, least, most });
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

    fn read(check: Value) -> Result<Check, String> {
        let text = json!({"checks": {"jira": check}}).to_string();
        let checks = Checks::read(&text).map_err(|error| error.to_string())?;
        Ok(checks.checks["jira"].clone())
    }

    fn at(url: &str) -> Value {
        json!({"url": url, "accept": "status == 200"})
    }

    #[test]
    fn a_check_has_what_it_does_not_say() {
        let check = read(at("https://jira.test/issue/{ticket}")).unwrap();
        assert_eq!(check.terms.timeout, SignedDuration::from_secs(3));
        assert_eq!(check.terms.every, SignedDuration::from_secs(60));
        assert_eq!(check.terms.when_away, WhenAway::Refuse);
    }

    #[test]
    fn nothing_in_a_ticket_means_anything_to_a_url() {
        let check = read(at(
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
            assert!(read(at(url)).unwrap_err().contains("url must"), "{url}");
        }
        for (field, value) in [
            ("timeout", "0s"),
            ("timeout", "31s"),
            ("timeout", "soon"),
            ("every", "0s"),
            ("every", "2h"),
            ("every", "-1m"),
            ("whenAway", "Maybe"),
            ("token", "secret"),
        ] {
            let mut check = at("https://jira.test/{ticket}");
            check[field] = json!(value);
            assert!(read(check).is_err(), "{field}: {value}");
        }
        let name = json!({"checks": {"Jira!": at("https://jira.test/{ticket}")}}).to_string();
        assert!(
            Checks::read(&name)
                .unwrap_err()
                .to_string()
                .contains("its name")
        );
        let many: BTreeMap<String, Value> = (0..=MOST_CHECKS)
            .map(|number| (format!("c{number}"), at("https://jira.test/{ticket}")))
            .collect();
        assert!(Checks::read(&json!({"checks": many}).to_string()).is_err());
    }
}
