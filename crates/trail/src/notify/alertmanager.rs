//! Alerts for an Alertmanager. The alert of a grant is active from the grant until access ends: it contains the expiry,
//! and a record of an earlier end updates it.

use serde_json::{Value, json};

use super::text::{plain, words};
use super::{Route, link};
use crate::{Action, Record};

/// The alert that fires while access lasts.
const LIVE: &str = "OzAccess";

pub(super) fn alerts(route: &Route, record: &Record) -> Value {
    let request = &record.request;
    let (name, ends) = match record.action {
        Action::AccessGranted | Action::EmergencyGranted => (LIVE.to_owned(), record.until),
        Action::AccessExpired | Action::AccessRevoked => (LIVE.to_owned(), Some(record.time)),
        action => (format!("Oz{action}"), None),
    };
    let mut labels = json!({"alertname": name});
    // The labels identify an alert: they include only values that are equal at the grant and at its end.
    for (label, value) in [
        ("kind", &request.kind),
        ("namespace", &request.namespace),
        ("request", &request.name),
        ("uid", &request.uid),
    ] {
        if !value.is_empty() {
            labels[label] = plain(value).into();
        }
    }
    let mut annotations = json!({
        "summary": words(record.action.into()),
        "description": plain(&record.message),
    });
    if let Some(user) = &record.user {
        annotations["requester"] = plain(&user.user).into();
    }
    if let Some(ticket) = record.details.get("ticket") {
        annotations["ticket"] = plain(ticket).into();
    }
    if let Some(reason) = record.details.get("reason") {
        annotations["reason"] = plain(reason).into();
    }
    let mut alert = json!({"labels": labels, "annotations": annotations});
    // If the end of a grant is reported without its beginning, the alert must not begin after its end.
    if !matches!(record.action, Action::AccessExpired | Action::AccessRevoked) {
        alert["startsAt"] = record.time.to_string().into();
    }
    if let Some(ends) = ends {
        alert["endsAt"] = ends.to_string().into();
    }
    if let Some(link) = link(route, record) {
        alert["generatorURL"] = link.into();
    }
    json!([alert])
}
