//! Rules that follow objects: the registration changes with them, is repaired as usual, and stays unchanged
//! as long as the rules are unknown.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    core::v1::{ConfigMap, Secret},
};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use oz_admission::{
    Cache, Hook, ManagerBuilder, Notes, Operation, ResourceRule, Review, Rules, Selection,
    validate_fn,
};
use oz_testkit::eventually;
use serde_json::{Value, json};

use crate::fixture::{Fixture, LONG, Running};

/// The label of the ConfigMaps that name a resource.
const LABEL: &str = "follow=yes";

/// Creates a hook with only the followed rules, which allows every request and counts.
fn guard(fixture: &Fixture, rules: &Rules) -> (Hook, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let handler = validate_fn(move |_, _: &Review<Value>| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Notes::none())
    });
    let hook = Hook::validating_on("guard", None, handler)
        .on([Operation::Create])
        .namespaces(fixture.here())
        .rules_from(rules);
    (hook, count)
}

/// Creates a builder of a manager with a hook that follows the ConfigMaps of this namespace.
fn following(fixture: &Fixture) -> Result<(ManagerBuilder, Arc<AtomicUsize>)> {
    let mut builder = fixture.manager()?;
    let selection = Selection::default().labels(LABEL);
    let cache: Cache<ConfigMap> = builder.cache_in(fixture.name(), selection);
    let rules = cache.rules(|object| {
        let plural = object.data.as_ref().and_then(|data| data.get("plural"));
        plural.map(|plural| ResourceRule::new("", "v1", plural))
    });
    let (hook, count) = guard(fixture, &rules);
    Ok((builder.hook(hook), count))
}

async fn follow(fixture: &Fixture, plural: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "parent", "labels": {"follow": "yes"}}, "data": {"plural": plural}});
    let parameters = PatchParams::apply("test").force();
    let api = fixture.api::<ConfigMap>();
    api.patch("parent", &parameters, &Patch::Apply(object))
        .await?;
    Ok(())
}

fn configurations(fixture: &Fixture) -> Api<ValidatingWebhookConfiguration> {
    Api::all(fixture.client.clone())
}

/// Returns the registered resources; `None` if no webhook is registered.
async fn registered(fixture: &Fixture) -> Result<Option<Vec<String>>> {
    let found = configurations(fixture).get(fixture.name()).await?;
    let webhooks = found.webhooks.unwrap_or_default();
    let webhook = webhooks
        .into_iter()
        .find(|it| it.name.starts_with("guard."));
    let rules = webhook.map(|it| it.rules.unwrap_or_default());
    let plurals = |rules: Vec<_>| {
        let resources = rules.into_iter().flat_map(
            |it: k8s_openapi::api::admissionregistration::v1::RuleWithOperations| {
                it.resources.unwrap_or_default()
            },
        );
        resources.collect()
    };
    Ok(rules.map(plurals))
}

async fn until_registered(fixture: &Fixture, plurals: Option<&[&str]>) -> Result<()> {
    let began = Instant::now();
    eventually("the rules to be followed", LONG, async || {
        let found = registered(fixture).await?;
        let found = found
            .as_ref()
            .map(|it| it.iter().map(String::as_str).collect::<Vec<_>>());
        ensure!(found.as_deref() == plurals, "{found:?}");
        Ok(Some(()))
    })
    .await?;
    eprintln!(
        "figure: rules {plurals:?} followed after {:?}",
        began.elapsed()
    );
    Ok(())
}

/// Creates a Secret, only so that the API server calls the webhooks.
async fn ask_for_secret(fixture: &Fixture) -> Result<()> {
    let secret = Secret {
        metadata: ObjectMeta {
            generate_name: Some("ask-".to_owned()),
            ..ObjectMeta::default()
        },
        ..Secret::default()
    };
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    fixture.api().create(&parameters, &secret).await?;
    Ok(())
}

