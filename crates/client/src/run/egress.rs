//! The destinations of a run, as the broker counts them in its status, and the reasons of refusals.

use oz_api::harness::interception::{TRUST_FILE, TRUST_VARIABLES};
use oz_api::harness::wire::EgressReason;
use oz_api::harness::{HarnessRun, RunEgress};

/// Returns the destinations of a run.
#[must_use]
pub fn egress(run: &HarnessRun) -> &[RunEgress] {
    run.status
        .as_ref()
        .map_or(&[][..], |status| &status.egress[..])
}

/// Returns the destinations of `now` that are new, or have other counts than in `before`.
pub fn changed<'a>(
    before: &'a [RunEgress],
    now: &'a [RunEgress],
) -> impl Iterator<Item = &'a RunEgress> {
    now.iter().filter(|one| !before.contains(one))
}

/// Describes the refusals of a destination: the count, the reason, and what to do; `None` if the proxy refused nothing.
#[must_use]
pub fn refusals(one: &RunEgress) -> Option<String> {
    if one.refused == 0 {
        return None;
    }
    let (count, noun) = match one.refused {
        1 => ("1".to_owned(), "attempt"),
        count => (count.to_string(), "attempts"),
    };
    let subject = match (one.host.as_str(), one.port) {
        ("", port) => format!("{count} {noun} without a host, on port {port}"),
        (host, 0) => format!("{count} {noun} to resolve {host}"),
        (host, port) => format!("{count} {noun} to reach {host}:{port}"),
    };
    let reason = one.reason.as_deref().unwrap_or("Unknown");
    // A later release may have further reasons.
    let known = serde_json::from_value::<EgressReason>(reason.into());
    let cause = match known {
        Ok(reason) => cause(reason, one),
        Err(_) => "the reason is unknown to this version of ozctl".to_owned(),
    };
    Some(format!("{subject} refused, the last for {reason}: {cause}"))
}

/// Returns the cause of a refusal, and what to do.
fn cause(reason: EgressReason, one: &RunEgress) -> String {
    let credential = match &one.credential {
        Some(name) => format!("credential {name}"),
        None => "a credential".to_owned(),
    };
    match reason {
        EgressReason::HostNotGranted => match one.port {
            0 => "no BrokerPolicy grants the host; add it to spec.grants.egress if the run requires it".to_owned(),
            port => format!(
                "no BrokerPolicy grants port {port} of the host; add it to spec.grants.egress if the run requires it"
            ),
        },
        EgressReason::NoHost => "the client named no host: it connects to an IP address, or encrypts the server name \
                                 (ECH); configure it to use the name and no ECH"
            .to_owned(),
        EgressReason::HostMismatch => {
            "the request names another host than the connection; configure the client to use one host for each connection"
                .to_owned()
        }
        EgressReason::Protocol => {
            "the proxy forwards TLS with HTTP/1.1, and plain HTTP/1.1; the client spoke another protocol, or sent a \
             malformed request"
                .to_owned()
        }
        EgressReason::Handshake => format!(
            "the client does not trust the authority of the run's proxy; oz sets {} to {TRUST_FILE}, and a client that \
             reads none of them requires this file in its own configuration",
            TRUST_VARIABLES.join(", ")
        ),
        EgressReason::Address => {
            "the name has no address that runs may reach: it resolves to nothing, or to a private, pod, service or node \
             address"
                .to_owned()
        }
        EgressReason::Upstream => {
            "the server does not respond, or its certificate is not valid for the host; set harness.upstreamCA in oz's \
             values if a private authority issued it"
                .to_owned()
        }
        EgressReason::Placeholder => format!(
            "a request has the placeholder of {credential} outside the place that its BrokerPolicy names, or for another \
             host; send it as the policy says, over HTTPS"
        ),
        EgressReason::ForeignCredential => format!(
            "a request to a host of {credential} has another value in a place where credentials are sent; have the agent \
             use the variable of the credential"
        ),
        EgressReason::CredentialNotLent => format!(
            "the broker did not lend {credential}; `ozctl run policy check` names the reason, such as a Secret that the \
             broker may not read"
        ),
        EgressReason::GrantsStale => {
            "the proxy had no response of the broker for 30s; `ozctl doctor` checks the broker".to_owned()
        }
        EgressReason::TooMany => "the run has too many connections at once".to_owned(),
        EgressReason::ProxyPort => "the agent connected to a port of the proxy itself".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(egress: Value) -> Vec<RunEgress> {
        serde_json::from_value(egress).unwrap()
    }

    #[test]
    fn only_new_and_changed_destinations_are_listed_again() {
        let before = read(json!([
            {"host": "a.example.com", "port": 443, "granted": 1},
            {"host": "b.example.com", "port": 443, "granted": 1},
        ]));
        let now = read(json!([
            {"host": "c.example.com", "port": 443, "refused": 1},
            {"host": "b.example.com", "port": 443, "granted": 2},
            {"host": "a.example.com", "port": 443, "granted": 1},
        ]));
        let listed: Vec<&str> = changed(&before, &now).map(|one| &one.host[..]).collect();
        assert_eq!(listed, ["c.example.com", "b.example.com"]);
        assert_eq!(changed(&now, &now).count(), 0);
    }

    #[test]
    fn refusals_state_count_reason_and_repair() {
        for (one, parts) in [
            (
                json!({"host": "api.example.com", "port": 443, "refused": 3, "reason": "Handshake"}),
                &[
                    "3 attempts to reach api.example.com:443 refused, the last for Handshake: ",
                    "NODE_EXTRA_CA_CERTS",
                    "/etc/ssl/certs/paddock-proxy-ca.crt",
                ][..],
            ),
            (
                json!({"host": "evil.example.com", "port": 0, "refused": 1, "reason": "HostNotGranted"}),
                &[
                    "1 attempt to resolve evil.example.com refused",
                    "spec.grants.egress",
                ],
            ),
            (
                json!({"port": 8443, "refused": 2, "reason": "NoHost"}),
                &["2 attempts without a host, on port 8443 refused", "ECH"],
            ),
            (
                json!({"host": "api.example.com", "port": 443, "refused": 1, "reason": "ForeignCredential", "credential": "KEY"}),
                &["a host of credential KEY has another value"],
            ),
            (
                json!({"host": "api.example.com", "port": 443, "refused": 1, "reason": "FromTheFuture"}),
                &["the last for FromTheFuture: the reason is unknown to this version of ozctl"],
            ),
        ] {
            let one: RunEgress = serde_json::from_value(one).unwrap();
            let text = refusals(&one).unwrap();
            for part in parts {
                assert!(text.contains(part), "{text}");
            }
        }
        let granted = RunEgress {
            granted: 7,
            ..RunEgress::default()
        };
        assert_eq!(refusals(&granted), None);
    }
}
