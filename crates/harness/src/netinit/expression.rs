//! The expressions of rules, as the kernel runs them: each loads a value into register 1, compares it, or decides.
//!
//! The attributes are in linux/netfilter/nf_tables.h; `nft --debug=netlink` prints the expressions of a rule.

use super::message::Attributes;
use super::uapi::*;

/// An expression of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression {
    /// The name by which the kernel finds its code.
    pub(super) name: &'static str,
    /// The module with that code, if it is not part of nf_tables.
    pub(super) module: Option<&'static str>,
    pub(super) data: Attributes,
}

impl Expression {
    fn new(name: &'static str, data: Attributes) -> Self {
        Self {
            name,
            module: None,
            data,
        }
    }

    const fn with_module(mut self, module: &'static str) -> Self {
        self.module = Some(module);
        self
    }
}

/// Loads a property of the packet or its socket. A packet without a socket does not match the rule by `skuid`.
fn meta(key: u32) -> Expression {
    let data = Attributes::default()
        .number(NFTA_META_KEY, key)
        .number(NFTA_META_DREG, NFT_REG_1);
    Expression::new("meta", data)
}

fn compare(operator: u32, value: &[u8]) -> Expression {
    let value = Attributes::default().bytes(NFTA_DATA_VALUE, value);
    let data = Attributes::default()
        .number(NFTA_CMP_SREG, NFT_REG_1)
        .number(NFTA_CMP_OP, operator)
        .nested(NFTA_CMP_DATA, &value);
    Expression::new("cmp", data)
}

/// Matches packets of sockets that the user opened.
pub(super) fn user(id: u32) -> [Expression; 2] {
    [meta(NFT_META_SKUID), compare(NFT_CMP_EQ, &id.to_ne_bytes())]
}

/// Matches packets of sockets that another user opened. A packet without a socket does not match.
pub(super) fn other_user(id: u32) -> [Expression; 2] {
    [
        meta(NFT_META_SKUID),
        compare(NFT_CMP_NEQ, &id.to_ne_bytes()),
    ]
}

/// Matches packets of a transport protocol.
pub(super) fn protocol(number: u8) -> [Expression; 2] {
    [meta(NFT_META_L4PROTO), compare(NFT_CMP_EQ, &[number])]
}

/// Matches packets of IPv6.
pub(super) fn ipv6() -> [Expression; 2] {
    [meta(NFT_META_NFPROTO), compare(NFT_CMP_EQ, &[NFPROTO_IPV6])]
}

/// Matches packets that leave by the interface.
pub(super) fn interface(name: &str) -> [Expression; 2] {
    let mut padded = name.as_bytes().to_vec();
    padded.resize(IFNAMSIZ, 0);
    [meta(NFT_META_OIFNAME), compare(NFT_CMP_EQ, &padded)]
}

fn payload(offset: u32, length: u32) -> Expression {
    let data = Attributes::default()
        .number(NFTA_PAYLOAD_DREG, NFT_REG_1)
        .number(NFTA_PAYLOAD_BASE, NFT_PAYLOAD_TRANSPORT_HEADER)
        .number(NFTA_PAYLOAD_OFFSET, offset)
        .number(NFTA_PAYLOAD_LEN, length);
    Expression::new("payload", data)
}

/// Matches a destination port of TCP or UDP.
pub(super) fn to_port(port: u16) -> [Expression; 2] {
    [payload(2, 2), compare(NFT_CMP_EQ, &port.to_be_bytes())]
}

/// Matches a type of ICMPv6.
pub(super) fn icmp_type(number: u8) -> [Expression; 2] {
    [payload(0, 1), compare(NFT_CMP_EQ, &[number])]
}

/// Matches packets to an address of this network namespace.
pub(super) fn to_local_address() -> [Expression; 2] {
    let data = Attributes::default()
        .number(NFTA_FIB_DREG, NFT_REG_1)
        .number(NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE)
        .number(NFTA_FIB_FLAGS, NFTA_FIB_F_DADDR);
    [
        Expression::new("fib", data).with_module("nft_fib_inet"),
        compare(NFT_CMP_EQ, &RTN_LOCAL.to_ne_bytes()),
    ]
}

fn connection(key: u32) -> Expression {
    let data = Attributes::default()
        .number(NFTA_CT_DREG, NFT_REG_1)
        .number(NFTA_CT_KEY, key);
    Expression::new("ct", data).with_module("nft_ct")
}

fn has_bit_of(mask: u32) -> [Expression; 2] {
    let value = |value: u32| Attributes::default().bytes(NFTA_DATA_VALUE, &value.to_ne_bytes());
    let data = Attributes::default()
        .number(NFTA_BITWISE_SREG, NFT_REG_1)
        .number(NFTA_BITWISE_DREG, NFT_REG_1)
        .number(NFTA_BITWISE_LEN, 4)
        .nested(NFTA_BITWISE_MASK, &value(mask))
        .nested(NFTA_BITWISE_XOR, &value(0));
    [
        Expression::new("bitwise", data),
        compare(NFT_CMP_NEQ, &0_u32.to_ne_bytes()),
    ]
}

