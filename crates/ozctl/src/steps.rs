//! The duration of each step of an access, for `--verbose`: the share that oz adds, and the share
//! that a session takes without oz too.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::time::Instant;

/// The component that causes the duration of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// The step exists only because of oz.
    Oz,
    /// The step exists with kubectl alone too.
    Kubernetes,
}

/// The completed steps, each measured from the end of the preceding one.
#[derive(Debug)]
pub(crate) struct Steps {
    last: Cell<Instant>,
    taken: RefCell<Vec<(&'static str, Share, Duration)>>,
}

impl Steps {
    /// Begins the first step.
    pub(crate) fn begin() -> Self {
        Self {
            last: Cell::new(Instant::now()),
            taken: RefCell::default(),
        }
    }

    /// Records that a step is complete, and begins the next.
    pub(crate) fn done(&self, what: &'static str, share: Share) {
        let now = Instant::now();
        let took = now.duration_since(self.last.replace(now));
        self.taken.borrow_mut().push((what, share, took));
    }

    /// Formats all steps in one line, in milliseconds.
    pub(crate) fn describe(&self) -> String {
        format_steps(&self.taken.borrow())
    }
}

fn format_steps(taken: &[(&'static str, Share, Duration)]) -> String {
    let steps: Vec<String> = taken
        .iter()
        .map(|(what, _, took)| format!("{what} {} ms", took.as_millis()))
        .collect();
    let of = |wanted: Option<Share>| -> u128 {
        let counted = taken
            .iter()
            .filter(|(_, share, _)| wanted.is_none_or(|it| it == *share));
        counted.map(|(_, _, took)| took.as_millis()).sum()
    };
    format!(
        "oz: {}: {} of {} ms for access, the rest for the session",
        steps.join(", "),
        of(Some(Share::Oz)),
        of(None)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing_line_shows_share_of_oz_and_total() {
        let step = |what, share, millis| (what, share, Duration::from_millis(millis));
        let taken = [
            step("kubeconfig", Share::Kubernetes, 5),
            step("template", Share::Oz, 20),
            step("granted", Share::Oz, 80),
            step("command", Share::Kubernetes, 95),
        ];
        let line = "oz: kubeconfig 5 ms, template 20 ms, granted 80 ms, command 95 ms: 100 of 200 ms for \
                    access, the rest for the session";
        assert_eq!(format_steps(&taken), line);
    }
}
