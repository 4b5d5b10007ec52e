//! The trace of each attempt in the audit trail. An attempt that is not in this table fails.

use anyhow::{Result, ensure};
use oz_api::harness::wire::EgressReason;
use oz_trail::{Action, Record};
use serde_json::Value;

use super::Outcome;
use EgressReason::{
    Address, ForeignCredential, HostMismatch, HostNotGranted, NoHost, Placeholder, Protocol,
    ProxyPort, TooMany, Upstream,
};
use Trace::{Granted, Refused, Unseen};

/// The trace of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trace {
    /// Refusals with this reason about this destination, in this number. The destination ends with a colon if its port
    /// differs from run to run.
    Refused(EgressReason, &'static str, u64),
    /// Connections to this granted destination instead of the address that the agent chose.
    Granted(&'static str),
    /// None: the kernel refuses a packet or a system call, or the container does not have what the agent looks for. No
    /// process of oz sees the attempt.
    Unseen,
}

const NAMELESS: &str = "a host without a name";
const OF_PROXY: &str = "a host without a name:15001";
const CLAUDE: &str = "api.anthropic.com:443";
const PLAIN: &str = "echo.test:443";
const BROKER: &str = "oz-broker.oz-system.svc:";
const CARRIED: &str = "stolen-data.sink.test";

/// The traces, by the names of the attempts: an attempt with two kinds of refusals has two rows.
const TRACES: [(&str, Trace); 64] = [
    // addresses.rs
    ("raw_socket", Unseen),
    ("packet_socket", Unseen),
    ("datagram_to_any_port", Unseen),
    ("quic_datagram", Unseen),
    ("other_transport", Unseen),
    ("ping_socket", Unseen),
    ("raw_ping", Unseen),
    ("ping_over_ipv6", Unseen),
    (
        "connection_over_ipv6",
        Refused(HostNotGranted, "sink.test:80", 1),
    ),
    ("datagram_over_ipv6", Unseen),
    ("mapped_address", Refused(HostNotGranted, "sink.test:80", 1)),
    ("user_of_the_proxy", Unseen),
    ("program_of_root", Unseen),
    ("user_namespace", Unseen),
    ("rules_of_the_firewall", Unseen),
    (
        "metadata_address",
        Refused(HostNotGranted, "sink.test:80", 1),
    ),
    (
        "metadata_address_as_host",
        Refused(NoHost, "a host without a name:80", 1),
    ),
    (
        "plain_protocol",
        Refused(Protocol, "a host without a name:22", 1),
    ),
    ("thousands_of_connections", Refused(TooMany, NAMELESS, 1)),
    // containers.rs
    ("token_in_a_file", Unseen),
    ("key_of_the_authority", Unseen),
    ("trust_file_that_is_writable", Unseen),
    ("processes_of_other_containers", Unseen),
    ("files_of_other_containers", Unseen),
    ("memory_of_other_processes", Unseen),
    ("settings_of_the_kernel", Unseen),
    // credentials.rs
    (
        "placeholder_in_another_header",
        Refused(Placeholder, CLAUDE, 3),
    ),
    ("placeholder_in_the_target", Refused(Placeholder, CLAUDE, 3)),
    (
        "placeholder_with_more_text",
        Refused(Placeholder, CLAUDE, 3),
    ),
    (
        "placeholder_for_another_host",
        Refused(Placeholder, PLAIN, 2),
    ),
    (
        "placeholder_without_tls",
        Refused(HostNotGranted, "api.anthropic.com:80", 1),
    ),
    (
        "placeholder_of_another_run",
        Refused(Placeholder, CLAUDE, 1),
    ),
    ("foreign_key", Refused(ForeignCredential, CLAUDE, 1)),
    (
        "foreign_key_in_another_header",
        Refused(ForeignCredential, CLAUDE, 7),
    ),
    (
        "foreign_key_in_the_query",
        Refused(ForeignCredential, CLAUDE, 5),
    ),
    (
        "foreign_key_beside_the_placeholder",
        Refused(ForeignCredential, CLAUDE, 1),
    ),
    (
        "foreign_key_beside_the_placeholder",
        Refused(Placeholder, CLAUDE, 1),
    ),
    // names.rs
    (
        "name_that_carries_data",
        Refused(HostNotGranted, CARRIED, 1),
    ),
    (
        "question_to_another_server",
        Refused(HostNotGranted, CARRIED, 1),
    ),
    ("question_over_tcp", Refused(HostNotGranted, CARRIED, 1)),
    (
        "question_of_another_type",
        Refused(HostNotGranted, "stolen-data.api.anthropic.com", 1),
    ),
    ("port_of_names", Refused(HostNotGranted, CARRIED, 1)),
    (
        "granted_name_of_the_metadata_address",
        Refused(Address, "linked.test:443", 1),
    ),
    (
        "granted_name_of_a_private_address",
        Refused(Address, "private.test:443", 1),
    ),
    (
        "name_with_another_address_each_time",
        Refused(Address, "changing.test:443", 1),
    ),
    ("granted_name_at_another_address", Granted(PLAIN)),
    (
        "granted_host_at_another_port",
        Refused(HostNotGranted, "echo.test:8080", 1),
    ),
    // requests.rs
    (
        "host_that_is_not_granted",
        Refused(HostNotGranted, "ungranted.test:443", 1),
    ),
    (
        "host_that_differs_from_sni",
        Refused(HostMismatch, PLAIN, 1),
    ),
    ("two_hosts", Refused(Protocol, PLAIN, 1)),
    (
        "absolute_target_of_another_host",
        Refused(HostMismatch, PLAIN, 1),
    ),
    (
        "handshake_without_a_name",
        Refused(NoHost, "a host without a name:443", 1),
    ),
    ("plain_protocol_inside_tls", Refused(Protocol, PLAIN, 1)),
    (
        "invalid_certificates_of_upstreams",
        Refused(Upstream, "expired.test:443", 1),
    ),
    ("two_lengths", Refused(Protocol, CLAUDE, 1)),
    ("length_and_chunks", Refused(Protocol, CLAUDE, 1)),
    ("obfuscated_chunks", Refused(Protocol, CLAUDE, 1)),
    (
        "header_that_is_removed_on_the_way",
        Refused(Protocol, CLAUDE, 1),
    ),
    ("line_break_in_a_header", Refused(Protocol, CLAUDE, 1)),
    ("port_of_the_proxy", Refused(ProxyPort, OF_PROXY, 3)),
    ("proxy_as_configured_proxy", Refused(ProxyPort, OF_PROXY, 2)),
    ("broker_by_its_name", Refused(HostNotGranted, BROKER, 3)),
    ("broker_at_its_endpoint", Refused(HostNotGranted, BROKER, 1)),
    (
        "api_server",
        Refused(HostNotGranted, "kubernetes.default.svc:443", 1),
    ),
];

fn traces(attempt: &str) -> Result<Vec<Trace>> {
    let rows = TRACES.iter().filter(|(name, _)| *name == attempt);
    let traces: Vec<Trace> = rows.map(|(_, trace)| *trace).collect();
    ensure!(
        !traces.is_empty(),
        "{attempt} has no row in the table of traces"
    );
    Ok(traces)
}

/// Checks that every attempt of a report has a row.
pub(super) fn are_known(report: &[Value]) -> Result<()> {
    let names = report.iter().filter_map(|line| line["attempt"].as_str());
    for name in names.filter(|name| *name != "end") {
        traces(name)?;
    }
    Ok(())
}

/// Returns the number of events in the records of an action with this reason about this destination.
fn count(records: &[Record], action: Action, reason: &str, destination: &str) -> u64 {
    let is_about = |record: &&Record| {
        let about = record.details.get("destination").map_or("", |it| it);
        let is_there = match destination.ends_with(':') {
            true => about.starts_with(destination),
            false => about == destination,
        };
        record.action == action && record.reason == reason && is_there
    };
    let records = records.iter().filter(is_about);
    let counts = records.map(|it| it.repeated.as_ref().map_or(1, |it| it.count));
    counts.sum()
}

impl Outcome {
    /// Checks that an attempt has its traces.
    pub(super) fn has_trace(&self, attempt: &str) -> Result<()> {
        for trace in traces(attempt)? {
            self.contains(attempt, trace)?;
        }
        Ok(())
    }

    /// Checks one trace of an attempt. Several attempts may have the same refusal: then there are as many as all of them
    /// have together.
    fn contains(&self, attempt: &str, trace: Trace) -> Result<()> {
        let (action, reason, destination, expected) = match trace {
            Unseen => return Ok(()),
            Granted(destination) => (Action::EgressAllowed, "HostGranted", destination, 1),
            Refused(reason, destination, _) => {
                let all = TRACES.iter().map(|(_, trace)| match trace {
                    Refused(its, about, times) if *its == reason && *about == destination => *times,
                    _ => 0,
                });
                (Action::EgressRefused, reason.into(), destination, all.sum())
            }
        };
        let found = count(&self.records, action, reason, destination);
        ensure!(
            found >= expected,
            "{attempt}: {found} of {expected} refusals {reason} of {destination} are in {:#?}",
            self.records
        );
        Ok(())
    }
}
