//! Ticket checks and on-call checks: which server is asked about a ticket or a requester, and what its answer means.

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
use super::subject::{Subject, SubjectError};
use crate::validate::dns_label;

/// The maximum number of checks.
const MOST_CHECKS: usize = 32;
/// The longest URL, in bytes.
const MAX_URL: usize = 2048;
/// The placeholder of the change ticket in a URL.
const TICKET: &str = "{ticket}";
/// The placeholder of the requester's user name in a URL.
const USER: &str = "{user}";
/// The placeholder of the requester's unique ID in a URL.
const UID: &str = "{uid}";
/// The placeholder of the group for which an on-call check is asked in a URL.
const GROUP: &str = "{group}";
/// All placeholders.
const PLACES: [&str; 4] = [TICKET, USER, UID, GROUP];
/// The variable of the requester in `accept`.
const REQUESTER: &str = "requester";
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

/// Ticket checks and on-call checks: the servers that the operator asks whether a change ticket is open, or whether a
/// requester is on call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Checks {
    /// The checks by name, which templates and access policies use.
    pub checks: BTreeMap<String, Check>,
    /// Hosts that may have a loopback or link-local address. The operator asks no other host with such an address.
    pub allowed_hosts: BTreeSet<String>,
}

/// A ticket check, or an on-call check if its URL has no {ticket}.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Check {
    /// URL of the server. For a ticket check with {ticket} in its path or query; for an on-call check with {user},
    /// {uid} or {group} (of `unless`) there, or with a requester that accept compares.
    #[serde(deserialize_with = "url")]
    url: String,
    /// The Secret of the check, in oz's namespace.
    #[serde(default)]
    pub secret: CheckSecret,
    /// Trust the certificate authorities of the Web, by Mozilla's list. Excludes secret.ca.
    #[serde(default)]
    pub public_roots: bool,
    /// CEL over `status` and `body` of the response: true if the ticket permits access, or if the requester is on call.
    /// That of an on-call check can use `requester` as well, with the fields `user`, `uid` and `groups`.
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
    /// Interval between two queries about a ticket or a requester while access lasts, from 1s to 1h.
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
    /// The place of a placeholder.
    #[error("must have {TICKET}, {USER}, {UID} and {GROUP} only in its path or query")]
    Place,
    /// Nothing that names the subject.
    #[error(
        "must have {TICKET} in its path or query; an on-call check, which has {USER} or {UID} there, or compares \
         {REQUESTER} in accept, replaces approvals instead"
    )]
    Subject,
    /// Both subjects.
    #[error(
        "must have either {TICKET} or the placeholders of an on-call check: {USER}, {UID} and {GROUP}"
    )]
    Both,
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
            if let Err(why) = check.has_subject() {
                let why = why.to_string();
                let at = format!("{at}.url");
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

    /// Checks whether it is a ticket check; otherwise, it is an on-call check.
    #[must_use]
    pub fn is_ticket_check(&self) -> bool {
        self.url.contains(TICKET)
    }

    /// Checks whether its URL names the requester.
    #[must_use]
    pub fn names_requester(&self) -> bool {
        self.url.contains(USER) || self.url.contains(UID)
    }

    /// Checks that its response is about one subject.
    fn has_subject(&self) -> Result<(), CheckUrlInvalid> {
        let of_requester = self.names_requester() || self.url.contains(GROUP);
        if self.is_ticket_check() {
            return match of_requester {
                true => Err(CheckUrlInvalid::Both),
                false => Ok(()),
            };
        }
        match self.names_requester() || self.accept.contains(REQUESTER) {
            true => Ok(()),
            false => Err(CheckUrlInvalid::Subject),
        }
    }

    /// Returns the URL of the query about a subject. No character of the subject has a meaning in the URL.
    ///
    /// # Errors
    /// The server cannot be asked about this subject.
    pub fn url(&self, subject: &Subject) -> Result<String, SubjectError> {
        let values: [Option<&str>; 4] = match subject {
            Subject::Ticket(_) if !self.is_ticket_check() => return Err(SubjectError::OnCall),
            Subject::Requester(_) if self.is_ticket_check() => return Err(SubjectError::Ticket),
            Subject::Ticket(ticket) => [Some(ticket), None, None, None],
            Subject::Requester(person) => [
                None,
                Some(&person.user),
                Some(&person.uid),
                person.group.as_deref(),
            ],
        };
        let mut url = self.url.clone();
        for (place, value) in PLACES.into_iter().zip(values) {
            if !self.url.contains(place) {
                continue;
            }
            let value = value.filter(|value| is_placeable(value));
            let value = value.ok_or(SubjectError::Value(place))?;
            url = url.replace(place, &encoded(value));
        }
        Ok(url)
    }

    /// Returns the URL with an example of its subject, for validation.
    #[must_use]
    pub fn example_url(&self) -> String {
        let example = |url: String, place: &str| url.replace(place, "example");
        PLACES.into_iter().fold(self.url.clone(), example)
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

/// Checks that every placeholder is in the path or query of a URL: a subject must not choose the host, and clients do not
/// send fragments.
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
    let after = server.find(['/', '?', '\\']).unwrap_or(server.len());
    let mut places = PLACES.into_iter().filter_map(|place| server.find(place));
    match places.all(|place| after < place) {
        true => Ok(()),
        false => Err(CheckUrlInvalid::Place),
    }
}

/// Checks that a value is not empty, and that no part of it leads to another path: servers decode a path before they
/// resolve it.
fn is_placeable(value: &str) -> bool {
    let mut parts = value.split(['/', '\\']);
    !value.is_empty() && !parts.any(|part| matches!(part, "." | ".."))
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
fn encoded(value: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
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

    use super::super::subject::Person;
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
            let subject = Subject::Ticket(ticket.to_owned());
            assert_eq!(check.url(&subject), Ok(expected));
        }
    }

    fn on_call(url: &str, accept: &str) -> Result<Check, String> {
        read(json!({"url": url, "accept": accept}))
    }

    #[test]
    fn on_call_check_url_contains_the_encoded_requester() {
        let url = "https://duty.test/{group}/{user}?uid={uid}";
        let check = on_call(url, "status == 200").unwrap();
        let person = |user: &str, uid: &str, group: Option<&str>| {
            Subject::Requester(Person {
                user: user.to_owned(),
                uid: uid.to_owned(),
                groups: Vec::new(),
                group: group.map(ToOwned::to_owned),
            })
        };
        for (subject, expected) in [
            (
                person("a@b.test", "u-1", Some("sre")),
                Ok("https://duty.test/sre/a%40b.test?uid=u-1".to_owned()),
            ),
            (
                person("{uid}/x", "u&v=1", Some("a b")),
                Ok("https://duty.test/a%20b/%7Buid%7D%2Fx?uid=u%26v%3D1".to_owned()),
            ),
            // Without a value, the URL would ask about all users.
            (
                person("", "u-1", Some("sre")),
                Err(SubjectError::Value(USER)),
            ),
            (
                person("alice", "", Some("sre")),
                Err(SubjectError::Value(UID)),
            ),
            (
                person("alice", "u-1", None),
                Err(SubjectError::Value(GROUP)),
            ),
            (
                person("..", "u-1", Some("sre")),
                Err(SubjectError::Value(USER)),
            ),
            (
                person("alice", "u-1", Some(r"a\..")),
                Err(SubjectError::Value(GROUP)),
            ),
            (
                Subject::Ticket("INC-1".to_owned()),
                Err(SubjectError::OnCall),
            ),
        ] {
            assert_eq!(check.url(&subject), expected, "{subject:?}");
        }
        let ticket = read(check_json("https://jira.test/{ticket}")).unwrap();
        let alice = person("alice", "", None);
        assert_eq!(ticket.url(&alice), Err(SubjectError::Ticket));
    }

    #[test]
    fn check_without_one_subject_is_rejected() {
        for (url, accept, said) in [
            ("https://duty.test/{user}", "status == 200", None),
            ("https://duty.test/?id={uid}", "status == 200", None),
            ("https://duty.test/now", "body.user == requester.user", None),
            (
                "https://duty.test/now",
                "status == 200",
                Some("must have {ticket}"),
            ),
            // The group alone does not name a user.
            (
                "https://duty.test/{group}",
                "status == 200",
                Some("must have {ticket}"),
            ),
            (
                "https://duty.test/{ticket}/{user}",
                "status == 200",
                Some("must have either"),
            ),
            (
                "https://{user}.test/",
                "status == 200",
                Some("only in its path or query"),
            ),
            (
                "https://duty.test:{group}/{user}",
                "status == 200",
                Some("only in its path or query"),
            ),
        ] {
            match said {
                None => assert!(on_call(url, accept).is_ok(), "{url}"),
                Some(said) => {
                    let why = on_call(url, accept).unwrap_err();
                    assert!(why.contains(said), "{url}: {why}");
                }
            }
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