/// Matches packets of connections with a rewritten destination.
pub(super) fn redirected() -> Vec<Expression> {
    [
        vec![connection(NFT_CT_STATUS)],
        has_bit_of(IPS_DST_NAT).into(),
    ]
    .concat()
}

/// Matches packets of connections that were answered, and errors about such connections.
pub(super) fn established() -> Vec<Expression> {
    [
        vec![connection(NFT_CT_STATE)],
        has_bit_of(ESTABLISHED_OR_RELATED).into(),
    ]
    .concat()
}

/// Matches packets in the direction of the first packet of their connection.
pub(super) fn in_original_direction() -> [Expression; 2] {
    [
        connection(NFT_CT_DIRECTION),
        compare(NFT_CMP_EQ, &[IP_CT_DIR_ORIGINAL]),
    ]
}

fn immediate(register: u32, data: &Attributes) -> Expression {
    let data = Attributes::default()
        .number(NFTA_IMMEDIATE_DREG, register)
        .nested(NFTA_IMMEDIATE_DATA, data);
    Expression::new("immediate", data)
}

/// Accepts the packet.
pub(super) fn accept() -> [Expression; 1] {
    let code = Attributes::default().number(NFTA_VERDICT_CODE, NF_ACCEPT);
    let verdict = Attributes::default().nested(NFTA_DATA_VERDICT, &code);
    [immediate(NFT_REG_VERDICT, &verdict)]
}

/// Rewrites the destination to a port of the loopback address.
pub(super) fn redirect(port: u16) -> [Expression; 2] {
    let port = Attributes::default().bytes(NFTA_DATA_VALUE, &port.to_be_bytes());
    let data = Attributes::default()
        .number(NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1)
        .number(NFTA_REDIR_REG_PROTO_MAX, NFT_REG_1)
        .number(NFTA_REDIR_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
    [
        immediate(NFT_REG_1, &port),
        Expression::new("redir", data).with_module("nft_redir"),
    ]
}

/// Refuses the packet, with an error of ICMP for the sender.
pub(super) fn reject() -> [Expression; 1] {
    let data = Attributes::default()
        .number(NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH)
        .bytes(NFTA_REJECT_ICMP_CODE, &[NFT_REJECT_ICMPX_ADMIN_PROHIBITED]);
    [Expression::new("reject", data).with_module("nft_reject_inet")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(expressions: &[Expression]) -> Vec<String> {
        expressions
            .iter()
            .map(|part| {
                let data = part.data.as_bytes().iter();
                let data: String = data.map(|byte| format!("{byte:02x}")).collect();
                format!("{} {data}", part.name)
            })
            .collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn expressions_have_the_bytes_of_nft() {
        // `nft --debug=netlink list ruleset` prints the same for both, with Linux 6.18 and nft 1.0.6.
        let table: [(&[Expression], &[&str]); 10] = [
            (
                &user(1_337),
                &[
                    "meta 080002000000000a0800010000000001",
                    "cmp 080001000000000108000200000000000c0003000800010039050000",
                ],
            ),
            (
                &other_user(1_338),
                &[
                    "meta 080002000000000a0800010000000001",
                    "cmp 080001000000000108000200000000010c000300080001003a050000",
                ],
            ),
            (
                &protocol(IPPROTO_UDP),
                &[
                    "meta 08000200000000100800010000000001",
                    "cmp 080001000000000108000200000000000c0003000500010011000000",
                ],
            ),
            (
                &to_port(53),
                &[
                    "payload 0800010000000001080002000000000208000300000000020800040000000002",
                    "cmp 080001000000000108000200000000000c0003000600010000350000",
                ],
            ),
            (
                &interface("lo"),
                &[
                    "meta 08000200000000070800010000000001",
                    "cmp 0800010000000001080002000000000018000300140001006c6f0000000000000000000000000000",
                ],
            ),
            (
                &to_local_address(),
                &[
                    "fib 080001000000000108000200000000030800030000000002",
                    "cmp 080001000000000108000200000000000c0003000800010002000000",
                ],
            ),
            (
                &redirected(),
                &[
                    "ct 08000100000000010800020000000002",
                    "bitwise 0800010000000001080002000000000108000300000000040c00040008000100200000000c0005000800010000000000",
                    "cmp 080001000000000108000200000000010c0003000800010000000000",
                ],
            ),
            (
                &in_original_direction(),
                &[
                    "ct 08000100000000010800020000000001",
                    "cmp 080001000000000108000200000000000c0003000500010000000000",
                ],
            ),
            (
                &redirect(15_001),
                &[
                    "immediate 08000100000000010c000200060001003a990000",
                    "redir 080001000000000108000200000000010800030000000002",
                ],
            ),
            (
                &[accept(), reject()].concat(),
                &[
                    "immediate 0800010000000000100002000c0002000800010000000001",
                    "reject 08000100000000020500020003000000",
                ],
            ),
        ];
        for (expressions, expected) in table {
            assert_eq!(hex(expressions), expected);
        }
    }
}
