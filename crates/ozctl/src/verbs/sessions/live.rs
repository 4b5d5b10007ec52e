//! `ozctl sessions list --live`, `show`, `watch` and `end`: open sessions, as the gate reports
//! them.

use std::collections::BTreeSet;

use clap::Args;
use futures::TryStreamExt as _;
use http::Method;
use http_body_util::{BodyDataStream, BodyExt as _};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::client::Body;
use oz_core::for_each_kind;
use oz_core::gate;
use oz_core::kinds::AccessRequest as _;
use oz_gating::live::{self, Listing, Session};
use oz_gating::recording::{Code, Event, Header, MAX_LINE, SessionKey};

use super::harmless::{Harmless, RESET};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::output::{self, Table, TextFormat, instant, line, short};

/// The maximum size of a response.
const MAX_ANSWER: usize = 64 << 20;
/// The missing right, after a denial of the API server.
const RIGHT: &str = "seeing, watching and ending open sessions takes ClusterRole oz-session-moderator in their namespace";

/// Show one session that is open
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl sessions show mine
  ozctl sessions show mine/20261126t101500123z-oz-gate-0-7 -o json")]
pub(super) struct Show {
    /// REQUEST, which means its last session that is open; or REQUEST/SESSION
    session: String,
    /// How to show it
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

/// Watch a session while it is open
#[derive(Args)]
#[command(after_help = "\
What its user sees is shown from now on. It is put on record that you watch, and the user is told. What they type is
shown by its echo alone; nothing in it does anything to your terminal but show letters, colours and where they stand.
It ends with the session, and says why on standard error; Ctrl-C stops watching.

Examples:
  ozctl sessions watch mine
  ozctl sessions watch mine --raw > mine.cast")]
pub(super) struct Watch {
    /// REQUEST, which means its last session that is open; or REQUEST/SESSION
    session: String,
    /// Write the lines as the gate sends them (asciicast v2); not to a terminal
    #[arg(long)]
    raw: bool,
}

/// End a session that is open
#[derive(Args)]
#[command(after_help = "\
Its user is told who ended it, and so is the record. The access itself goes on: `ozctl revoke` ends that.

Examples:
  ozctl sessions end mine
  ozctl sessions end mine --reason 'the change window is over'")]
pub(super) struct End {
    /// REQUEST, which means its last session that is open; or REQUEST/SESSION
    session: String,
    /// Why: the user is told, and it is on record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// How to show what was ended
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

/// Shows the open sessions of one request, or all that the user can see.
pub(super) async fn list(
    context: &Context,
    request: Option<&str>,
    all_namespaces: bool,
    format: TextFormat,
) -> Result<Exit> {
    let cluster = context.cluster().await?;
    let requests = match request {
        Some(name) => BTreeSet::from([(cluster.namespace.clone(), named(name)?)]),
        None => through_gate(&cluster, all_namespaces).await?,
    };
    let mut found = Listing::default();
    for (namespace, request) in requests {
        found.merge(open(&cluster, &namespace, &request).await?);
    }
    // A replica that does not respond fails for each request, and is reported once.
    let incomplete: BTreeSet<String> = std::mem::take(&mut found.incomplete).into_iter().collect();
    found.incomplete = incomplete.into_iter().collect();
    for why in &found.incomplete {
        context.say_plain(&format!("oz: not all sessions are known: {}", line(why)));
    }
    let exit = if found.incomplete.is_empty() {
        Exit::SUCCESS
    } else {
        Exit::INCOMPLETE
    };
    let text = match format {
        TextFormat::Text if found.sessions.is_empty() => {
            context.say("No session through the gate is open here.");
            return Ok(exit);
        }
        TextFormat::Text => table(&found.sessions, all_namespaces, Timestamp::now()).to_string(),
        TextFormat::Json => output::json(&output::to_value(&found)?)?,
        TextFormat::Yaml => output::yaml(&output::to_value(&found)?)?,
    };
    context.print(&text)?;
    Ok(exit)
}

impl Show {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let key = chosen(&cluster, &self.session).await?;
        let found = ask(&cluster, Method::GET, &live::session(&key)).await?;
        shown(context, self.output, &session(&found)?)?;
        Ok(Exit::SUCCESS)
    }
}

impl End {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        if let Some(reason) = &self.reason {
            live::reason([(live::REASON, reason.as_str())].into_iter())
                .map_err(|why| Failure::new(format!("--reason: {}", why.message)))?;
        }
        let cluster = context.cluster().await?;
        let key = chosen(&cluster, &self.session).await?;
        let mut path = live::session(&key);
        if let Some(reason) = &self.reason {
            path.push_str(&format!("?{}={}", live::REASON, encoded(reason)));
        }
        let ended = session(&ask(&cluster, Method::DELETE, &path).await?)?;
        if self.output != TextFormat::Text {
            shown(context, self.output, &ended)?;
        }
        let whose = line(&ended.user);
        context.say_plain(&format!(
            "Ended session {key} of {whose}; they were told, and it is on record."
        ));
        Ok(Exit::SUCCESS)
    }
}

