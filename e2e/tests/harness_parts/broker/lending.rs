//! Credentials that the broker lends, and their audit records.

use anyhow::{Context as _, Result};
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use oz_api::harness::BrokerPolicy;
use oz_api::names;
use oz_e2e::{Auditor, Scene};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::{
    AUDIENCE, HOST, PROXY, as_operator, credential, lending_stage, lent, permit_reads, proxied,
    refused_with, set_secret,
};

/// The records of an action in the namespace of the scene.
async fn records(scene: &Scene, action: &str) -> Result<Vec<Value>> {
    let auditor = Auditor::pinning(&scene.admin).await?;
    let all = auditor.in_namespace(scene.name()).await?;
    Ok(all
        .into_iter()
        .filter(|one| one["action"] == action)
        .collect())
}

/// A service of the original may name any run of its namespace.
#[tokio::test]
async fn r11_two_runs_at_once_each_get_their_own_credential() -> Result<()> {
    let (scene, broker) = lending_stage("two").await?;
    let (one, _, one_token) = proxied(&scene, "one").await?;
    let (two, _, two_token) = proxied(&scene, "two").await?;
    lent(&broker, &one_token).await?;
    let (first, second) = tokio::try_join!(
        broker.credential(&one_token, "KEY", HOST),
        broker.credential(&two_token, "KEY", HOST)
    )?;
    for answer in [&first, &second] {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.body["value"], "the-real-key");
        assert!(answer.body["seconds"].as_u64().unwrap_or_default() <= 300);
    }
    let placeholder = async |token: &str| {
        let grants = broker.grants(token, "").await?.body;
        anyhow::Ok(grants["credentials"][0]["placeholder"].clone())
    };
    assert_ne!(
        placeholder(&one_token).await?,
        placeholder(&two_token).await?
    );
    // Each lend is recorded before the response.
    let records = records(&scene, "CredentialLent").await?;
    for run in [one, two] {
        let of_run = |one: &&Value| one["request"]["uid"] == run.uid().unwrap_or_default().as_str();
        let record = records.iter().find(of_run).context("no record")?;
        assert_eq!(record["details"]["credential"], "KEY", "{record}");
        assert_eq!(record["details"]["policy"], "a");
        assert_eq!(record["details"]["policyAuthors"], "admin");
        assert_eq!(record["details"]["destination"], HOST);
        assert_eq!(record["user"]["user"], "alice");
        assert!(!record.to_string().contains("the-real-key"), "{record}");
    }
    Ok(())
}

/// The original issues without a check of the phase.
#[tokio::test]
async fn r5_run_that_is_over_gets_no_credential_and_no_grants() -> Result<()> {
    let (scene, broker) = lending_stage("over-lends").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    lent(&broker, &token).await?;
    let over = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let runs = as_operator(&scene).await?;
    runs.patch_status("hello", &PatchParams::default(), &over)
        .await?;
    refused_with(&broker, &token, "RunEnded").await?;
    let grants = broker.grants(&token, "").await?;
    assert_eq!((grants.status, grants.code()), (403, "RunEnded"));
    eventually("the refusal on record", CONDITION_TIMEOUT, async || {
        let all = records(&scene, "CredentialRefused").await?;
        Ok(all
            .iter()
            .any(|one| one["reason"] == "RunEnded")
            .then_some(()))
    })
    .await
}

/// The original loses the leases before the credential that fails, without a record.
#[tokio::test]
async fn r6_credential_that_fails_takes_nothing_from_those_before() -> Result<()> {
    let (scene, broker) = lending_stage("second").await?;
    let both = json!({
        "credentials": [credential("KEY", "keys", HOST), credential("OTHER", "missing", HOST)],
        "egress": [{"host": HOST}],
    });
    scene.lending_policy("a", both, true).await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    lent(&broker, &token).await?;
    let code = eventually("a refusal of OTHER", CONDITION_TIMEOUT, async || {
        let answer = broker.credential(&token, "OTHER", HOST).await?;
        let code = answer.code().to_owned();
        Ok((answer.status == 409).then_some(code))
    })
    .await?;
    // The broker may not read it, and so does not learn whether it exists.
    assert_eq!(code, "SecretUnreadable");
    assert_eq!(lent(&broker, &token).await?, "the-real-key");
    assert!(!records(&scene, "CredentialLent").await?.is_empty());
    eventually("the refusal on record", CONDITION_TIMEOUT, async || {
        let all = records(&scene, "CredentialRefused").await?;
        let is_other = |one: &Value| one["details"]["credential"] == "OTHER";
        Ok(all.iter().any(is_other).then_some(()))
    })
    .await
}

