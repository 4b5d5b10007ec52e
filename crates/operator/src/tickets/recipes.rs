//! The recipes of docs/guides/on-call-schedules.md, each with a server that speaks the API of its counterpart, by its
//! published reference, and refuses what its counterpart refuses.

use std::sync::Arc;

use oz_core::tickets::{Answer, Check, Checks, Person, Subject};
use oz_outbound::{Allowed, Proxies};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::ask::Server;

const ALICE: &str = "alice@example.com";
const BOB: &str = "bob@example.com";

/// A request to the server.
struct Got {
    path: String,
    query: Vec<(String, String)>,
    authorization: String,
}

impl Got {
    /// Reads the head of a request with lines that end with CR LF.
    fn read(head: &str) -> Option<Self> {
        let mut lines = head.split("\r\n");
        let target = lines.next()?.strip_prefix("GET ")?;
        let target = target.strip_suffix(" HTTP/1.1")?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let header = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            let is_it = name.eq_ignore_ascii_case("authorization");
            is_it.then(|| value.to_owned())
        };
        Some(Self {
            path: path.to_owned(),
            query: pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            authorization: lines.find_map(header).unwrap_or_default(),
        })
    }

    fn has(&self, name: &str, value: &str) -> bool {
        let mut pairs = self.query.iter();
        pairs.any(|(known, given)| known == name && given == value)
    }
}

/// The response of a counterpart to a request, while these users are on call.
type Judge = fn(&Got, on_call: &[&str]) -> (u16, Value);

/// Returns the ID of a user in PagerDuty and Grafana OnCall.
fn id(user: &str) -> String {
    match user {
        ALICE => "U4DNY931HHJS5".to_owned(),
        _ => "U5ABCDEFGHIJK".to_owned(),
    }
}

/// PagerDuty's list of on-calls: https://developer.pagerduty.com/api-reference/3a6b910f11050-list-all-of-the-on-calls
fn pagerduty(got: &Got, on_call: &[&str]) -> (u16, Value) {
    if got.authorization != "Token token=y_NbAkKc66ryYTWUXYEu" {
        return (
            401,
            json!({"error": {"message": "Invalid token", "code": 2006}}),
        );
    }
    if got.path != "/oncalls" || !got.has("schedule_ids%5B%5D", "PI7DH85") {
        return (
            404,
            json!({"error": {"message": "Not Found", "code": 2100}}),
        );
    }
    let entry = |user: &&str| {
        let mut one = json!({
            "id": id(user), "type": "user_reference", "summary": "A user",
            "self": format!("https://api.pagerduty.com/users/{}", id(user)),
        });
        // A reference has no address.
        if got.has("include%5B%5D", "users") {
            one["type"] = json!("user");
            one["email"] = json!(user);
        }
        json!({
            "user": one,
            "schedule": {"id": "PI7DH85", "type": "schedule_reference"},
            "escalation_policy": {"id": "PT20YPA", "type": "escalation_policy_reference"},
            "escalation_level": 1,
            "start": "2026-11-25T08:00:00Z", "end": "2026-11-25T16:00:00Z",
        })
    };
    let entries: Vec<Value> = on_call.iter().map(entry).collect();
    let page = json!({"oncalls": entries, "limit": 100, "offset": 0, "more": false, "total": null});
    (200, page)
}

/// Opsgenie's on-calls of a schedule: https://docs.opsgenie.com/docs/who-is-on-call-api
fn opsgenie(got: &Got, on_call: &[&str]) -> (u16, Value) {
    let refused = |why: &str| json!({"message": why, "took": 0.001, "requestId": "r-1"});
    match got.authorization.strip_prefix("GenieKey ") {
        Some("eb243592-faa2-4ba2-a551q-1afdf565c889") => {}
        Some(_) => {
            return (
                403,
                refused("You are not authorized to access this resource"),
            );
        }
        None => return (401, refused("Could not authenticate")),
    }
    // Without the type, the path has the ID of a schedule.
    let is_found =
        got.path == "/v2/schedules/payments/on-calls" && got.has("scheduleIdentifierType", "name");
    if !is_found {
        return (404, refused("No schedule exists with given identifier"));
    }
    let mut data = json!({"_parent": {"id": "d875", "name": "payments", "enabled": true}});
    if got.has("flat", "true") {
        data["onCallRecipients"] = json!(on_call);
    } else {
        let participants = on_call.iter();
        let participants = participants.map(|user| json!({"name": user, "type": "user"}));
        data["onCallParticipants"] = participants.collect();
    }
    (
        200,
        json!({"data": data, "took": 0.001, "requestId": "r-2"}),
    )
}

