//! The servers of the recipes, with the refusals of their published references.

use axum::http::HeaderMap;
use serde_json::Value;

/// A request to a server.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// The response to a request: the code, and the reason of a refusal.
pub(super) type Answer = Result<u16, (u16, String)>;

/// The integration key of PagerDuty, which has 32 characters.
pub(super) const ROUTING_KEY: &str = "0123456789abcdef0123456789abcdef";
/// The header that authenticates a user of Jira.
pub(super) const JIRA: &str = "Basic b3pAZXhhbXBsZS5jb206dG9rZW4=";
/// The path and query of each webhook with a secret URL.
pub(super) const TEAMS: &str = "/workflows/a1/triggers/manual/paths/invoke?api-version=1&sig=s1";
pub(super) const GOOGLE_CHAT: &str = "/v1/spaces/AAAA/messages?key=k1&token=t1";
pub(super) const MATTERMOST: &str = "/hooks/abcdefghijklmnopqrstuvwxyz";

impl Got {
    /// Returns the body as JSON.
    pub(super) fn json(&self) -> Result<Value, (u16, String)> {
        serde_json::from_slice(&self.body).map_err(|error| (400, error.to_string()))
    }

    fn is_at(&self, secret: &str) -> bool {
        let (path, query) = secret.split_once('?').unwrap_or((secret, ""));
        self.path == path && self.query == query
    }

    fn is_json(&self) -> bool {
        let given = self.headers.get("content-type");
        given.is_some_and(|given| given.as_bytes().starts_with(b"application/json"))
    }
}

fn ensure(fine: bool, code: u16, why: impl Into<String>) -> Result<(), (u16, String)> {
    match fine {
        true => Ok(()),
        false => Err((code, why.into())),
    }
}

/// Returns a text that is not empty.
fn text<'a>(value: &'a Value, path: &str) -> Result<&'a str, (u16, String)> {
    let found = value.pointer(path).and_then(Value::as_str);
    let found = found.filter(|found| !found.is_empty());
    found.ok_or_else(|| (400, format!("{path} is missing in {value}")))
}

/// Checks that an object has no other fields than these.
fn only(value: &Value, names: &[&str]) -> Result<(), (u16, String)> {
    let fields = value.as_object().into_iter().flatten();
    for (name, _) in fields {
        ensure(
            names.contains(&name.as_str()),
            400,
            format!("{name} is unknown"),
        )?;
    }
    Ok(())
}

fn list<'a>(value: &'a Value, path: &str) -> Result<&'a Vec<Value>, (u16, String)> {
    let found = value.pointer(path).and_then(Value::as_array);
    found.ok_or_else(|| (400, format!("{path} is no list in {value}")))
}

/// A workflow of Teams: a message with adaptive cards, of at most 28 KB.
/// See <https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/add-incoming-webhook>
/// and <https://adaptivecards.io/explorer/AdaptiveCard.html>.
pub(super) fn teams(got: &Got) -> Answer {
    ensure(got.is_at(TEAMS), 401, "the signature is wrong")?;
    ensure(got.body.len() <= 28 << 10, 413, "larger than 28 KB")?;
    ensure(got.is_json(), 400, "no JSON")?;
    let message = got.json()?;
    ensure(message["type"] == "message", 400, "type must be message")?;
    let attachments = list(&message, "/attachments")?;
    ensure(!attachments.is_empty(), 400, "attachments is empty")?;
    for attachment in attachments {
        let kind = text(attachment, "/contentType")?;
        let adaptive = "application/vnd.microsoft.card.adaptive";
        ensure(kind == adaptive, 400, format!("contentType {kind}"))?;
        let card = &attachment["content"];
        ensure(text(card, "/type")? == "AdaptiveCard", 400, "no card")?;
        let versions = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"];
        let version = text(card, "/version")?;
        ensure(versions.contains(&version), 400, "unknown version")?;
        for element in list(card, "/body")? {
            match text(element, "/type")? {
                "TextBlock" => drop(text(element, "/text")?),
                "RichTextBlock" => {
                    for inline in list(element, "/inlines")? {
                        ensure(text(inline, "/type")? == "TextRun", 400, "no TextRun")?;
                        ensure(inline["text"].is_string(), 400, "text is required")?;
                    }
                }
                other => return Err((400, format!("unknown element {other}"))),
            }
        }
        for action in list(card, "/actions")? {
            ensure(
                text(action, "/type")? == "Action.OpenUrl",
                400,
                "unknown action",
            )?;
            let url = text(action, "/url")?;
            ensure(url.starts_with("https://"), 400, "url is no URL")?;
        }
    }
    Ok(202)
}

