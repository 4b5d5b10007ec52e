use k8s_openapi::ByteString;
use oz_api::harness::wire::MAX_VALUE;
use oz_core::lifecycle::seal::Owner;
use oz_trail::RequestRef;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use oz_core::lifecycle::seal::Keys;

fn policy(name: &str, templates: &str, grants: Value) -> BrokerPolicy {
    serde_json::from_value(json!({
        "apiVersion": "paddock.dev/v1alpha1", "kind": "BrokerPolicy",
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {"appliesToTemplates": [templates], "grants": grants},
    }))
    .unwrap()
}

/// A policy with a credential KEY that is sent as a header to `host`, which it grants on port 443.
fn keyed(name: &str, host: &str) -> BrokerPolicy {
    policy(
        name,
        "echo",
        json!({"credentials": [secret("KEY", host)], "egress": [{"host": host, "ports": [443]}]}),
    )
}

fn secret(name: &str, host: &str) -> Value {
    json!({"name": name, "provider": {
        "kind": "UserSuppliedSecret", "secretRef": {"name": "keys", "key": "one"},
        "deliveryMode": {"proxyInjected": {
            "hosts": [host], "header": {"name": "Authorization", "valuePrefix": "Bearer "},
        }},
    }})
}

fn terms(credentials: &[&str]) -> Terms {
    Terms {
        run: RequestRef {
            kind: KIND.to_owned(),
            namespace: "team".to_owned(),
            name: "hello".to_owned(),
            uid: "run-1".to_owned(),
        },
        submitter: Requester::default(),
        template: "echo".to_owned(),
        template_ref: "HarnessTemplate/echo".to_owned(),
        template_digest: "sha256:1".to_owned(),
        credentials: credentials.iter().map(ToString::to_string).collect(),
    }
}

const KIND: &str = "HarnessRun";

fn lenders<'a>(policies: &'a [BrokerPolicy], authors: &'a [Requester]) -> Lenders<'a> {
    let all = policies.iter().map(|policy| Stamped {
        policy,
        authors: Ok(authors),
    });
    Lenders::from_policies(all, "echo")
}

fn unverified(policies: &[BrokerPolicy]) -> Lenders<'_> {
    let all = policies.iter().map(|policy| Stamped {
        policy,
        authors: Err("the spec has another digest"),
    });
    Lenders::from_policies(all, "echo")
}

fn granted(lenders: &Lenders<'_>, terms: &Terms) -> RunGrants {
    lenders.grants(terms, |secret| format!("v-{secret}"), "")
}

#[test]
fn credential_of_the_first_policy_by_name_is_lent() {
    let policies = [keyed("b", "b.example.com"), keyed("a", "a.example.com")];
    let authors = [Requester::default()];
    let lenders = lenders(&policies, &authors);
    let lending = lenders
        .lend(&terms(&["KEY"]), "KEY", "A.example.com.")
        .unwrap();
    assert_eq!(policy_name(lending.policy), "a");
    assert_eq!(lending.secret.name, "keys");
    assert_eq!(lending.authors, authors);
    assert_eq!(
        lending.place,
        CredentialPlace::Header {
            name: "Authorization".to_owned(),
            prefix: "Bearer ".to_owned()
        }
    );
    let refused = lenders.lend(&terms(&["KEY"]), "KEY", "b.example.com");
    assert_eq!(refused.unwrap_err().reason, RefusalReason::HostNotGranted);
}

#[test]
fn grants_name_placeholder_hosts_place_and_version() {
    let policies = [keyed("a", "a.example.com")];
    let grants = granted(&lenders(&policies, &[]), &terms(&["KEY"]));
    let [one] = grants.credentials.as_slice() else {
        panic!("{grants:?}");
    };
    assert_eq!(one.placeholder, placeholder("run-1", "KEY"));
    assert_eq!(one.placeholder.len(), 52);
    assert_eq!(one.hosts, ["a.example.com"]);
    assert_eq!(one.version, "v-keys");
    assert_eq!(grants.hosts[0].ports, [443]);
    assert_eq!(grants.digest.len(), 64);
}

#[test]
fn unverified_policy_grants_nothing_and_is_named() {
    let policies = [keyed("a", "a.example.com")];
    let lenders = unverified(&policies);
    let grants = granted(&lenders, &terms(&["KEY"]));
    assert!(grants.hosts.is_empty() && grants.credentials.is_empty());
    let refused = lenders
        .lend(&terms(&["KEY"]), "KEY", "a.example.com")
        .unwrap_err();
    assert_eq!(refused.reason, RefusalReason::PolicyNotVerified);
    assert!(refused.message.contains("team/a"), "{refused}");
    assert!(refused.message.contains("another digest"), "{refused}");
}

