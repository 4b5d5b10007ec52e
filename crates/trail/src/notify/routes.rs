//! The routes of `--notifications`, and the selection of records for each.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr as _;

use oz_api::glob::{Glob, GlobError};
use serde::Deserialize;

use super::{Format, NOTIFY};
use crate::{Action, Record};

/// The maximum number of routes, and of names that a route lists.
const MOST_ROUTES: usize = 32;
const MOST_NAMES: usize = 256;
/// The maximum length of the name of a route, which is the label of a metric.
const LONGEST_NAME: usize = 63;

/// All routes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Routes {
    /// The routes.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The hosts that may have an address that is not allowed for other hosts, such as a loopback address.
    #[serde(default)]
    pub allowed_hosts: BTreeSet<String>,
}

/// The destination and the selection of notifications.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// The name in metrics and logs.
    pub name: String,
    /// The URL of the server, if it is not a secret.
    #[serde(default)]
    pub url: Option<String>,
    /// A file with the URL, if it is a secret, as the URLs of Slack are.
    #[serde(default)]
    pub url_file: Option<PathBuf>,
    /// A file with a bearer token.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// A file with the key that signs the notifications, as Standard Webhooks define it.
    #[serde(default)]
    pub signing_key_file: Option<PathBuf>,
    /// A file with the certificate authorities that vouch for the server.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The format that the server accepts.
    #[serde(default)]
    pub format: Format,
    /// The actions of the records that are sent.
    pub events: Events,
    /// The namespaces of the records that are sent, as globs; all namespaces if there are none.
    #[serde(default)]
    pub namespaces: Vec<Namespaces>,
    /// The link to the request: `{namespace}`, `{kind}` and `{name}` are replaced.
    #[serde(default)]
    pub link: Option<String>,
}

/// Actions by name; `*` stands for all.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
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
    #[error(
        "events has {0:?}, which is no action of the record: docs/reference/audit.md lists them"
    )]
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

/// A glob over names of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Namespaces(Glob);

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
            Ok(glob) => Ok(Self(glob)),
            Err(error) => Err(NamespacesError { text, error }),
        }
    }
}

/// The reason for which routes are invalid.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The value cannot be parsed.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The number of routes exceeds the limit.
    #[error("it has more than {MOST_ROUTES} routes")]
    TooMany,
    /// A route has an invalid value.
    #[error("route {name:?} {why}")]
    Route {
        /// The name of the route.
        name: String,
        /// The fault.
        why: String,
    },
}

impl Routes {
    /// Reads the value of `--notifications`.
    ///
    /// # Errors
    /// The fault in the value, and the route that has it.
    pub fn read(text: &str) -> Result<Self, RouteError> {
        let read: Self = serde_json::from_str(text)?;
        if read.routes.len() > MOST_ROUTES {
            return Err(RouteError::TooMany);
        }
        let mut names = BTreeSet::new();
        for route in &read.routes {
            let failed = |why: &str| RouteError::Route {
                name: route.name.clone(),
                why: why.to_owned(),
            };
            let letter = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
            if route.name.is_empty()
                || route.name.len() > LONGEST_NAME
                || !route.name.chars().all(letter)
            {
                return Err(failed(
                    "must have a name of 1 to 63 characters a-z, 0-9 and -",
                ));
            }
            if !names.insert(&route.name) {
                return Err(failed("is there twice"));
            }
            if route.url.is_some() == route.url_file.is_some() {
                return Err(failed("must have one of url and urlFile"));
            }
            if route.namespaces.len() > MOST_NAMES {
                return Err(failed("names more than 256 namespaces"));
            }
        }
        Ok(read)
    }
}

impl Route {
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
            || self.namespaces.iter().any(|glob| glob.0.matches(namespace));
        let silent = record.details.get(NOTIFY).is_some_and(|it| it == "false");
        named && here && !silent
    }
}
