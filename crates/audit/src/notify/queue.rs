//! What waits for one server: bounded, in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::meters::RouteMeters;

/// How many wait at most; a further one takes the place of the oldest.
const MOST: usize = 1_000;

/// One notification.
#[derive(Debug)]
pub(super) struct Message {
    /// The same for the same fact: a server that gets it twice knows.
    pub(super) id: String,
    pub(super) body: Vec<u8>,
    /// Since when it waits.
    pub(super) since: Instant,
}

impl Message {
    pub(super) fn new(id: &str, body: Vec<u8>) -> Self {
        Self {
            id: id.to_owned(),
            body,
            since: Instant::now(),
        }
    }
}

pub(super) struct Queue {
    messages: Mutex<VecDeque<Arc<Message>>>,
    more: Notify,
    pub(super) meters: RouteMeters,
}

impl Queue {
    pub(super) fn new(meters: RouteMeters) -> Self {
        Self {
            messages: Mutex::default(),
            more: Notify::new(),
            meters,
        }
    }

    fn messages(&self) -> MutexGuard<'_, VecDeque<Arc<Message>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, message: Message) {
        let mut messages = self.messages();
        while messages.len() >= MOST {
            messages.pop_front();
            self.meters.dropped.inc();
        }
        messages.push_back(Arc::new(message));
        self.count(&messages);
        drop(messages);
        self.more.notify_one();
    }

    pub(super) async fn first(&self) -> Arc<Message> {
        loop {
            let first = self.messages().front().cloned();
            match first {
                Some(first) => return first,
                None => self.more.notified().await,
            }
        }
    }

    /// The message is done with. It may be gone already, for others.
    pub(super) fn remove(&self, message: &Arc<Message>) {
        let mut messages = self.messages();
        if messages.front().is_some_and(|it| Arc::ptr_eq(it, message)) {
            messages.pop_front();
        }
        self.count(&messages);
    }

    pub(super) fn len(&self) -> usize {
        self.messages().len()
    }

    fn count(&self, messages: &VecDeque<Arc<Message>>) {
        self.meters
            .waiting
            .set(i64::try_from(messages.len()).unwrap_or(i64::MAX));
    }
}