impl Watch {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let key = chosen(&cluster, &self.session).await?;
        let mut interrupts = Interrupts::new()?;
        let mut viewer = Viewer {
            context,
            raw: self.raw,
            harmless: Harmless::default(),
            tty: None,
        };
        let watched = tokio::select! {
            watched = viewer.all(&cluster, &key) => watched,
            exit = interrupts.next() => Ok(exit),
        };
        if !self.raw && viewer.tty.is_some() {
            context.print(RESET)?;
        }
        watched
    }
}

/// The output of a watched session.
struct Viewer<'a> {
    context: &'a Context,
    raw: bool,
    harmless: Harmless,
    /// The session is on a terminal; `None` as long as that is unknown.
    tty: Option<bool>,
}

impl Viewer<'_> {
    async fn all(&mut self, cluster: &Cluster, key: &SessionKey) -> Result<Exit> {
        let path = live::watched(key);
        let answer = send(cluster, Method::GET, &path).await?;
        let broken = |error: &dyn std::fmt::Display| {
            Failure::new(format!("watching session {key} broke off: {error}"))
                .next("it may be open still: `ozctl sessions list --live` shows what is")
        };
        let mut stream = BodyDataStream::new(answer.into_body());
        let mut begun = Vec::new();
        while let Some(bytes) = stream.try_next().await.map_err(|error| broken(&error))? {
            if self.raw {
                if !self.context.pass_on(&bytes)? {
                    return Ok(Exit::SUCCESS);
                }
                continue;
            }
            begun.extend_from_slice(&bytes);
            while let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = begun.drain(..=end).collect();
                if !self.line(&line[..end]).map_err(|why| broken(&why))? {
                    return Ok(Exit::SUCCESS);
                }
            }
            if begun.len() > MAX_LINE {
                return Err(broken(&"a line is too long"));
            }
        }
        if self.tty.is_none() && !self.raw {
            return Err(broken(&"nothing was sent"));
        }
        Ok(Exit::SUCCESS)
    }

    /// Shows a line. Returns whether the output still has a reader.
    fn line(&mut self, bytes: &[u8]) -> std::result::Result<bool, String> {
        if bytes.is_empty() {
            return Ok(true);
        }
        let Some(tty) = self.tty else {
            let header: Header =
                serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
            let about = header.oz;
            self.tty = Some(about.tty);
            let command = about.command.join(" ");
            let told = format!(
                "oz: {} in pod {} ({} {command}), opened at {}; you are on record, and they are told",
                about.user, about.pod, about.way, about.opened_at
            );
            self.context.say_plain(&line(&told));
            return Ok(true);
        };
        let Event(_, code, data) =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let output = match code {
            Code::Output if tty => data,
            // Without a terminal, a line begins where the preceding line ended.
            Code::Output => data.replace('\n', "\r\n"),
            Code::Mark => {
                self.context.say_plain(&line(&data));
                return Ok(true);
            }
            Code::Input | Code::Resize | Code::Bytes => return Ok(true),
        };
        let shown = self.harmless.of(&output);
        self.context
            .pass_on(shown.as_bytes())
            .map_err(|failure| failure.to_string())
    }
}

fn table(sessions: &[Session], all_namespaces: bool, now: Timestamp) -> Table {
    let mut head = Vec::new();
    if all_namespaces {
        head.push("NAMESPACE");
    }
    head.extend([
        "SESSION",
        "USER",
        "POD",
        "WAY",
        "STATE",
        "OPEN",
        "IDLE",
        "LEFT",
        "IN",
        "OUT",
        "RECORDED",
        "WATCHED BY",
    ]);
    let mut table = Table::new(&head);
    for one in sessions {
        let (namespace, session) = one.session.split_once('/').unwrap_or_default();
        let mut cells = Vec::new();
        if all_namespaces {
            cells.push(namespace.to_owned());
        }
        cells.extend([
            session.to_owned(),
            one.user.clone(),
            one.pod.clone(),
            one.way.clone(),
            one.state.to_string(),
            short(now.duration_since(one.opened_at)),
            short(now.duration_since(one.idle_since)),
            short(one.until.duration_since(now)),
            one.bytes_in.to_string(),
            one.bytes_out.to_string(),
            yes(one.recorded).to_owned(),
            watchers(one),
        ]);
        table.row(cells);
    }
    table
}