/// A schedule of Grafana OnCall: https://grafana.com/docs/oncall/latest/oncall-api-reference/schedules/
fn grafana(got: &Got, on_call: &[&str]) -> (u16, Value) {
    if got.authorization != "meowmeowmeow" {
        return (403, json!({"detail": "Invalid token."}));
    }
    match got.path.as_str() {
        "/oncall/api/v1/schedules/SBM7DV7BKFUYU/" => {}
        // The server redirects to the path with a slash.
        "/oncall/api/v1/schedules/SBM7DV7BKFUYU" => return (301, Value::Null),
        _ => return (404, json!({"detail": "Not found."})),
    }
    let ids: Vec<String> = on_call.iter().map(|user| id(user)).collect();
    let schedule = json!({
        "id": "SBM7DV7BKFUYU", "name": "Demo schedule iCal", "type": "ical", "team_id": null,
        "on_call_now": ids, "slack": {"channel_id": "C1", "user_group_id": "S1"},
    });
    (200, schedule)
}

/// A failure of the server.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Slow,
    Html,
    Large,
    TooMany,
    Redirect,
    Broken,
}

/// The state of the server.
#[derive(Clone)]
struct State {
    judge: Judge,
    on_call: Arc<Mutex<Vec<&'static str>>>,
    trouble: Arc<Mutex<Option<Trouble>>>,
}