async fn harm(fixture: &Fixture, harm: Value) -> Result<()> {
    let harm: json_patch::Patch = serde_json::from_value(harm)?;
    let (parameters, patch) = (PatchParams::default(), Patch::<()>::Json(harm));
    let api = configurations(fixture);
    api.patch(fixture.name(), &parameters, &patch).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registration_follows_objects_that_come_change_and_go() -> Result<()> {
    let fixture = Fixture::new("follow").await?;
    let (builder, count) = following(&fixture)?;
    let running = Running::start(builder).await?;
    until_registered(&fixture, None).await?;

    follow(&fixture, "secrets").await?;
    until_registered(&fixture, Some(&["secrets"])).await?;
    eventually("the hook to be called", LONG, async || {
        ask_for_secret(&fixture).await?;
        Ok((count.load(Ordering::Relaxed) > 0).then_some(()))
    })
    .await?;

    let resources = "/webhooks/0/rules/0/resources";
    harm(
        &fixture,
        json!([{"op": "replace", "path": resources, "value": ["pods"]}]),
    )
    .await?;
    until_registered(&fixture, Some(&["secrets"])).await?;
    follow(&fixture, "services").await?;
    until_registered(&fixture, Some(&["services"])).await?;

    // A webhook without a rule is not registered; if a user restores it, it is removed.
    let before = configurations(&fixture).get(fixture.name()).await?;
    let before = serde_json::to_value(before.webhooks.unwrap_or_default())?;
    let gone = DeleteParams::default();
    fixture.api::<ConfigMap>().delete("parent", &gone).await?;
    until_registered(&fixture, None).await?;
    harm(
        &fixture,
        json!([{"op": "add", "path": "/webhooks", "value": before}]),
    )
    .await?;
    until_registered(&fixture, None).await?;

    eventually(
        "what was damage to be counted, and nothing else",
        LONG,
        async || {
            let metric = "admission_registration_repairs_total";
            let repairs = running.metric(metric).await?;
            ensure!(repairs <= 2.0, "{repairs} repairs of 2 damages");
            Ok((repairs >= 2.0).then_some(()))
        },
    )
    .await?;
    running.stop().await
}

/// Two replicas see a change at different instants: neither treats the rules of the other as damage.
#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_follow_the_same_objects_and_do_not_fight() -> Result<()> {
    let fixture = Fixture::new("follow-two").await?;
    follow(&fixture, "secrets").await?;
    let one = Running::start(following(&fixture)?.0.identity("one")).await?;
    let two = Running::start(following(&fixture)?.0.identity("two")).await?;
    let generation = async || -> Result<i64> {
        let found = configurations(&fixture).get(fixture.name()).await?;
        Ok(found.metadata.generation.unwrap_or_default())
    };
    let before = generation().await?;
    const CHANGES: i64 = 10;
    for turn in 0..CHANGES {
        let plural = if turn % 2 == 0 { "services" } else { "secrets" };
        follow(&fixture, plural).await?;
        until_registered(&fixture, Some(&[plural])).await?;
    }
    for replica in [&one, &two] {
        let repairs = replica.metric("admission_registration_repairs_total");
        assert!(repairs.await? < 0.5);
    }
    let writes = generation().await? - before;
    // There is one write for each change, and occasionally one by a replica that has not seen the change
    // yet.
    assert!(
        writes <= 2 * CHANGES,
        "{writes} writes of {CHANGES} changes"
    );
    one.stop().await?;
    two.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_is_kept_until_rules_are_known() -> Result<()> {
    let fixture = Fixture::new("follow-later").await?;
    let start = |rules: &Rules| -> Result<_> {
        let (hook, _) = guard(&fixture, rules);
        Running::launch(fixture.manager()?.hook(hook))
    };
    let rules = Rules::default();
    rules.set([ResourceRule::new("", "v1", "secrets")]);
    let first = start(&rules)?;
    first.until_ready().await?;
    until_registered(&fixture, Some(&["secrets"])).await?;
    first.stop().await?;

    let rules = Rules::default();
    let second = start(&rules)?;
    eventually("the rules to be waited for", LONG, async || {
        let (status, body) = second.get("/readyz").await?;
        let waits = "registration (the rules of hook guard are not known yet)";
        ensure!(status == 503 && body.contains(waits), "{status}: {body}");
        Ok(Some(()))
    })
    .await?;
    // All other fields are repaired in the meantime.
    let policy = "/webhooks/0/failurePolicy";
    harm(
        &fixture,
        json!([{"op": "replace", "path": policy, "value": "Ignore"}]),
    )
    .await?;
    eventually("the failure policy to be put right", LONG, async || {
        let found = configurations(&fixture).get(fixture.name()).await?;
        let webhooks = found.webhooks.unwrap_or_default();
        let policy = webhooks.first().and_then(|it| it.failure_policy.as_deref());
        Ok((policy == Some("Fail")).then_some(()))
    })
    .await?;
    until_registered(&fixture, Some(&["secrets"])).await?;
    rules.set([]);
    second.until_ready().await?;
    until_registered(&fixture, None).await?;
    second.stop().await
}
