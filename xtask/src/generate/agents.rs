//! The attempts of agents in harness runs, in suites without doc comments.

/// The tests of the rules about connections and requests.
const HELLO: &str = "crates/egress/tests/egress/hello.rs";
const REQUESTS: &str = "crates/egress/tests/egress/requests.rs";
const CREDENTIALS: &str = "crates/egress/tests/egress/credentials.rs";
const FOREIGN: &str = "crates/egress/tests/egress/foreign.rs";
const FORWARDING: &str = "crates/egress/tests/egress/forwarding.rs";

/// The attempts of agents in suites without doc comments: the attempt, the result, the file, and its tests.
pub(super) const AGENTS: [(&str, &str, &str, &[&str]); 6] = [
    (
        "Sending SNI twice, an empty, over-long or malformed SNI, an IP address, or an encrypted name (ECH, ESNI)",
        "the proxy refuses the handshake",
        HELLO,
        &[
            "handshake_without_one_readable_name_is_refused",
            "name_that_is_none_is_refused",
        ],
    ),
    (
        "Sending a request with another host than its connection, in every form",
        "the proxy responds with 421 (F-22)",
        REQUESTS,
        &["f22_request_for_another_host_than_its_connection_is_refused"],
    ),
    (
        "Sending a request that two servers could read differently",
        "the proxy responds with 400",
        REQUESTS,
        &["request_with_more_than_one_meaning_is_refused"],
    ),
    (
        "Changing the meaning of a credential by `Cookie`, `Forwarded` or `X-Forwarded-*`, or by headers of other APIs",
        "the proxy removes the headers (F-21)",
        FORWARDING,
        &[
            "f21_headers_beside_a_credential_are_removed",
            "f21_only_published_headers_reach_anthropic",
        ],
    ),
    (
        "Sending a placeholder outside its place in each part of a request, percent-encoded or in base64",
        "the proxy responds with 403",
        CREDENTIALS,
        &[
            "placeholder_outside_its_place_is_refused",
            "r19_placeholder_beside_its_place_is_refused",
        ],
    ),
    (
        "Sending a foreign credential in each place where credentials are sent",
        "the proxy responds with 403",
        FOREIGN,
        &[
            "foreign_credential_at_a_host_with_a_credential_is_refused",
            "foreign_credential_in_the_place_of_a_policy_is_refused",
        ],
    ),
];
