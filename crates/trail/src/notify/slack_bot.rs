//! Messages of a bot of Slack. The message about the approvals of a request is updated by the decision about the request,
//! so that it states who decided. No other message is changed.
//! See <https://docs.slack.dev/reference/methods/chat.postMessage> and
//! <https://docs.slack.dev/reference/methods/chat.update>.

use std::collections::VecDeque;

use serde_json::Value;

use super::{Route, slack};
use crate::{Action, Record};

/// The maximum number of messages that wait for a decision; a further one replaces the oldest.
const MOST: usize = 1_000;
/// The maximum length of an error code, of an ID of a channel, and of a timestamp.
const LONGEST: usize = 64;
/// The arguments that only chat.postMessage has.
const ONLY_NEW: [&str; 2] = ["unfurl_links", "unfurl_media"];

/// A message of a bot.
#[derive(Clone, Debug, PartialEq)]
pub struct BotMessage {
    /// The arguments, without the place.
    arguments: Value,
    /// UID of the request; empty if the record is about none.
    request: String,
    part: Part,
}

/// The part of a record in the approvals of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The request waits for approvals.
    Question,
    /// The request no longer waits.
    Decision,
    /// Another record.
    Other,
}

impl Part {
    fn new(action: Action) -> Self {
        match action {
            Action::ApprovalRequested => Self::Question,
            Action::AccessGranted
            | Action::EmergencyGranted
            | Action::RequestDenied
            | Action::RequestDeleted
            | Action::ApprovalTimedOut
            | Action::AccessExpired
            | Action::AccessRevoked
            | Action::RunStarted
            | Action::RunRefused
            | Action::RunEnded => Self::Decision,
            _ => Self::Other,
        }
    }
}

impl BotMessage {
    /// Creates the message about a record.
    pub(super) fn new(route: &Route, record: &Record) -> Self {
        Self {
            arguments: slack::message(route, record),
            request: record.request.uid.clone(),
            part: Part::new(record.action),
        }
    }

    /// Returns the method and its arguments: an update of the message at `earlier`, or a new message in the channel.
    #[must_use]
    pub fn call(&self, channel: &str, earlier: Option<&MessageAddress>) -> (&'static str, Value) {
        let mut arguments = self.arguments.clone();
        let Some(earlier) = earlier else {
            arguments["channel"] = channel.into();
            return ("chat.postMessage", arguments);
        };
        if let Value::Object(arguments) = &mut arguments {
            arguments.retain(|name, _| !ONLY_NEW.contains(&name.as_str()));
        }
        arguments["channel"] = earlier.channel.as_str().into();
        arguments["ts"] = earlier.ts.as_str().into();
        ("chat.update", arguments)
    }
}

/// The place of a message: the ID of its channel, and its timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageAddress {
    channel: String,
    ts: String,
}

/// The addresses of the messages about requests that wait for approvals, by UID of the request.
#[derive(Debug, Default)]
pub struct MessageAddresses(VecDeque<(String, MessageAddress)>);

impl MessageAddresses {
    /// Returns the place of the message that this message updates.
    #[must_use]
    pub fn find(&self, message: &BotMessage) -> Option<&MessageAddress> {
        if message.part == Part::Other || message.request.is_empty() {
            return None;
        }
        let mut addresses = self.0.iter();
        let found = addresses.find(|(request, _)| *request == message.request);
        found.map(|(_, place)| place)
    }

    /// Notes that a message has a place: that of a question is kept until its decision.
    pub fn note(&mut self, message: &BotMessage, place: MessageAddress) {
        if message.part == Part::Other || message.request.is_empty() {
            return;
        }
        self.remove(message);
        if message.part == Part::Question {
            if self.0.len() >= MOST {
                self.0.pop_front();
            }
            self.0.push_back((message.request.clone(), place));
        }
    }

    /// Removes the place of the message that this message would have updated.
    pub fn remove(&mut self, message: &BotMessage) {
        self.0.retain(|(request, _)| *request != message.request);
    }
}

/// The reason why Slack did not accept a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BotError {
    /// The response is not one of the API: HTML of a proxy, or too large.
    #[error("the response is not one of Slack's API")]
    Unreadable,
    /// The code of an error.
    #[error("Slack responded {0}")]
    Refused(String),
}

impl BotError {
    fn is_one_of(&self, codes: &[&str]) -> bool {
        matches!(self, Self::Refused(code) if codes.contains(&code.as_str()))
    }

    /// Checks whether Slack never accepts this message.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.is_one_of(&[
            "invalid_arg_name",
            "invalid_arguments",
            "invalid_blocks",
            "invalid_blocks_format",
            "msg_too_long",
            "no_text",
        ])
    }

    /// Checks whether the message cannot be updated: it was deleted, or Slack no longer allows changes of it.
    #[must_use]
    pub fn is_about_earlier(&self) -> bool {
        self.is_one_of(&[
            "block_mismatch",
            "cant_update_message",
            "channel_not_found",
            "edit_window_closed",
            "is_inactive",
            "message_not_found",
        ])
    }
}

