//! A message for Slack: the user, the action, the reason, the duration, the users who may
//! decide, and the commands for it. It never has a button: the API server has not authenticated a user who presses it.

use serde_json::{Value, json};

use super::text::{plain, quoted, words};
use super::{APPROVERS, Route, link};
use crate::{Action, Record};

pub(super) fn message(route: &Route, record: &Record) -> Value {
    let request = &record.request;
    let what = words(record.action.into());
    let place = match (request.namespace.as_str(), request.name.as_str()) {
        ("", "") => String::new(),
        ("", name) => format!(": {}", plain(name)),
        (namespace, name) => format!(": {}/{}", plain(namespace), plain(name)),
    };
    let headline = format!("{what}{place}");
    let mut blocks = vec![
        json!({"type": "header", "text": text(&short(&headline))}),
        json!({"type": "section", "text": text(&plain(&record.message))}),
    ];
    let fields: Vec<Value> = fields(record)
        .into_iter()
        .map(|(name, value)| text(&format!("{name}\n{value}")))
        .collect();
    if !fields.is_empty() {
        blocks.push(json!({"type": "section", "fields": fields}));
    }
    let mut context: Vec<Value> = commands(record)
        .iter()
        .map(|command| text(command))
        .collect();
    // The parts of a link are escaped: none of them ends the link.
    context.extend(link(route, record).map(|link| {
        let link = escaped(&link).replace('|', "%7C");
        json!({"type": "mrkdwn", "text": format!("<{link}|Show it>"), "verbatim": true})
    }));
    if !context.is_empty() {
        blocks.push(json!({"type": "context", "elements": context}));
    }
    json!({
        // The text for clients that show no blocks, such as a notification on a phone.
        "text": escaped(&format!("{headline}. {}", plain(&record.message))),
        "parse": "none",
        "unfurl_links": false,
        "unfurl_media": false,
        "blocks": blocks,
    })
}

/// Returns a text in which no character has a special meaning.
fn text(text: &str) -> Value {
    json!({"type": "plain_text", "text": text, "emoji": false})
}

/// Truncates a headline to its maximum of 150 characters.
fn short(text: &str) -> String {
    let mut letters = text.chars();
    let mut short: String = letters.by_ref().take(149).collect();
    if letters.next().is_some() {
        short.push('…');
    }
    short
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn fields(record: &Record) -> Vec<(&'static str, String)> {
    let given = |text: &str| (!text.is_empty()).then(|| plain(text));
    let detail = |name: &str| given(record.details.get(name)?);
    [
        ("Who", record.user.as_ref().map(|user| plain(&user.user))),
        ("What", given(&record.request.kind)),
        ("Template", given(&record.template)),
        ("Pod", record.pod.as_ref().map(|pod| plain(&pod.name))),
        ("Why", detail("reason")),
        ("Ticket", detail("ticket")),
        (
            "Until",
            record
                .until
                .map(|until| until.strftime("%F %T UTC").to_string()),
        ),
        ("Approvers", detail(APPROVERS)),
        ("Approved by", detail("approvedBy")),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

/// Returns the commands for the user who reads the message.
fn commands(record: &Record) -> Vec<String> {
    let request = &record.request;
    let about = |verb: &str| {
        let (name, namespace) = (quoted(&request.name), quoted(&request.namespace));
        format!("ozctl {verb} {name} -n {namespace}")
    };
    match record.action {
        Action::ApprovalRequested | Action::ApprovalEscalated => {
            vec![about("approve"), about("deny")]
        }
        Action::EmergencyGranted if request.kind == "HarnessRun" => vec![about("run cancel")],
        Action::AccessGranted | Action::EmergencyGranted => vec![about("revoke")],
        _ => Vec::new(),
    }
}