#[test]
fn verified_policy_lends_although_an_unverified_one_comes_first_by_name() {
    let policies = [keyed("a", "a.example.com"), keyed("b", "b.example.com")];
    let all = policies.iter().map(|policy| Stamped {
        policy,
        authors: if policy_name(policy) == "a" {
            Err("forged")
        } else {
            Ok(&[])
        },
    });
    let lenders = Lenders::from_policies(all, "echo");
    let lending = lenders
        .lend(&terms(&["KEY"]), "KEY", "b.example.com")
        .unwrap();
    assert_eq!(policy_name(lending.policy), "b");
    let hosts = granted(&lenders, &terms(&["KEY"])).hosts;
    assert_eq!(hosts.len(), 1, "{hosts:?}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn refusals_have_the_reason_that_applies() {
    let egress = json!([{"host": "*.example.com"}]);
    let with = |credential: Value, egress: &Value| {
        [policy(
            "a",
            "echo",
            json!({"credentials": [credential], "egress": egress}),
        )]
    };
    let pool = json!({"name": "KEY", "provider": {"kind": "PATPool", "secretRef": {"name": "a", "key": "b"}}});
    let app = json!({"name": "KEY", "provider": {"kind": "GitHubApp", "appId": "1", "installationId": "2"}});
    let inside = json!({"name": "KEY", "provider": {
        "kind": "UserSuppliedSecret", "secretRef": {"name": "keys", "key": "one"},
        "deliveryMode": {"inContainer": {"accepted": true, "reason": "the client cannot use a proxy"}},
    }});
    let bare =
        json!({"name": "KEY", "provider": {"kind": "AnthropicAPI", "hosts": ["a.example.com"]}});
    let shapeless = json!({"name": "KEY", "provider": {
        "kind": "UserSuppliedSecret", "secretRef": {"name": "keys", "key": "one"},
        "deliveryMode": {"proxyInjected": {"hosts": ["a.example.com"]}},
    }});
    let good = secret("KEY", "a.example.com");
    let port_80 = json!([{"host": "a.example.com", "ports": [80]}]);
    use RefusalReason as R;
    for (what, policies, required, expected) in [
        ("good", with(good.clone(), &egress), "KEY", None),
        (
            "other name",
            with(good.clone(), &egress),
            "OTHER",
            Some(R::CredentialNotRequired),
        ),
        (
            "none",
            with(secret("OTHER", "a.example.com"), &egress),
            "KEY",
            Some(R::CredentialNotGranted),
        ),
        (
            "pool",
            with(pool, &egress),
            "KEY",
            Some(R::ProviderNotServed),
        ),
        ("app", with(app, &egress), "KEY", Some(R::ProviderNotServed)),
        (
            "inside",
            with(inside, &egress),
            "KEY",
            Some(R::DeliveredInContainer),
        ),
        (
            "no Secret",
            with(bare, &egress),
            "KEY",
            Some(R::PolicyInvalid),
        ),
        (
            "no place",
            with(shapeless, &egress),
            "KEY",
            Some(R::PolicyInvalid),
        ),
        (
            "no egress",
            with(good.clone(), &json!([])),
            "KEY",
            Some(R::HostNotGranted),
        ),
        (
            "port 80",
            with(good, &port_80),
            "KEY",
            Some(R::HostNotGranted),
        ),
    ] {
        let lenders = lenders(&policies, &[]);
        let terms = terms(&[required]);
        let lent = lenders.lend(&terms, "KEY", "a.example.com");
        assert_eq!(lent.as_ref().err().map(|it| it.reason), expected, "{what}");
        let listed = !granted(&lenders, &terms).credentials.is_empty();
        assert_eq!(listed, expected.is_none(), "{what}");
        if let Err(refusal) = lent {
            assert!(refusal.message.contains("KEY"), "{what}: {refusal}");
        }
    }
}

#[test]
fn anthropic_key_is_for_its_host_unless_the_policy_names_others() {
    let grants = |hosts: Value| {
        json!({
            "credentials": [{"name": "KEY", "provider": {
                "kind": "AnthropicAPI", "secretRef": {"name": "keys", "key": "one"}, "hosts": hosts,
            }}],
            "egress": [{"host": "api.anthropic.com"}, {"host": "llm.example.com", "ports": [443]}],
        })
    };
    for (hosts, host) in [
        (json!([]), "api.anthropic.com"),
        (json!(["llm.example.com"]), "llm.example.com"),
    ] {
        let policies = [policy("a", "echo", grants(hosts))];
        let lenders = lenders(&policies, &[]);
        let lending = lenders.lend(&terms(&["KEY"]), "KEY", host).unwrap();
        assert_eq!(lending.place, CredentialPlace::Anthropic);
        assert_eq!(lending.hosts, [host]);
    }
}

#[test]
fn policy_of_another_template_or_being_deleted_grants_nothing() {
    let mut deleted = keyed("a", "a.example.com");
    deleted.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            "2026-01-01T00:00:00Z".parse().unwrap(),
        ));
    let mut other = keyed("b", "a.example.com");
    other.spec.applies_to_templates = vec!["claude".to_owned()];
    let policies = [deleted, other];
    let grants = granted(&lenders(&policies, &[]), &terms(&["KEY"]));
    assert!(grants.hosts.is_empty() && grants.credentials.is_empty());
}

