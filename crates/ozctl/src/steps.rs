//! How long each step of an access took, for `--verbose`: which share of it is oz's, and which is what
//! a session takes without oz as well.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::time::Instant;

/// Whose time a step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Nobody would wait for it without oz.
    Oz,
    /// It is there by kubectl alone.
    Kubernetes,
}

/// The steps so far, each from the end of the one before.
#[derive(Debug)]
pub(crate) struct Steps {
    last: Cell<Instant>,
    taken: RefCell<Vec<(&'static str, Share, Duration)>>,
}

impl Steps {
    /// The first begins now.
    pub(crate) fn begin() -> Self {
        Self {
            last: Cell::new(Instant::now()),
            taken: RefCell::default(),
        }
    }

    /// A step is done, and the next begins.
    pub(crate) fn done(&self, what: &'static str, share: Share) {
        let now = Instant::now();
        let took = now.duration_since(self.last.replace(now));
        self.taken.borrow_mut().push((what, share, took));
    }

    /// All of them in a line, in milliseconds.
    pub(crate) fn told(&self) -> String {
        told(&self.taken.borrow())
    }
}

fn told(taken: &[(&'static str, Share, Duration)]) -> String {
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
    fn the_share_of_oz_is_told_beside_the_whole() {
        let step = |what, share, millis| (what, share, Duration::from_millis(millis));
        let taken = [
            step("kubeconfig", Share::Kubernetes, 5),
            step("template", Share::Oz, 20),
            step("granted", Share::Oz, 80),
            step("command", Share::Kubernetes, 95),
        ];
        let line = "oz: kubeconfig 5 ms, template 20 ms, granted 80 ms, command 95 ms: 100 of 200 ms for \
                    access, the rest for the session";
        assert_eq!(told(&taken), line);
    }
}
