//! The decisions about credentials and hosts of a run: the policies that count, and the state of the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use oz_api::Requester;
use oz_api::conditions;
use oz_api::harness::{
    BrokerPolicy, DeliveryName, HarnessRunStatus, HarnessTemplate, RunEgress, RunPhase,
};
use oz_api::labels;
use oz_core::access::stamp::Stamp;
use oz_core::controller::{Controller as _, Live, Outcome, Step, Verdict};
use oz_core::lifecycle::seal::{self, Keys, Purpose};
use oz_runs::policy::PodSecurity;
use oz_runs::policy_stamp;
use oz_runs::run::{Decided, Facts, Question, State};
use oz_trail::Action;
use serde_json::{Value, json};

use crate::runs::{Begun, Submitted};
use crate::starting::pod;
use crate::world::live;
use crate::{now, policy, template};

/// A credential that the proxy injects for api.example.com, from key `key` of Secret `keys`.
pub(crate) fn injected(name: &str) -> Value {
    json!({"name": name, "provider": {
        "kind": "UserSuppliedSecret",
        "secretRef": {"name": "keys", "key": "key"},
        "deliveryMode": {"proxyInjected": {
            "hosts": ["api.example.com"], "header": {"name": "Authorization", "valuePrefix": "Bearer "},
        }},
    }})
}

/// A credential that the agent has itself.
fn in_container(name: &str) -> Value {
    let reason = "the client signs its requests itself";
    json!({"name": name, "provider": {
        "kind": "UserSuppliedSecret",
        "secretRef": {"name": "keys", "key": "key"},
        "deliveryMode": {"inContainer": {"accepted": true, "reason": reason}},
    }})
}

fn granting(name: &str, credentials: &[Value]) -> BrokerPolicy {
    let egress = json!([{"host": "api.example.com", "ports": [443]}]);
    policy(
        name,
        json!({"grants": {"credentials": credentials, "egress": egress}}),
    )
}

/// The policy as it is stored, with the stamp of the webhook.
pub(crate) fn stamped(mut policy: BrokerPolicy) -> BrokerPolicy {
    let name = policy.metadata.name.clone().unwrap();
    policy.metadata.namespace = Some("birds".to_owned());
    policy.metadata.uid = Some(name.clone());
    policy.metadata.generation = Some(3);
    policy.metadata.creation_timestamp = Some(now().into());
    let stamp = Stamp {
        requester: Requester {
            user: "eve".to_owned(),
            ..Requester::default()
        },
        kind: policy_stamp::KIND.to_owned(),
        namespace: "birds".to_owned(),
        object_uid: name.clone(),
        name,
        spec_digest: policy_stamp::digest(&policy),
        at: now(),
        nonce: "nonce".to_owned(),
        ..Stamp::default()
    };
    let sealed = stamp.seal(&Keys::with_every_owner([[7; 32]])).unwrap();
    policy.metadata.annotations = Some(BTreeMap::from([(labels::REQUESTER.to_owned(), sealed)]));
    policy
}

/// A run of a template that requires these credentials, and api.example.com:443 if it requires hosts.
fn submitted(credentials: &[&str], hosts: bool, policies: Vec<BrokerPolicy>) -> Submitted {
    let mut submitted = Submitted::new(json!({}));
    let credentials: Vec<Value> = credentials
        .iter()
        .map(|name| json!({"name": name}))
        .collect();
    let mut requires = json!({"credentials": credentials});
    if hosts {
        requires["egress"] = json!([{"host": "api.example.com", "ports": [443]}]);
    }
    let parrot = template(json!({"workspace": {"required": false}, "requires": requires}));
    submitted.facts.template = Some(Arc::new(HarnessTemplate::new("parrot", parrot)));
    submitted.facts.policies = policies.into_iter().map(Arc::new).collect();
    submitted.facts.has_policies = true;
    submitted.facts.pod_security = Some(Ok(PodSecurity::Privileged));
    submitted
}

