//! The queue of notifications for one server, with its metrics.

use std::sync::Arc;

use oz_trail::Record;
use oz_trail::notify::{Content, TICKET};
use tokio::time::Instant;

use super::meters::RouteMeters;
use crate::spool::Spool;

/// The maximum number of waiting notifications; a further one replaces the oldest.
const MOST: usize = 1_000;

/// A notification.
#[derive(Debug)]
pub(super) struct Message {
    /// The id of the event, by which a server detects a notification that it receives twice.
    pub(super) id: String,
    pub(super) content: Content,
    /// The change ticket of the request, which the URL of a route may contain.
    pub(super) ticket: Option<String>,
    /// The instant since which the notification waits.
    pub(super) since: Instant,
}

impl Message {
    pub(super) fn new(record: &Record, content: Content) -> Self {
        Self {
            id: record.id.clone(),
            content,
            ticket: record.details.get(TICKET).cloned(),
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

    /// Removes a message that is done.
    pub(super) fn remove(&self, message: &Arc<Message>) {
        if self.waiting.remove(message) {
            self.meters.waiting.dec();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}