/// The Events API v2 of PagerDuty: an event of at most 512 KB.
/// See <https://developer.pagerduty.com/docs/send-alert-event> and
/// <https://developer.pagerduty.com/docs/events-api-v2-overview>.
pub(super) fn pagerduty(got: &Got) -> Answer {
    ensure(got.path == "/v2/enqueue", 404, "no such path")?;
    ensure(got.body.len() <= 512 << 10, 413, "larger than 512 KB")?;
    ensure(got.is_json(), 400, "no JSON")?;
    let event = got.json()?;
    let key = text(&event, "/routing_key")?;
    ensure(key == ROUTING_KEY, 400, "invalid routing key")?;
    let dedup = event["dedup_key"].as_str();
    let is_short = |key: &str| key.len() <= 255;
    ensure(
        dedup.is_none_or(is_short),
        400,
        "dedup_key is longer than 255",
    )?;
    match text(&event, "/event_action")? {
        "trigger" => {
            let summary = text(&event, "/payload/summary")?;
            ensure(summary.chars().count() <= 1024, 400, "summary is too long")?;
            text(&event, "/payload/source")?;
            let severity = text(&event, "/payload/severity")?;
            let severities = ["critical", "error", "warning", "info"];
            ensure(severities.contains(&severity), 400, "severity is invalid")?;
            let time = event["payload"]["timestamp"].as_str();
            let is_time = |time: &str| time.parse::<jiff::Timestamp>().is_ok();
            ensure(time.is_none_or(is_time), 400, "timestamp is invalid")?;
        }
        "acknowledge" | "resolve" => {
            ensure(
                dedup.is_some_and(|key| !key.is_empty()),
                400,
                "dedup_key is required",
            )?;
        }
        other => return Err((400, format!("unknown event_action {other}"))),
    }
    for link in list(&event, "/links")? {
        text(link, "/href")?;
    }
    Ok(202)
}

/// A webhook of a space of Google Chat: a message of at most 32,000 bytes, without unknown fields.
/// See <https://developers.google.com/workspace/chat/quickstart/webhooks> and
/// <https://developers.google.com/workspace/chat/api/reference/rest/v1/cards>.
pub(super) fn google_chat(got: &Got) -> Answer {
    ensure(got.is_at(GOOGLE_CHAT), 401, "the key or token is wrong")?;
    ensure(got.body.len() <= 32_000, 400, "larger than 32,000 bytes")?;
    ensure(got.is_json(), 400, "no JSON")?;
    let message = got.json()?;
    only(&message, &["text", "cardsV2", "thread"])?;
    ensure(
        message["text"].is_string() || message["cardsV2"].is_array(),
        400,
        "the message is empty",
    )?;
    for card in list(&message, "/cardsV2")? {
        only(card, &["cardId", "card"])?;
        only(&card["card"], &["header", "sections", "name"])?;
        text(card, "/card/header/title")?;
        for section in list(card, "/card/sections")? {
            let widgets = list(section, "/widgets")?;
            ensure(!widgets.is_empty(), 400, "a section without widgets")?;
            for widget in widgets {
                only(widget, &["textParagraph", "buttonList"])?;
                if widget.get("textParagraph").is_some() {
                    text(widget, "/textParagraph/text")?;
                    continue;
                }
                for button in list(widget, "/buttonList/buttons")? {
                    text(button, "/text")?;
                    text(button, "/onClick/openLink/url")?;
                }
            }
        }
    }
    Ok(200)
}

/// An incoming webhook of Mattermost: a text of at most 16,383 characters, or attachments.
/// See <https://developers.mattermost.com/integrate/webhooks/incoming/>.
pub(super) fn mattermost(got: &Got) -> Answer {
    ensure(got.is_at(MATTERMOST), 404, "no such webhook")?;
    ensure(got.is_json(), 400, "no JSON")?;
    let message = got.json()?;
    let words = text(&message, "/text")?;
    let length = words.chars().count();
    ensure(length <= 16_383, 400, "longer than 16,383 characters")?;
    Ok(200)
}

/// A comment on an issue of Jira Cloud, in the Atlassian Document Format, of at most 32,767 characters.
/// See <https://developer.atlassian.com/cloud/jira/platform/rest/v3/api-group-issue-comments/> and
/// <https://developer.atlassian.com/cloud/jira/platform/apis/document/structure/>.
pub(super) fn jira(got: &Got) -> Answer {
    let given = got.headers.get("authorization");
    ensure(given.is_some_and(|given| given == JIRA), 401, "who is it?")?;
    let issue = got.path.strip_prefix("/rest/api/3/issue/");
    let issue = issue.and_then(|rest| rest.strip_suffix("/comment"));
    ensure(issue == Some("INC-42"), 404, "no such issue")?;
    ensure(got.is_json(), 400, "no JSON")?;
    let comment = got.json()?;
    only(&comment, &["body", "visibility", "properties"])?;
    let document = &comment["body"];
    ensure(text(document, "/type")? == "doc", 400, "no document")?;
    ensure(document["version"] == 1, 400, "version must be 1")?;
    for paragraph in list(document, "/content")? {
        ensure(
            text(paragraph, "/type")? == "paragraph",
            400,
            "no paragraph",
        )?;
        for node in list(paragraph, "/content")? {
            only(node, &["type", "text", "marks"])?;
            ensure(text(node, "/type")? == "text", 400, "no text")?;
            let length = text(node, "/text")?.chars().count();
            ensure(length <= 32_767, 400, "longer than 32,767 characters")?;
        }
    }
    Ok(201)
}
