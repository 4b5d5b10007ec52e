//! A bot of Slack, with a server that has the methods of its API and refuses what Slack refuses, by
//! <https://docs.slack.dev/reference/methods/chat.postMessage>,
//! <https://docs.slack.dev/reference/methods/chat.update>,
//! <https://docs.slack.dev/apis/web-api/rate-limits> and <https://docs.slack.dev/reference/block-kit/blocks>.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use oz_trail::notify::{Route, Routes, content};
use oz_trail::{Action, Entry, Record};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::queue::Message;
use super::super::send::{Attempt, Sender};
use super::support::{HOSTILE, entry, sender, write};

const TOKEN: &str = "xoxb-0123456789-abcdef";
const CHANNEL: &str = "C0123456789";
/// The arguments of both methods, and those of one of them.
const ARGUMENTS: [&str; 4] = ["channel", "text", "blocks", "parse"];
const OF_POST: [&str; 2] = ["unfurl_links", "unfurl_media"];
const OF_UPDATE: [&str; 1] = ["ts"];

/// The response of the server, if it is not that of the methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trouble {
    #[default]
    None,
    /// An error of the API.
    Refuses(&'static str),
    /// A status with a pause in seconds.
    Busy(u16, &'static str),
    /// HTML with status 200, as a proxy writes it.
    Html,
    /// 1 MiB with status 200.
    Large,
}

/// A workspace of Slack.
#[derive(Clone, Default)]
struct Workspace {
    trouble: Arc<Mutex<Trouble>>,
    /// The messages in the channel, as they are now; `None` if deleted.
    messages: Arc<Mutex<Vec<Option<Value>>>>,
    /// The methods of the accepted calls.
    accepted: Arc<Mutex<Vec<String>>>,
}

fn ts(number: usize) -> String {
    format!("1503435956.{number:06}")
}

fn ensure(fine: bool, code: &'static str) -> Result<(), &'static str> {
    if fine { Ok(()) } else { Err(code) }
}

fn fits(value: &Value, most: usize) -> bool {
    let text = value["text"].as_str().unwrap_or_default();
    let is_known = value["type"] == "plain_text" || value["type"] == "mrkdwn";
    is_known && !text.is_empty() && text.chars().count() <= most
}

/// Checks a block of one of the types that oz sends.
fn block(block: &Value) -> Result<(), &'static str> {
    let list = |name: &str, most: usize| {
        let list = block[name].as_array().cloned().unwrap_or_default();
        (1..=most).contains(&list.len()).then_some(list)
    };
    let fine = match block["type"].as_str() {
        Some("header") => fits(&block["text"], 150),
        Some("section") if block.get("fields").is_some() => {
            list("fields", 10).is_some_and(|fields| fields.iter().all(|one| fits(one, 2_000)))
        }
        Some("section") => fits(&block["text"], 3_000),
        Some("context") => {
            list("elements", 10).is_some_and(|parts| parts.iter().all(|one| fits(one, 3_000)))
        }
        _ => false,
    };
    ensure(fine, "invalid_blocks")
}

impl Workspace {
    /// Returns the result of a call: the number of the message, or the code of the error.
    fn call(&self, method: &str, headers: &HeaderMap, body: &[u8]) -> Result<usize, &'static str> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let token = header("authorization").ok_or("not_authed")?;
        ensure(token == format!("Bearer {TOKEN}"), "invalid_auth")?;
        let kind = header("content-type").ok_or("missing_post_type")?;
        ensure(
            kind == "application/json; charset=utf-8",
            "invalid_post_type",
        )?;
        let call: Value = serde_json::from_slice(body).map_err(|_| "invalid_json")?;
        let own: &[&str] = match method {
            "chat.postMessage" => &OF_POST,
            "chat.update" => &OF_UPDATE,
            _ => return Err("unknown_method"),
        };
        let is_known = |name: &str| ARGUMENTS.contains(&name) || own.contains(&name);
        let mut names = call.as_object().ok_or("invalid_arguments")?.keys();
        ensure(names.all(|name| is_known(name)), "invalid_arg_name")?;
        ensure(call["channel"] == CHANNEL, "channel_not_found")?;
        let text = call["text"].as_str().unwrap_or_default();
        ensure(!text.is_empty(), "no_text")?;
        ensure(text.chars().count() <= 40_000, "msg_too_long")?;
        let blocks = call["blocks"].as_array().ok_or("invalid_blocks_format")?;
        ensure((1..=50).contains(&blocks.len()), "invalid_blocks")?;
        blocks.iter().try_for_each(block)?;
        let mut messages = self.messages.lock();
        if method == "chat.postMessage" {
            messages.push(Some(call));
            return Ok(messages.len() - 1);
        }
        let mut numbers = 0..messages.len();
        let found = numbers.find(|number| call["ts"] == ts(*number));
        let number = found.filter(|number| messages[*number].is_some());
        let number = number.ok_or("message_not_found")?;
        messages[number] = Some(call);
        Ok(number)
    }
}