fn watchers(session: &Session) -> String {
    let names: Vec<&str> = session
        .watchers
        .iter()
        .map(|one| one.user.as_str())
        .collect();
    names.join(",")
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn shown(context: &Context, format: TextFormat, one: &Session) -> Result<()> {
    let text = match format {
        TextFormat::Json => output::json(&output::to_value(one)?)?,
        TextFormat::Yaml => output::yaml(&output::to_value(one)?)?,
        TextFormat::Text => {
            let command = if one.command.is_empty() {
                one.command_digest.clone().unwrap_or_default()
            } else {
                one.command.join(" ")
            };
            let rows = [
                ("Session", one.session.clone()),
                ("User", one.user.clone()),
                ("Pod", one.pod.clone()),
                ("Container", one.container.clone().unwrap_or_default()),
                ("Way", one.way.clone()),
                ("State", one.state.to_string()),
                (
                    "Moderated",
                    one.moderation
                        .as_ref()
                        .map(gate::watchers)
                        .unwrap_or_default(),
                ),
                ("Command", command),
                ("Opened", instant(one.opened_at)),
                ("Idle since", instant(one.idle_since)),
                ("Until", instant(one.until)),
                ("Bytes in", one.bytes_in.to_string()),
                ("Bytes out", one.bytes_out.to_string()),
                ("Recorded", yes(one.recorded).to_owned()),
                ("Watchable", yes(one.watchable).to_owned()),
                ("Watched by", watchers(one)),
                ("Replica", one.replica.clone()),
            ];
            let rows = rows.iter().filter(|(_, value)| !value.is_empty());
            rows.map(|(name, value)| format!("{:<12}{}\n", format!("{name}:"), line(value)))
                .collect()
        }
    };
    context.print(&text)
}

/// Returns the session of `REQUEST` (the last one that is open) or `REQUEST/SESSION`.
async fn chosen(cluster: &Cluster, text: &str) -> Result<SessionKey> {
    let namespace = &cluster.namespace;
    if text.contains('/') {
        return SessionKey::read(&format!("{namespace}/{text}")).ok_or_else(|| malformed(text));
    }
    let listing = open(cluster, namespace, &named(text)?).await?;
    let last = listing
        .sessions
        .last()
        .and_then(|last| SessionKey::read(&last.session));
    last.ok_or_else(|| {
        let why = match listing.incomplete.as_slice() {
            [] => String::new(),
            incomplete => format!(" ({})", line(&incomplete.join("; "))),
        };
        let message = format!("no session of request {text} in namespace {namespace} is open{why}");
        Failure::new(message).next("`ozctl sessions list --live` shows what is")
    })
}

/// Returns the name of a request, if it may be part of a path.
fn named(text: &str) -> Result<String> {
    let key = SessionKey::read(&format!("x/{text}/x")).ok_or_else(|| malformed(text))?;
    Ok(key.request)
}

fn malformed(text: &str) -> Failure {
    let message = format!(
        "{} names no session: write REQUEST, or REQUEST/SESSION",
        line(text)
    );
    Failure::new(message).next("`ozctl sessions list --live` shows what is open")
}

/// Returns the requests that lead through the gate, by namespace and name.
async fn through_gate(
    cluster: &Cluster,
    all_namespaces: bool,
) -> Result<BTreeSet<(String, String)>> {
    let mut found = BTreeSet::new();
    for_each_kind!(requests R => {
        let api = cluster.api_in::<R>(all_namespaces);
        let all = cluster.answer(api.list(&ListParams::default())).await?;
        for request in all.items {
            if request.status().is_some_and(|status| status.gate) {
                found.insert((request.namespace().unwrap_or_default(), request.name_any()));
            }
        }
    });
    Ok(found)
}

async fn open(cluster: &Cluster, namespace: &str, request: &str) -> Result<Listing> {
    let path = live::sessions(namespace, request);
    let bytes = ask(cluster, Method::GET, &path).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Failure::new(format!(
            "failed to read which sessions of request {request} are open: {error}"
        ))
    })
}

fn session(bytes: &[u8]) -> Result<Session> {
    serde_json::from_slice(bytes).map_err(|error| {
        Failure::new(format!(
            "failed to read what the gate says of the session: {error}"
        ))
    })
}

async fn ask(cluster: &Cluster, method: Method, path: &str) -> Result<Vec<u8>> {
    let answer = send(cluster, method, path).await?;
    let body = http_body_util::Limited::new(answer.into_body(), MAX_ANSWER);
    let bytes = body.collect().await;
    let bytes = bytes.map_err(|error| Failure::new(format!("failed to read {path}: {error}")))?;
    Ok(bytes.to_bytes().into())
}

/// Sends a request, and returns the response if its status is a success.
async fn send(cluster: &Cluster, method: Method, path: &str) -> Result<http::Response<Body>> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::new(format!("failed to ask for {path}: {error}"));
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .body(Body::empty());
    let request = request.map_err(|error| failed(&error))?;
    let answer = cluster.answer(cluster.client.send(request)).await?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let body = http_body_util::Limited::new(answer.into_body(), MAX_ANSWER);
    let bytes = body
        .collect()
        .await
        .map_err(|error| failed(&error))?
        .to_bytes();
    let said: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let why = said["message"]
        .as_str()
        .map_or_else(|| status.to_string(), line);
    let failure = failed(&why);
    Err(if status == http::StatusCode::FORBIDDEN {
        failure.next(RIGHT)
    } else {
        failure
    })
}

/// Encodes a text for a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let bytes = text.bytes().map(|byte| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_goes_into_a_query_whole() {
        assert_eq!(
            encoded("it's late & ‹so›"),
            "it%27s%20late%20%26%20%E2%80%B9so%E2%80%BA"
        );
    }

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(named("mine").unwrap(), "mine");
        for text in ["", "..", "a/b", "a?b", "A", "\u{1b}[2J"] {
            assert!(named(text).is_err(), "{text:?}");
        }
    }
}
