//! Tells servers that others run of what is put on record: chat, pagers, whatever takes an event. Each route has what
//! waits for it, bounded, and a task that sends; nothing that is decided or ended waits for either.

mod queue;
mod send;

use std::sync::Arc;

use anyhow::{Context as _, bail};
use oz_core::notify::{Route, Routes, body};
use oz_outbound::Allowed;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::outlets::{Intake, Written};
use queue::{Message, Queue};
use send::Sender;

/// Of what is counted, the route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Way {
    route: String,
}

#[derive(Clone, Debug, Default)]
struct Meters {
    sent: Family<Way, Counter>,
    failures: Family<Way, Counter>,
    dropped: Family<Way, Counter>,
    waiting: Family<Way, Gauge>,
}

impl Meters {
    fn of(&self, route: &Route) -> RouteMeters {
        let way = Way {
            route: route.name.clone(),
        };
        RouteMeters {
            sent: self.sent.get_or_create_owned(&way),
            failures: self.failures.get_or_create_owned(&way),
            dropped: self.dropped.get_or_create_owned(&way),
            waiting: self.waiting.get_or_create_owned(&way),
        }
    }
}

/// What is counted of one route.
#[derive(Clone, Debug)]
struct RouteMeters {
    sent: Counter,
    failures: Counter,
    dropped: Counter,
    waiting: Gauge,
}

/// All routes of a process.
#[derive(Clone, Default)]
pub(crate) struct Notifier {
    ways: Arc<[(Route, Arc<Queue>)]>,
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
                && let Err(why) = send::checked(url, &allowed)
            {
                bail!(
                    "failed to use --notifications: url of route {:?}: {why}",
                    route.name
                );
            }
            let queue = Arc::new(Queue::new(meters.of(&route)));
            let sender = Sender::new(route.clone(), Arc::clone(&queue), allowed.clone());
            tokio::spawn(sender.run());
            ways.push((route, queue));
        }
        Ok(Self {
            ways: ways.into(),
            meters,
        })
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("oz_notifications");
        registry.register(
            "sent",
            "Notifications that a server took, by route",
            self.meters.sent.clone(),
        );
        registry.register(
            "failures",
            "Attempts to notify that failed, by route",
            self.meters.failures.clone(),
        );
        registry.register(
            "dropped",
            "Notifications that nobody gets: too many waited, the server was away for an hour, or does not take them",
            self.meters.dropped.clone(),
        );
        registry.register(
            "waiting",
            "Notifications that wait for their server",
            self.meters.waiting.clone(),
        );
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
