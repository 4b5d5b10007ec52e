//! The complete oz on a cluster: installed from the repository's manifests, operator and webhook as processes
//! of this machine under the service accounts and roles that they have in production. Tests, demo and benches
//! use this crate.

mod access;
pub mod agents;
pub mod alerts;
mod api_proxy;
mod approvals;
mod audit;
mod broker;
mod connections;
mod emergencies;
mod examples;
mod gate;
pub mod guides;
mod harness;
mod helm;
mod keys;
mod leftovers;
pub mod lending;
mod locks;
mod manifests;
mod options;
mod policies;
pub mod programs;
pub mod proxies;
pub mod receiver;
mod records;
mod replicas;
mod rollouts;
mod scene;
mod service;
mod session;
mod system;
mod terminal;
mod tickets;
mod traffic;
pub mod upstream;
mod watch;

pub use oz_testkit::{EXAMPLES, example_values, examples, repository};

pub use access::{
    AccessRequest, ExecRequests, GrantedRequest, PodRequests, Requests, active, conditions_line,
    exec_request, exec_template, pod_request, pod_template,
};
pub use api_proxy::{ApiProxy, Kept};
pub use approvals::{Person, answer_to, approval_rule, approved_template};
pub use audit::{Auditor, clear_trail};
pub use broker::{Broker, BrokerAnswer, BrokerClient, publish_stamp_keys, publish_voucher_keys};
pub use connections::{refusal, refused};
pub use emergencies::{REVIEWS, emergency_request, emergency_template, found};
pub use examples::install_example;
pub use gate::{GATED, Gate, RecordingStore, STREAMS, gate_template, recording_template};
pub use harness::{
    agent_running, allow_dns, announce_broker, by_hand_overlay, install_harness, local_volume,
    next_second, node_by_hand, volume,
};
pub use helm::{
    chart, harness_image_archive, helm, image_archive, rehearsed_release,
    released_harness_image_archive,
};
pub use keys::private_key;
pub use leftovers::left;
pub use locks::{binding, forbidden, forged_record, role, stamped};
pub use manifests::apply;
pub use options::{Options, clocks_can_be_shifted};
pub use policies::{agreed, are_asked, at_most, deny, policy, remove, with_policies};
pub use records::{records_about, records_in, records_of};
pub use replicas::{Duty, LEASE_AND_TURNS, Replicas};
pub use rollouts::rollouts;
pub use scene::{Scene, TEMPLATE, WORKLOAD};
pub use service::Service;
pub use session::{Session, on_a_terminal, running_grants};
pub use system::{
    NAMESPACE, Operator, System, Webhook, apply_as, established, identity, install,
    install_composites, run, run_for_a_while, unregister, unregister_hooks,
};
pub use terminal::Terminal;
pub use tickets::{TicketAnswer, TicketServer, ticket_checks, ticket_template};
pub use traffic::{GrantTimes, Outcome, Traffic, TrafficPlan};
pub use watch::Watch;
