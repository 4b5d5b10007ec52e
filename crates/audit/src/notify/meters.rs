//! The metrics of notifications, by route.

use oz_trail::notify::Route;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The label of the metrics: the route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Meters {
    sent: Family<RouteLabels, Counter>,
    failures: Family<RouteLabels, Counter>,
    dropped: Family<RouteLabels, Counter>,
    waiting: Family<RouteLabels, Gauge>,
}

impl Meters {
    pub(super) fn route_meters(&self, route: &Route) -> RouteMeters {
        let way = RouteLabels {
            route: route.name.clone(),
        };
        RouteMeters {
            sent: self.sent.get_or_create_owned(&way),
            failures: self.failures.get_or_create_owned(&way),
            dropped: self.dropped.get_or_create_owned(&way),
            waiting: self.waiting.get_or_create_owned(&way),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("oz_notifications");
        registry.register(
            "sent",
            "Notifications that a server accepted, by route",
            self.sent.clone(),
        );
        registry.register(
            "failures",
            "Failed attempts to notify, by route",
            self.failures.clone(),
        );
        registry.register(
            "dropped",
            "Dropped notifications: too many waited, the server was down for an hour, or does not \
                accept them",
            self.dropped.clone(),
        );
        registry.register(
            "waiting",
            "Notifications that wait for their server",
            self.waiting.clone(),
        );
    }
}

/// The metrics of one route.
#[derive(Clone, Debug)]
pub(super) struct RouteMeters {
    pub(super) sent: Counter,
    pub(super) failures: Counter,
    pub(super) dropped: Counter,
    pub(super) waiting: Gauge,
}