async fn respond(
    State(workspace): State<Workspace>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, [(&'static str, &'static str); 1], String) {
    let method = uri.path().strip_prefix("/api/").unwrap_or_default();
    let trouble = *workspace.trouble.lock();
    let (code, after, answer) = match trouble {
        Trouble::Busy(code, after) => (code, after, "{}".to_owned()),
        Trouble::Html => (200, "", "<html>hidden</html>".to_owned()),
        Trouble::Large => (
            200,
            "",
            format!("{{\"ok\":true,\"a\":\"{}\"}}", "x".repeat(1 << 20)),
        ),
        Trouble::Refuses(code) => (200, "", json!({"ok": false, "error": code}).to_string()),
        Trouble::None => {
            let answer = match workspace.call(method, &headers, &body) {
                Ok(number) => {
                    workspace.accepted.lock().push(method.to_owned());
                    json!({"ok": true, "channel": CHANNEL, "ts": ts(number), "message": {}})
                }
                Err(code) => json!({"ok": false, "error": code}),
            };
            (200, "", answer.to_string())
        }
    };
    let code = StatusCode::from_u16(code).unwrap();
    (code, [("retry-after", after)], answer)
}

/// The route of the guide, with its workspace.
struct Bot {
    workspace: Workspace,
    route: Route,
    sender: Sender,
    secrets: tempfile::TempDir,
}

impl Bot {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let workspace = Workspace::default();
        let router = Router::new().fallback(respond);
        let router = router.with_state(workspace.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let mut route = route();
        assert_eq!(route.url.as_deref(), Some("https://slack.com/api"));
        route.url = Some(format!("http://{address}/api"));
        let secrets = tempfile::tempdir().unwrap();
        write(&route, secrets.path(), "token", TOKEN);
        Self {
            sender: sender(&route, secrets.path()),
            workspace,
            route,
            secrets,
        }
    }

    /// Forgets the addresses of all messages, as a process that starts again.
    fn restart(&mut self) {
        self.sender = sender(&self.route, self.secrets.path());
    }

    async fn send(&self, record: Record) -> Attempt {
        assert!(self.route.wants(&record), "{}", record.action);
        let entry = Entry {
            record,
            ..entry(Action::ApprovalRequested, "")
        };
        let content = content(&self.route, &entry, &entry.record.line()).unwrap();
        let message = Message::new(&entry.record, content);
        self.sender.attempt(&message).await
    }

    async fn sends(&self, record: Record) {
        let attempt = self.send(record).await;
        assert!(matches!(attempt, Attempt::Taken), "{attempt:?}");
    }

    fn trouble(&self, trouble: Trouble) {
        *self.workspace.trouble.lock() = trouble;
    }

    fn accepted(&self) -> Vec<String> {
        self.workspace.accepted.lock().clone()
    }

    /// Returns the text of a message in the channel.
    fn text(&self, number: usize) -> String {
        let messages = self.workspace.messages.lock();
        messages[number].as_ref().unwrap().to_string()
    }
}

/// Returns the route of the guide.
fn route() -> Route {
    let guide = include_str!("../../../../../docs/guides/notifications.md");
    let (_, section) = guide.split_once("\n## Slack with a bot\n").unwrap();
    let block = section.split("```yaml\n").nth(1).unwrap();
    let text = block.split("```").next().unwrap();
    let values: Value = serde_saphyr::from_str(text).unwrap();
    let routes: Routes = serde_json::from_value(values["notifications"].clone()).unwrap();
    routes.check().unwrap();
    routes.routes.into_iter().next().unwrap()
}

fn asked() -> Record {
    entry(Action::ApprovalRequested, HOSTILE).record
}

fn granted() -> Record {
    let record = entry(Action::AccessGranted, HOSTILE).record;
    record.detail("approvedBy", "bob (security)")
}

const POST: &str = "chat.postMessage";
const UPDATE: &str = "chat.update";

#[tokio::test]
async fn first_message_names_who_decided() {
    let bot = Bot::start().await;
    bot.sends(asked()).await;
    assert!(bot.text(0).contains("Approval requested"));
    bot.sends(granted()).await;
    bot.sends(entry(Action::AccessRevoked, "").record).await;
    assert_eq!(bot.accepted(), [POST, UPDATE, POST]);
    let first = bot.text(0);
    assert!(first.contains("Access granted"), "{first}");
    assert!(first.contains("bob (security)"), "{first}");
    assert!(bot.text(1).contains("Access revoked"));
}

