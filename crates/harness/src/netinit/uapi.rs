//! The numbers of the kernel's interface that this program uses, with the names of linux/netlink.h, linux/netfilter.h,
//! linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h and linux/netfilter/nf_conntrack_common.h.

// linux/netlink.h
pub(super) const NLMSG_ERROR: u16 = 2;
pub(super) const NLMSG_DONE: u16 = 3;
pub(super) const NLM_F_REQUEST: u16 = 1;
pub(super) const NLM_F_ACK: u16 = 4;
pub(super) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(super) const NLM_F_DUMP: u16 = 0x300;
pub(super) const NLM_F_CREATE: u16 = 0x400;
pub(super) const NLM_F_APPEND: u16 = 0x800;
/// The bits of an attribute's type that are the type.
pub(super) const NLA_TYPE_MASK: u16 = 0x3fff;

// linux/netfilter/nfnetlink.h
pub(super) const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
pub(super) const NFNL_MSG_BATCH_END: u16 = 0x11;
pub(super) const NFNL_SUBSYS_NFTABLES: u16 = 10;

// linux/netfilter.h
pub(super) const NFPROTO_UNSPEC: u8 = 0;
pub(super) const NFPROTO_INET: u8 = 1;
pub(super) const NFPROTO_IPV6: u8 = 10;
pub(super) const NF_INET_FORWARD: u32 = 2;
pub(super) const NF_INET_LOCAL_OUT: u32 = 3;
pub(super) const NF_DROP: u32 = 0;
pub(super) const NF_ACCEPT: u32 = 1;

// linux/netfilter/nf_tables.h: messages
pub(super) const NFT_MSG_NEWTABLE: u16 = 0;
pub(super) const NFT_MSG_GETTABLE: u16 = 1;
pub(super) const NFT_MSG_DELTABLE: u16 = 2;
pub(super) const NFT_MSG_NEWCHAIN: u16 = 3;
pub(super) const NFT_MSG_GETCHAIN: u16 = 4;
pub(super) const NFT_MSG_NEWRULE: u16 = 6;
pub(super) const NFT_MSG_GETRULE: u16 = 7;

// linux/netfilter/nf_tables.h: tables, chains and rules
pub(super) const NFTA_TABLE_NAME: u16 = 1;
pub(super) const NFTA_TABLE_FLAGS: u16 = 2;
pub(super) const NFTA_HOOK_HOOKNUM: u16 = 1;
pub(super) const NFTA_HOOK_PRIORITY: u16 = 2;
pub(super) const NFTA_CHAIN_TABLE: u16 = 1;
pub(super) const NFTA_CHAIN_NAME: u16 = 3;
pub(super) const NFTA_CHAIN_HOOK: u16 = 4;
pub(super) const NFTA_CHAIN_POLICY: u16 = 5;
pub(super) const NFTA_CHAIN_TYPE: u16 = 7;
pub(super) const NFTA_RULE_TABLE: u16 = 1;
pub(super) const NFTA_RULE_CHAIN: u16 = 2;
pub(super) const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub(super) const NFTA_LIST_ELEM: u16 = 1;
pub(super) const NFTA_EXPR_NAME: u16 = 1;
pub(super) const NFTA_EXPR_DATA: u16 = 2;

