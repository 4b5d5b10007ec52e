//! The configuration of harness runs, in the form that their controllers read.

use ipnet::IpNet;
use oz_config::{Broker as BrokerConfig, Harness};
use oz_runs::objects::Broker;
use oz_runs::pod::Settings;
use oz_runs::seed;

/// Returns the settings for the pods of runs.
pub(super) fn pods(harness: &Harness) -> Settings {
    Settings {
        image: harness.image.clone(),
        pull_policy: harness.pull_policy.to_string(),
        denied: denied(harness),
    }
}

/// Returns the settings for the seeds of workspaces.
pub(super) fn seeds(harness: &Harness) -> seed::Settings {
    seed::Settings {
        image: Some(harness.git_image.clone()).filter(|image| !image.is_empty()),
        pull_policy: harness.pull_policy.to_string(),
        denied: denied(harness),
    }
}

/// Returns the ranges that neither runs nor seeds reach.
fn denied(harness: &Harness) -> Vec<IpNet> {
    let denied = harness.seed_denied_ranges.iter();
    denied.map(|range| range.0).collect()
}

/// Returns the location of brokers in `namespace`.
pub(super) fn broker(broker: &BrokerConfig, namespace: &str) -> Broker {
    Broker {
        namespace: namespace.to_owned(),
        labels: broker.labels.clone(),
        port: broker.port.get(),
    }
}