/// The bearer of the original is valid until it expires.
#[tokio::test]
async fn f10_credential_of_a_deleted_policy_is_refused() -> Result<()> {
    let (scene, broker) = lending_stage("revoked").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    lent(&broker, &token).await?;
    scene
        .api::<BrokerPolicy>()
        .delete("a", &Default::default())
        .await?;
    refused_with(&broker, &token, "CredentialNotGranted").await
}

/// The bearer of the original is valid for any host.
#[tokio::test]
async fn f09_credential_is_lent_for_its_hosts_only() -> Result<()> {
    let (scene, broker) = lending_stage("hosts").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    lent(&broker, &token).await?;
    for host in [
        "evil.example.com",
        "api.example.com.evil.example",
        "example.com",
        "1.1.1.1",
    ] {
        let answer = broker.credential(&token, "KEY", host).await?;
        assert_eq!(
            (answer.status, answer.code()),
            (403, "HostNotGranted"),
            "{host}"
        );
        assert!(!answer.body.to_string().contains("the-real-key"));
    }
    let answer = broker.credential(&token, "THIRD", HOST).await?;
    assert_eq!(
        (answer.status, answer.code()),
        (403, "CredentialNotRequired")
    );
    let answer = broker.credential(&token, "OTHER", HOST).await?;
    assert_eq!(
        (answer.status, answer.code()),
        (403, "CredentialNotGranted")
    );
    Ok(())
}

#[tokio::test]
async fn first_policy_by_name_lends_if_two_grant_a_credential() -> Result<()> {
    let (scene, broker) = lending_stage("first").await?;
    set_secret(&scene, "others", "another-key").await?;
    let of_others =
        json!({"credentials": [credential("KEY", "others", HOST)], "egress": [{"host": HOST}]});
    scene.lending_policy("b", of_others, true).await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    assert_eq!(lent(&broker, &token).await?, "the-real-key");
    Ok(())
}

/// A user who may write broker policies, and a change that the webhook did not stamp.
#[tokio::test]
async fn policy_without_stamp_of_its_spec_lends_nothing() -> Result<()> {
    let (scene, broker) = lending_stage("stamps").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    lent(&broker, &token).await?;
    // Another host, under the old stamp.
    let policies = scene.api::<BrokerPolicy>();
    let hosts = json!([{"host": HOST}, {"host": "evil.example.com"}]);
    let change = Patch::Merge(json!({"spec": {"grants": {"egress": hosts}}}));
    policies
        .patch("a", &PatchParams::default(), &change)
        .await?;
    refused_with(&broker, &token, "PolicyNotVerified").await?;
    let grants = broker.grants(&token, "").await?.body;
    assert_eq!(
        (&grants["hosts"], &grants["credentials"]),
        (&json!([]), &json!([]))
    );
    // A status proves nothing.
    let verified =
        Patch::Merge(json!({"status": {"verified": {"digest": "sha256:1", "author": "admin"}}}));
    policies
        .patch_status("a", &PatchParams::default(), &verified)
        .await?;
    refused_with(&broker, &token, "PolicyNotVerified").await
}

#[tokio::test]
async fn value_of_a_replaced_secret_is_lent_and_an_unusable_one_is_refused() -> Result<()> {
    let (scene, broker) = lending_stage("secrets").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    lent(&broker, &token).await?;
    let first = broker.grants(&token, "").await?.body;
    set_secret(&scene, "keys", "the-next-key\n").await?;
    eventually("the next value", CONDITION_TIMEOUT, async || {
        Ok((lent(&broker, &token).await? == "the-next-key").then_some(()))
    })
    .await?;
    let next = broker.grants(&token, "").await?.body;
    let version = |grants: &Value| grants["credentials"][0]["version"].clone();
    assert_ne!(version(&first), version(&next));
    set_secret(&scene, "keys", "").await?;
    refused_with(&broker, &token, "SecretEmpty").await?;
    set_secret(&scene, "keys", "two\nlines").await?;
    refused_with(&broker, &token, "SecretInvalid").await?;
    let key = Patch::Merge(json!({"data": {"one": null}, "stringData": {"two": "x"}}));
    let secrets = scene.api::<k8s_openapi::api::core::v1::Secret>();
    secrets.patch("keys", &PatchParams::default(), &key).await?;
    refused_with(&broker, &token, "SecretKeyMissing").await?;
    secrets.delete("keys", &Default::default()).await?;
    refused_with(&broker, &token, "SecretNotFound").await
}

