//! Who is told of what: routes, which records go by them, and what is sent. Sending is elsewhere; nothing that is
//! decided waits for it.

mod alertmanager;
mod cloud_event;
mod routes;
pub mod signature;
mod slack;
#[cfg(test)]
mod tests;
mod text;

use serde::Deserialize;

use crate::{Entry, Record};

pub use cloud_event::cloud_event;
pub use routes::{Events, Route, RouteError, Routes};

/// What a server is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, strum::Display)]
pub enum Format {
    /// The record as a CloudEvent 1.0 in structured mode, as the audit collector gets it.
    #[default]
    CloudEvents,
    /// A message for an incoming webhook of Slack.
    Slack,
    /// An alert for `/api/v2/alerts` of an Alertmanager; that of a grant resolves when access ends.
    Alertmanager,
}

impl Format {
    /// The media type of [`body`].
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::CloudEvents => "application/cloudevents+json; charset=utf-8",
            Self::Slack | Self::Alertmanager => "application/json",
        }
    }
}

/// What is sent of an entry, whose line in the log is `line`.
///
/// # Errors
/// When the line is no JSON.
pub fn body(route: &Route, entry: &Entry, line: &str) -> Result<Vec<u8>, serde_json::Error> {
    match route.format {
        Format::CloudEvents => cloud_event(entry, line),
        Format::Slack => serde_json::to_vec(&slack::message(route, &entry.record)),
        Format::Alertmanager => serde_json::to_vec(&alertmanager::alerts(route, &entry.record)),
    }
}

/// The detail of a record that says who may decide.
pub const APPROVERS: &str = "approvers";
/// The detail of a record that says that a template wants nobody told, with the value `false`.
pub const NOTIFY: &str = "notify";

/// The link of a route to whatever shows the request: `{namespace}`, `{kind}` and `{name}` are put in.
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
