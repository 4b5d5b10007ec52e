//! Servers of notification routes that are down, stall, or have an address to which oz must not send.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use oz_api::{ExecAccessRequest, Phase, RequestStatus};
use oz_e2e::receiver::{Answers, Received, Server};
use oz_e2e::{
    Options, Person, Scene, System, TEMPLATE, answer_to, approval_rule, approved_template,
    exec_request,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::notify::signature::SigningKey;
use serde_json::{Value, json};

use crate::alone;
use crate::support::clean;

const BOB: Person = Person::new("bob", &["approvers"]);
const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const TOKEN: &str = "a-token-that-nobody-logs";
/// The path of a Slack URL is its secret.
const SECRET_PATH: &str = "/services/T0/B0/nobody-logs-this";

fn notification_options(routes: &Value, allowed: &[&str]) -> Options {
    let told = json!({"routes": routes, "allowedHosts": allowed});
    Options::default().set("notifications", told)
}

/// Returns the counter of a route, from the metrics of an operator.
async fn counted(system: &System, name: &str, route: &str) -> Result<u64> {
    let wanted = format!("oz_notifications_{name}_total{{route=\"{route}\"}} ");
    let metrics = system.operator.metrics().await?;
    let value = metrics.lines().find_map(|line| line.strip_prefix(&wanted));
    Ok(value.map(str::parse).transpose()?.unwrap_or(0))
}

/// Waits until a server has accepted a request for each of these texts, in this order.
async fn has_in_order(server: &Server, texts: &[&str]) -> Result<Vec<Received>> {
    eventually("the server to have them", CONDITION_TIMEOUT, async || {
        let taken = server.taken();
        let mut found = Vec::new();
        let mut rest = taken.into_iter();
        for text in texts {
            let next = rest.find(|it| it.raw.contains(text));
            found.push(next.with_context(|| format!("nothing says {text:?}"))?);
        }
        Ok(Some(found))
    })
    .await
}

/// The servers of the notification routes; at first none of them accepts a request.
struct Servers {
    chat: Server,
    alerts: Server,
    events: Server,
    files: tempfile::TempDir,
}

impl Servers {
    async fn start() -> Result<Self> {
        let (chat, alerts, events) = tokio::try_join!(
            Server::start(Answers::Never),
            Server::start(Answers::With(503)),
            Server::start(Answers::Html),
        )?;
        Ok(Self {
            chat,
            alerts,
            events,
            files: tempfile::tempdir()?,
        })
    }

    fn all(&self) -> [&Server; 3] {
        [&self.chat, &self.alerts, &self.events]
    }

    /// Writes a key of the Secret of a route, and returns the route's reference to it.
    fn secret(&self, route: &str, key: &str, text: &str) -> Result<Value> {
        let directory = self.files.path().join("notifications").join(route);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(key), text)?;
        Ok(json!({"name": route, key: key}))
    }

    fn routes(&self) -> Result<Value> {
        Ok(json!([
            {
                "name": "chat", "format": "Slack",
                "secret": self.secret("chat", "url", &self.chat.url(SECRET_PATH))?,
                "events": ["ApprovalRequested", "AccessGranted"],
            },
            {
                "name": "alerts", "format": "Alertmanager", "url": self.alerts.url("/api/v2/alerts"),
                "secret": self.secret("alerts", "token", TOKEN)?,
                "events": ["AccessGranted", "AccessRevoked"],
            },
            {
                "name": "events", "url": self.events.url("/"),
                "secret": self.secret("events", "signingKey", KEY)?,
                "events": ["ApprovalRequested", "ApprovalGiven", "AccessGranted", "AccessRevoked"],
                "namespaces": ["told-*"],
            },
        ]))
    }

    /// Checks that the message for users names the approvers and the command, and that markup of users has no effect.
    async fn people_are_told(&self) -> Result<()> {
        let said = has_in_order(&self.chat, &["Approval requested", "Access granted"]).await?;
        let begins = format!("POST {SECRET_PATH} ");
        assert!(said[0].head.starts_with(&begins), "{said:?}");
        for part in ["ozctl approve debug -n told-", "security: bob may"] {
            assert!(said[0].raw.contains(part), "{said:?}");
        }
        for one in &said {
            let text = one.body["text"].as_str().context("no text")?;
            assert!(
                !text.contains('<') && !one.raw.contains('\u{202e}'),
                "{one:?}"
            );
        }
        Ok(())
    }

    /// Checks that the grant and its end are one alert.
    async fn the_alert_resolves(&self) -> Result<()> {
        let said = has_in_order(&self.alerts, &["Access granted", "Access revoked"]).await?;
        assert_eq!(said[0].body[0]["labels"], said[1].body[0]["labels"]);
        assert!(said[1].body[0]["endsAt"].as_str() < said[0].body[0]["endsAt"].as_str());
        let bearer = said[0].header("authorization");
        assert_eq!(bearer.as_deref(), Some(format!("Bearer {TOKEN}").as_str()));
        Ok(())
    }

    /// Checks that operator and webhook each send their own events, once, signed, and only those that the route
    /// selects.
    async fn events_are_signed(&self) -> Result<()> {
        let operators = ["ApprovalRequested", "AccessGranted", "AccessRevoked"];
        has_in_order(&self.events, &operators).await?;
        has_in_order(&self.events, &["ApprovalGiven"]).await?;
        let key = SigningKey::read(KEY).map_err(anyhow::Error::msg)?;
        let taken = self.events.taken();
        for one in &taken {
            let header = |name: &str| one.header(name).with_context(|| format!("no {name}"));
            let (id, seconds) = (header("webhook-id")?, header("webhook-timestamp")?);
            let signature = key.sign(&id, seconds.parse()?, one.raw.as_bytes());
            assert_eq!(header("webhook-signature")?, signature);
            assert!(one.raw.contains("\"namespace\":\"told-"), "{one:?}");
        }
        let ids: BTreeSet<_> = taken.iter().map(|it| it.header("webhook-id")).collect();
        assert_eq!(ids.len(), taken.len(), "told twice");
        Ok(())
    }
}

