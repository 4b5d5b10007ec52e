//! Notifications: the routes, the selection of records for each route, and the content that is sent. Another module
//! sends them; no decision waits for a notification.

mod alertmanager;
mod cloud_event;
mod routes;
pub mod signature;
mod slack;
#[cfg(test)]
mod tests;
mod text;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Entry, Record};

pub use cloud_event::cloud_event;
pub use routes::{Events, Route, RouteError, RouteSecret, Routes};

/// The format of a notification.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema, strum::Display,
)]
pub enum Format {
    /// The record as a CloudEvent 1.0 in structured mode, as the audit collector receives it.
    #[default]
    CloudEvents,
    /// A message for an incoming webhook of Slack.
    Slack,
    /// An alert for `/api/v2/alerts` of an Alertmanager; the alert of a grant resolves when access ends.
    Alertmanager,
}

impl Format {
    /// Returns the media type of [`body`].
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::CloudEvents => "application/cloudevents+json; charset=utf-8",
            Self::Slack | Self::Alertmanager => "application/json",
        }
    }
}

/// Returns the body of the notification about an entry; `line` is the entry as in the log.
///
/// # Errors
/// If the line is not JSON.
pub fn body(route: &Route, entry: &Entry, line: &str) -> Result<Vec<u8>, serde_json::Error> {
    match route.format {
        Format::CloudEvents => cloud_event(entry, line),
        Format::Slack => serde_json::to_vec(&slack::message(route, &entry.record)),
        Format::Alertmanager => serde_json::to_vec(&alertmanager::alerts(route, &entry.record)),
    }
}

/// The detail of a record that names the users and groups who may decide.
pub const APPROVERS: &str = "approvers";
/// The detail of a record that states that a template disables notifications, with the value `false`.
pub const NOTIFY: &str = "notify";

/// Returns the link of a route to the page of the request: `{namespace}`, `{kind}` and `{name}` are replaced.
fn link(route: &Route, record: &Record) -> Option<String> {
    let request = &record.request;
    let link = route.link.as_ref()?;
    let fields = [
        ("{namespace}", &request.namespace),
        ("{kind}", &request.kind),
        ("{name}", &request.name),
    ];
    let filled = fields
        .into_iter()
        .fold(link.clone(), |text, (field, value)| {
            text.replace(field, &text::escaped_for_url(value))
        });
    (!request.name.is_empty()).then_some(filled)
}
