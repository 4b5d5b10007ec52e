//! Harness runs at the edge: the watches and reads for `oz_runs`.

mod config;
mod definitions;
mod metrics;
mod network_policies;
mod policies;
mod runs;
mod templates;
mod workspaces;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use oz_api::harness::{BrokerPolicy, ClusterHarnessTemplate, HarnessTemplate, Workspace};
use oz_api::names;
use oz_config::{Component, OzConfiguration};
use oz_core::access::seal::Keys;
use oz_engine::Engine;
use oz_runs::run::Runs;
use oz_runs::workspace::Workspaces;
use oz_runtime::{Kind, Selection};

use self::metrics::Metrics;
use self::network_policies::NetworkPolicies;
use self::runs::{HarnessRuns, Made};
use self::workspaces::HarnessWorkspaces;
use crate::emergencies::Emergencies;
use crate::kept;
use crate::stamps::Stamps;
use crate::tickets::TicketChecks;

/// Adds the controllers of runs, their workspaces, templates and policies.
pub(crate) fn controllers(
    engine: &mut Engine,
    (config, namespace): (&OzConfiguration, &str),
    keys: &Keys,
    (tickets, emergencies): (&TicketChecks, &Emergencies),
) {
    let harness = &config.harness;
    let metrics = Metrics::register(&mut engine.runtime().registry());
    let feeds = engine.runtime().feeds();
    let runs = kept::runs(feeds);
    let workspaces = feeds.store::<Workspace>();
    let certificates = feeds.store_in(
        &Kind::from_type::<ConfigMap>(),
        namespace,
        Selection::with_name(names::BROKER_CA),
    );
    let services = feeds.store_in(
        &Kind::from_type::<Service>(),
        namespace,
        Selection::with_name(&config.installation.component_name(Component::Broker.name())),
    );
    let network_policies = NetworkPolicies::new(feeds);
    let observed = HarnessRuns {
        keys: keys.clone(),
        locks: feeds.store(),
        approvals: feeds.store(),
        runs: runs.clone(),
        stamps: Stamps::default(),
        tickets: tickets.clone(),
        emergencies: emergencies.clone(),
        templates: feeds.store::<HarnessTemplate>(),
        cluster_templates: feeds.store::<ClusterHarnessTemplate>(),
        policies: feeds.store::<BrokerPolicy>(),
        workspaces: workspaces.clone(),
        certificates,
        services,
        metrics: metrics.clone(),
        network_policies: network_policies.clone(),
        made: Made::default(),
    };
    let controller = Runs {
        keys: keys.clone(),
        settings: config::pods(harness),
        broker: config::broker(&harness.broker, namespace),
        pod_ready_timeout: config.operator.pod_ready_timeout.0,
        require_confined: harness.require_confined,
    };
    engine.controller(controller, observed);
    let observed = HarnessWorkspaces {
        workspaces,
        runs,
        metrics,
        network_policies,
    };
    let controller = Workspaces {
        keys: keys.clone(),
        seeds: config::seeds(harness),
        require_confined: harness.require_confined,
    };
    engine.controller(controller, observed);
    let broker = config.installation.user(Component::Broker, namespace);
    definitions::definitions(engine, keys, &broker);
}
