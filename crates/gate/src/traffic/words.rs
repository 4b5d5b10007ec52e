//! The messages of oz to the client of a session, in their order.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The number of words that wait to be sent to the user.
const MAX_WORDS: usize = 16;

/// A message of oz to the client of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// A line for the user.
    Line(String),
    /// A sign that the other side is still connected.
    Alive,
}

/// The messages that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Words {
    waiting: Mutex<VecDeque<Word>>,
    news: Notify,
}

impl Words {
    /// Adds a message, unless too many wait.
    pub(super) fn say(&self, word: Word) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MAX_WORDS {
            waiting.push_back(word);
        }
        drop(waiting);
        self.news.notify_one();
    }

    /// Waits for the next message.
    pub(super) async fn next(&self) -> Word {
        loop {
            let next = {
                let mut waiting = self.waiting.lock();
                waiting.pop_front()
            };
            match next {
                Some(word) => return word,
                None => self.news.notified().await,
            }
        }
    }
}
