//! The notifications that wait for one server, and what is counted of them.

use std::sync::Arc;

use tokio::time::Instant;

use super::meters::RouteMeters;
use crate::spool::Spool;

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

#[derive(Clone)]
pub(super) struct Queue {
    waiting: Spool<Message>,
    pub(super) meters: RouteMeters,
}

impl Queue {
    pub(super) fn new(meters: RouteMeters) -> Self {
        Self {
            waiting: Spool::new(MOST),
            meters,
        }
    }

    pub(super) fn push(&self, message: Message) {
        let lost = self.waiting.push(message);
        self.meters.dropped.inc_by(lost);
        self.meters.waiting.inc();
        self.meters
            .waiting
            .dec_by(i64::try_from(lost).unwrap_or(i64::MAX));
    }

    pub(super) async fn first(&self) -> Arc<Message> {
        self.waiting.first().await
    }

    /// The message is done with.
    pub(super) fn remove(&self, message: &Arc<Message>) {
        if self.waiting.remove(message) {
            self.meters.waiting.dec();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}