impl State {
    fn response(&self, head: &str) -> Option<String> {
        let respond = |code: u16, headers: &str, body: &str| {
            let length = body.len();
            format!("HTTP/1.1 {code} So\r\n{headers}content-length: {length}\r\n\r\n{body}")
        };
        let (code, body) = match Got::read(head) {
            Some(got) => (self.judge)(&got, &self.on_call.lock()),
            None => (400, Value::Null),
        };
        let body = body.to_string();
        let trouble = *self.trouble.lock();
        Some(match trouble {
            None => respond(code, "", &body),
            Some(Trouble::Slow) => return None,
            Some(Trouble::Html) => respond(200, "content-type: text/html\r\n", "<html>sign in"),
            Some(Trouble::Large) => respond(200, "", &format!("{body}{}", " ".repeat(1 << 20))),
            Some(Trouble::TooMany) => respond(429, "retry-after: 60\r\n", &body),
            Some(Trouble::Redirect) => respond(302, "location: /elsewhere\r\n", &body),
            Some(Trouble::Broken) => respond(200, "", &body[..body.len() / 2]),
        })
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        while let Ok(1..) = stream.read_buf(&mut bytes).await {
            let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
                continue;
            };
            let head: Vec<u8> = bytes.drain(..end + 4).collect();
            let Some(response) = self.response(&String::from_utf8_lossy(&head)) else {
                continue;
            };
            if stream.write_all(response.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// A recipe, with its server and its Secret.
struct Recipe {
    state: State,
    server: Server,
    secret: std::path::PathBuf,
    _secrets: tempfile::TempDir,
}

impl Recipe {
    async fn start(name: &str, judge: Judge, authorization: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            judge,
            on_call: Arc::default(),
            trouble: Arc::default(),
        };
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        let secrets = tempfile::tempdir().unwrap();
        let directory = Check::directory(secrets.path(), name);
        std::fs::create_dir_all(&directory).unwrap();
        let secret = directory.join("authorization");
        std::fs::write(&secret, format!("{authorization}\n")).unwrap();
        let check = recipe(name, &address.to_string());
        let allowed = Allowed::any_address_of("127.0.0.1", &Proxies::default());
        Self {
            state,
            server: Server::new((name, &check), secrets.path(), allowed).unwrap(),
            secret,
            _secrets: secrets,
        }
    }

    async fn ask(&self, user: &str) -> Answer {
        let person = Person {
            user: user.to_owned(),
            groups: vec!["payments".to_owned()],
            group: Some("payments".to_owned()),
            ..Person::default()
        };
        self.server.ask(&Subject::Requester(person)).await
    }

    /// Checks that the recipe accepts exactly the users who are on call, and that a failure accepts no one.
    async fn check(&self) {
        for on_call in [vec![], vec![BOB], vec![ALICE], vec![BOB, ALICE]] {
            *self.state.on_call.lock() = on_call.clone();
            for user in [ALICE, BOB, "mallory@example.com"] {
                let answer = self.ask(user).await;
                match on_call.contains(&user) {
                    true => assert_eq!(answer, Answer::Accepted, "{user}: {on_call:?}"),
                    false => {
                        let is_refused = matches!(answer, Answer::Refused(_));
                        assert!(is_refused, "{user}: {on_call:?}: {answer:?}");
                    }
                }
            }
        }
        for trouble in [
            Trouble::Slow,
            Trouble::Html,
            Trouble::Large,
            Trouble::TooMany,
            Trouble::Redirect,
            Trouble::Broken,
        ] {
            *self.state.trouble.lock() = Some(trouble);
            let answer = self.ask(ALICE).await;
            assert!(matches!(answer, Answer::Away(_)), "{trouble:?}: {answer:?}");
        }
        *self.state.trouble.lock() = None;
        assert_eq!(self.ask(ALICE).await, Answer::Accepted);
        // The token was rotated, and the Secret was not.
        let valid = std::fs::read(&self.secret).unwrap();
        std::fs::write(&self.secret, "Token token=other\n").unwrap();
        let answer = self.ask(ALICE).await;
        assert!(matches!(answer, Answer::Away(_)), "{answer:?}");
        std::fs::write(&self.secret, valid).unwrap();
        assert_eq!(self.ask(ALICE).await, Answer::Accepted);
        std::fs::remove_file(&self.secret).unwrap();
        let answer = self.ask(ALICE).await;
        assert!(matches!(answer, Answer::Away(_)), "{answer:?}");
    }
}

/// Returns the check of a recipe, as the guide has it, with another server and a shorter timeout.
fn recipe(name: &str, address: &str) -> Check {
    let guide = include_str!("../../../../docs/guides/on-call-schedules.md");
    let (_, recipes) = guide.split_once("\n## Recipes\n").unwrap();
    for block in recipes.split("```yaml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        let mut values: Value = serde_saphyr::from_str(text).unwrap();
        let Some(check) = values.pointer_mut(&format!("/tickets/checks/{name}")) else {
            continue;
        };
        let url = check["url"].as_str().unwrap();
        let path = url.splitn(4, '/').nth(3).unwrap();
        check["url"] = json!(format!("http://{address}/{path}"));
        check["timeout"] = json!("2s");
        let mut checks: Checks = serde_json::from_value(values["tickets"].take()).unwrap();
        checks.check().unwrap();
        return checks.checks.remove(name).unwrap();
    }
    panic!("the guide has no recipe {name}");
}

#[tokio::test]
async fn recipe_for_pagerduty_accepts_users_who_are_on_call() {
    let authorization = "Token token=y_NbAkKc66ryYTWUXYEu";
    let recipe = Recipe::start("pagerduty", pagerduty, authorization).await;
    recipe.check().await;
}

#[tokio::test]
async fn recipe_for_opsgenie_accepts_users_who_are_on_call() {
    let authorization = "GenieKey eb243592-faa2-4ba2-a551q-1afdf565c889";
    let recipe = Recipe::start("opsgenie", opsgenie, authorization).await;
    recipe.check().await;
}

#[tokio::test]
async fn recipe_for_grafana_oncall_accepts_users_who_are_on_call() {
    let recipe = Recipe::start("grafana", grafana, "meowmeowmeow").await;
    recipe.check().await;
}
