//! A message for an incoming webhook of Slack: who, what, why, for how long, who may decide, and by which command.
//! There is never a button: whoever pressed it would be nobody that the API server has authenticated.

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
    // What a link is made of is escaped: nothing in it ends it.
    context.extend(link(route, record).map(|link| {
        let link = escaped(&link).replace('|', "%7C");
        json!({"type": "mrkdwn", "text": format!("<{link}|Show it>"), "verbatim": true})
    }));
    if !context.is_empty() {
        blocks.push(json!({"type": "context", "elements": context}));
    }
    json!({
        // What is shown where blocks are not, such as in a notification of a phone.
        "text": escaped(&format!("{headline}. {}", plain(&record.message))),
        "parse": "none",
        "unfurl_links": false,
        "unfurl_media": false,
        "blocks": blocks,
    })
}

/// Text in which nothing means anything.
fn text(text: &str) -> Value {
    json!({"type": "plain_text", "text": text, "emoji": false})
}

/// A headline has 150 characters at most.
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
        ("Who may decide", detail(APPROVERS)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

/// What somebody may want to type now.
fn commands(record: &Record) -> Vec<String> {
    let request = &record.request;
    let about = |verb: &str| {
        let (name, namespace) = (quoted(&request.name), quoted(&request.namespace));
        format!("ozctl {verb} {name} -n {namespace}")
    };
    match record.action {
        Action::ApprovalRequested => vec![about("approve"), about("deny")],
        Action::AccessGranted | Action::EmergencyGranted => vec![about("revoke")],
        _ => Vec::new(),
    }
}