/// Returns the place of the message, from the content of a successful response.
///
/// # Errors
/// The reason why Slack did not accept the message. It contains nothing of the response except the code of an error.
pub fn answer(content: &[u8]) -> Result<MessageAddress, BotError> {
    let read: Option<Value> = serde_json::from_slice(content).ok();
    let answer = read.ok_or(BotError::Unreadable)?;
    let text = |name: &str, allowed: fn(char) -> bool| {
        let text = answer.get(name)?.as_str()?;
        let fits = !text.is_empty() && text.len() <= LONGEST && text.chars().all(allowed);
        fits.then(|| text.to_owned())
    };
    match answer.get("ok").and_then(Value::as_bool) {
        Some(true) => {
            let channel = text("channel", |letter| letter.is_ascii_alphanumeric());
            let ts = text("ts", |letter| letter.is_ascii_digit() || letter == '.');
            let place = channel
                .zip(ts)
                .map(|(channel, ts)| MessageAddress { channel, ts });
            place.ok_or(BotError::Unreadable)
        }
        Some(false) => {
            let code = text("error", |letter| {
                letter.is_ascii_lowercase() || letter == '_'
            });
            Err(BotError::Refused(code.unwrap_or("an error".to_owned())))
        }
        None => Err(BotError::Unreadable),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(action: Action, uid: &str) -> BotMessage {
        BotMessage {
            arguments: json!({"text": uid, "parse": "none", "unfurl_links": false}),
            request: uid.to_owned(),
            part: Part::new(action),
        }
    }

    fn place(ts: &str) -> MessageAddress {
        MessageAddress {
            channel: "C1".to_owned(),
            ts: ts.to_owned(),
        }
    }

    #[test]
    fn decision_updates_message_about_approvals() {
        let mut addresses = MessageAddresses::default();
        let asked = message(Action::ApprovalRequested, "u-1");
        assert_eq!(addresses.find(&asked), None);
        let (method, arguments) = asked.call("C0", None);
        assert_eq!(method, "chat.postMessage");
        let expected =
            json!({"text": "u-1", "parse": "none", "unfurl_links": false, "channel": "C0"});
        assert_eq!(arguments, expected);
        addresses.note(&asked, place("1.1"));
        // The same question with another content, and records that decide nothing.
        assert_eq!(addresses.find(&asked), Some(&place("1.1")));
        let other = message(Action::SessionOpened, "u-1");
        assert_eq!(addresses.find(&other), None);
        addresses.note(&other, place("1.2"));
        assert_eq!(addresses.find(&message(Action::AccessGranted, "u-2")), None);
        let granted = message(Action::AccessGranted, "u-1");
        let (method, arguments) = granted.call("C0", addresses.find(&granted));
        assert_eq!(method, "chat.update");
        let expected = json!({"text": "u-1", "parse": "none", "channel": "C1", "ts": "1.1"});
        assert_eq!(arguments, expected);
        addresses.note(&granted, place("1.1"));
        // The message about the approvals keeps stating who decided.
        assert_eq!(addresses.find(&message(Action::AccessRevoked, "u-1")), None);
    }

    #[test]
    fn records_about_no_request_update_no_message() {
        let mut addresses = MessageAddresses::default();
        let asked = message(Action::ApprovalRequested, "");
        addresses.note(&asked, place("1.1"));
        assert_eq!(addresses.find(&asked), None);
        assert_eq!(addresses.find(&message(Action::RequestDenied, "")), None);
    }

    #[test]
    fn oldest_place_is_forgotten_for_a_further_one() {
        let mut addresses = MessageAddresses::default();
        let asked = |number: usize| message(Action::ApprovalRequested, &format!("u-{number}"));
        for number in 0..=MOST {
            addresses.note(&asked(number), place("1.1"));
            // A repeated question takes no further place.
            addresses.note(&asked(number), place("1.1"));
        }
        assert_eq!(addresses.0.len(), MOST);
        assert_eq!(addresses.find(&asked(0)), None);
        assert!(addresses.find(&asked(1)).is_some());
        addresses.remove(&asked(1));
        assert_eq!(addresses.find(&asked(1)), None);
    }

    #[test]
    fn answer_of_slack_is_read() {
        let long = format!("{{\"ok\":false,\"error\":\"{}\"}}", "x".repeat(65));
        let refused = |code: &str| Err(BotError::Refused(code.to_owned()));
        for (content, expected) in [
            (
                r#"{"ok":true,"channel":"C1","ts":"1503435956.000247","message":{}}"#,
                Ok(place("1503435956.000247")),
            ),
            (r#"{"ok":true}"#, Err(BotError::Unreadable)),
            (
                r#"{"ok":true,"channel":"C1","ts":"<ts>"}"#,
                Err(BotError::Unreadable),
            ),
            (
                r#"{"ok":true,"channel":7,"ts":"1.1"}"#,
                Err(BotError::Unreadable),
            ),
            (
                r#"{"ok":false,"error":"not_in_channel"}"#,
                refused("not_in_channel"),
            ),
            (
                r#"{"ok":false,"error":"<b>xoxb-1</b>"}"#,
                refused("an error"),
            ),
            (&long, refused("an error")),
            (r#"{"ok":false}"#, refused("an error")),
            (r#"{"ok":"true"}"#, Err(BotError::Unreadable)),
            ("[]", Err(BotError::Unreadable)),
            ("<html>", Err(BotError::Unreadable)),
            ("", Err(BotError::Unreadable)),
        ] {
            assert_eq!(answer(content.as_bytes()), expected, "{content}");
        }
    }

    #[test]
    fn error_of_slack_is_final_or_passes() {
        for (code, is_final, is_about_earlier) in [
            ("msg_too_long", true, false),
            ("invalid_blocks", true, false),
            ("message_not_found", false, true),
            ("edit_window_closed", false, true),
            ("invalid_auth", false, false),
            ("not_in_channel", false, false),
            ("ratelimited", false, false),
            ("internal_error", false, false),
        ] {
            let error = BotError::Refused(code.to_owned());
            let found = (error.is_final(), error.is_about_earlier());
            assert_eq!(found, (is_final, is_about_earlier), "{code}");
        }
        let unreadable = BotError::Unreadable;
        assert!(!unreadable.is_final() && !unreadable.is_about_earlier());
    }
}
