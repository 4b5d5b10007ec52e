//! `ozctl sessions play`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use oz_client::sessions::harmless::RESET;
use oz_client::sessions::playback::{Playback, Played};

use super::identity::IdentityArgs;
use super::{found_session, source};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::line;
use crate::verbs::go_duration;

/// Play a session recording on this terminal
#[derive(Args)]
#[command(after_help = "\
Escape sequences other than those for characters, colours and positions are removed. Only the output is shown, not the
input; notices of oz are written to standard error.")]
pub(super) struct Play {
    /// REQUEST, or REQUEST/SESSION; REQUEST is the name of the request or its UID
    session: String,
    /// Factor of the speed
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

fn speed(text: &str) -> Result<f64> {
    let speed = text
        .parse()
        .ok()
        .filter(|speed: &f64| speed.is_finite() && *speed > 0.0);
    speed.ok_or_else(|| Failure::new("it must be a number above 0"))
}

fn duration(flag: &str, text: &str) -> Result<f64> {
    let duration = go_duration(text);
    let wrong = || Failure::new(format!("--{flag}: {text} is not a duration, such as 2s"));
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
        let source = source(context, self.from.as_deref()).await?;
        let key = found_session(context, &source, &self.session, &identities).await?;
        let begin = match (skip, self.search.as_deref()) {
            (Some(seconds), _) => Begin::At(seconds),
            (None, Some(text)) => Begin::Text(text),
            (None, None) => Begin::Begun,
        };
        let mut player = Player {
            context,
            begin,
            now: 0.0,
            speed: self.speed,
            idle,
            before: String::new(),
        };
        let played = async {
            let mut playback = Playback::begin(&source, &key, &identities).await?;
            while let Some(played) = playback.next().await? {
                if let Played::Missing(part) = played {
                    context.say_plain(&format!("oz: part {part} of session {key} is missing"));
                } else if !player.show(played).await? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let played: Result<bool> = played.await;
        context.print(RESET)?;
        let read = played?;
        let message = match player.begin {
            Begin::Text(text) if read => format!("{} is not shown in session {key}", line(text)),
            Begin::At(_) if read => format!("session {key} ends before that"),
            _ => return Ok(Exit::SUCCESS),
        };
        Err(Failure::new(message))
    }
}

/// The point from which the recording is shown.
#[derive(Clone, Copy)]
enum Begin<'a> {
    /// Playback has begun.
    Begun,
    /// This number of seconds after the session was opened.
    At(f64),
    /// The first output with this text.
    Text(&'a str),
}

struct Player<'a> {
    context: &'a Context,
    begin: Begin<'a>,
    /// The position of the playback in the session, in seconds.
    now: f64,
    speed: f64,
    idle: f64,
    /// The output before the requested part, which makes the screen.
    before: String,
}

impl Player<'_> {
    /// Shows one piece. Returns whether the output still has a reader.
    async fn show(&mut self, played: Played) -> Result<bool> {
        let (at, recorded, shown) = match played {
            Played::Missing(_) => return Ok(true),
            Played::Begin(about) => {
                let command = about.command.join(" ");
                self.context.say_plain(&format!(
                    "oz: {} in pod {} ({} {command}), opened at {}",
                    about.user, about.pod, about.way, about.opened_at
                ));
                return Ok(true);
            }
            Played::Mark(text) => {
                if matches!(self.begin, Begin::Begun) {
                    self.context.say_plain(&text);
                }
                return Ok(true);
            }
            Played::Output {
                at,
                recorded,
                shown,
            } => (at, recorded, shown),
        };
        let begins = match self.begin {
            Begin::Begun => return self.later(at, &shown).await,
            Begin::At(seconds) => at >= seconds,
            Begin::Text(text) => recorded.contains(text),
        };
        self.before.push_str(&shown);
        if !begins {
            return Ok(true);
        }
        self.begin = Begin::Begun;
        self.now = at;
        let before = std::mem::take(&mut self.before);
        self.context.pass_on(before.as_bytes())
    }

    /// Shows output after the pause that the recording has before it.
    async fn later(&mut self, at: f64, shown: &str) -> Result<bool> {
        // The writer of the stored data chose the times: they may have any value.
        let pause = ((at - self.now) / self.speed).clamp(0.0, self.idle);
        self.now = self.now.max(at);
        if pause > 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(pause)).await;
        }
        self.context.pass_on(shown.as_bytes())
    }
}