/// Lets alice request access, bob approve it, and the access begin and end.
async fn access_comes_and_goes(scene: &Scene) -> Result<()> {
    scene.may_approve("approvers").await?;
    let rule = approval_rule("security", &["bob"], &[], 1);
    scene
        .template(&approved_template("asked", vec![rule], "30m"))
        .await?;
    let alice = scene.requests("alice").await?;
    let mut request = exec_request("debug", "asked", "1h");
    request.spec.reason = Some("<!channel> \u{202e}INC-42".to_owned());
    alice.create(&request).await?;
    let waits = |status: &RequestStatus| status.approval.is_some();
    let request = alice.until("debug", "to wait for others", waits).await?;
    let answer = answer_to(&request, "debug-bob", true)?;
    let plural = "accessrequestapprovals";
    BOB.create(&scene.admin, scene.name(), plural, &answer)
        .await?;
    alice.ready("debug").await?;
    let requests = scene.api::<ExecAccessRequest>();
    requests.delete("debug", &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn failing_notification_servers_delay_no_access_and_get_messages_later() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let servers = Servers::start().await?;
    let both = notification_options(&servers.routes()?, &["127.0.0.1"])
        .set("installation.secrets", servers.files.path().display());
    let mut system = System::start_as(cluster, &both, &both).await?;
    let scene = Scene::set(cluster, "told").await?;
    access_comes_and_goes(&scene).await?;
    eventually("each to have been tried", CONDITION_TIMEOUT, async || {
        let mut all = servers.all().into_iter();
        ensure!(all.all(|server| !server.refused().is_empty()));
        Ok(Some(()))
    })
    .await?;
    for server in servers.all() {
        ensure!(server.taken().is_empty());
        server.answer(Answers::With(200));
    }
    servers.people_are_told().await?;
    servers.the_alert_resolves().await?;
    servers.events_are_signed().await?;

    assert_eq!(counted(&system, "dropped", "chat").await?, 0);
    assert!(counted(&system, "failures", "alerts").await? > 0);
    let process = &mut system.operator.process;
    process.terminate(Duration::from_secs(30)).await?;
    let log = fs::read_to_string(process.stderr())?;
    assert!(log.contains("does not accept notifications"), "{log}");
    for secret in [TOKEN, "nobody-logs-this", "MfKQ9r8G"] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
    Ok(())
}

#[tokio::test]
async fn nothing_is_sent_to_where_only_oz_can_reach_nor_after_a_redirect() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let (here, away) = tokio::try_join!(
        Server::start(Answers::With(200)),
        Server::start(Answers::Redirect)
    )?;
    let route =
        |name: &str, url: String| json!({"name": name, "url": url, "events": ["AccessGranted"]});
    // A name for the loopback address is detected when it is resolved.
    let named = here.url("/").replace("127.0.0.1", "localhost");
    let routes = json!([route("named", named), route("away", away.url("/first"))]);
    let system =
        System::start_with(cluster, &notification_options(&routes, &["127.0.0.1"])).await?;
    let scene = Scene::set(cluster, "nowhere").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("debug", TEMPLATE, "1h"))
        .await?;
    eventually("both to have failed", CONDITION_TIMEOUT, async || {
        for route in ["named", "away"] {
            ensure!(counted(&system, "failures", route).await? > 1, "{route}");
        }
        Ok(Some(()))
    })
    .await?;
    alice.phase("debug", Phase::Active).await?;
    assert!(here.taken().is_empty() && here.refused().is_empty());
    let tried = away.refused();
    assert!(
        tried.iter().all(|it| it.head.starts_with("POST /first ")),
        "{tried:?}"
    );
    Ok(())
}

