//! Notifications about audit records to external servers, such as chat, pagers, or any server that accepts events. Each
//! route has a limited queue and a task that sends; no decision and no end of access waits for either.

mod body;
mod meters;
mod queue;
mod send;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use oz_outbound::{Allowed, Proxies};
use oz_trail::notify::{Route, Routes, content};
use prometheus_client::registry::Registry;

use crate::outlets::{Intake, Written};
use meters::Meters;
use queue::{Message, Queue};
use send::Sender;

/// The routes of a process.
#[derive(Clone, Default)]
pub(crate) struct Notifier {
    ways: Arc<[(Route, Queue)]>,
    meters: Meters,
}

impl Notifier {
    /// Starts to send by these routes, with their Secrets in a directory.
    ///
    /// # Errors
    /// If a URL is invalid.
    pub(crate) fn start(routes: &Routes, secrets: &Path, proxies: Proxies) -> anyhow::Result<Self> {
        let hosts = routes.allowed_hosts.iter().map(|host| host.to_lowercase());
        let allowed = Allowed {
            hosts: Arc::new(hosts.collect()),
            proxies,
            ..Allowed::default()
        };
        let meters = Meters::default();
        let mut ways = Vec::new();
        for (number, route) in routes.routes.iter().enumerate() {
            let at = format!("invalid configuration: notifications.routes[{number}]");
            if let Some(url) = route.url_for("ticket")
                && let Err(why) = allowed.url(url.trim())
            {
                bail!("{at}.url: {why}");
            }
            if let Some(body) = &route.body
                && let Err(why) = body::check(body)
            {
                bail!("{at}.body: {why}");
            }
            let queue = Queue::new(meters.route_meters(route));
            let sender = Sender::new(route.clone(), secrets, queue.clone(), allowed.clone());
            tokio::spawn(sender.run());
            ways.push((route.clone(), queue));
        }
        Ok(Self {
            ways: ways.into(),
            meters,
        })
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.meters.register(registry);
    }

    /// Returns the number of waiting notifications.
    pub(crate) fn waiting(&self) -> usize {
        self.ways.iter().map(|(_, queue)| queue.len()).sum()
    }
}

impl Intake for Notifier {
    /// Queues the notifications about a record. A lost notification is not a lost record: it is counted by route, and
    /// not here.
    fn record(&self, written: &Written) -> u64 {
        for (route, queue) in self.ways.iter() {
            let record = &written.entry.record;
            if !route.wants(record) {
                continue;
            }
            match content(route, &written.entry, &written.line) {
                Ok(content) => queue.push(Message::new(record, content)),
                Err(error) => {
                    tracing::error!(%error, route = route.name, "failed to write a notification")
                }
            }
        }
        0
    }
}
