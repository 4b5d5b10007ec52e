//! The recipes of docs/guides/notifications.md, each with a server that refuses what its counterpart refuses.

mod servers;
mod slack_bot;
mod support;

use oz_trail::Action;
use serde_json::{Value, json};

use super::send::Attempt;
use support::{Recipe, long, refuses, sender, set, write};

#[tokio::test]
async fn recipe_for_teams_is_accepted_with_link_and_without_markup() {
    let secret = [("url", servers::TEAMS)];
    let recipe = Recipe::start("teams", servers::teams, &secret).await;
    let actions = [Action::ApprovalRequested, Action::AccessGranted];
    let accepted = recipe.run(&actions).await;
    for got in &accepted {
        let card = got.json().unwrap()["attachments"][0]["content"].take();
        let link = "https://console.example.com/shop/inc-42";
        assert_eq!(card["actions"][0]["url"], link);
        // A TextBlock would show the links of users.
        let body = card["body"].as_array().unwrap();
        assert!(
            body.iter()
                .all(|element| element["type"] == "RichTextBlock")
        );
    }
    refuses(
        servers::teams,
        &accepted[0],
        &[
            ("another signature", 401, |got| got.query.push('x')),
            ("29 KB", 413, |got| {
                let text = long(29 << 10);
                set(got, "/attachments/0/content/body/1/inlines/0/text", text);
            }),
            ("no JSON", 400, |got| got.body = b"<html>".to_vec()),
            ("no message", 400, |got| set(got, "/type", json!("card"))),
            ("no card", 400, |got| {
                set(got, "/attachments/0/content/type", json!("Card"));
            }),
            ("version 2.0", 400, |got| {
                set(got, "/attachments/0/content/version", json!("2.0"));
            }),
            ("a link without a URL", 400, |got| {
                set(got, "/attachments/0/content/actions/0/url", json!(""));
            }),
        ],
    );
}

#[tokio::test]
async fn recipe_for_pagerduty_resolves_incident_of_request() {
    let secret = [("routing-key", servers::ROUTING_KEY)];
    let recipe = Recipe::start("pagerduty", servers::pagerduty, &secret).await;
    let actions = [
        Action::AccessGranted,
        Action::EmergencyGranted,
        Action::AccessExpired,
        Action::AccessRevoked,
    ];
    let accepted = recipe.run(&actions).await;
    let events: Vec<Value> = accepted.iter().map(|got| got.json().unwrap()).collect();
    for (number, action) in ["trigger", "trigger", "resolve", "resolve"]
        .into_iter()
        .enumerate()
    {
        for event in &events[number * 3..number * 3 + 3] {
            assert_eq!(event["event_action"], action);
            assert_eq!(event["dedup_key"], "2f0b6f3c-4b7e-4d0a-9a51-6c3c1f0f7a11");
        }
    }
    refuses(
        servers::pagerduty,
        &accepted[0],
        &[
            ("another key", 400, |got| {
                set(got, "/routing_key", json!("other"));
            }),
            ("no action", 400, |got| {
                set(got, "/event_action", json!("close"));
            }),
            ("no summary", 400, |got| {
                set(got, "/payload/summary", json!(""))
            }),
            ("a long summary", 400, |got| {
                set(got, "/payload/summary", long(1_025));
            }),
            ("no source", 400, |got| {
                set(got, "/payload/source", json!(null))
            }),
            ("another severity", 400, |got| {
                set(got, "/payload/severity", json!("high"));
            }),
            ("another time", 400, |got| {
                set(got, "/payload/timestamp", json!("soon"));
            }),
            ("a long key", 400, |got| set(got, "/dedup_key", long(256))),
            ("513 KB", 413, |got| {
                set(got, "/payload/summary", long(513 << 10))
            }),
            ("another path", 404, |got| {
                got.path = "/v1/enqueue".to_owned()
            }),
        ],
    );
    refuses(
        servers::pagerduty,
        accepted.last().unwrap(),
        &[("an end without a key", 400, |got| {
            set(got, "/dedup_key", json!(null));
        })],
    );
    // The Secret was replaced by one without the key, and corrected.
    let file = recipe.route.directory(recipe.secrets.path());
    std::fs::remove_file(file.join("routing-key")).unwrap();
    let missing = recipe.send(Action::AccessGranted, "").await;
    let why = format!("{missing:?}");
    assert!(matches!(missing, Attempt::Later(..)), "{why}");
    assert!(why.contains("pagerduty/routing-key"), "{why}");
    write(
        &recipe.route,
        recipe.secrets.path(),
        "routing-key",
        servers::ROUTING_KEY,
    );
    let taken = recipe.send(Action::AccessGranted, "").await;
    assert!(matches!(taken, Attempt::Taken), "{taken:?}");
}

#[tokio::test]
async fn recipe_for_google_chat_has_no_markup_of_users() {
    let secret = [("url", servers::GOOGLE_CHAT)];
    let recipe = Recipe::start("google-chat", servers::google_chat, &secret).await;
    let actions = [Action::ApprovalRequested, Action::AccessRevoked];
    let accepted = recipe.run(&actions).await;
    for got in &accepted {
        let body = got.json().unwrap().to_string();
        assert!(!body.contains('<'), "{body}");
        assert!(body.contains("https://console.example.com/shop/inc-42"));
    }
    let widgets = "/cardsV2/0/card/sections/0/widgets";
    assert!(accepted[0].json().unwrap().pointer(widgets).is_some());
    refuses(
        servers::google_chat,
        &accepted[0],
        &[
            ("another token", 401, |got| got.query.push('x')),
            ("no JSON", 400, |got| got.body = Vec::new()),
            ("no title", 400, |got| {
                set(got, "/cardsV2/0/card/header/title", json!(""));
            }),
            ("an unknown widget", 400, |got| {
                let widget = json!({"markdown": {"text": "a"}});
                set(got, "/cardsV2/0/card/sections/0/widgets/0", widget);
            }),
            ("no widgets", 400, |got| {
                set(got, "/cardsV2/0/card/sections/0/widgets", json!([]));
            }),
            ("32,001 bytes", 400, |got| {
                set(got, "/cardsV2/0/cardId", long(32_001));
            }),
        ],
    );
}