fn state(submitted: &Submitted) -> State {
    let Submitted {
        controller,
        run,
        facts,
    } = submitted;
    match controller.decide(now(), run, facts, &[]) {
        Verdict::Decided(decision) => decision.state,
        Verdict::Need { question, .. } => panic!("{question:?}"),
    }
}

fn decided(submitted: &Submitted) -> Decided {
    match state(submitted) {
        State::Confinable(decided, _) => *decided,
        other => panic!("{other:?}"),
    }
}

/// Reason and message of a run that waits.
fn waits(submitted: &Submitted) -> (&'static str, String) {
    match state(submitted) {
        State::Waiting(failure) => (failure.reason, failure.message),
        other => panic!("{other:?}"),
    }
}

/// Reason and message of a run that has failed.
fn fails(submitted: &Submitted) -> (String, String) {
    match state(submitted) {
        State::Ended(end, ..) if end.phase == RunPhase::Failed => (end.reason, end.message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn decision_seals_each_credential_with_its_policy_and_delivery() {
    let policies = vec![stamped(granting(
        "b",
        &[injected("API_KEY"), in_container("OTHER")],
    ))];
    let decided = decided(&submitted(&["API_KEY", "OTHER"], true, policies));
    let credentials = decided.credentials.iter();
    let credentials: Vec<_> = credentials
        .map(|it| {
            (
                it.name.as_str(),
                it.policy.as_str(),
                it.delivery,
                it.hosts.clone(),
            )
        })
        .collect();
    let hosts = vec!["api.example.com".to_owned()];
    assert_eq!(
        credentials,
        [
            ("API_KEY", "b", DeliveryName::ProxyInjected, hosts),
            ("OTHER", "b", DeliveryName::InContainer, Vec::new()),
        ]
    );
    assert!(decided.intercepted);
    assert_eq!(decided.template_name(), "parrot");
}

#[test]
fn first_verified_policy_by_name_grants_a_credential() {
    let key = [injected("API_KEY")];
    let policies = vec![
        stamped(granting("c", &key)),
        // Nobody stamped it.
        granting("a", &key),
        stamped(granting("b", &key)),
    ];
    let decided = decided(&submitted(&["API_KEY"], true, policies));
    assert_eq!(decided.credentials[0].policy, "b");
}

#[test]
fn run_waits_for_a_policy_without_valid_stamp() {
    let key = [injected("API_KEY")];
    let mut changed = stamped(granting("grants", &key));
    changed.spec.grants.egress[0].ports = vec![443, 8443];
    for (policy, why) in [
        (granting("grants", &key), "NotStamped"),
        (changed, "StampOfAnotherRequest"),
    ] {
        let (reason, message) = waits(&submitted(&["API_KEY"], true, vec![policy]));
        assert_eq!(reason, "PolicyNotVerified");
        let command =
            "kubectl get brokerpolicy grants -n birds -o yaml | kubectl replace --force -f -";
        for part in ["BrokerPolicy grants is not verified", why, command] {
            assert!(message.contains(part), "{message}");
        }
    }
    // A run that requires nothing waits for none.
    let nothing = submitted(&[], false, vec![granting("grants", &key)]);
    assert!(!decided(&nothing).intercepted);
}

#[test]
fn run_with_a_provider_that_is_not_served_fails_with_the_alternative() {
    for kind in ["GitHubApp", "PATPool"] {
        let mut credential = injected("GH_TOKEN");
        credential["provider"] = json!({
            "kind": kind, "secretRef": {"name": "keys", "key": "key"}, "hosts": ["api.example.com"],
        });
        let policies = vec![stamped(granting("grants", &[credential]))];
        let (reason, message) = fails(&submitted(&["GH_TOKEN"], true, policies));
        assert_eq!(reason, "ProviderNotServed");
        for part in ["GH_TOKEN", "grants", kind, "UserSuppliedSecret"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn anthropic_credential_has_the_host_of_its_api() {
    let credential = json!({"name": "ANTHROPIC_API_KEY", "provider": {
        "kind": "AnthropicAPI", "secretRef": {"name": "keys", "key": "key"},
    }});
    let policies = vec![stamped(granting("grants", &[credential]))];
    let decided = decided(&submitted(&["ANTHROPIC_API_KEY"], false, policies));
    assert_eq!(decided.credentials[0].hosts, ["api.anthropic.com"]);
    assert!(decided.intercepted, "although it requires no host");
}

#[test]
fn run_waits_while_brokers_may_not_read_the_secret_of_an_injected_credential() {
    let of_secret = |generation: i64, status: &str, secrets: &str| {
        let message = format!("oz-broker may not get {secrets} in namespace birds, and so on");
        json!({"observedGeneration": generation, "conditions": [{
            "type": "SecretsReadable", "status": status, "reason": "Forbidden", "message": message,
            "lastTransitionTime": now(), "observedGeneration": generation,
        }]})
    };
    let condition = |generation, status| of_secret(generation, status, "Secrets keys, others");
    let with = |credential: Value, status: Value| {
        let mut policy = stamped(granting("grants", &[credential]));
        policy.status = Some(serde_json::from_value(status).unwrap());
        submitted(&["API_KEY"], true, vec![policy])
    };
    let (reason, message) = waits(&with(injected("API_KEY"), condition(3, "False")));
    assert_eq!(reason, "SecretsNotReadable");
    let command = "ozctl run policy scaffold parrot --role -n birds | kubectl apply -f -";
    assert!(
        message.contains("Secret keys") && message.contains(command),
        "{message}"
    );
    for begins in [
        with(injected("API_KEY"), condition(3, "True")),
        // It is about a spec that was changed since.
        with(injected("API_KEY"), condition(2, "False")),
        // It is about a Secret that other runs need.
        with(injected("API_KEY"), of_secret(3, "False", "Secret others")),
        // The kubelet reads this one.
        with(in_container("API_KEY"), condition(3, "False")),
    ] {
        assert_eq!(decided(&begins).credentials.len(), 1);
    }
}

#[test]
fn namespace_that_forbids_interception_fails_the_run_with_the_label() {
    let cooperative = json!({"cooperativeAccepted": {
        "accepted": true, "reason": "the sandbox of this namespace is restricted",
    }});
    let run = |cooperates: bool, level: PodSecurity| {
        let mut policy = granting("grants", &[injected("API_KEY")]);
        if cooperates {
            policy.spec.interception = Some(serde_json::from_value(cooperative.clone()).unwrap());
        }
        let mut submitted = submitted(&["API_KEY"], true, vec![stamped(policy)]);
        submitted.facts.pod_security = Some(Ok(level));
        submitted
    };
    for level in [PodSecurity::Baseline, PodSecurity::Restricted] {
        let (reason, message) = fails(&run(false, level));
        assert_eq!(reason, "InterceptionUnavailable");
        assert!(
            message.contains("pod-security.kubernetes.io/enforce=privileged"),
            "{message}"
        );
        let (reason, message) = fails(&run(true, level));
        assert_eq!(reason, "CooperativeNotServed");
        assert!(message.contains("not served yet"), "{message}");
    }
    // Where interception is possible nothing weaker replaces it.
    assert!(decided(&run(true, PodSecurity::Privileged)).intercepted);
    let mut unknown = run(false, PodSecurity::Privileged);
    unknown.facts.pod_security = None;
    let verdict = unknown
        .controller
        .decide(now(), &unknown.run, &unknown.facts, &[]);
    assert_eq!(verdict.question(), Some(Question::PodSecurity));
}

#[test]
fn run_that_requires_nothing_asks_for_no_namespace_and_has_no_proxy() {
    let mut nothing = submitted(&[], false, Vec::new());
    nothing.facts.pod_security = None;
    let decided = decided(&nothing);
    assert!(!decided.intercepted && decided.reach.is_none());
}

#[test]
fn label_of_pod_security_is_read_as_the_api_server_reads_it() {
    let level = |labels: Value| {
        PodSecurity::from_namespace(
            &serde_json::from_value(json!({"name": "birds", "labels": labels})).unwrap(),
        )
    };
    assert_eq!(level(json!({})), PodSecurity::Privileged);
    for (label, expected) in [
        ("privileged", PodSecurity::Privileged),
        ("baseline", PodSecurity::Baseline),
        ("restricted", PodSecurity::Restricted),
        ("none", PodSecurity::Restricted),
    ] {
        let labels = json!({"pod-security.kubernetes.io/enforce": label});
        assert_eq!(level(labels), expected, "{label}");
    }
}

#[test]
fn credential_for_the_agent_is_recorded_before_the_job() {
    let policies = vec![stamped(granting("grants", &[in_container("API_KEY")]))];
    let submitted = submitted(&["API_KEY"], false, policies);
    let begun = Begun::after_start_of(submitted);
    let container = &begun.job["spec"]["template"]["spec"]["initContainers"][0];
    assert_eq!(container["name"], "runtime", "no proxy");

    let policies = vec![stamped(granting("grants", &[in_container("API_KEY")]))];
    let Submitted {
        controller,
        run,
        facts,
    } = self::submitted(&["API_KEY"], false, policies);
    let verdict = controller.decide(now(), &run, &facts, std::slice::from_ref(&begun.policy));
    let plan = verdict.decided().unwrap().plan;
    let [records, job] = plan.stages.as_slice() else {
        panic!("{plan:?}");
    };
    assert!(matches!(job.as_slice(), [Step::Apply(job)] if job.resource.kind == "Job"));
    let lent = records.iter().find_map(|step| match step {
        Step::Record(record) if record.action == Action::CredentialLent => Some(record),
        _ => None,
    });
    let lent = lent.unwrap();
    assert_eq!(lent.reason, "InContainer");
    for (name, value) in [
        ("credential", "API_KEY"),
        ("policy", "grants"),
        ("secret", "keys"),
    ] {
        assert_eq!(lent.details[name], value);
    }
}

#[test]
fn network_policy_opens_granted_ports_and_stays_as_decided() {
    let policies = vec![stamped(granting("grants", &[injected("API_KEY")]))];
    let mut submitted = submitted(&["API_KEY"], true, policies);
    submitted.controller.settings.denied = vec!["192.0.2.0/24".parse().unwrap()];
    let mut begun = Begun::after_start_of(submitted);
    let rules = begun.policy.object.data["spec"]["egress"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(rules.len(), 3, "broker, name servers, hosts");
    assert_eq!(rules[2]["ports"], json!([{"protocol": "TCP", "port": 443}]));
    let except = &rules[2]["to"][0]["ipBlock"]["except"];
    assert!(
        except.as_array().unwrap().contains(&json!("192.0.2.0/24")),
        "{except}"
    );

    // Another setting, and other policies, change nothing of a run that has begun.
    begun.controller.settings.denied = Vec::new();
    let known = [begun.policy.clone(), live(begun.job.clone())];
    let facts = Facts {
        has_policies: true,
        ..Facts::default()
    };
    let verdict = begun.controller.decide(now(), &begun.run, &facts, &known);
    let plan = verdict.decided().unwrap().plan;
    assert!(
        !plan.steps().any(|step| matches!(step, Step::Apply(_))),
        "{plan:?}"
    );
}

/// A run with a credential, a host and a running agent, and its status by these policies.
fn reported(begun: &mut Begun, facts: &Facts) -> HarnessRunStatus {
    let running = pod(&json!({"phase": "Running", "startTime": now()}));
    let known: Vec<Live> = vec![begun.policy.clone(), live(begun.job.clone()), live(running)];
    let at = now() + SignedDuration::from_secs(3);
    let Verdict::Decided(decision) = begun.controller.decide(at, &begun.run, facts, &known) else {
        panic!("a question");
    };
    let outcome = Outcome {
        live: known,
        ..Outcome::default()
    };
    let before = begun.run.status.clone();
    let status = begun.controller.status(at, &begun.run, &decision, &outcome);
    let told = begun
        .controller
        .transitions(&begun.run, before.as_ref(), &status);
    let revoked = told
        .iter()
        .filter(|it| it.reason == "PolicyRevoked")
        .count();
    let lost = status
        .conditions
        .iter()
        .filter(|it| it.reason == "PolicyRevoked")
        .count();
    let lost_before = before.iter().flat_map(|status| &status.conditions);
    let lost_before = lost_before
        .filter(|it| it.reason == "PolicyRevoked")
        .count();
    assert_eq!(
        revoked,
        lost.saturating_sub(lost_before),
        "each is an event once"
    );
    begun.run.status = Some(status.clone());
    status
}

fn by(policies: Vec<BrokerPolicy>) -> Facts {
    Facts {
        policies: policies.into_iter().map(Arc::new).collect(),
        has_policies: true,
        ..Facts::default()
    }
}

/// Status, reason and message of a condition.
fn condition<'a>(status: &'a HarnessRunStatus, type_: &str) -> (&'a str, &'a str, &'a str) {
    let found = conditions::find(&status.conditions, type_).unwrap();
    (&found.status, &found.reason, &found.message)
}

#[test]
fn conditions_of_a_run_follow_its_policies() {
    let granted = || stamped(granting("grants", &[injected("API_KEY")]));
    let mut begun = Begun::after_start_of(submitted(&["API_KEY"], true, vec![granted()]));
    let (credentials, egress) = ("BrokerCredentialsReady", "EgressConfigured");
    let status = reported(&mut begun, &by(vec![granted()]));
    assert_eq!(
        condition(&status, credentials),
        ("True", "Granted", "API_KEY")
    );
    assert_eq!(
        condition(&status, egress),
        ("True", "Granted", "api.example.com:443")
    );
    assert_eq!(condition(&status, "BrokerReady").0, "True");
    assert_eq!(status.credentials[0].name, "API_KEY");
    assert_eq!(status.credentials[0].hosts, ["api.example.com"]);
    assert!(status.issued_leases.is_empty());

    // Deleted, and after a restart whose list of policies is not complete.
    let status = reported(&mut begun, &by(Vec::new()));
    let lost = "API_KEY: no verified BrokerPolicy grants it any more";
    assert_eq!(
        condition(&status, credentials),
        ("False", "PolicyRevoked", lost)
    );
    let lost = "no verified BrokerPolicy grants api.example.com:443 any more";
    assert_eq!(condition(&status, egress), ("False", "PolicyRevoked", lost));
    assert!(status.credentials.is_empty());
    assert_eq!(reported(&mut begun, &Facts::default()), status);

    // Granted again.
    let status = reported(&mut begun, &by(vec![granted()]));
    assert_eq!(condition(&status, credentials).0, "True");
    assert_eq!(condition(&status, egress).0, "True");

    // Narrowed.
    let mut narrowed = granting("grants", &[injected("API_KEY")]);
    narrowed.spec.grants.egress[0].ports = vec![8443];
    let injected = narrowed.spec.grants.credentials[0]
        .provider
        .delivery_mode
        .as_mut();
    injected.unwrap().proxy_injected.as_mut().unwrap().hosts = vec!["b.example.com".to_owned()];
    let status = reported(&mut begun, &by(vec![stamped(narrowed)]));
    let (_, reason, message) = condition(&status, credentials);
    assert_eq!(reason, "PolicyRevoked");
    assert!(
        message.contains("does not grant it for api.example.com any more"),
        "{message}"
    );
    assert_eq!(condition(&status, egress).1, "PolicyRevoked");
}

#[test]
fn credential_is_lost_with_the_egress_grant_of_its_host() {
    let granted = stamped(granting("grants", &[injected("API_KEY")]));
    let mut begun = Begun::after_start_of(submitted(&["API_KEY"], false, vec![granted]));
    let mut closed = granting("grants", &[injected("API_KEY")]);
    closed.spec.grants.egress[0].ports = vec![8443];
    let status = reported(&mut begun, &by(vec![stamped(closed)]));
    let lost = "API_KEY: no verified BrokerPolicy grants api.example.com on port 443";
    assert_eq!(
        condition(&status, "BrokerCredentialsReady"),
        ("False", "PolicyRevoked", lost)
    );
    assert_eq!(
        condition(&status, "EgressConfigured").0,
        "True",
        "the run requires no host"
    );
}

#[test]
fn policy_that_is_changed_past_admission_revokes() {
    let granted = || stamped(granting("grants", &[injected("API_KEY")]));
    let mut begun = Begun::after_start_of(submitted(&["API_KEY"], true, vec![granted()]));
    let mut changed = granted();
    changed.spec.grants.egress[0].ports = Vec::new();
    let status = reported(&mut begun, &by(vec![changed]));
    assert_eq!(
        condition(&status, "BrokerCredentialsReady").1,
        "PolicyRevoked"
    );
}

#[test]
fn status_of_the_operator_keeps_what_the_broker_wrote() {
    let granted = || stamped(granting("grants", &[injected("API_KEY")]));
    let mut begun = Begun::after_start_of(submitted(&["API_KEY"], true, vec![granted()]));
    let egress = vec![RunEgress {
        host: "api.example.com".to_owned(),
        port: 443,
        granted: 2,
        ..RunEgress::default()
    }];
    begun.run.status = Some(HarnessRunStatus {
        egress: egress.clone(),
        ..HarnessRunStatus::default()
    });
    assert_eq!(reported(&mut begun, &by(vec![granted()])).egress, egress);
}

#[test]
fn failed_netinit_is_the_reason_of_the_run() {
    let granted = stamped(granting("grants", &[injected("API_KEY")]));
    let begun = Begun::after_start_of(submitted(&["API_KEY"], true, vec![granted]));
    let failed = |message: &str| {
        let ended = json!({"exitCode": 1, "reason": "Error", "message": message});
        pod(&json!({"phase": "Failed", "initContainerStatuses": [{
            "name": "netinit", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": ended},
        }]}))
    };
    let mut job = begun.job.clone();
    job["status"] = json!({"startTime": now(), "failed": 1, "conditions": [{
        "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": now(),
    }]});
    for (message, expected) in [
        (
            "the kernel has no nf_tables\n",
            "the kernel has no nf_tables",
        ),
        ("", "container netinit ended with exit code 1"),
    ] {
        let known = [
            begun.policy.clone(),
            live(job.clone()),
            live(failed(message)),
        ];
        let verdict = begun
            .controller
            .decide(now(), &begun.run, &Facts::default(), &known);
        match verdict.decided().map(|decision| decision.state) {
            Some(State::Ended(end, ..)) => {
                assert_eq!(
                    (end.phase, end.reason.as_str()),
                    (RunPhase::Failed, "InterceptionFailed")
                );
                assert!(end.message.ends_with(expected), "{}", end.message);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// It names credentials and hosts alone, which were not served: its run continues as it began.
#[test]
fn decision_of_an_earlier_release_opens_and_grants_nothing() {
    let keys = Keys::with_every_owner([[7; 32]]);
    let begun = Begun::new();
    let mut old =
        serde_json::to_value(Decided::open_on(&keys, &begun.policy.object.metadata).unwrap())
            .unwrap();
    old["credentials"] = json!(["API_KEY"]);
    old["hosts"] = json!(["api.example.com"]);
    let sealed = seal::seal(&keys, Purpose::HarnessRun, &old).unwrap();
    let mut metadata = begun.policy.object.metadata.clone();
    metadata.annotations = Some(BTreeMap::from([(labels::GRANT.to_owned(), sealed)]));
    let decided = Decided::open_on(&keys, &metadata).unwrap();
    assert!(decided.credentials.is_empty() && !decided.intercepted);
    // It is good for the namespace of its run alone.
    metadata.namespace = Some("fish".to_owned());
    assert_eq!(Decided::open_on(&keys, &metadata), None);
}