/// The broker of the original may read every Secret and enter every pod.
#[tokio::test]
async fn r33_broker_reads_named_secrets_only_and_lists_none() -> Result<()> {
    let (scene, broker) = lending_stage("rights").await?;
    let (_, _, token) = proxied(&scene, "hello").await?;
    lent(&broker, &token).await?;
    let (user, _) = oz_e2e::identity(scene.cluster, names::BROKER)?;
    let client = scene.cluster.client(&user).await?;
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client);
    for namespace in [scene.name(), "kube-system", "default"] {
        let review = serde_json::from_value(json!({"spec": {"namespace": namespace}}))?;
        let review = reviews.create(&PostParams::default(), &review).await?;
        let rules = review.status.map(|status| status.resource_rules);
        for rule in rules.unwrap_or_default() {
            let resources = rule.resources.unwrap_or_default();
            assert!(
                !resources
                    .iter()
                    .any(|it| it == "*" || it.starts_with("pods/")),
                "{resources:?}"
            );
            if resources.iter().any(|it| it == "secrets") {
                assert_eq!(rule.verbs, ["get"]);
                assert_eq!(rule.resource_names.unwrap_or_default(), ["keys"]);
                assert_eq!(namespace, scene.name());
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn token_of_one_container_opens_no_route_of_another() -> Result<()> {
    let (scene, broker) = lending_stage("audiences").await?;
    let (run, pod, proxy) = proxied(&scene, "hello").await?;
    lent(&broker, &proxy).await?;
    let reporter = scene.token(AUDIENCE, Some(&pod)).await?;
    let unbound = scene.token(PROXY, None).await?;
    let event = json!([super::event("Error", "x")]);
    let count = json!([{"host": HOST, "port": 443, "granted": 1}]);
    for (what, answer) in [
        ("grants", broker.grants(&reporter, "").await?),
        (
            "credential",
            broker.credential(&reporter, "KEY", HOST).await?,
        ),
        ("prompt", broker.prompt(&proxy).await?),
        ("events", broker.report(&proxy, &event).await?),
        ("egress", broker.report_egress(&reporter, &count).await?),
    ] {
        assert_eq!(
            (answer.status, answer.code()),
            (403, "AudienceMismatch"),
            "{what}"
        );
    }
    let answer = broker.credential(&unbound, "KEY", HOST).await?;
    assert_eq!((answer.status, answer.code()), (403, "NoPod"));
    assert!(super::summaries(&scene, &run).await?.is_empty());
    // The pod of another namespace, where another policy grants the same name.
    let (other, _) = super::stage("audiences").await?;
    permit_reads(&other, &["keys"]).await?;
    let (_, _, theirs) = proxied(&other, "hello").await?;
    let answer = broker.credential(&theirs, "KEY", HOST).await?;
    assert_eq!(
        (answer.status, answer.code()),
        (403, "CredentialNotGranted")
    );
    Ok(())
}

#[tokio::test]
async fn f17_excessive_lends_of_a_proxy_get_429_and_others_are_answered() -> Result<()> {
    let (scene, broker) = lending_stage("lend-rates").await?;
    let (_, pod, busy) = proxied(&scene, "busy").await?;
    let (_, _, quiet) = proxied(&scene, "quiet").await?;
    lent(&broker, &quiet).await?;
    let refused = eventually("one to be refused", CONDITION_TIMEOUT, async || {
        let asked = (0..200).map(|_| broker.credential(&busy, "KEY", HOST));
        // On a busy machine, some of so many connections are closed before the TLS handshake.
        let answers = futures::future::join_all(asked).await;
        let mut answered = answers.into_iter().flatten();
        Ok(answered.find(|answer| answer.status == 429))
    })
    .await?;
    assert_eq!(refused.code(), "TooManyRequests");
    assert!(refused.retry_after.is_some());
    // The API server of a busy machine may not answer the broker in time: 503, which is no limit of the proxy.
    let status = eventually(
        "the quiet proxy to be answered",
        CONDITION_TIMEOUT,
        async || {
            let status = broker.credential(&quiet, "KEY", HOST).await?.status;
            Ok((status != 503).then_some(status))
        },
    );
    assert_eq!(status.await?, 200);
    // The limit of the proxy is not that of the other container of its pod.
    let reporter = scene.token(AUDIENCE, Some(&pod)).await?;
    assert_eq!(broker.prompt(&reporter).await?.status, 200);
    let large = format!(r#"{{"name": "{}", "host": "a"}}"#, "a".repeat(70_000));
    let answer = broker
        .send("POST", "/v1/credential", &quiet, &[], large.into_bytes())
        .await?;
    assert_eq!((answer.status, answer.code()), (413, "TooLarge"));
    Ok(())
}