// linux/netfilter/nf_tables.h: expressions
pub(super) const NFT_REG_VERDICT: u32 = 0;
pub(super) const NFT_REG_1: u32 = 1;
pub(super) const NFTA_DATA_VALUE: u16 = 1;
pub(super) const NFTA_DATA_VERDICT: u16 = 2;
pub(super) const NFTA_VERDICT_CODE: u16 = 1;
pub(super) const NFTA_IMMEDIATE_DREG: u16 = 1;
pub(super) const NFTA_IMMEDIATE_DATA: u16 = 2;
pub(super) const NFTA_META_DREG: u16 = 1;
pub(super) const NFTA_META_KEY: u16 = 2;
pub(super) const NFT_META_OIFNAME: u32 = 7;
pub(super) const NFT_META_SKUID: u32 = 10;
pub(super) const NFT_META_NFPROTO: u32 = 15;
pub(super) const NFT_META_L4PROTO: u32 = 16;
pub(super) const NFTA_CMP_SREG: u16 = 1;
pub(super) const NFTA_CMP_OP: u16 = 2;
pub(super) const NFTA_CMP_DATA: u16 = 3;
pub(super) const NFT_CMP_EQ: u32 = 0;
pub(super) const NFT_CMP_NEQ: u32 = 1;
pub(super) const NFTA_BITWISE_SREG: u16 = 1;
pub(super) const NFTA_BITWISE_DREG: u16 = 2;
pub(super) const NFTA_BITWISE_LEN: u16 = 3;
pub(super) const NFTA_BITWISE_MASK: u16 = 4;
pub(super) const NFTA_BITWISE_XOR: u16 = 5;
pub(super) const NFTA_PAYLOAD_DREG: u16 = 1;
pub(super) const NFTA_PAYLOAD_BASE: u16 = 2;
pub(super) const NFTA_PAYLOAD_OFFSET: u16 = 3;
pub(super) const NFTA_PAYLOAD_LEN: u16 = 4;
pub(super) const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
pub(super) const NFTA_CT_DREG: u16 = 1;
pub(super) const NFTA_CT_KEY: u16 = 2;
pub(super) const NFT_CT_STATE: u32 = 0;
pub(super) const NFT_CT_DIRECTION: u32 = 1;
pub(super) const NFT_CT_STATUS: u32 = 2;
pub(super) const NFTA_FIB_DREG: u16 = 1;
pub(super) const NFTA_FIB_RESULT: u16 = 2;
pub(super) const NFTA_FIB_FLAGS: u16 = 3;
pub(super) const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
pub(super) const NFTA_FIB_F_DADDR: u32 = 2;
pub(super) const NFTA_REDIR_REG_PROTO_MIN: u16 = 1;
pub(super) const NFTA_REDIR_REG_PROTO_MAX: u16 = 2;
pub(super) const NFTA_REDIR_FLAGS: u16 = 3;
pub(super) const NFTA_REJECT_TYPE: u16 = 1;
pub(super) const NFTA_REJECT_ICMP_CODE: u16 = 2;
pub(super) const NFT_REJECT_ICMPX_UNREACH: u32 = 2;
pub(super) const NFT_REJECT_ICMPX_ADMIN_PROHIBITED: u8 = 3;

// linux/netfilter/nf_nat.h
pub(super) const NF_NAT_RANGE_PROTO_SPECIFIED: u32 = 2;

// linux/netfilter/nf_conntrack_common.h
pub(super) const IPS_DST_NAT: u32 = 1 << 5;
/// `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)` and `NF_CT_STATE_BIT(IP_CT_RELATED)`.
pub(super) const ESTABLISHED_OR_RELATED: u32 = 1 << 1 | 1 << 2;
// linux/netfilter/nf_conntrack_tuple_common.h
pub(super) const IP_CT_DIR_ORIGINAL: u8 = 0;

// linux/rtnetlink.h, linux/in.h, linux/if.h
pub(super) const RTN_LOCAL: u32 = 2;
pub(super) const IPPROTO_TCP: u8 = 6;
pub(super) const IPPROTO_UDP: u8 = 17;
pub(super) const IPPROTO_ICMPV6: u8 = 58;
pub(super) const IFNAMSIZ: usize = 16;

// linux/icmpv6.h, RFC 4861
pub(super) const ROUTER_SOLICITATION: u8 = 133;
pub(super) const NEIGHBOR_SOLICITATION: u8 = 135;
pub(super) const NEIGHBOR_ADVERTISEMENT: u8 = 136;