#[tokio::test]
async fn lost_place_of_message_leads_to_new_message() {
    let mut bot = Bot::start().await;
    bot.sends(asked()).await;
    bot.restart();
    bot.sends(granted()).await;
    assert_eq!(bot.accepted(), [POST, POST]);
    assert!(bot.text(1).contains("bob (security)"));
    // A user of Slack deleted the message.
    bot.sends(asked()).await;
    bot.workspace.messages.lock()[2] = None;
    bot.sends(granted()).await;
    assert_eq!(bot.accepted(), [POST, POST, POST, POST]);
    assert!(bot.text(3).contains("bob (security)"));
}

#[tokio::test]
async fn failing_api_gets_message_later_or_never() {
    let bot = Bot::start().await;
    for (trouble, expected) in [
        (Trouble::Busy(429, "9"), "429"),
        (Trouble::Busy(503, ""), "503"),
        (Trouble::Html, "not one of Slack's API"),
        (Trouble::Large, "not one of Slack's API"),
        (Trouble::Refuses("not_in_channel"), "not_in_channel"),
        (Trouble::Refuses("internal_error"), "internal_error"),
        // There is no earlier message.
        (Trouble::Refuses("message_not_found"), "message_not_found"),
    ] {
        bot.trouble(trouble);
        let attempt = bot.send(asked()).await;
        let Attempt::Later(why, asked) = attempt else {
            panic!("{trouble:?}: {attempt:?}");
        };
        assert!(why.contains(expected), "{trouble:?}: {why}");
        assert!(!why.contains("hidden") && why.len() < 200, "{why}");
        let wanted = (trouble == Trouble::Busy(429, "9")).then_some(Duration::from_secs(9));
        assert_eq!(asked, wanted, "{trouble:?}");
    }
    bot.trouble(Trouble::Refuses("msg_too_long"));
    let attempt = bot.send(asked()).await;
    assert!(matches!(attempt, Attempt::Never(_)), "{attempt:?}");
    bot.trouble(Trouble::None);
    bot.sends(asked()).await;
    bot.sends(granted()).await;
    assert_eq!(bot.accepted(), [POST, UPDATE]);
}

#[tokio::test]
async fn rotated_token_of_bot_is_read_again() {
    let bot = Bot::start().await;
    let secrets = bot.secrets.path();
    write(&bot.route, secrets, "token", "xoxb-old");
    let attempt = bot.send(asked()).await;
    let why = format!("{attempt:?}");
    assert!(matches!(attempt, Attempt::Later(..)), "{why}");
    assert!(
        why.contains("invalid_auth") && !why.contains("xoxb"),
        "{why}"
    );
    write(&bot.route, secrets, "token", TOKEN);
    bot.sends(asked()).await;
}

#[tokio::test]
async fn server_refuses_what_slack_refuses() {
    let workspace = Workspace::default();
    let fine = json!({
        "channel": CHANNEL, "text": "a",
        "blocks": [{"type": "header", "text": {"type": "plain_text", "text": "a"}}],
    });
    type Change = fn(&mut Value);
    let call = |method: &str, token: &str, change: Change| {
        let mut headers = HeaderMap::new();
        let kind = "application/json; charset=utf-8";
        headers.insert("content-type", kind.parse().unwrap());
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        let mut call = fine.clone();
        change(&mut call);
        workspace.call(method, &headers, call.to_string().as_bytes())
    };
    assert_eq!(call(POST, TOKEN, |_| ()), Ok(0));
    assert_eq!(call(UPDATE, TOKEN, |call| call["ts"] = ts(0).into()), Ok(0));
    assert_eq!(call(POST, "xoxb-1", |_| ()), Err("invalid_auth"));
    assert_eq!(call("chat.delete", TOKEN, |_| ()), Err("unknown_method"));
    assert_eq!(call(UPDATE, TOKEN, |_| ()), Err("message_not_found"));
    let cases: [(Change, &str); 6] = [
        (|call| call["ts"] = "1.1".into(), "invalid_arg_name"),
        (|call| call["channel"] = "C1".into(), "channel_not_found"),
        (|call| call["text"] = "".into(), "no_text"),
        (
            |call| call["text"] = "x".repeat(40_001).into(),
            "msg_too_long",
        ),
        (
            |call| call["blocks"][0]["text"]["text"] = "x".repeat(151).into(),
            "invalid_blocks",
        ),
        (
            |call| call["blocks"] = vec![json!({"type": "divider"}); 51].into(),
            "invalid_blocks",
        ),
    ];
    for (change, code) in cases {
        assert_eq!(call(POST, TOKEN, change), Err(code));
    }
}
