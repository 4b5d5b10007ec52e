//! The log of this container, for users: on standard error, since standard output carries the run's events.

use std::io::Write as _;

/// Writes one line.
pub(crate) fn say(line: &str) {
    // A failure cannot be reported anywhere.
    let _ = writeln!(std::io::stderr(), "oz-harness: {line}");
}

/// An operation that may fail at each attempt. The log reports the first failure, each different failure, and the next
/// success.
#[derive(Debug)]
pub(crate) struct Complaint {
    last: Option<String>,
}

impl Complaint {
    /// Creates the state before the first failure.
    pub(crate) const fn silent() -> Self {
        Self { last: None }
    }

    /// Logs the result of an attempt if it differs from the last one. Returns the value of the attempt.
    pub(crate) fn about<T>(&mut self, what: &str, result: anyhow::Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                if self.last.take().is_some() {
                    say(&format!("{what}: works again"));
                }
                Some(value)
            }
            Err(error) => {
                let said = format!("{error:#}");
                if self.last.as_ref() != Some(&said) {
                    say(&format!("{what}: {said}"));
                    self.last = Some(said);
                }
                None
            }
        }
    }
}
