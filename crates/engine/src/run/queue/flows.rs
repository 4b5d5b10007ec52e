//! Strings that take turns by flow, so that many keys of one user do not delay one key of another.

use std::collections::{HashMap, VecDeque};

/// The waiting keys. The keys of one flow are in their order of arrival.
#[derive(Debug, Default)]
pub(super) struct Flows {
    waiting: HashMap<String, VecDeque<String>>,
    /// The flows with waiting keys, each once: the first is next.
    turns: VecDeque<String>,
    len: usize,
}

impl Flows {
    pub(super) fn push(&mut self, flow: &str, key: String) {
        self.len += 1;
        if let Some(waiting) = self.waiting.get_mut(flow) {
            waiting.push_back(key);
            return;
        }
        self.waiting.insert(flow.to_owned(), VecDeque::from([key]));
        self.turns.push_back(flow.to_owned());
    }

    /// Returns the first key of the flow that has the turn.
    pub(super) fn pop(&mut self) -> Option<String> {
        let flow = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&flow)?;
        let key = waiting.pop_front()?;
        self.len -= 1;
        if waiting.is_empty() {
            self.waiting.remove(&flow);
        } else {
            self.turns.push_back(flow);
        }
        Some(key)
    }

    /// Returns the number of waiting keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}
