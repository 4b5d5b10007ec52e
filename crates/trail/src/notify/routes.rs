//! The routes of notifications, and the selection of records for each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use oz_api::HeaderKeys;
use oz_api::glob::{Glob, GlobError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::escaped_for_url;
use super::{Format, NOTIFY, TICKET};
use crate::{Action, Record};

/// The maximum number of routes, and of names that a route lists.
const MOST_ROUTES: usize = 32;
const MOST_NAMES: usize = 256;
/// The maximum length of the ID of a channel.
const LONGEST_CHANNEL: usize = 64;
/// The maximum number of values for a body.
const MOST_VALUES: usize = 16;
/// The place of the change ticket in a URL.
const TICKET_PLACE: &str = "{ticket}";
/// The maximum length of the name of a route, which is the label of a metric.
const LONGEST_NAME: usize = 63;

/// Notifications about audit records, to chat, pagers or any server that accepts events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Routes {
    /// The routes.
    pub routes: Vec<Route>,
    /// Hosts that may have a loopback or link-local address. oz sends nothing to other hosts with such an address.
    pub allowed_hosts: BTreeSet<String>,
}

/// The destination and the selection of notifications.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// Name of the route in metrics and logs: 1 to 63 characters a-z, 0-9 and -.
    pub name: String,
    /// URL of the server, if it is not a secret. `{ticket}` in its path or query is replaced with the change ticket of
    /// the request; records without one are not sent then.
    #[serde(default)]
    pub url: Option<String>,
    /// The Secret of the route, in oz's namespace.
    #[serde(default)]
    pub secret: RouteSecret,
    /// Format that the server accepts.
    #[serde(default)]
    pub format: Format,
    /// For the format Custom: CEL map over `record`, `link` and `secret`, which is sent as JSON.
    #[serde(default)]
    pub body: Option<String>,
    /// For the format SlackBot: ID of the channel, such as C0123456789.
    #[serde(default)]
    pub channel: Option<String>,
    /// Actions of the audit records that are sent (docs/reference/audit.md); `*` for all.
    pub events: Events,
    /// Namespaces of the audit records that are sent, as globs; all namespaces if there are none.
    #[serde(default)]
    pub namespaces: Vec<Namespaces>,
    /// Trust the certificate authorities of the Web, by Mozilla's list. Excludes secret.ca.
    #[serde(default)]
    pub public_roots: bool,
    /// Link to the request: `{namespace}`, `{kind}` and `{name}` are replaced.
    #[serde(default)]
    pub link: Option<String>,
}

/// The Secret of a route, and the names of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteSecret {
    /// Name of the Secret. Empty for none.
    pub name: String,
    /// Its key with the URL, if the URL is a secret, as the URLs of Slack are.
    pub url: Option<String>,
    /// Its key with a bearer token.
    pub token: Option<String>,
    /// Its key with the whole value of the header Authorization, such as `Token token=…`, instead of a bearer token.
    pub authorization: Option<String>,
    /// Other headers that authenticate oz: by their names, the keys with their values.
    pub headers: HeaderKeys,
    /// Values for `body`, as `secret.NAME` there: by their names, the keys with them.
    pub values: BTreeMap<String, String>,
    /// Its key with the key that signs the notifications, as Standard Webhooks define it.
    pub signing_key: Option<String>,
    /// Its key with the CA bundle (PEM) that verifies the server.
    pub ca: Option<String>,
}

/// Actions by name; `*` stands for all.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
#[schemars(with = "Vec<String>")]
pub enum Events {
    /// Every action.
    All,
    /// The listed actions.
    Some(BTreeSet<Action>),
}

/// The reason why a list of actions is invalid.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The number of names.
    #[error("events must name 1 to {MOST_NAMES} actions, or *")]
    Number,
    /// A name that no action has.
    #[error("events has {0:?}, which is not an audit action: docs/reference/audit.md lists them")]
    Unknown(String),
}

impl TryFrom<Vec<String>> for Events {
    type Error = EventsError;

