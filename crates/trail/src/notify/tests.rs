//! Tests of the selection of records by routes, and of the content that is sent.

use jiff::Timestamp;
use oz_api::Requester;
use serde_json::{Value, json};

use super::signature::SigningKey;
use super::*;
use crate::{Action, Decision, Link, PodRef, RequestRef};

fn routes(value: Value) -> Result<Routes, String> {
    let routes: Routes = serde_json::from_value(value).map_err(|error| error.to_string())?;
    routes.check().map_err(|error| error.to_string())?;
    Ok(routes)
}

fn route(format: &str, more: Value) -> Route {
    let mut route = json!({
        "name": "people", "url": "https://hooks.test/oz", "format": format, "events": ["*"],
        "link": "https://console.test/{namespace}/{kind}/{name}",
    });
    for (name, value) in more.as_object().unwrap() {
        route[name] = value.clone();
    }
    routes(json!({"routes": [route]})).unwrap().routes.remove(0)
}

fn entry(action: Action, reason: &str) -> Entry {
    let at: Timestamp = "2026-11-25T10:00:00Z".parse().unwrap();
    let decision = *action.decisions().first().unwrap_or(&Decision::Note);
    let record = Record {
        user: Some(Requester {
            user: "alice".into(),
            ..Requester::default()
        }),
        request: RequestRef {
            kind: "ExecAccessRequest".into(),
            namespace: "shop".into(),
            name: "inc-42".into(),
            uid: "u-1".into(),
        },
        template: "guarded".into(),
        pod: Some(PodRef {
            name: "web-1".into(),
            uid: "p-1".into(),
            container: None,
        }),
        until: Some("2026-11-25T10:30:00Z".parse().unwrap()),
        ..Record::about(
            at,
            action,
            decision,
            "u-1",
            "Waiting",
            "waiting for security: bob, carol may",
        )
    };
    Entry {
        link: Link {
            digest: "sha256:ab".into(),
            ..Link::default()
        },
        record: record
            .detail("reason", reason)
            .detail(APPROVERS, "security: bob, carol may"),
    }
}

fn sent(format: &str, action: Action, reason: &str) -> Value {
    let entry = entry(action, reason);
    let line = entry.record.line();
    serde_json::from_slice(&body(&route(format, json!({})), &entry, &line)).unwrap()
}