#[tokio::test]
async fn message_of_slack_bot_names_who_approved() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    clean(cluster).await?;
    let slack = Server::start(Answers::Html).await?;
    let files = tempfile::tempdir()?;
    let directory = files.path().join("notifications/bot");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("token"), TOKEN)?;
    let route = json!({
        "name": "bot", "format": "SlackBot", "url": slack.url("/api"), "channel": "C0123456789",
        "secret": {"name": "bot", "token": "token"},
        "events": ["ApprovalRequested", "AccessGranted", "AccessRevoked"],
    });
    let options = notification_options(&json!([route]), &["127.0.0.1"])
        .set("installation.secrets", files.path().display());
    let mut system = System::start_with(cluster, &options).await?;
    let scene = Scene::set(cluster, "bot").await?;
    access_comes_and_goes(&scene).await?;
    eventually("a first attempt", CONDITION_TIMEOUT, async || {
        ensure!(!slack.refused().is_empty());
        Ok(Some(()))
    })
    .await?;
    slack.answer(Answers::Slack);
    let texts = ["Approval requested", "Access granted", "Access revoked"];
    let said = has_in_order(&slack, &texts).await?;
    let methods = ["chat.postMessage", "chat.update", "chat.postMessage"];
    for (one, method) in said.iter().zip(methods) {
        let begins = format!("POST /api/{method} ");
        assert!(one.head.starts_with(&begins), "{one:?}");
        assert_eq!(one.body["channel"], "C0123456789");
        let bearer = one.header("authorization");
        assert_eq!(bearer.as_deref(), Some(format!("Bearer {TOKEN}").as_str()));
    }
    assert_eq!(said[1].body["ts"], "1503435956.000247");
    assert!(said[1].raw.contains("bob (security)"), "{:?}", said[1]);
    let process = &mut system.operator.process;
    process.terminate(Duration::from_secs(30)).await?;
    let log = fs::read_to_string(process.stderr())?;
    assert!(!log.contains(TOKEN), "the token is in the log: {log}");
    Ok(())
}
