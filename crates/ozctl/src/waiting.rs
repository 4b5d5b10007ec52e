//! The line that names the state of the wait, overwritten repeatedly on a terminal. Elsewhere, it
//! is one line when an obstacle exists.

use std::time::Duration;

use oz_api::RequestStatus;
use tokio::time::Instant;

use crate::context::{Context, Style};
use crate::request;

/// The time after which the line also shows the duration.
const SAY_HOW_LONG: Duration = Duration::from_secs(2);

pub(crate) struct Waiting<'a> {
    context: &'a Context,
    since: Instant,
    what: String,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(context: &'a Context, what: &str) -> Self {
        let waiting = Self {
            context,
            since: Instant::now(),
            what: what.to_owned(),
        };
        waiting.draw();
        waiting
    }

    /// Changes the state of the wait; `obstacle` means that the state is an obstacle.
    pub(crate) fn is(&mut self, what: &str, obstacle: bool) {
        if self.what == what {
            return;
        }
        what.clone_into(&mut self.what);
        if self.context.live {
            self.draw();
        } else if obstacle {
            self.context.say(what);
        }
    }

    /// Draws the line again, with the elapsed time.
    pub(crate) fn draw(&self) {
        if !self.context.live {
            return;
        }
        let passed = self.since.elapsed();
        let passed = if passed >= SAY_HOW_LONG {
            format!(" ({}s)", passed.as_secs())
        } else {
            String::new()
        };
        let columns = crate::terminal::columns().unwrap_or(80);
        let room = columns.saturating_sub(passed.len() + 5);
        let what: String = self.what.chars().take(room).collect();
        let line = self
            .context
            .paint(Style::Dim, &format!("oz: {what}{passed}"));
        self.context.say_on(&format!("\r\x1b[K{line}"));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.context.live {
            self.context.say_on("\r\x1b[K");
        }
    }
}

/// Returns the state of the wait by a status, and whether it is an obstacle.
pub(crate) fn waited_for(name: &str, status: &RequestStatus) -> (String, bool) {
    if let Some(who) = request::waits_for_others(status.phase, &status.conditions) {
        return (format!("{name}: {who}"), true);
    }
    match (request::why_not(status), status.phase) {
        (Some(why), _) => (format!("waiting for {name}: {why}"), true),
        (None, phase) if phase.is_granted() => (format!("waiting for {name} to be ready"), false),
        (None, _) => (format!("waiting for {name} to be granted"), false),
    }
}
