//! Notifications: the routes, the selection of records for each route, and the content that is sent. Another module
//! sends them; no decision waits for a notification.

mod alertmanager;
mod cloud_event;
mod custom;
mod routes;
pub mod signature;
mod slack;
pub mod slack_bot;
#[cfg(test)]
mod tests;
mod text;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// A message of a bot of Slack in `channel` of the route. The decision about a request updates the message about its
    /// approvals.
    SlackBot,
    /// An alert for `/api/v2/alerts` of an Alertmanager; the alert of a grant resolves when access ends.
    Alertmanager,
    /// The JSON that `body` of the route describes, for any other server.
    Custom,
}

impl Format {
    /// Returns the media type of the [`content`].
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::CloudEvents => "application/cloudevents+json; charset=utf-8",
            Self::SlackBot => "application/json; charset=utf-8",
            Self::Slack | Self::Alertmanager | Self::Custom => "application/json",
        }
    }
}

/// The content of a notification.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The body.
    Body(Vec<u8>),
    /// The message of a bot of Slack.
    Bot(slack_bot::BotMessage),
    /// The variables of the expression that gives the body.
    Variables {
        /// The record.
        record: Value,
        /// The link to the request, a text; empty if there is none.
        link: Value,
    },
}

/// Returns the content of the notification about an entry; `line` is the entry as in the log.
///
/// # Errors
/// If the line is not JSON.
pub fn content(route: &Route, entry: &Entry, line: &str) -> Result<Content, serde_json::Error> {
    match route.format {
        Format::CloudEvents => cloud_event(entry, line).map(Content::Body),
        Format::Slack => bytes(&slack::message(route, &entry.record)),
        Format::SlackBot => Ok(Content::Bot(slack_bot::BotMessage::new(
            route,
            &entry.record,
        ))),
        Format::Alertmanager => bytes(&alertmanager::alerts(route, &entry.record)),
        Format::Custom => custom::variables(route, &entry.record),
    }
}

fn bytes(body: &Value) -> Result<Content, serde_json::Error> {
    serde_json::to_vec(body).map(Content::Body)
}

/// The detail of a record that names the users and groups who may decide.
pub const APPROVERS: &str = "approvers";
/// The detail of a record with the change ticket of the request.
pub const TICKET: &str = "ticket";
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
