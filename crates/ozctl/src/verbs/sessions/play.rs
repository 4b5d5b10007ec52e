//! `ozctl sessions play`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use oz_gating::recording::{Code, Event, SessionKey};

use super::harmless::{Harmless, RESET};
use super::identity::{Identities, IdentityArgs};
use super::source::{Source, unpacked};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::line;
use crate::verbs::go_duration;

/// Play a recording on this terminal
#[derive(Args)]
#[command(after_help = "\
Nothing in a recording does anything to your terminal but show letters, colours and where they stand. What was
typed is not shown, only what was seen; what oz says of the session is told on standard error.")]
pub(super) struct Play {
    /// REQUEST, or REQUEST/SESSION
    session: String,
    /// How many times as fast
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = speed)]
    speed: f64,
    /// The longest pause, such as 2s; 0s for none
    #[arg(long, value_name = "DURATION", default_value = "3s")]
    idle: String,
    /// Begin there, this long after the session was opened
    #[arg(long, value_name = "DURATION")]
    skip: Option<String>,
    /// Begin where this text is shown first
    #[arg(long, value_name = "TEXT", conflicts_with = "skip")]
    search: Option<String>,
    /// Read the recording there, not through the gate: a directory with what the gate stored
    #[arg(long, value_name = "DIRECTORY")]
    from: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text
        .parse()
        .ok()
        .filter(|speed: &f64| speed.is_finite() && *speed > 0.0);
    speed.ok_or_else(|| "it must be a number above 0".to_owned())
}

fn duration(flag: &str, text: &str) -> Result<f64> {
    let duration = go_duration(text);
    let wrong = || Failure::new(format!("--{flag}: {text} is no duration, such as 2s"));
    Ok(duration.ok_or_else(wrong)?.as_secs_f64())
}

impl Play {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let idle = duration("idle", &self.idle)?;
        let skip = self
            .skip
            .as_deref()
            .map(|text| duration("skip", text))
            .transpose()?;
        let identities = self.identity.read(context)?;
        let source = Source::new(context, self.from.as_deref()).await?;
        let namespace = namespace(context, &source);
        let key = source.session(&namespace, &self.session).await?;
        let mut player = Player {
            context,
            identities: &identities,
            harmless: Harmless::default(),
            search: self.search.as_deref(),
            skip: skip.unwrap_or_default(),
            began: skip.is_none() && self.search.is_none(),
            now: skip.unwrap_or_default(),
            speed: self.speed,
            idle,
            before: String::new(),
            tty: true,
        };
        let played = player.all(&source, &key).await;
        context.print(RESET)?;
        let read = played?;
        if !player.began && read {
            let message = match &self.search {
                Some(text) => format!("{} is not shown in session {key}", line(text)),
                None => format!("session {key} is over before that"),
            };
            return Err(Failure::new(message));
        }
        Ok(Exit::SUCCESS)
    }
}

/// Returns the namespace in which to search for sessions.
pub(super) fn namespace(context: &Context, source: &Source) -> String {
    match source {
        Source::Gate(cluster) => cluster.namespace.clone(),
        Source::Directory(_) => {
            let chosen = context.connection.namespace.clone();
            chosen.unwrap_or_else(|| "default".to_owned())
        }
    }
}

struct Player<'a> {
    context: &'a Context,
    identities: &'a Identities,
    harmless: Harmless,
    search: Option<&'a str>,
    skip: f64,
    /// The requested part has begun.
    began: bool,
    /// The position of the playback in the session, in seconds.
    now: f64,
    speed: f64,
    idle: f64,
    /// The output before the requested part, which makes the screen.
    before: String,
    tty: bool,
}

impl Player<'_> {
    /// Plays a session. Returns whether all of it was read.
    async fn all(&mut self, source: &Source, key: &SessionKey) -> Result<bool> {
        // One part at a time: a recording may be long.
        let listing = source.listing(&key.namespace, &key.request).await?;
        let session = key.to_string();
        let found = listing
            .sessions
            .into_iter()
            .find(|one| one.session == session);
        let names = found.map(|one| one.parts).unwrap_or_default();
        if names.is_empty() {
            return Err(
                Failure::new(format!("nothing is recorded of session {key}"))
                    .next("`ozctl sessions list` shows which sessions there were"),
            );
        }
        let mut wanted = 0;
        for name in names
            .iter()
            .filter_map(|name| oz_gating::recording::PartName::read(name))
        {
            if name.number != wanted {
                self.context
                    .say_plain(&format!("oz: part {wanted} of session {key} is missing"));
            }
            wanted = name.number + 1;
            let part = unpacked(&name, &source.part(&name).await?, self.identities)?;
            if name.number == 0 {
                let about = &part.header.oz;
                self.tty = about.tty;
                let command = about.command.join(" ");
                self.context.say_plain(&format!(
                    "oz: {} in pod {} ({} {command}), opened at {}",
                    about.user, about.pod, about.way, about.opened_at
                ));
            }
            for event in &part.events {
                if !self.event(event).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Plays one event. Returns whether the output still has a reader.
    async fn event(&mut self, event: &Event) -> Result<bool> {
        let Event(at, code, data) = event;
        if *code == Code::Mark {
            if self.began {
                self.context.say_plain(data);
            }
            return Ok(true);
        }
        if *code != Code::Output {
            return Ok(true);
        }
        // Without a terminal, a line begins where the preceding line ended.
        let output = if self.tty {
            data.clone()
        } else {
            data.replace('\n', "\r\n")
        };
        let shown = self.harmless.of(&output);
        if !self.began {
            self.began = match self.search {
                Some(text) => data.contains(text),
                None => *at >= self.skip,
            };
            self.before.push_str(&shown);
            if !self.began {
                return Ok(true);
            }
            self.now = *at;
            return self
                .context
                .pass_on(std::mem::take(&mut self.before).as_bytes());
        }
        // The writer of the stored data chose the times: they may have any value.
        let pause = ((at - self.now) / self.speed).clamp(0.0, self.idle);
        self.now = self.now.max(*at);
        if pause > 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(pause)).await;
        }
        self.context.pass_on(shown.as_bytes())
    }
}