#[test]
fn ports_of_a_host_are_united_and_invalid_ports_do_not_become_any_port() {
    let egress = |all: Value| policy("a", "echo", json!({"egress": all}));
    for (all, expected) in [
        (
            json!([{"host": "a.example.com", "ports": [443, 80]}, {"host": "a.example.com", "ports": [22]}]),
            Some(vec![22, 80, 443]),
        ),
        (
            json!([{"host": "a.example.com", "ports": [443]}, {"host": "a.example.com"}]),
            Some(vec![]),
        ),
        (
            json!([{"host": "a.example.com", "ports": [0, 443]}]),
            Some(vec![]),
        ),
        (
            json!([{"host": "a.example.com", "ports": [-1, 70000]}]),
            None,
        ),
        (json!([{"host": "A.example.com"}]), None),
        (json!([{"host": "10.0.0.1"}]), None),
    ] {
        let policies = [egress(all)];
        let hosts = granted(&lenders(&policies, &[]), &terms(&[])).hosts;
        assert_eq!(hosts.first().map(|it| it.ports.clone()), expected);
    }
}

#[test]
fn value_of_secret_is_one_line_of_text_without_its_line_break() {
    let long = "x".repeat(MAX_VALUE + 1);
    for (bytes, expected) in [
        (b"key".as_slice(), Ok("key")),
        (b"key\n", Ok("key")),
        (b"key\r\n", Ok("key")),
        (b" k y ", Ok(" k y ")),
        (b"", Err(SecretRefusal::SecretEmpty)),
        (b"\n", Err(SecretRefusal::SecretEmpty)),
        (b"key\n\n", Err(SecretRefusal::SecretInvalid)),
        (b"a\nb", Err(SecretRefusal::SecretInvalid)),
        (b"a\0b", Err(SecretRefusal::SecretInvalid)),
        (b"\xff", Err(SecretRefusal::SecretInvalid)),
        (long.as_bytes(), Err(SecretRefusal::SecretTooLarge)),
    ] {
        let data = BTreeMap::from([("one".to_owned(), ByteString(bytes.to_vec()))]);
        let found = value(Some(&data), "one");
        assert_eq!(found.as_deref().map_err(|it| *it), expected);
    }
    assert_eq!(value(None, "one"), Err(SecretRefusal::SecretKeyMissing));
}

#[test]
fn terms_are_those_that_the_operator_sealed_for_the_run() {
    use oz_api::labels;
    let keys = Keys::with_every_owner([[7; Keys::BYTES]]);
    let public = Keys::default();
    let secrets = [Keys::of_owner(Owner::Operator, [7; Keys::BYTES])];
    public
        .trust(Owner::Operator, &Keys::published(&secrets))
        .unwrap();
    let decided: crate::run::Decided = serde_json::from_value(json!({
        "run": {"kind": "HarnessRun", "namespace": "team", "name": "hello", "uid": "run-1"},
        "submitter": {"user": "alice"}, "specDigest": "", "template": "ClusterHarnessTemplate/echo",
        "templateDigest": "sha256:1", "policiesDigest": "", "image": "a",
        "credentialsGranted": [{
            "name": "KEY", "policy": "a", "provider": "UserSuppliedSecret", "delivery": "ProxyInjected",
            "secret": {"name": "keys", "key": "one"},
        }],
        "broker": {"namespace": "oz-system", "labels": {}, "port": 8443}, "decidedAt": "2026-01-01T00:00:00Z",
    }))
    .unwrap();
    let sealed = decided.seal(&keys).unwrap();
    let job = |text: Option<&str>| k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        annotations: text.map(|text| BTreeMap::from([(labels::GRANT.to_owned(), text.to_owned())])),
        ..Default::default()
    };
    let good = Terms::open(&public, &job(Some(&sealed)), "team", "hello", "run-1").unwrap();
    assert_eq!(
        (good.template.as_str(), good.credentials.as_slice()),
        ("echo", &["KEY".to_owned()][..])
    );
    assert_eq!(good.submitter.user, "alice");
    for (namespace, name, uid) in [
        ("other", "hello", "run-1"),
        ("team", "other", "run-1"),
        ("team", "hello", "run-2"),
    ] {
        let opened = Terms::open(&public, &job(Some(&sealed)), namespace, name, uid);
        assert_eq!(opened.unwrap_err(), TermsError::OtherRun);
    }
    let missing = Terms::open(&public, &job(None), "team", "hello", "run-1");
    assert_eq!(missing.unwrap_err(), TermsError::Missing);
    let forged = sealed.replace("KEY", "YEK");
    let forged = Terms::open(&public, &job(Some(&forged)), "team", "hello", "run-1");
    assert!(matches!(forged, Err(TermsError::Seal(_))));
}

