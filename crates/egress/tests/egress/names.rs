//! The answers of the pod's name server.

use std::net::{IpAddr, Ipv6Addr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use oz_egress::address::Denied;
use oz_egress::dns::{Answer, Families, address_v4, address_v6, answer};

use crate::world::granted;

const BOTH: Families = Families { v4: true, v6: true };

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

fn ask(families: Families, message: &Message) -> (Answer, Message) {
    let answer = answer(&granted(), families, &message.to_vec().unwrap()).unwrap();
    let parsed = Message::from_vec(&answer.bytes).unwrap();
    assert_eq!(parsed.metadata.id, 7);
    assert_eq!(parsed.metadata.message_type, MessageType::Response);
    (answer, parsed)
}

fn addresses(message: &Message) -> Vec<IpAddr> {
    let address = |data: &RData| match data {
        RData::A(address) => IpAddr::V4(address.0),
        RData::AAAA(address) => IpAddr::V6(address.0),
        other => panic!("{other}"),
    };
    message
        .answers
        .iter()
        .map(|one| address(&one.data))
        .collect()
}

#[test]
fn granted_name_has_an_address_of_each_family_of_the_pod() {
    let (v4, v6) = (
        address_v4("api.anthropic.com"),
        address_v6("api.anthropic.com"),
    );
    for (families, kind, addressed) in [
        (BOTH, RecordType::A, Some(IpAddr::V4(v4))),
        (BOTH, RecordType::AAAA, Some(IpAddr::V6(v6))),
        (
            Families {
                v4: true,
                v6: false,
            },
            RecordType::AAAA,
            None,
        ),
        (
            Families {
                v4: false,
                v6: true,
            },
            RecordType::A,
            None,
        ),
        (BOTH, RecordType::HTTPS, None),
        (BOTH, RecordType::SVCB, None),
        (BOTH, RecordType::TXT, None),
        (BOTH, RecordType::MX, None),
        (BOTH, RecordType::ANY, None),
        (BOTH, RecordType::Unknown(4711), None),
    ] {
        let (answer, message) = ask(families, &question("API.Anthropic.COM.", kind));
        assert_eq!(
            message.metadata.response_code,
            ResponseCode::NoError,
            "{kind}"
        );
        assert_eq!(addresses(&message), Vec::from_iter(addressed), "{kind}");
        assert_eq!(answer.name, "api.anthropic.com");
        assert!(!answer.refused && message.metadata.recursion_available);
        assert!(message.answers.iter().all(|one| one.ttl <= 30));
        // Some resolvers compare the letters of the question (RFC 5452, section 9.2).
        assert_eq!(message.queries[0].name().to_ascii(), "API.Anthropic.COM.");
    }
}

#[test]
fn r30_name_that_is_not_granted_does_not_exist() {
    for (name, refused) in [
        ("example.org.", true),
        ("example.com.", true),
        ("c2VjcmV0.evil.org.", true),
        ("api.anthropic.com.evil.org.", true),
        ("local.", true),
        (".", true),
        ("xn--bcher-kva.example.", true),
        ("kubernetes.default.svc.cluster.local.", true),
        // The dot is within a label: the name is not the granted one.
        ("api\\.anthropic.com.", true),
        // Resolvers append the domains of their search list first.
        ("api.anthropic.com.team.svc.cluster.local.", false),
        ("api.anthropic.com.cluster.local.", false),
        ("api.anthropic.com.eu-west-1.compute.internal.", false),
        ("a.example.com.svc.cluster.local.", false),
    ] {
        for kind in [RecordType::A, RecordType::AAAA, RecordType::TXT] {
            let (answer, message) = ask(BOTH, &question(name, kind));
            assert_eq!(
                message.metadata.response_code,
                ResponseCode::NXDomain,
                "{name}"
            );
            assert_eq!(addresses(&message), Vec::<IpAddr>::new());
            assert_eq!(answer.refused, refused, "{name}");
            let printable = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase();
            assert!(answer.name.bytes().all(printable), "{:?}", answer.name);
        }
    }
}

#[test]
fn name_with_other_bytes_does_not_exist_and_is_printable() {
    let labels: [&[u8]; 3] = [b"\0\xff\x1b[1m", b"evil", b"org"];
    let mut message = question("a.", RecordType::A);
    message.queries[0].set_name(Name::from_labels(labels).unwrap());
    let (answer, message) = ask(BOTH, &message);
    assert_eq!(message.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(answer.name, "????1m.evil.org");
    assert!(answer.refused);
}

#[test]
fn messages_that_are_no_question_for_a_name_are_answered_as_dns_requires() {
    let a = || question("api.anthropic.com.", RecordType::A);
    let mut none = a();
    none.queries.clear();
    let mut two = a();
    two.add_query(a().queries[0].clone());
    let mut update = a();
    update.metadata.op_code = OpCode::Update;
    let mut status = a();
    status.metadata.op_code = OpCode::Status;
    let mut chaos = question("version.bind.", RecordType::TXT);
    chaos.queries[0].set_query_class(DNSClass::CH);
    let mut any = a();
    any.queries[0].set_query_class(DNSClass::ANY);
    for (message, code, refused) in [
        (none, ResponseCode::FormErr, true),
        (two, ResponseCode::FormErr, true),
        (update, ResponseCode::NotImp, true),
        (status, ResponseCode::NotImp, true),
        (chaos, ResponseCode::Refused, true),
        (any, ResponseCode::Refused, false),
    ] {
        let (answer, message) = ask(BOTH, &message);
        assert_eq!(message.metadata.response_code, code);
        assert_eq!(answer.refused, refused, "{code}");
        assert!(message.answers.is_empty());
    }
    // More records than there are bytes for, in each section; and a message that is too long.
    for at in [6, 8, 10] {
        let mut bytes = a().to_vec().unwrap();
        bytes[at] = 0xff;
        let answer = answer(&granted(), BOTH, &bytes).unwrap();
        assert_eq!(answer.bytes[3] & 0xf, 1, "{at}");
        assert!(answer.refused);
    }
    let mut long = a().to_vec().unwrap();
    long.resize(5_000, 0);
    assert_eq!(answer(&granted(), BOTH, &long).unwrap().bytes[3] & 0xf, 1);
    let mut response = a();
    response.metadata.message_type = MessageType::Response;
    let response = response.to_vec().unwrap();
    assert_eq!(answer(&granted(), BOTH, &response), None);
    let whole = a().to_vec().unwrap();
    for length in 0..whole.len() {
        let answer = answer(&granted(), BOTH, &whole[..length]);
        assert_eq!(answer.is_some(), length >= 12, "{length}");
        let Some(answer) = answer else { continue };
        let message = Message::from_vec(&answer.bytes).unwrap();
        assert_eq!(
            message.metadata.response_code,
            ResponseCode::FormErr,
            "{length}"
        );
    }
}

#[test]
fn question_with_edns_gets_an_answer_with_edns() {
    let mut message = question("api.anthropic.com.", RecordType::A);
    let (_, plain) = ask(BOTH, &message);
    assert_eq!(plain.edns, None);
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    message.set_edns(edns.clone());
    let (answer, parsed) = ask(BOTH, &message);
    assert_eq!(addresses(&parsed).len(), 1);
    assert_eq!(parsed.edns.unwrap().version(), 0);
    assert!(answer.bytes.len() <= 512);
    edns.set_version(1);
    message.set_edns(edns);
    let (_, parsed) = ask(BOTH, &message);
    // BADVERS, which has the number of BADSIG.
    assert_eq!(u16::from(parsed.metadata.response_code), 16);
    assert_eq!(addresses(&parsed), Vec::<IpAddr>::new());
}

#[test]
fn address_of_a_name_is_constant_and_in_the_ranges_of_names() {
    for name in ["api.anthropic.com", "a.example.com", "b.example.com"] {
        assert_eq!(
            address_v4(name),
            address_v4(&format!("{}.", name.to_uppercase()))
        );
        assert!(address_v4(name).octets()[..1] == [198]);
        assert!([18, 19].contains(&address_v4(name).octets()[1]));
        let v6: Ipv6Addr = address_v6(name);
        assert_eq!(v6.segments()[..2], [0xfd6f, 0x7a00]);
        // The proxy never connects to them.
        let denied = Denied::default();
        assert!(denied.check(address_v4(name).into()).is_err());
        assert!(denied.check(v6.into()).is_err());
    }
    assert_ne!(address_v4("a.example.com"), address_v4("b.example.com"));
}

#[test]
fn longest_name_fits_into_a_datagram() {
    let label = "a".repeat(60);
    let name = format!("{label}.{label}.{label}.{}.", "b".repeat(50));
    let (answer, _) = ask(BOTH, &question(&name, RecordType::A));
    assert!(answer.bytes.len() <= 512 && answer.refused);
}
