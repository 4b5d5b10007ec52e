//! Items that take turns by flow, so that many items of one user do not delay one item of another.

use std::collections::{HashMap, VecDeque};

/// The waiting items. The items of one flow are in their order of arrival.
#[derive(Debug)]
pub struct Flows<T> {
    waiting: HashMap<String, VecDeque<T>>,
    /// The flows with waiting items, each once: the first is next.
    turns: VecDeque<String>,
    len: usize,
}

impl<T> Default for Flows<T> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            len: 0,
        }
    }
}

impl<T> Flows<T> {
    /// Adds an item behind the waiting items of its flow.
    pub fn push(&mut self, flow: &str, item: T) {
        self.len += 1;
        if let Some(waiting) = self.waiting.get_mut(flow) {
            waiting.push_back(item);
            return;
        }
        self.waiting.insert(flow.to_owned(), VecDeque::from([item]));
        self.turns.push_back(flow.to_owned());
    }

    /// Removes the first item of the flow that has the turn.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_where(|_, _| true)
    }

    /// Removes the first item, with this flow, for which `is_next` holds, of the flow that has the turn. The items before it
    /// are dropped, and a flow without such an item loses its turn.
    pub fn pop_where(&mut self, mut is_next: impl FnMut(&str, &T) -> bool) -> Option<T> {
        while let Some(flow) = self.turns.pop_front() {
            let Some(waiting) = self.waiting.get_mut(&flow) else {
                continue;
            };
            let before = waiting.len();
            let next = std::iter::from_fn(|| waiting.pop_front()).find(|item| is_next(&flow, item));
            self.len -= before - waiting.len();
            if waiting.is_empty() {
                self.waiting.remove(&flow);
            } else {
                self.turns.push_back(flow);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Returns the number of waiting items.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}
