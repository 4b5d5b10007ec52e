//! Replacement of the signing key while users request access.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_api::{Phase, RequestStatus};
use oz_core::access::seal::Owner;
use oz_e2e::{
    ExecRequests, NAMESPACE, Operator, Options, Scene, System, TEMPLATE, conditions_line,
    exec_request, records_in, refusal, unregister,
};
use oz_testkit::{CONDITION_TIMEOUT, Process, eventually};
use oz_trail::{Action, Published, Trust};
use serde_json::json;

use crate::alone;

/// Checks whether a process has recorded that another key seals.
fn went_over(process: &Process) -> Result<bool> {
    Ok(records_in(process)?.iter().any(|record| {
        record.action == Action::KeyRotated && record.details.contains_key("signingKey")
    }))
}

/// Creates requests until one is granted: the operator denies requests with a stamp of the new key before it knows that
/// key.
async fn granted_again(alice: &ExecRequests) -> Result<()> {
    let what = "a request to be granted by the new key";
    eventually(what, CONDITION_TIMEOUT, async || {
        let name = format!("try-{}", jiff::Timestamp::now().as_millisecond());
        alice.create(&exec_request(&name, TEMPLATE, "5m")).await?;
        let is_decided = |status: &RequestStatus| status.ready || status.phase.is_terminal();
        let request = alice.until(&name, "to be decided", is_decided).await?;
        let is_granted = request.status.is_some_and(|status| status.ready);
        Ok(is_granted.then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_key_is_replaced_under_requests_and_none_is_denied_for_it() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let elected = |name| Options::replica(name).flag("--leader-elect");
    let mut system = System::start_with(cluster, &elected("oz-a")).await?;
    let second = Operator::spawn(cluster, &elected("oz-b"))?;
    let scene = Scene::set(cluster, "keys").await?;
    let alice = scene.requests("alice").await?;
    let before = alice
        .granted(&exec_request("before", TEMPLATE, "30m"))
        .await?;
    scene.enforce().await?;

    let secrets: Api<Secret> = Api::namespaced(scene.admin.clone(), NAMESPACE);
    let change = async |owner: Owner, data: serde_json::Value| {
        let patch = Patch::Merge(json!({ "data": data }));
        secrets
            .patch(owner.private_keys(), &PatchParams::default(), &patch)
            .await
    };
    let owners = [Owner::Webhook, Owner::Operator];
    for owner in owners {
        let secret = secrets.get(owner.private_keys()).await?;
        let mut data = secret.data.context("no data")?;
        let old = data.remove("key").context("no key")?;
        let new = ByteString(vec![7; 32]);
        change(owner, json!({ "key": new, "previous": old })).await?;
    }
    // Requests arrive continuously, until every component seals with the new key, and a few more follow.
    let (mut number, mut more) = (0, 0);
    while more < 5 {
        let name = format!("during-{number}");
        alice.granted(&exec_request(&name, TEMPLATE, "30m")).await?;
        number += 1;
        anyhow::ensure!(number < 1000, "they do not go over to the new key");
        if went_over(&system.operator.process)?
            && went_over(&second.process)?
            && went_over(&system.webhook.process)?
        {
            more += 1;
        }
    }
    let pod = before.pod();
    let enter = || {
        Ok::<_, anyhow::Error>(refusal(
            &scene.exec("alice", &[&pod, "--", "true"]).output()?,
        ))
    };
    eventually(
        "the grant of before to be good",
        CONDITION_TIMEOUT,
        async || Ok(enter()?.is_none().then_some(())),
    )
    .await?;
    assert_eq!(
        alice
            .api()
            .get("before")
            .await?
            .status
            .unwrap_or_default()
            .phase,
        Phase::Active
    );

    // The overlap ends: seals of the old key are invalid, seals of the new key are valid.
    for owner in owners {
        change(owner, json!({ "previous": null })).await?;
    }
    let after = alice
        .granted(&exec_request("after", TEMPLATE, "30m"))
        .await?;
    system.webhook.process.kill9();
    unregister(cluster)?;
    for (original, reason) in [(&before, "StampForged"), (&after, "StampOfAnotherRequest")] {
        let mut copy = exec_request(&format!("copy-{}", reason.to_lowercase()), TEMPLATE, "5m");
        copy.metadata
            .annotations
            .clone_from(&original.request.metadata.annotations);
        alice.create(&copy).await?;
        let name = copy.metadata.name.unwrap_or_default();
        let status = alice.phase(&name, Phase::Denied).await?;
        let line = conditions_line(&status);
        assert!(line.contains(reason), "{reason}: {line}");
    }
    Ok(())
}

/// Returns the published keys of the trail.
async fn published(maps: &Api<ConfigMap>) -> Result<BTreeMap<String, Published>> {
    let map = maps.get_opt("oz-audit-keys").await?;
    let data = map.and_then(|map| map.data).unwrap_or_default();
    let read = |(id, text): (String, String)| Ok((id, serde_json::from_str(&text)?));
    data.into_iter().map(read).collect()
}

/// Deletes the key of the trail, and waits for another: returns its ID, and all keys that are published then.
async fn lost(
    secrets: &Api<Secret>,
    maps: &Api<ConfigMap>,
) -> Result<(String, BTreeMap<String, Published>)> {
    let before = published(maps).await?;
    let now = DeleteParams::default();
    secrets.delete("oz-audit-key", &now).await?;
    eventually("another key", CONDITION_TIMEOUT, async || {
        let all = published(maps).await?;
        let operators = all.iter().filter(|(_, key)| key.writer.is_none());
        let mut new = operators.filter(|(id, _)| !before.contains_key(*id));
        let new = new.next().map(|(id, _)| id.clone());
        Ok(new.map(|id| (id, all)))
    })
    .await
}

#[tokio::test]
async fn audit_key_comes_back_where_it_was_deleted_and_vouches_for_the_other_writers() -> Result<()>
{
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "lost").await?;
    let alice = scene.requests("alice").await?;
    let secrets: Api<Secret> = Api::namespaced(scene.admin.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(scene.admin.clone(), NAMESPACE);
    alice.granted(&exec_request("one", TEMPLATE, "5m")).await?;
    let of_webhook = |all: &BTreeMap<String, Published>| {
        let mut keys = all.values();
        let found = keys.find(|key| key.writer.as_deref() == Some("oz-webhook"));
        found.cloned()
    };
    eventually(
        "the operator to vouch for the webhook",
        CONDITION_TIMEOUT,
        async || Ok(of_webhook(&published(&maps).await?).map(drop)),
    )
    .await?;
    let before = published(&maps).await?;
    maps.delete("oz-audit-keys", &DeleteParams::default())
        .await?;
    eventually(
        "the public keys to be back",
        CONDITION_TIMEOUT,
        async || Ok((published(&maps).await? == before).then_some(())),
    )
    .await?;
    let (new, all) = lost(&secrets, &maps).await?;
    // A verifier with a pinned earlier key trusts the new one.
    let operators = before.values().filter(|key| key.writer.is_none());
    let mut trust = Trust::pinned(operators.map(|key| key.public_key.as_str()))?;
    trust.extend(&all.into_values().collect::<Vec<_>>());
    assert!(
        trust.ids().contains(new.as_str()),
        "nobody vouches for {new}"
    );
    // Both have a record to sign.
    alice.granted(&exec_request("two", TEMPLATE, "5m")).await?;
    let what = "the operator to sign with the new key";
    eventually(what, CONDITION_TIMEOUT, async || {
        let map = maps.get("oz-audit-checkpoints").await?;
        let mut signed = map.data.into_iter().flatten();
        let is_new =
            |(slot, text): (String, String)| slot.starts_with("oz-operator") && text.contains(&new);
        Ok(signed.any(is_new).then_some(()))
    })
    .await?;
    // A verifier that pins the new key alone trusts the webhook as well.
    let what = "the new key to vouch for the webhook";
    eventually(what, CONDITION_TIMEOUT, async || {
        let all = published(&maps).await?;
        let webhook = of_webhook(&all);
        let vouched = webhook.and_then(|key| key.vouched);
        Ok(vouched
            .is_some_and(|vouched| vouched.starts_with(&new))
            .then_some(()))
    })
    .await?;
    // The same holds while the webhook is down, and for an operator that starts.
    system.webhook.process.kill9();
    lost(&secrets, &maps).await?;
    system.operator.process.kill9();
    secrets
        .delete("oz-audit-key", &DeleteParams::default())
        .await?;
    system.operator = Operator::start(cluster, &Options::default()).await?;
    assert!(secrets.get("oz-audit-key").await?.data.is_some());
    Ok(())
}

#[tokio::test]
async fn an_old_key_is_replaced_and_an_emptied_secret_filled_again() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "old").await?;
    let secrets: Api<Secret> = Api::namespaced(scene.admin.clone(), NAMESPACE);
    // An operator reads the key's age when it starts. The first one has just made the key.
    system.operator.process.kill9();
    let made_at = json!({ "oz.wizardofoz.co/key-created-at": "2026-01-01T00:00:00Z" });
    let older = Patch::Merge(json!({ "metadata": { "annotations": made_at } }));
    let name = Owner::Operator.private_keys();
    secrets.patch(name, &PatchParams::default(), &older).await?;
    system.operator = Operator::start(cluster, &Options::default()).await?;
    eventually("the key before to be kept", CONDITION_TIMEOUT, async || {
        let data = secrets.get(name).await?.data.unwrap_or_default();
        let is_kept = data.contains_key("previous");
        Ok((is_kept && went_over(&system.operator.process)?).then_some(()))
    })
    .await?;
    let empty = Patch::Merge(json!({ "data": null }));
    secrets.patch(name, &PatchParams::default(), &empty).await?;
    eventually(
        "the Secret to be filled again",
        CONDITION_TIMEOUT,
        async || {
            let secret = secrets.get_opt(name).await?;
            Ok(secret
                .and_then(|secret| secret.data)
                .filter(|data| !data.contains_key("previous")))
        },
    )
    .await?;
    granted_again(&scene.requests("alice").await?).await
}

#[tokio::test]
async fn deleted_secrets_with_keys_are_read_again_once_they_are_back() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "gone").await?;
    let secrets: Api<Secret> = Api::namespaced(scene.admin.clone(), NAMESPACE);
    let alice = scene.requests("alice").await?;
    alice.granted(&exec_request("one", TEMPLATE, "5m")).await?;
    let (private, public) = (Owner::Webhook.private_keys(), Owner::Webhook.public_keys());
    let before = secrets.get(public).await?.data.context("no public keys")?;
    let mark = cluster.audit().mark()?;
    for (name, said) in [
        (private, "the Secret with the signing key does not exist"),
        (public, "the Secret with public keys does not exist"),
    ] {
        secrets.delete(name, &DeleteParams::default()).await?;
        let process = &mut system.webhook.process;
        process
            .wait_for_line(said, CONDITION_TIMEOUT, |line| line.contains(said))
            .await?;
    }
    // The keys in use stay in use.
    alice.granted(&exec_request("two", TEMPLATE, "5m")).await?;
    let webhook = format!("system:serviceaccount:{NAMESPACE}:oz-webhook");
    let asked = cluster.audit().since(mark)?.by_user(&webhook);
    let asked = asked.with_verb("get").on("", "secrets");
    let asked = asked.filter(|entry| [private, public].contains(&entry.name.as_str()));
    assert!(asked.is_empty(), "{asked:?}");
    for name in [private, public] {
        let empty = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        secrets.create(&PostParams::default(), &empty).await?;
    }
    eventually(
        "other keys to be published",
        CONDITION_TIMEOUT,
        async || {
            let data = secrets.get(public).await?.data.unwrap_or_default();
            let is_whole =
                data.len() == before.len() && data.values().all(|keys| !keys.0.is_empty());
            Ok((is_whole && data != before).then_some(()))
        },
    )
    .await?;
    granted_again(&alice).await
}
