//! Destinations that no agent may reach. Servers listen there, so that an attempt that leaves the pod succeeds; and the
//! node counts each packet to them, of any protocol.

use std::net::IpAddr;

use anyhow::{Context as _, Result, bail};
use oz_testkit::Cluster;

use crate::run;

/// A host that no policy of a test grants.
pub const SINK: &str = "sink.test";
/// The addresses of [`SINK`].
pub const SINK_ADDRESSES: [&str; 2] = ["203.0.113.66", "2001:db8:ffff::66"];
/// The address at which clouds serve the metadata of a machine.
pub const METADATA: &str = "169.254.169.254";
/// The secret that the server at [`METADATA`] and the servers of the sink disclose to every client.
pub const SINK_SECRET: &str = "reached-a-destination-that-is-not-granted";

/// The ports of TCP of a sink.
pub(super) const TCP_PORTS: [u16; 5] = [22, 53, 80, 443, 8080];
/// The ports of UDP of a sink.
pub(super) const UDP_PORTS: [u16; 3] = [53, 443, 9999];

/// Returns the addresses of the sinks.
pub(super) fn addresses() -> Result<Vec<IpAddr>> {
    let all = SINK_ADDRESSES.into_iter().chain([METADATA]);
    all.map(|address| Ok(address.parse()?)).collect()
}

/// Starts counting the packets to an address.
pub(super) fn count(cluster: &Cluster, address: IpAddr) -> Result<()> {
    let mut command = cluster.node_network_command(program(address))?;
    command
        .args(["-w", "-t", "raw", "-A", "PREROUTING", "-d"])
        .arg(address.to_string());
    run(command).map(drop)
}

/// Returns the number of packets to an address so far.
pub(super) fn counted(cluster: &Cluster, address: IpAddr) -> Result<u64> {
    let mut command = cluster.node_network_command(program(address))?;
    command.args(["-w", "-t", "raw", "-S", "PREROUTING", "-v"]);
    let rules = run(command)?;
    let wanted = address.to_string();
    for rule in rules.lines() {
        let mut words = rule.split_whitespace();
        let is_of = words.by_ref().any(|word| word == "-d");
        let destination = words.next().unwrap_or_default();
        let destination = destination.split('/').next().unwrap_or_default();
        if is_of && destination == wanted {
            let packets = words.skip_while(|word| *word != "-c").nth(1);
            return packets
                .and_then(|packets| packets.parse().ok())
                .with_context(|| format!("failed to read the counter in {rule:?}"));
        }
    }
    bail!("nothing counts the packets to {address}: {rules}")
}

fn program(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "iptables",
        IpAddr::V6(_) => "ip6tables",
    }
}
