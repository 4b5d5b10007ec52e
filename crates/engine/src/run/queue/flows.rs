//! Strings that take turns by flow, so that nobody's many postpone another's one.

use std::collections::{HashMap, VecDeque};

/// The keys that wait. Those of one flow are in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Flows {
    waiting: HashMap<String, VecDeque<String>>,
    /// The flows of which some wait, each once: the first is next.
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

    /// The first key of the flow whose turn it is.
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

    /// How many keys wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}
