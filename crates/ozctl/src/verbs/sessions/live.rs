//! `ozctl sessions list --live`, `show`, `watch` and `end`: open sessions, as the gate reports
//! them.

use clap::Args;
use jiff::Timestamp;
use oz_client::sessions::BreakOff;
use oz_client::sessions::harmless::RESET;
use oz_client::sessions::live::{self, SessionEvent, Watch as Watched};
use oz_core::gate;
use oz_gating::live::Session;
use oz_gating::recording::SessionKey;

use super::shared_names;
use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::output::{self, Table, TextFormat, instant, line, short};

/// Show one open session
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl sessions show mine
  ozctl sessions show mine/20261126t101500123z-oz-gate-0-7 -o json")]
pub(super) struct Show {
    /// REQUEST (name or UID), which means its last session that is open; or REQUEST/SESSION
    session: String,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

/// Watch an open session as viewer or moderator
#[derive(Args)]
#[command(after_help = "\
Shows the output of the session from now on. Watching is recorded, and the user sees it. Input is visible by its echo
only; escape sequences other than those for characters, colours and positions are removed. It ends with the session, with
the reason on standard error; Ctrl-C stops watching.

Examples:
  ozctl sessions watch mine
  ozctl sessions watch mine --raw > mine.cast")]
pub(super) struct Watch {
    /// REQUEST (name or UID), which means its last session that is open; or REQUEST/SESSION
    session: String,
    /// Write the lines as the gate sends them (asciicast v2); not to a terminal
    #[arg(long)]
    raw: bool,
}

/// Terminate an open session
#[derive(Args)]
#[command(after_help = "\
The user and the audit trail get your name and the reason. The access stays active: `ozctl revoke` revokes it.

Examples:
  ozctl sessions end mine
  ozctl sessions end mine --reason 'the change window is over'")]
pub(super) struct End {
    /// REQUEST (name or UID), which means its last session that is open; or REQUEST/SESSION
    session: String,
    /// Reason, for the user and the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Output format
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
    let found = live::list(&cluster, request, all_namespaces).await?;
    for why in &found.incomplete {
        context.say_plain(&format!(
            "oz: the list of sessions is incomplete: {}",
            line(why)
        ));
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
        let key = live::find(&cluster, &self.session).await?;
        print_session(context, self.output, &live::get(&cluster, &key).await?)?;
        Ok(Exit::SUCCESS)
    }
}

impl End {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        if let Some(reason) = &self.reason {
            live::check_reason(reason)
                .map_err(|why| Failure::new(format!("--reason: {}", why.message)))?;
        }
        let cluster = context.cluster().await?;
        let key = live::find(&cluster, &self.session).await?;
        let ended = live::end(&cluster, &key, self.reason.as_deref()).await?;
        if self.output != TextFormat::Text {
            print_session(context, self.output, &ended)?;
        }
        let owner = line(&ended.user);
        context.say_plain(&format!(
            "Ended session {key} of {owner}, with a notice to the user and an audit record."
        ));
        Ok(Exit::SUCCESS)
    }
}

impl Watch {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let key = live::find(&cluster, &self.session).await?;
        let mut interrupts = Interrupts::new()?;
        let mut viewer = Viewer {
            context,
            is_begun: false,
        };
        let watched = tokio::select! {
            watched = self.watch(&mut viewer, &cluster, &key) => watched,
            exit = interrupts.next() => Ok(exit),
        };
        if viewer.is_begun {
            context.print(RESET)?;
        }
        watched
    }

    async fn watch(
        &self,
        viewer: &mut Viewer<'_>,
        cluster: &Cluster,
        key: &SessionKey,
    ) -> Result<Exit> {
        let mut watched = live::watch(cluster, key).await?;
        match self.raw {
            true => viewer.pass_on(&mut watched).await,
            false => viewer.show(&mut watched).await,
        }
    }
}

/// The output of a watched session.
struct Viewer<'a> {
    context: &'a Context,
    /// Output was shown, which may have changed the terminal.
    is_begun: bool,
}