    fn try_from(names: Vec<String>) -> Result<Self, EventsError> {
        if names.is_empty() || names.len() > MOST_NAMES {
            return Err(EventsError::Number);
        }
        if names.iter().any(|name| name == "*") {
            return Ok(Self::All);
        }
        let read =
            |name: &String| Action::from_str(name).map_err(|_| EventsError::Unknown(name.clone()));
        names
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map(Self::Some)
    }
}

impl From<Events> for Vec<String> {
    fn from(events: Events) -> Self {
        match events {
            Events::All => vec!["*".to_owned()],
            Events::Some(actions) => actions.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A glob over names of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Namespaces {
    text: String,
    glob: Glob,
}

/// The reason why a text is not a glob over names of namespaces.
#[derive(Debug, thiserror::Error)]
#[error("namespaces has {text:?}, which {error}")]
pub struct NamespacesError {
    /// The text.
    text: String,
    /// The fault.
    error: GlobError,
}

impl TryFrom<String> for Namespaces {
    type Error = NamespacesError;

    fn try_from(text: String) -> Result<Self, NamespacesError> {
        match text.parse() {
            Ok(glob) => Ok(Self { text, glob }),
            Err(error) => Err(NamespacesError { text, error }),
        }
    }
}

impl From<Namespaces> for String {
    fn from(namespaces: Namespaces) -> Self {
        namespaces.text
    }
}

/// The fault of routes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub struct RouteError {
    /// The path of the field, such as `routes[0].name`.
    pub at: String,
    /// The fault.
    pub why: &'static str,
}

impl Routes {
    /// Checks the routes.
    ///
    /// # Errors
    /// The field with a fault.
    pub fn check(&self) -> Result<(), RouteError> {
        if self.routes.len() > MOST_ROUTES {
            return Err(RouteError {
                at: "routes".to_owned(),
                why: "must be at most 32",
            });
        }
        let mut names = BTreeSet::new();
        for (number, route) in self.routes.iter().enumerate() {
            let failed = |field: &str, why| RouteError {
                at: format!("routes[{number}].{field}"),
                why,
            };
            let letter = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
            if route.name.is_empty()
                || route.name.len() > LONGEST_NAME
                || !route.name.chars().all(letter)
            {
                let why = "must have 1 to 63 characters a-z, 0-9 and -";
                return Err(failed("name", why));
            }
            if !names.insert(&route.name) {
                return Err(failed("name", "is the name of another route, too"));
            }
            let secret = &route.secret;
            if route.url.is_some() == secret.url.is_some() {
                return Err(failed(
                    "url",
                    "is required, unless secret.url names a key with it",
                ));
            }
            if let Err((field, why)) = secret.check(route.public_roots) {
                return Err(failed(field, why));
            }
            if let Err((field, why)) = route.check_content().and_then(|()| route.check_bot()) {
                return Err(failed(field, why));
            }
            if route.namespaces.len() > MOST_NAMES {
                return Err(failed("namespaces", "must be at most 256"));
            }
        }
        Ok(())
    }
}

impl RouteSecret {
    /// Checks which keys are given together. An error is a field and its fault.
    fn check(&self, public_roots: bool) -> Result<(), (&'static str, &'static str)> {
        let keys = [
            &self.url,
            &self.token,
            &self.authorization,
            &self.signing_key,
            &self.ca,
        ];
        let has_maps = !self.headers.is_empty() || !self.values.is_empty();
        let has_keys = has_maps || keys.into_iter().any(Option::is_some);
        if self.name.is_empty() && has_keys {
            return Err(("secret.name", "is required for its keys"));
        }
        let letter = |it: char| it.is_ascii_alphanumeric() || "-._".contains(it);
        let is_key = |key: &String| {
            !key.is_empty() && key.chars().all(letter) && key.chars().any(|it| it != '.')
        };
        if self.values.len() > MOST_VALUES || !self.values.values().all(is_key) {
            return Err(("secret.values", "must name up to 16 keys of the Secret"));
        }
        if self.token.is_some() && self.authorization.is_some() {
            let why = "excludes secret.token: both are the header Authorization";
            return Err(("secret.authorization", why));
        }
        if public_roots && self.ca.is_some() {
            return Err(("publicRoots", "excludes secret.ca: set one of them"));
        }
        Ok(())
    }
}

impl Route {
    /// Checks the fields that concern the content. An error is a field and its fault.
    fn check_content(&self) -> Result<(), (&'static str, &'static str)> {
        let is_custom = self.format == Format::Custom;
        let url = self.url.as_deref();
        // A change ticket must not choose the host.
        let server = url
            .and_then(|url| url.split_once("://"))
            .map(|(_, rest)| rest);
        let place = server.and_then(|server| server.find(TICKET_PLACE));
        let path = server.and_then(|server| server.find(['/', '?', '\\']));
        match &self.body {
            None if is_custom => Err(("body", "is required for the format Custom")),
            Some(_) if !is_custom => Err(("body", "is for the format Custom only")),
            None if !self.secret.values.is_empty() => {
                Err(("secret.values", "is for the format Custom only"))
            }
            _ if place.is_some_and(|place| path.is_none_or(|path| path > place)) => {
                Err(("url", "must have {ticket} in its path or query only"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the fields of the format SlackBot. An error is a field and its fault.
    fn check_bot(&self) -> Result<(), (&'static str, &'static str)> {
        if self.format != Format::SlackBot {
            return match self.channel {
                None => Ok(()),
                Some(_) => Err(("channel", "is for the format SlackBot only")),
            };
        }
        let letter = |it: char| it.is_ascii_uppercase() || it.is_ascii_digit();
        let channel = self.channel.as_deref().unwrap_or_default();
        if channel.is_empty() || channel.len() > LONGEST_CHANNEL || !channel.chars().all(letter) {
            let why = "must be the ID of a channel, such as C0123456789";
            return Err(("channel", why));
        }
        if self.secret.token.is_none() && self.secret.authorization.is_none() {
            let why = "is required for the format SlackBot: the key with the bot token";
            return Err(("secret.token", why));
        }
        let url = self.url.as_deref().unwrap_or_default();
        if url.contains(['?', '#', '{']) {
            let why = "must be that of the API, such as https://slack.com/api, without a query";
            return Err(("url", why));
        }
        Ok(())
    }

    /// Returns the URL of the server for a change ticket. No character of the ticket has a meaning in the URL.
    #[must_use]
    pub fn url_for(&self, ticket: &str) -> Option<String> {
        let url = self.url.as_ref()?;
        Some(url.replace(TICKET_PLACE, &escaped_for_url(ticket)))
    }

    /// Checks whether the URL of the server contains the change ticket.
    fn needs_ticket(&self) -> bool {
        let url = self.url.as_ref();
        url.is_some_and(|url| url.contains(TICKET_PLACE))
    }

    /// Returns the directory of the route's Secret, in the directory of Secrets.
    #[must_use]
    pub fn directory(&self, secrets: &Path) -> PathBuf {
        secrets.join("notifications").join(&self.name)
    }

    /// Returns the file of a key of the route's Secret, in the directory of Secrets.
    #[must_use]
    pub fn file(&self, secrets: &Path, key: Option<&str>) -> Option<PathBuf> {
        key.map(|key| self.directory(secrets).join(key))
    }

    /// Checks whether a record is sent by this route. A record without a namespace is sent by routes that list no
    /// namespaces.
    #[must_use]
    pub fn wants(&self, record: &Record) -> bool {
        let named = match &self.events {
            Events::All => true,
            Events::Some(actions) => actions.contains(&record.action),
        };
        let namespace = &record.request.namespace;
        let here = self.namespaces.is_empty()
            || self
                .namespaces
                .iter()
                .any(|one| one.glob.matches(namespace));
        let silent = record.details.get(NOTIFY).is_some_and(|it| it == "false");
        let ticket = record.details.get(TICKET);
        let has_ticket = ticket.is_some_and(|ticket| !ticket.is_empty());
        named && here && !silent && (has_ticket || !self.needs_ticket())
    }
}