fn any_policy(number: usize) -> impl Strategy<Value = (BrokerPolicy, bool)> {
    let host = prop::sample::select(vec![
        "a.example.com",
        "b.example.com",
        "*.example.com",
        "10.0.0.1",
        "x",
    ]);
    let port = prop::sample::select(vec![-1, 0, 80, 443, 70_000]);
    let egress = prop::collection::vec((host.clone(), prop::collection::vec(port, 0..3)), 0..4);
    let credentials =
        prop::collection::vec((prop::sample::select(vec!["KEY", "OTHER"]), host), 0..3);
    (
        egress,
        credentials,
        any::<bool>(),
        prop::sample::select(vec!["echo", "*", "claude"]),
    )
        .prop_map(move |(egress, credentials, verified, templates)| {
            let egress: Vec<Value> = egress
                .into_iter()
                .map(|(host, ports)| json!({"host": host, "ports": ports}))
                .collect();
            let credentials: Vec<Value> = credentials
                .into_iter()
                .map(|(name, host)| secret(name, host))
                .collect();
            let grants = json!({"egress": egress, "credentials": credentials});
            (policy(&format!("p{number}"), templates, grants), verified)
        })
}

proptest! {
    /// Neither the order of policies nor unverified policies change the grants, and no host or credential is granted
    /// that no verified policy for the template grants.
    #[test]
    fn grants_are_deterministic_and_never_exceed_verified_policies(
        policies in (any_policy(0), any_policy(1), any_policy(2)).prop_map(|(a, b, c)| vec![a, b, c]),
    ) {
        let stamped = |(policy, verified): &'static (BrokerPolicy, bool)| Stamped {
            policy,
            authors: if *verified { Ok(&[]) } else { Err("forged") },
        };
        let policies: &'static [(BrokerPolicy, bool)] = Vec::leak(policies);
        let terms = terms(&["OTHER", "KEY"]);
        let all = Lenders::from_policies(policies.iter().map(stamped), "echo");
        let grants = granted(&all, &terms);
        let reversed = Lenders::from_policies(policies.iter().rev().map(stamped), "echo");
        prop_assert_eq!(&grants, &granted(&reversed, &terms));
        let verified = Lenders::from_policies(policies.iter().filter(|it| it.1).map(stamped), "echo");
        prop_assert_eq!(&grants, &granted(&verified, &terms));

        let verified: Vec<_> = policies.iter().filter(|it| it.1).collect();
        for host in &grants.hosts {
            let sources: Vec<_> = verified
                .iter()
                .filter(|it| it.0.spec.applies_to_templates[0] != "claude")
                .flat_map(|it| &it.0.spec.grants.egress)
                .filter(|grant| grant.host == host.host)
                .collect();
            prop_assert!(!sources.is_empty());
            if host.ports.is_empty() {
                prop_assert!(sources.iter().any(|grant| is_any_port(&grant.ports)));
            }
            for port in &host.ports {
                prop_assert!(sources.iter().any(|grant| grant.ports.contains(&i32::from(*port))));
            }
        }
        for credential in &grants.credentials {
            for host in &credential.hosts {
                let hosts: Hosts = host.parse().unwrap();
                let covered = grants.hosts.iter().any(|grant| {
                    let ports = grant.ports.is_empty() || grant.ports.contains(&443);
                    ports && grant.host.parse::<Hosts>().unwrap().cover(&hosts)
                });
                prop_assert!(covered, "{}", host);
            }
        }
        for name in ["KEY", "OTHER", "THIRD"] {
            for host in ["a.example.com", "b.example.com", "c.example.com", "example.org"] {
                let listed = grants.credentials.iter().any(|it| {
                    it.name == name && it.hosts.iter().any(|it| it.parse::<Hosts>().unwrap().matches(host))
                });
                prop_assert_eq!(all.lend(&terms, name, host).is_ok(), listed, "{} {}", name, host);
            }
        }
    }
}
