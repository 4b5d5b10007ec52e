//! What people read of this container: on standard error, since standard output is the run's events.

use std::io::Write as _;

/// Says one line.
pub(crate) fn say(line: &str) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(std::io::stderr(), "oz-harness: {line}");
}

/// Something that may fail each time it is tried: said when it begins to fail, when it fails otherwise, and when
/// it works again.
#[derive(Debug)]
pub(crate) struct Complaint {
    last: Option<String>,
}

impl Complaint {
    /// Nothing has failed yet.
    pub(crate) const fn silent() -> Self {
        Self { last: None }
    }

    /// Says what came of one attempt, if that is new. Gives what the attempt gave.
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