impl Viewer<'_> {
    async fn pass_on(&mut self, watched: &mut Watched) -> Result<Exit> {
        while let Some(bytes) = watched.next_bytes().await? {
            if !self.context.pass_on(&bytes)? {
                break;
            }
        }
        Ok(Exit::SUCCESS)
    }

    async fn show(&mut self, watched: &mut Watched) -> Result<Exit> {
        while let Some(seen) = watched.next().await? {
            let has_reader = self.piece(seen);
            if !has_reader.map_err(|failure| watched.broken_off(BreakOff::Shown(failure)))? {
                break;
            }
        }
        Ok(Exit::SUCCESS)
    }

    /// Shows a piece. Returns whether the output still has a reader.
    fn piece(&mut self, seen: SessionEvent) -> Result<bool> {
        match seen {
            SessionEvent::Begin(about) => {
                self.is_begun = true;
                let command = about.command.join(" ");
                let told = format!(
                    "oz: {} in pod {} ({} {command}), opened at {}; watching is recorded, and the \
                        user sees it",
                    about.user, about.pod, about.way, about.opened_at
                );
                self.context.say_plain(&told);
                Ok(true)
            }
            SessionEvent::Notice(text) => {
                self.context.say_plain(&text);
                Ok(true)
            }
            SessionEvent::Output(shown) => self.context.pass_on(shown.as_bytes()),
        }
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
    let uids = sessions.iter();
    let uids = uids.map(|one| (one.session.as_str(), one.request_uid.as_str()));
    let shares_name = !shared_names(uids).is_empty();
    if shares_name {
        head.push("REQUEST UID");
    }
    let mut table = Table::new(&head);
    for one in sessions {
        let (namespace, session) = one.session.split_once('/').unzip();
        let mut cells = Vec::new();
        if all_namespaces {
            cells.push(namespace.map(str::to_owned));
        }
        cells.extend([
            session.map(str::to_owned),
            Some(one.user.clone()),
            Some(one.pod.clone()),
            Some(one.way.clone()),
            Some(one.state.to_string()),
            Some(short(now.duration_since(one.opened_at))),
            Some(short(now.duration_since(one.idle_since))),
            Some(short(one.until.duration_since(now))),
            Some(one.bytes_in.to_string()),
            Some(one.bytes_out.to_string()),
            Some(yes(one.recorded).to_owned()),
            Some(watchers(one)),
        ]);
        if shares_name {
            cells.push(Some(one.request_uid.clone()));
        }
        table.row_with_blanks(cells);
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

fn print_session(context: &Context, format: TextFormat, one: &Session) -> Result<()> {
    let text = match format {
        TextFormat::Json => output::json(&output::to_value(one)?)?,
        TextFormat::Yaml => output::yaml(&output::to_value(one)?)?,
        TextFormat::Text => {
            let command = match one.command.is_empty() {
                true => one.command_digest.clone(),
                false => Some(one.command.join(" ")),
            };
            let rows = [
                ("Session", Some(one.session.clone())),
                ("User", Some(one.user.clone())),
                ("Pod", Some(one.pod.clone())),
                ("Container", one.container.clone()),
                ("Way", Some(one.way.clone())),
                ("State", Some(one.state.to_string())),
                ("Moderated", one.moderation.as_ref().map(gate::watchers)),
                ("Command", command),
                ("Opened", Some(instant(one.opened_at))),
                ("Idle since", Some(instant(one.idle_since))),
                ("Until", Some(instant(one.until))),
                ("Bytes in", Some(one.bytes_in.to_string())),
                ("Bytes out", Some(one.bytes_out.to_string())),
                ("Recorded", Some(yes(one.recorded).to_owned())),
                ("Watchable", Some(yes(one.watchable).to_owned())),
                ("Watched by", Some(watchers(one))),
                ("Replica", Some(one.replica.clone())),
            ];
            let rows = rows.iter().filter_map(|(name, value)| {
                let value = value.as_ref().filter(|value| !value.is_empty())?;
                Some(format!("{:<12}{}\n", format!("{name}:"), line(value)))
            });
            rows.collect()
        }
    };
    context.print(&text)
}