/// Returns the body of a notification of a format without expressions.
fn body(route: &Route, entry: &Entry, line: &str) -> Vec<u8> {
    match content(route, entry, line).unwrap() {
        Content::Body(body) => body,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_format_says_who_what_why_for_how_long_and_who_may_decide() {
    for format in ["CloudEvents", "Slack", "Alertmanager"] {
        for action in [
            Action::ApprovalRequested,
            Action::AccessGranted,
            Action::AccessRevoked,
        ] {
            let name = format!("{format}_{action}");
            insta::assert_json_snapshot!(name, sent(format, action, "INC-42"));
        }
    }
}

#[test]
fn notification_text_contains_no_mentions_or_links() {
    let hostile =
        "<!channel> <https://evil.test|click> & \u{202e}txet\u{7} @here *bold*\nline \u{200b}";
    let message = sent("Slack", Action::ApprovalRequested, hostile);
    assert_eq!(message["parse"], "none");
    let text = message.to_string();
    // Only the link has a special meaning.
    assert_eq!(text.matches("mrkdwn").count(), 1, "{text}");
    assert!(!message["text"].as_str().unwrap().contains('<'), "{text}");
    for letter in ['\u{202e}', '\u{7}', '\u{200b}'] {
        assert!(!text.contains(letter), "{text}");
    }
    let long = sent("Slack", Action::ApprovalRequested, &"a".repeat(1 << 20));
    assert!(long.to_string().len() < 4_000);
    // No request can have this name; the test assumes a record with it.
    let mut entry = entry(Action::ApprovalRequested, "");
    entry.record.request.name = "x; rm -rf ~/'$(id)'".into();
    let body = body(&route("Slack", json!({})), &entry, "{}");
    let text = String::from_utf8(body).unwrap();
    assert!(
        text.contains(r"ozctl approve 'x; rm -rf ~/'\\''$(id)'\\''' -n shop"),
        "{text}"
    );
    assert!(text.contains("/x%3B%20rm%20-rf%20%7E%2F"), "{text}");
}

#[test]
fn the_alert_of_a_grant_and_of_its_end_are_one_and_it_says_when_it_resolves() {
    let begun = sent("Alertmanager", Action::AccessGranted, "INC-42");
    let over = sent("Alertmanager", Action::AccessRevoked, "INC-42");
    assert_eq!(begun[0]["labels"], over[0]["labels"]);
    assert_eq!(begun[0]["endsAt"], "2026-11-25T10:30:00Z");
    assert_eq!(over[0]["endsAt"], "2026-11-25T10:00:00Z");
    assert_eq!(over[0]["startsAt"], Value::Null);
}

#[test]
fn a_record_goes_by_the_routes_that_want_it() {
    let asked = entry(Action::ApprovalRequested, "").record;
    for (more, wanted) in [
        (json!({}), true),
        (json!({"events": ["approvalrequested"]}), true),
        (json!({"events": ["AccessGranted"]}), false),
        (json!({"namespaces": ["sh*"]}), true),
        (json!({"namespaces": ["shop"]}), true),
        (json!({"namespaces": ["shopping", "other"]}), false),
    ] {
        assert_eq!(route("Slack", more.clone()).wants(&asked), wanted, "{more}");
    }
    // The template of the request disables notifications.
    let silent = asked.clone().detail(NOTIFY, "false");
    assert!(!route("Slack", json!({})).wants(&silent));
    // The record has no namespace.
    let mut about_oz = asked;
    about_oz.request = RequestRef::default();
    assert!(route("Slack", json!({})).wants(&about_oz));
    assert!(!route("Slack", json!({"namespaces": ["shop"]})).wants(&about_oz));
}

#[test]
fn every_field_of_record_exists_for_expression() {
    let custom = route("Custom", json!({"body": "{'text': record.message}"}));
    let hostile = "a\u{202e}b\n".to_owned() + &"x".repeat(2_000);
    let full = entry(Action::AccessGranted, &hostile);
    let empty = Entry {
        record: Record {
            action: Action::AccessGranted,
            ..Record::default()
        },
        ..full.clone()
    };
    for (entry, user, until) in [(&full, "alice", "2026-11-25T10:30:00Z"), (&empty, "", "")] {
        let content = content(&custom, entry, "{}").unwrap();
        let Content::Variables { record, link } = content else {
            panic!("{content:?}");
        };
        assert_eq!(record["user"]["user"], user);
        assert_eq!(record["until"], until);
        for path in [
            "/id",
            "/time",
            "/action",
            "/decision",
            "/reason",
            "/message",
            "/request/uid",
            "/template",
            "/pod/name",
            "/details/ticket",
            "/details/approvers",
            "/details/reason",
        ] {
            assert!(record.pointer(path).is_some_and(Value::is_string), "{path}");
        }
        let reason = record["details"]["reason"].as_str().unwrap();
        assert!(reason.chars().count() <= 301, "{reason}");
        assert!(!reason.contains(['\u{202e}', '\n']), "{reason}");
        assert!(link.is_string());
    }
}

#[test]
fn change_ticket_is_part_of_path_and_required_for_it() {
    let jira = route(
        "Custom",
        json!({"body": "{}", "url": "https://jira.test/issue/{ticket}/comment"}),
    );
    let without = entry(Action::AccessGranted, "").record;
    assert!(!jira.wants(&without));
    assert!(jira.wants(&without.clone().detail(TICKET, "INC-42")));
    assert!(!jira.wants(&without.detail(TICKET, "")));
    for (ticket, expected) in [
        ("INC-42", "https://jira.test/issue/INC-42/comment"),
        (
            "a/../b?c#d",
            "https://jira.test/issue/a%2F..%2Fb%3Fc%23d/comment",
        ),
    ] {
        assert_eq!(jira.url_for(ticket).as_deref(), Some(expected));
    }
}

/// Returns routes with one route that has these fields.
fn one(more: Value) -> Value {
    let mut route = json!({"name": "a", "url": "https://a.test", "events": ["*"]});
    for (name, value) in more.as_object().unwrap() {
        route[name] = value.clone();
    }
    json!({ "routes": [route] })
}

fn rejected(file: &Value, why: &str) {
    let error = routes(file.clone()).unwrap_err();
    assert!(error.contains(why), "{file}: {error}");
}

#[test]
fn a_file_that_is_wrong_says_where() {
    let many: Vec<Value> = (0..33)
        .map(|it| json!({"name": format!("r{it}"), "url": "https://a.test", "events": ["*"]}))
        .collect();
    for (file, why) in [
        (json!({"routes": many}), "routes: must be at most 32"),
        (json!({"rout": []}), "unknown field `rout`"),
        (one(json!({"name": "A b"})), "routes[0].name: must have"),
        (
            one(json!({"secret": {"name": "s", "url": "x"}})),
            "routes[0].url: is required, unless",
        ),
        (
            one(json!({"url": null})),
            "routes[0].url: is required, unless",
        ),
        (one(json!({"events": []})), "1 to 256 actions"),
        (
            one(json!({"events": ["AccessGrante"]})),
            "\"AccessGrante\", which is not an audit action",
        ),
        (one(json!({"namespaces": ["[a"]})), "namespaces has \"[a\""),
        (one(json!({"format": "Teams"})), "unknown variant `Teams`"),
    ] {
        rejected(&file, why);
    }
    let twice = json!({"name": "a", "url": "https://a.test", "events": ["*"]});
    let error = routes(json!({"routes": [twice, twice]})).unwrap_err();
    assert_eq!(error, "routes[1].name: is the name of another route, too");
}

#[test]
fn invalid_secret_of_route_is_rejected_with_its_path() {
    for (file, why) in [
        (
            one(json!({"secret": {"token": "t"}})),
            "routes[0].secret.name: is required",
        ),
        (
            one(json!({"secret": {"headers": {"X-Api-Key": "k"}}})),
            "routes[0].secret.name: is required",
        ),
        (
            one(json!({"secret": {"name": "s", "token": "t", "authorization": "a"}})),
            "routes[0].secret.authorization: excludes secret.token",
        ),
        (
            one(json!({"publicRoots": true, "secret": {"name": "s", "ca": "ca.crt"}})),
            "routes[0].publicRoots: excludes secret.ca",
        ),
        (
            one(json!({"secret": {"name": "s", "headers": {"Host": "h"}}})),
            "Host cannot be set",
        ),
        (
            one(json!({"secret": {"name": "s", "headers": {"content-type": "h"}}})),
            "content-type cannot be set",
        ),
    ] {
        rejected(&file, why);
    }
    let fine = json!({"name": "s", "authorization": "a", "headers": {"X-Api-Key": "k"}});
    routes(one(json!({"publicRoots": true, "secret": fine}))).unwrap();
}

#[test]
fn invalid_content_of_route_is_rejected_with_its_path() {
    for (file, why) in [
        (
            one(json!({"format": "Custom"})),
            "routes[0].body: is required",
        ),
        (
            one(json!({"body": "{'text': 'a'}"})),
            "routes[0].body: is for the format Custom only",
        ),
        (
            one(json!({"secret": {"name": "s", "values": {"a": "b"}}})),
            "routes[0].secret.values: is for the format Custom only",
        ),
        (
            one(json!({
                "format": "Custom", "body": "{}", "secret": {"name": "s", "values": {"a": "../b"}},
            })),
            "routes[0].secret.values: must name",
        ),
        (
            one(json!({"url": "https://{ticket}.test/a"})),
            "routes[0].url: must have {ticket}",
        ),
        (
            one(json!({"url": "https://a.test:{ticket}"})),
            "routes[0].url: must have {ticket}",
        ),
    ] {
        rejected(&file, why);
    }
}

#[test]
fn invalid_route_of_bot_is_rejected_with_its_path() {
    let bot = |more: Value| {
        let mut route = json!({
            "format": "SlackBot", "url": "https://slack.com/api", "channel": "C0123456789",
            "secret": {"name": "slack", "token": "token"},
        });
        for (name, value) in more.as_object().unwrap() {
            route[name] = value.clone();
        }
        one(route)
    };
    routes(bot(json!({}))).unwrap();
    for (file, why) in [
        (
            bot(json!({"channel": null})),
            "routes[0].channel: must be the ID",
        ),
        (
            bot(json!({"channel": "#general"})),
            "routes[0].channel: must be the ID",
        ),
        (
            bot(json!({"channel": "C".repeat(65)})),
            "routes[0].channel: must be the ID",
        ),
        (
            bot(json!({"format": "Slack"})),
            "routes[0].channel: is for the format SlackBot only",
        ),
        (
            bot(json!({"secret": {}})),
            "routes[0].secret.token: is required",
        ),
        (
            bot(json!({"url": "https://slack.com/api?a=b"})),
            "routes[0].url: must be that of the API",
        ),
        (
            bot(json!({"body": "{}"})),
            "routes[0].body: is for the format Custom only",
        ),
    ] {
        rejected(&file, why);
    }
}

#[test]
fn message_of_bot_names_who_approved() {
    let bot = route(
        "SlackBot",
        json!({"channel": "C1", "secret": {"name": "s", "token": "t"}}),
    );
    let mut granted = entry(Action::AccessGranted, "INC-42");
    granted.record = granted.record.detail("approvedBy", "bob (security)");
    let content = content(&bot, &granted, "{}").unwrap();
    let Content::Bot(message) = content else {
        panic!("{content:?}");
    };
    let (method, arguments) = message.call("C1", None);
    assert_eq!(method, "chat.postMessage");
    let text = arguments.to_string();
    assert!(text.contains(r"Approved by\nbob (security)"), "{text}");
    assert_eq!(arguments["channel"], "C1");
}

#[test]
fn webhook_signature_matches_standard_webhooks() {
    // The example of the libraries of Standard Webhooks.
    let key = SigningKey::read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let signature = key.sign(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        br#"{"test": 2432232314}"#,
    );
    assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    for wrong in ["", "whsec_", "whsec_AAAA", "secret!", &"A".repeat(200)] {
        assert!(SigningKey::read(wrong).is_err(), "{wrong}");
    }
}
