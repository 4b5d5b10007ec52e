//! The table of a run's pod: three chains with their rules, and the messages that write them.
//!
//! The text of each rule has the syntax of nft(8), as `nft list ruleset` prints it. One table of the family `inet` is for IPv4
//! and IPv6.
//!
//! See <https://www.netfilter.org/projects/nftables/manpage.html>.

use oz_api::harness::interception::{DNS_PORT, PROXY_PORT, PROXY_USER, REPORTER_USER};

use super::expression::{
    Expression, accept, established, icmp_type, in_original_direction, interface, ipv6, other_user,
    protocol, redirect, redirected, reject, to_local_address, to_port, user,
};
use super::message::Attributes;
use super::uapi::*;

/// The name of the table.
pub(super) const TABLE: &str = "oz";
/// The port of DNS.
const DNS: u16 = 53;

/// A chain at a hook of the kernel.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    /// `nat` or `filter`.
    pub(super) kind: &'static str,
    pub(super) hook: u32,
    pub(super) priority: i32,
    /// The verdict about a packet that no rule decides.
    pub(super) policy: u32,
    /// The module that the chain requires in addition to nf_tables.
    pub(super) module: Option<&'static str>,
    pub(super) rules: Vec<Rule>,
}

/// A rule, with its text for messages.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) text: String,
    pub(super) expressions: Vec<Expression>,
}

fn rule(text: impl Into<String>, parts: &[&[Expression]]) -> Rule {
    Rule {
        text: text.into(),
        expressions: parts.concat(),
    }
}

/// Returns the chains of the table.
pub(super) fn chains() -> [Chain; 3] {
    let output = |name, kind, priority, policy, module, rules| Chain {
        name,
        kind,
        hook: NF_INET_LOCAL_OUT,
        priority,
        policy,
        module,
        rules,
    };
    [
        output(
            "redirect_output",
            "nat",
            -100,
            NF_ACCEPT,
            Some("nft_chain_nat"),
            redirecting(),
        ),
        output("filter_output", "filter", 0, NF_DROP, None, filtering()),
        // A pod forwards nothing. A node on which forwarding is on passes the setting on to its pods, and a packet with a
        // source route that comes back in by `lo` must not leave by this way.
        Chain {
            hook: NF_INET_FORWARD,
            ..output("filter_forward", "filter", 0, NF_DROP, None, Vec::new())
        },
    ]
}

/// The rules for the users with connections that leave the pod: the proxy and the `oz` container.
fn own_users() -> impl Iterator<Item = Rule> {
    [PROXY_USER, REPORTER_USER]
        .into_iter()
        .map(|id| rule(format!("meta skuid {id} accept"), &[&user(id), &accept()]))
}

fn redirecting() -> Vec<Rule> {
    let to = |number, name: &str| {
        rule(
            format!("{name} dport {DNS} redirect to :{DNS_PORT}"),
            &[&protocol(number), &to_port(DNS), &redirect(DNS_PORT)],
        )
    };
    own_users()
        .chain([
            rule(
                "fib daddr type local accept",
                &[&to_local_address(), &accept()],
            ),
            to(IPPROTO_UDP, "udp"),
            to(IPPROTO_TCP, "tcp"),
            rule(
                format!("meta l4proto tcp redirect to :{PROXY_PORT}"),
                &[&protocol(IPPROTO_TCP), &redirect(PROXY_PORT)],
            ),
        ])
        .collect()
}

fn filtering() -> Vec<Rule> {
    // The proxy has no IPv6 without these: the kernel finds neighbours and routers by them.
    let neighbours = [
        (NEIGHBOR_SOLICITATION, "nd-neighbor-solicit"),
        (NEIGHBOR_ADVERTISEMENT, "nd-neighbor-advert"),
        (ROUTER_SOLICITATION, "nd-router-solicit"),
    ];
    let neighbours = neighbours.map(|(number, name)| {
        rule(
            format!("icmpv6 type {name} accept"),
            &[
                &ipv6(),
                &protocol(IPPROTO_ICMPV6),
                &icmp_type(number),
                &accept(),
            ],
        )
    });
    own_users()
        .chain([
            // Another table may rewrite a destination too: only connections to the pod itself are accepted for that.
            rule(
                "ct status dnat fib daddr type local accept",
                &[&redirected(), &to_local_address(), &accept()],
            ),
            rule("oifname \"lo\" accept", &[&interface("lo"), &accept()]),
            // The kernel still knows a connection of the proxy for a time after its end. Another user who binds its
            // source port would continue it by the rule below: a datagram to the cluster's name server, for example.
            rule(
                format!(
                    "meta skuid != {PROXY_USER} meta skuid != {REPORTER_USER} ct direction original reject with \
                     icmpx admin-prohibited"
                ),
                &[
                    &other_user(PROXY_USER),
                    &other_user(REPORTER_USER),
                    &in_original_direction(),
                    &reject(),
                ],
            ),
            // Packets without a socket are the kernel's, for closed sockets of the proxy.
            rule(
                "ct state established,related accept",
                &[&established(), &accept()],
            ),
        ])
        .chain(neighbours)
        .chain([rule("reject with icmpx admin-prohibited", &[&reject()])])
        .collect()
}

/// Returns the attributes of the table.
pub(super) fn table() -> Attributes {
    Attributes::default()
        .text(NFTA_TABLE_NAME, TABLE)
        .number(NFTA_TABLE_FLAGS, 0)
}

impl Chain {
    /// Returns the attributes of the chain.
    pub(super) fn attributes(&self) -> Attributes {
        let hook = Attributes::default()
            .number(NFTA_HOOK_HOOKNUM, self.hook)
            .bytes(NFTA_HOOK_PRIORITY, &self.priority.to_be_bytes());
        Attributes::default()
            .text(NFTA_CHAIN_TABLE, TABLE)
            .text(NFTA_CHAIN_NAME, self.name)
            .nested(NFTA_CHAIN_HOOK, &hook)
            .number(NFTA_CHAIN_POLICY, self.policy)
            .text(NFTA_CHAIN_TYPE, self.kind)
    }
}

impl Rule {
    /// Returns the attributes of the rule in a chain.
    pub(super) fn attributes(&self, chain: &str) -> Attributes {
        let list = self.expressions.iter().fold(
            Attributes::default(),
            |list, Expression { name, data, .. }| {
                let expression = Attributes::default()
                    .text(NFTA_EXPR_NAME, name)
                    .nested(NFTA_EXPR_DATA, data);
                list.nested(NFTA_LIST_ELEM, &expression)
            },
        );
        Attributes::default()
            .text(NFTA_RULE_TABLE, TABLE)
            .text(NFTA_RULE_CHAIN, chain)
            .nested(NFTA_RULE_EXPRESSIONS, &list)
    }
}
