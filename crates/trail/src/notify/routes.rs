//! Routes, as `--notifications` has them, and which records go by which.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr as _;

use oz_api::glob::Glob;
use serde::Deserialize;

use super::{Format, NOTIFY};
use crate::{Action, Record};

/// How many routes there may be, and how many names one may list.
const MOST_ROUTES: usize = 32;
const MOST_NAMES: usize = 256;
/// How long the name of a route is at most: it is the label of a metric.
const LONGEST_NAME: usize = 63;

/// All routes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Routes {
    /// Where to send what.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Hosts that may have an address which nobody else's may, such as one of loopback.
    #[serde(default)]
    pub allowed_hosts: BTreeSet<String>,
}

/// Where to send what.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// Its name in metrics and logs.
    pub name: String,
    /// The server's URL, where it is no secret.
    #[serde(default)]
    pub url: Option<String>,
    /// A file with the URL, where it is one, as Slack's are.
    #[serde(default)]
    pub url_file: Option<PathBuf>,
    /// A file with a bearer token.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// A file with the key by which what is sent is signed, as Standard Webhooks has them.
    #[serde(default)]
    pub signing_key_file: Option<PathBuf>,
    /// A file with the certificate authorities that vouch for the server.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// What the server understands.
    #[serde(default)]
    pub format: Format,
    /// Which records.
    pub events: Events,
    /// Of which namespaces, as globs; of all, if there are none.
    #[serde(default)]
    pub namespaces: Vec<Namespaces>,
    /// Where the request is shown: `{namespace}`, `{kind}` and `{name}` are put in.
    #[serde(default)]
    pub link: Option<String>,
}

/// Actions by their names; `*` is for all.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub enum Events {
    /// Every action.
    All,
    /// These.
    Some(BTreeSet<Action>),
}

impl TryFrom<Vec<String>> for Events {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        if names.is_empty() || names.len() > MOST_NAMES {
            return Err(format!("events must name 1 to {MOST_NAMES} actions, or *"));
        }
        if names.iter().any(|name| name == "*") {
            return Ok(Self::All);
        }
        let read = |name: &String| {
            Action::from_str(name).map_err(|_| {
                format!("events has {name:?}, which is no action of the record: docs/reference/audit.md lists them")
            })
        };
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

impl TryFrom<String> for Namespaces {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let glob = text
            .parse()
            .map_err(|error| format!("namespaces has {text:?}, which {error}"))?;
        Ok(Self(glob))
    }
}

/// Why routes cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// It is not what it should be.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// There are too many.
    #[error("it has more than {MOST_ROUTES} routes")]
    TooMany,
    /// A route says something that cannot be.
    #[error("route {name:?} {why}")]
    Route {
        /// Which.
        name: String,
        /// What.
        why: String,
    },
}

impl Routes {
    /// Reads the value of `--notifications`.
    ///
    /// # Errors
    /// What is wrong with it, and in which route.
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
    /// Whether a record goes this way. One that is about no namespace goes where no namespace is chosen.
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
