//! The decision which input of a terminal is recorded, by its echo in the output. Input without an echo may be a
//! password, and only its length is recorded.
//!
//! Input on one line, while a piece of it waits for its echo, is one burst. A burst has been echoed if the output after
//! it begins with the burst or, since four letters in a row are not a coincidence, contains it anywhere. A burst counts
//! only as a whole. A burst without an echo within a second is hidden, and so is all other input on its line: the
//! decision errs towards hiding.

use std::collections::VecDeque;
use std::time::Duration;

use super::plain::Plain;

/// The timeout for the echo of input.
pub(super) const WAIT: Duration = Duration::from_secs(1);
/// The number of letters from which the echo may be anywhere in the output.
const DISTINCT: usize = 4;
/// The number of letters of the output after a burst that are searched.
const LOOKED_AT: usize = 8 << 10;
/// The maximum length of a burst, in letters: pasted text is divided here.
const MAX_BURST: usize = 4 << 10;
/// The number of bursts after the first one that are searched for.
const LATER: usize = 4;
/// The maximum size of a burst with invisible letters, in bytes.
const MAX_TEXT: usize = 4 * MAX_BURST;
/// The maximum number of waiting letters, visible or not. Beyond it, the first bursts are hidden.
const MAX_WAITING: usize = 64 << 10;
/// The maximum number of waiting bursts. Beyond it, the first bursts are hidden.
const MAX_BURSTS: usize = 16 << 10;

/// Input in the form in which it may be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Typed {
    /// The time of its first letter.
    pub at: Duration,
    /// The text.
    pub text: String,
}

/// The state of the decision: the input that waits for its echo, and the output.
#[derive(Clone, Debug, Default)]
pub(super) struct Echo {
    typing: Plain,
    showing: Plain,
    /// The bursts that wait for their echo, in order.
    bursts: VecDeque<Burst>,
    /// The number of letters in all bursts, visible or not.
    waiting: usize,
    /// The output since the first burst began.
    shown: Vec<char>,
    /// True if the input until the end of the line is hidden.
    hides: bool,
}

#[derive(Clone, Debug, Default)]
struct Burst {
    began: Duration,
    text: String,
    /// The visible letters of the burst.
    letters: Vec<char>,
    /// True if the burst is complete.
    over: bool,
    hide: bool,
}

impl Echo {
    /// Adds input. Returns the input that is decided.
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
            burst.over =
                line_over || burst.letters.len() >= MAX_BURST || burst.text.len() >= MAX_TEXT;
            self.waiting += 1;
            self.hides &= !line_over;
            // At once, and not at the end of the text: the user decides how long and how frequent texts are. The first
            // burst is complete, as the last one alone exceeds neither limit.
            while self.waiting > MAX_WAITING || self.bursts.len() > MAX_BURSTS {
                if let Some(first) = self.bursts.front_mut() {
                    first.hide = true;
                }
                self.decide_first(&mut decided);
            }
        }
        self.settle(at, &mut decided);
        decided
    }

    /// Adds output. Returns the input that is decided.
    pub(super) fn add_output(&mut self, at: Duration, text: &str) -> Vec<Typed> {
        let mut decided = self.passed(at);
        let waits = !self.bursts.is_empty();
        for letter in text.chars() {
            // The state follows escape sequences even if no input waits.
            if self.showing.shows(letter) && waits && self.shown.len() < LOOKED_AT {
                self.shown.push(letter);
            }
        }
        self.settle(at, &mut decided);
        decided
    }

    /// Hides the input after its timeout. Returns the input that is decided.
    pub(super) fn passed(&mut self, now: Duration) -> Vec<Typed> {
        let mut decided = Vec::new();
        while let Some(first) = self.bursts.front_mut()
            && now.saturating_sub(first.began) >= WAIT
        {
            first.hide = true;
            // More input on the same line may follow.
            self.hides |= !first.over;
            self.settle(now, &mut decided);
        }
        decided
    }

    /// Decides all remaining input at the end of the session.
    pub(super) fn end(&mut self) -> Vec<Typed> {
        let mut decided = Vec::new();
        while let Some(first) = self.bursts.front_mut() {
            first.hide |= come_back(&first.letters, &self.shown).is_none();
            self.settle(Duration::MAX, &mut decided);
        }
        decided
    }

    /// Returns the burst of the next letter.
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

    /// Checks whether the echo of a later burst has arrived: then the first burst will have no echo.
    fn later_came_back(&self) -> bool {
        let mut later = self.bursts.iter().skip(1).take(LATER);
        later.any(|burst| {
            burst.letters.len() >= DISTINCT && come_back(&burst.letters, &self.shown).is_some()
        })
    }

    /// Decides all bursts that can be decided now, in order.
    fn settle(&mut self, now: Duration, decided: &mut Vec<Typed>) {
        while let Some(first) = self.bursts.front() {
            if first.hide {
                // The burst may continue: it is recorded as one.
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
            self.decide_first(decided);
        }
    }

    /// Decides the first burst, in the form in which it may be recorded.
    fn decide_first(&mut self, decided: &mut Vec<Typed>) {
        let Some(first) = self.bursts.pop_front() else {
            return;
        };
        self.waiting -= first.text.chars().count();
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

/// Returns the end position of these letters in the output; `None` if they were not echoed.
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

/// Returns the text with the number of its letters instead of the letters.
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
