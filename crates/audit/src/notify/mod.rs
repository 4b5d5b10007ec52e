//! Tells servers that others run of what is put on record: chat, pagers, whatever takes an event. Each route has what
//! waits for it, bounded, and a task that sends; nothing that is decided or ended waits for either.

mod meters;
mod queue;
mod send;

use std::sync::Arc;

use anyhow::{Context as _, bail};
use oz_outbound::Allowed;
use oz_trail::notify::{Route, Routes, body};
use prometheus_client::registry::Registry;

use crate::outlets::{Intake, Written};
use meters::Meters;
use queue::{Message, Queue};
use send::Sender;

/// All routes of a process.
#[derive(Clone, Default)]
pub(crate) struct Notifier {
    ways: Arc<[(Route, Queue)]>,
    meters: Meters,
}

impl Notifier {
    /// Reads what `--notifications` says, and begins to send.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(crate) fn start(text: &str) -> anyhow::Result<Self> {
        let read = Routes::read(text).context("failed to use --notifications")?;
        let hosts = read.allowed_hosts.iter().map(|host| host.to_lowercase());
        let allowed = Allowed {
            hosts: Arc::new(hosts.collect()),
            ..Allowed::default()
        };
        let meters = Meters::default();
        let mut ways = Vec::new();
        for route in read.routes {
            if let Some(url) = &route.url
                && let Err(why) = allowed.url(url.trim())
            {
                bail!(
                    "failed to use --notifications: url of route {:?}: {why}",
                    route.name
                );
            }
            let queue = Queue::new(meters.of(&route));
            let sender = Sender::new(route.clone(), queue.clone(), allowed.clone());
            tokio::spawn(sender.run());
            ways.push((route, queue));
        }
        Ok(Self {
            ways: ways.into(),
            meters,
        })
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.meters.register(registry);
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.ways.iter().map(|(_, queue)| queue.len()).sum()
    }
}

impl Intake for Notifier {
    /// Nobody's record is lost where a notification is; those are counted by route.
    fn record(&self, written: &Written) -> u64 {
        for (route, queue) in self.ways.iter() {
            let record = &written.entry.record;
            if !route.wants(record) {
                continue;
            }
            match body(route, &written.entry, &written.line) {
                Ok(body) => queue.push(Message::new(&record.id, body)),
                Err(error) => {
                    tracing::error!(%error, route = route.name, "a notification cannot be written")
                }
            }
        }
        0
    }
}
