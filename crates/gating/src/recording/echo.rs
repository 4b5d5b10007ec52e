//! What was typed, and whether it came back. What did not is a password as far as anybody can tell, and only how
//! long it was is kept.
//!
//! What is typed on one line while some of it waits to come back is one burst. It has come back if what is shown after
//! it begins with it, or, since four letters in a row are no accident, has it somewhere; all of it or nothing. What
//! has not within a second is hidden, and so is all else that is typed on its line: it errs towards hiding.

use std::collections::VecDeque;
use std::time::Duration;

use super::plain::Plain;

/// How long what was typed may take to come back.
pub(super) const WAIT: Duration = Duration::from_secs(1);
/// From how many letters on they may come back anywhere in what is shown.
const DISTINCT: usize = 4;
/// How much of what was shown after a burst is looked at, in letters.
const LOOKED_AT: usize = 8 << 10;
/// The longest burst that is looked for: what is pasted is cut here.
const MAX_BURST: usize = 4 << 10;
/// How many bursts after the first one are looked for.
const LATER: usize = 4;
/// How many letters wait at most; beyond that the first are hidden.
const MAX_WAITING: usize = 64 << 10;

/// What was typed, as it may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Typed {
    /// When the first of it was typed.
    pub at: Duration,
    /// What.
    pub text: String,
}

/// Follows what is typed and what is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Echo {
    typing: Plain,
    showing: Plain,
    /// What waits to come back, in order.
    bursts: VecDeque<Burst>,
    /// How many letters all of it has.
    waiting: usize,
    /// What was shown since the first of it was typed.
    shown: Vec<char>,
    /// Whether what is typed until the end of the line is hidden.
    hides: bool,
}

#[derive(Clone, Debug, Default)]
struct Burst {
    began: Duration,
    text: String,
    /// The letters of it that would be seen.
    letters: Vec<char>,
    /// Whether no more belongs to it.
    over: bool,
    hide: bool,
}

impl Echo {
    /// What is typed; gives back what is decided by it.
    pub(super) fn typed(&mut self, at: Duration, text: &str) -> Vec<Typed> {
        let mut decided = self.passed(at);
        for letter in text.chars() {
            let seen = self.typing.shows(letter);
            let hide = self.hides;
            let burst = self.burst(at);
            burst.text.push(letter);
            burst.hide |= hide;
            if seen {
                burst.letters.push(letter);
            }
            let line_over = matches!(letter, '\r' | '\n' | '\u{3}' | '\u{4}');
            burst.over = line_over || burst.letters.len() >= MAX_BURST;
            self.waiting += usize::from(seen);
            self.hides &= !line_over;
            if self.waiting > MAX_WAITING
                && let Some(first) = self.bursts.front_mut()
            {
                first.hide = true;
            }
        }
        self.settle(at, &mut decided);
        decided
    }

    /// What is shown.
    pub(super) fn shown(&mut self, at: Duration, text: &str) -> Vec<Typed> {
        let mut decided = self.passed(at);
        let waits = !self.bursts.is_empty();
        for letter in text.chars() {
            // The end of an escape sequence is looked for in any case.
            if self.showing.shows(letter) && waits && self.shown.len() < LOOKED_AT {
                self.shown.push(letter);
            }
        }
        self.settle(at, &mut decided);
        decided
    }

    /// What has waited for too long by now.
    pub(super) fn passed(&mut self, now: Duration) -> Vec<Typed> {
        let mut decided = Vec::new();
        while let Some(first) = self.bursts.front_mut()
            && now.saturating_sub(first.began) >= WAIT
        {
            first.hide = true;
            // More of its line may be to come.
            self.hides |= !first.over;
            self.settle(now, &mut decided);
        }
        decided
    }

    /// Decides about what is still open at the end.
    pub(super) fn end(&mut self) -> Vec<Typed> {
        let mut decided = Vec::new();
        while let Some(first) = self.bursts.front_mut() {
            first.hide |= come_back(&first.letters, &self.shown).is_none();
            self.settle(Duration::MAX, &mut decided);
        }
        decided
    }

    /// What the next letter belongs to.
    fn burst(&mut self, at: Duration) -> &mut Burst {
        if self.bursts.is_empty() {
            self.shown.clear();
        }
        if self.bursts.back().is_none_or(|last| last.over) {
            self.bursts.push_back(Burst {
                began: at,
                ..Burst::default()
            });
        }
        let last = self.bursts.len() - 1;
        &mut self.bursts[last]
    }

    /// Whether something came back that was typed after what is waited for: then that will not.
    fn later_came_back(&self) -> bool {
        let mut later = self.bursts.iter().skip(1).take(LATER);
        later.any(|burst| {
            burst.letters.len() >= DISTINCT && come_back(&burst.letters, &self.shown).is_some()
        })
    }

    /// Decides about what can be decided now, in order.
    fn settle(&mut self, now: Duration, decided: &mut Vec<Typed>) {
        while let Some(first) = self.bursts.front() {
            if first.hide {
                // More of it may come: it is told as one.
                if !first.over && now.saturating_sub(first.began) < WAIT {
                    return;
                }
            } else if let Some(end) = come_back(&first.letters, &self.shown) {
                self.shown.drain(..end);
            } else if self.later_came_back() {
                self.bursts[0].hide = true;
            } else {
                return;
            }
            let Some(first) = self.bursts.pop_front() else {
                return;
            };
            self.waiting -= first.letters.len();
            let text = if first.hide {
                hidden(&first.text)
            } else {
                first.text
            };
            decided.push(Typed {
                at: first.began,
                text,
            });
        }
    }
}

/// Where in what was shown these letters end; `None` if they have not come back.
fn come_back(letters: &[char], shown: &[char]) -> Option<usize> {
    if shown.starts_with(letters) {
        return Some(letters.len());
    }
    if letters.len() < DISTINCT {
        return None;
    }
    let at = shown
        .windows(letters.len())
        .position(|part| part == letters)?;
    Some(at + letters.len())
}

/// The text, with the number of its letters in place of them.
fn hidden(text: &str) -> String {
    let (mut kept, mut count, mut plain) = (String::new(), 0_usize, Plain::default());
    for letter in text.chars() {
        if plain.shows(letter) {
            count += 1;
            continue;
        }
        kept.push_str(&number(count));
        count = 0;
        kept.push(letter);
    }
    kept.push_str(&number(count));
    kept
}

fn number(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "‹1 character not shown›".to_owned(),
        more => format!("‹{more} characters not shown›"),
    }
}