#[tokio::test]
async fn recipe_for_mattermost_mentions_no_user() {
    let secret = [("url", servers::MATTERMOST)];
    let recipe = Recipe::start("mattermost", servers::mattermost, &secret).await;
    let actions = [Action::ApprovalRequested, Action::AccessGranted];
    let accepted = recipe.run(&actions).await;
    for got in &accepted {
        let body = got.json().unwrap();
        let text = body["text"].as_str().unwrap();
        // The parts between the code spans.
        let outside: String = text.split('`').step_by(2).collect();
        assert!(!outside.contains(['@', '<']), "{text}");
        assert_eq!(outside.matches("](").count(), 1, "{text}");
        let link = "[Show it](https://console.example.com/shop/inc-42)";
        assert!(outside.ends_with(link), "{text}");
    }
    refuses(
        servers::mattermost,
        &accepted[0],
        &[
            ("another webhook", 404, |got| got.path.push('x')),
            ("no JSON", 400, |got| got.body = b"text=a".to_vec()),
            ("no text", 400, |got| set(got, "/text", json!(""))),
            ("a long text", 400, |got| set(got, "/text", long(16_384))),
        ],
    );
}

#[tokio::test]
async fn recipe_for_jira_comments_on_issue_of_change_ticket() {
    let secret = [("authorization", servers::JIRA)];
    let recipe = Recipe::start("jira", servers::jira, &secret).await;
    let actions = [
        Action::AccessGranted,
        Action::AccessExpired,
        Action::AccessRevoked,
    ];
    let accepted = recipe.run(&actions).await;
    let path = "/rest/api/3/issue/INC-42/comment";
    assert!(accepted.iter().all(|got| got.path == path));
    refuses(
        servers::jira,
        &accepted[0],
        &[
            ("no user", 401, |got| {
                drop(got.headers.remove("authorization"))
            }),
            ("another issue", 404, |got| {
                got.path = "/rest/api/3/issue/INC-43/comment".to_owned();
            }),
            ("a text as body", 400, |got| set(got, "/body", json!("a"))),
            ("version 2", 400, |got| {
                set(got, "/body/version", json!(2));
            }),
            ("an empty text", 400, |got| {
                set(got, "/body/content/0/content/0/text", json!(""));
            }),
            ("a long text", 400, |got| {
                set(got, "/body/content/0/content/0/text", long(32_768));
            }),
        ],
    );
    // The token was rotated: the notification waits until the Secret has the new one.
    let secrets = recipe.secrets.path();
    write(&recipe.route, secrets, "authorization", "Basic b2xk");
    let rotated = recipe.send(Action::AccessGranted, "").await;
    let why = format!("{rotated:?}");
    assert!(matches!(rotated, Attempt::Later(..)), "{why}");
    assert!(why.contains("401") && !why.contains("b2xk"), "{why}");
    write(&recipe.route, secrets, "authorization", servers::JIRA);
    let taken = recipe.send(Action::AccessGranted, "").await;
    assert!(matches!(taken, Attempt::Taken), "{taken:?}");
}

#[tokio::test]
async fn notification_without_body_is_dropped() {
    let secret = [("url", servers::MATTERMOST)];
    let mut recipe = Recipe::start("mattermost", servers::mattermost, &secret).await;
    for body in [
        "record.message",
        "{'text': record.details.missing}",
        "{1: 'a'}",
    ] {
        recipe.route.body = Some(body.to_owned());
        recipe.sender = sender(&recipe.route, recipe.secrets.path());
        let attempt = recipe.send(Action::AccessGranted, "").await;
        let why = format!("{attempt:?}");
        assert!(matches!(attempt, Attempt::Never(_)), "{body}: {why}");
        assert!(why.contains("body cannot be evaluated"), "{body}: {why}");
    }
    assert!(recipe.server.accepted.lock().is_empty());
}

#[tokio::test]
async fn response_of_server_is_not_part_of_message() {
    fn busy(_: &servers::Got) -> servers::Answer {
        Err((429, "hidden".repeat(200_000)))
    }
    fn invalid(_: &servers::Got) -> servers::Answer {
        Err((400, "<html>hidden".repeat(200_000)))
    }
    let secret = [("url", servers::MATTERMOST)];
    let recipe = Recipe::start("mattermost", busy, &secret).await;
    let later = recipe.send(Action::AccessGranted, "").await;
    let why = format!("{later:?}");
    assert!(matches!(later, Attempt::Later(..)), "{why}");
    assert!(why.contains("429") && !why.contains("hidden"), "{why}");
    let recipe = Recipe::start("mattermost", invalid, &secret).await;
    let never = recipe.send(Action::AccessGranted, "").await;
    let why = format!("{never:?}");
    assert!(matches!(never, Attempt::Never(_)), "{why}");
    assert!(why.contains("400") && !why.contains("hidden"), "{why}");
}
