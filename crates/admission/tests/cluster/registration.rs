//! Repair of the registration: every external change of the product's webhooks is repaired, and additions
//! of other writers stay.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use oz_admission::{FINGERPRINT_LABEL, RegistrationMode};
use oz_testkit::eventually;
use serde_json::{Value, json};

use crate::fixture::{Fixture, LONG, Load, Running};

fn configurations(fixture: &Fixture) -> Api<ValidatingWebhookConfiguration> {
    Api::all(fixture.client.clone())
}

/// Returns the part of a configuration that the product declares.
async fn declared(fixture: &Fixture) -> Result<Value> {
    let live = serde_json::to_value(configurations(fixture).get(fixture.name()).await?)?;
    let webhooks = live["webhooks"].as_array().cloned().unwrap_or_default();
    let ours: Vec<_> = webhooks
        .into_iter()
        .filter(|webhook| {
            webhook["name"]
                .as_str()
                .is_some_and(|it| it.ends_with(".admission"))
        })
        .collect();
    Ok(json!({"label": live["metadata"]["labels"][FINGERPRINT_LABEL], "webhooks": ours}))
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_configuration_is_repaired_counted_and_reported() -> Result<()> {
    let fixture = Fixture::new("vandal").await?;
    let (hook, count) = fixture.counting();
    let running = Running::start(fixture.manager()?.hook(hook)).await?;
    fixture.until_called(&count).await?;
    let good = declared(&fixture).await?;
    let api = configurations(&fixture);

    let at = |path: &str| format!("/webhooks/0/{path}");
    let damages = [
        (
            "caBundle",
            json!([{"op": "replace", "path": at("clientConfig/caBundle"), "value": "QUJD"}]),
        ),
        (
            "a rule",
            json!([{"op": "replace", "path": at("rules/0/operations"), "value": ["DELETE"]}]),
        ),
        (
            "the failure policy",
            json!([{"op": "replace", "path": at("failurePolicy"), "value": "Ignore"}]),
        ),
        (
            "the object selector",
            json!([{"op": "add", "path": at("objectSelector/matchLabels"), "value": {"a": "b"}}]),
        ),
        (
            "a condition that is never met",
            json!([{"op": "add", "path": at("matchConditions"), "value": [{"name": "off", "expression": "false"}]}]),
        ),
        (
            "the fingerprint label",
            json!([{"op": "remove", "path": format!("/metadata/labels/{}", FINGERPRINT_LABEL.replace('/', "~1"))}]),
        ),
        (
            "all webhooks",
            json!([{"op": "replace", "path": "/webhooks", "value": []}]),
        ),
    ];
    let total = damages.len() + 1;
    for (what, patch) in damages {
        let patch: json_patch::Patch = serde_json::from_value(patch)?;
        api.patch(
            fixture.name(),
            &PatchParams::default(),
            &Patch::<()>::Json(patch),
        )
        .await?;
        repaired(&fixture, &good, what).await?;
    }
    api.delete(fixture.name(), &DeleteParams::default()).await?;
    repaired(&fixture, &good, "the whole object").await?;

    // A repair is counted after the API server has responded; a reader of the configuration may see it
    // earlier.
    let total = f64::from(u32::try_from(total)?);
    eventually("every repair to be counted", LONG, async || {
        let counted = running
            .metric("admission_registration_repairs_total")
            .await?;
        ensure!(counted <= total, "{counted} repairs of {total} damages");
        Ok((counted >= total).then_some(()))
    })
    .await?;
    let events = Api::<Event>::all(fixture.client.clone());
    eventually("an event", LONG, async || {
        let list = events.list(&ListParams::default()).await?;
        let found = list.iter().any(|event| {
            event.reason.as_deref() == Some("RegistrationRepaired")
                && event.regarding.as_ref().and_then(|it| it.name.as_deref())
                    == Some(fixture.name())
        });
        Ok(found.then_some(()))
    })
    .await?;
    let before = count.load(Ordering::Relaxed);
    eventually("the webhook to be called again", LONG, async || {
        fixture.ask().await?;
        Ok((count.load(Ordering::Relaxed) > before).then_some(()))
    })
    .await?;
    running.stop().await
}

/// Returns the configuration without the key in the URLs, which each starting replica replaces.
fn without_keys(mut declared: Value) -> Value {
    for webhook in declared["webhooks"].as_array_mut().into_iter().flatten() {
        let url = webhook["clientConfig"]["url"].as_str().unwrap_or_default();
        let mut parts: Vec<&str> = url.split('/').collect();
        if let Some(key) = parts.get_mut(3) {
            *key = "key";
        }
        webhook["clientConfig"]["url"] = parts.join("/").into();
    }
    declared
}

async fn repaired(fixture: &Fixture, good: &Value, what: &str) -> Result<()> {
    let began = Instant::now();
    eventually(&format!("{what} to be put right"), LONG, async || {
        let now = declared(fixture).await?;
        if without_keys(now.clone()) == without_keys(good.clone()) {
            Ok(Some(()))
        } else {
            bail!("{now}")
        }
    })
    .await?;
    eprintln!("figure: {what} put right after {:?}", began.elapsed());
    Ok(())
}

/// Two replicas with different configurations, as during a rollout.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_replicas_the_later_one_has_its_way_and_neither_is_damage_to_the_other() -> Result<()>
{
    let fixture = Fixture::new("rollout").await?;
    let (hook, count) = fixture.counting();
    let replica = |seconds, name: &str| -> Result<_> {
        let hook = hook.clone().timeout(Duration::from_secs(seconds));
        Ok(fixture.manager()?.hook(hook).identity(name))
    };
    let early = Running::start(replica(5, "early")?).await?;
    fixture.until_called(&count).await?;
    let late = Running::start(replica(6, "late")?).await?;
    let good = declared(&fixture).await?;
    assert_eq!(good["webhooks"][0]["timeoutSeconds"], 6);

    // The first of them repairs it, the later one permanently.
    let api = configurations(&fixture);
    let damage = json!([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 1}]);
    let damage: json_patch::Patch = serde_json::from_value(damage)?;
    let counted = async || -> Result<f64> {
        let metric = "admission_registration_repairs_total";
        Ok(early.metric(metric).await? + late.metric(metric).await?)
    };
    // A write that a replica had under way anyway may repair the damage, and is not counted as a repair.
    let mut damaged: i32 = 0;
    let repairs = eventually("a repair to be counted", LONG, async || {
        damaged += 1;
        let damage = Patch::<()>::Json(damage.clone());
        let name = fixture.name();
        api.patch(name, &PatchParams::default(), &damage).await?;
        repaired(&fixture, &good, "a timeout, during a rollout").await?;
        // The repair is counted shortly after it is visible.
        let soon = Duration::from_secs(10);
        let repairs = eventually("the repair to be counted", soon, async || {
            Ok(Some(counted().await?).filter(|repairs| *repairs >= 1.0))
        });
        Ok(repairs.await.ok())
    })
    .await?;
    // Both may have seen the damage; neither treated the other's write as further damage.
    assert!(
        (1.0..=2.0 * f64::from(damaged)).contains(&repairs),
        "{repairs}"
    );
    let generation = api.get(fixture.name()).await?.metadata.generation;
    assert!(
        generation.is_some_and(|it| it <= i64::from(6 + 2 * damaged)),
        "{generation:?}"
    );

    early.stop().await?;
    late.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_webhooks_in_configuration_are_kept() -> Result<()> {
    let fixture = Fixture::new("guests").await?;
    let (hook, _) = fixture.counting();
    let running = Running::start(fixture.manager()?.hook(hook)).await?;
    let good = declared(&fixture).await?;
    let api = configurations(&fixture);
    let theirs = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"labels": {"team": "theirs"}},
        "webhooks": [{"name": "theirs.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            "clientConfig": {"url": "https://127.0.0.1:1/never"},
            "rules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["nothings"]}]}],
    });
    let manager = PatchParams::apply("theirs");
    api.patch(fixture.name(), &manager, &Patch::Apply(theirs))
        .await?;
    let vandalism = json!([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 1},
        {"op": "replace", "path": "/webhooks/1/timeoutSeconds", "value": 1}]);
    let vandalism: json_patch::Patch = serde_json::from_value(vandalism)?;
    api.patch(
        fixture.name(),
        &PatchParams::default(),
        &Patch::<()>::Json(vandalism),
    )
    .await?;
    repaired(&fixture, &good, "a timeout beside a webhook of others").await?;
    let live = api.get(fixture.name()).await?;
    assert_eq!(live.labels()["team"], "theirs");
    let names: Vec<_> = live
        .webhooks
        .unwrap_or_default()
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert!(
        names.contains(&"theirs.example.com".to_owned()),
        "{names:?}"
    );
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_configurations_of_same_fingerprint_are_pruned() -> Result<()> {
    let fixture = Fixture::new("prune").await?;
    let labels = |fingerprint: &str| json!({FINGERPRINT_LABEL: fingerprint});
    let mutating = Api::<MutatingWebhookConfiguration>::all(fixture.client.clone());
    for (name, fingerprint) in [
        (format!("{}-old", fixture.name()), fixture.name()),
        (fixture.name().to_owned(), fixture.name()),
        (format!("{}-other", fixture.name()), "another-product"),
    ] {
        let old = serde_json::from_value(
            json!({"metadata": {"name": name, "labels": labels(fingerprint)}}),
        )?;
        mutating.create(&PostParams::default(), &old).await?;
    }
    let (hook, _) = fixture.counting();
    let running = Running::start(fixture.manager()?.hook(hook)).await?;
    eventually("what is left behind to go", LONG, async || {
        let old = mutating.get_opt(&format!("{}-old", fixture.name())).await?;
        let unused = mutating.get_opt(fixture.name()).await?;
        Ok((old.is_none() && unused.is_none()).then_some(()))
    })
    .await?;
    let other = format!("{}-other", fixture.name());
    mutating.delete(&other, &DeleteParams::default()).await?;
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn registering_and_serving_work_together_as_two_processes() -> Result<()> {
    let fixture = Fixture::new("split").await?;
    let (hook, count) = fixture.counting();
    // The order of an installation is unknown: serving may begin first.
    let serving = fixture
        .manager()?
        .hook(hook.clone())
        .registration(RegistrationMode::Never);
    let serving = Running::start(serving).await?;
    let registrar = fixture.without_listener().hook(hook).build()?;
    let registration = registrar.register().await?;
    assert_eq!((registration.mutating, registration.validating), (0, 1));
    let days = registration
        .until
        .duration_since(k8s_openapi::jiff::Timestamp::now())
        .as_hours()
        / 24;
    assert_eq!(days, 179, "the authority is new and lives 180 days");
    fixture.until_called(&count).await?;

    // A rotation is requested between two installations: the next one carries it out, under load.
    let load = Load::start(&fixture);
    let secret = format!("{}-admission-ca", fixture.name());
    let api = fixture.api::<k8s_openapi::api::core::v1::Secret>();
    let before = api.get(&secret).await?.data;
    let annotation = json!({"metadata": {"annotations": {oz_admission::ROTATE_ANNOTATION: "1"}}});
    api.patch(&secret, &PatchParams::default(), &Patch::Merge(annotation))
        .await?;
    registrar.register().await?;
    assert_ne!(api.get(&secret).await?.data, before);
    serving.metric("admission_reviews_total").await?;
    load.stop()
        .await?
        .unharmed("registered again, with a rotation, while another process serves");
    serving.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_products_with_their_own_fingerprints_do_not_meet() -> Result<()> {
    let (one, two) = (
        Fixture::new("product-a").await?,
        Fixture::new("product-b").await?,
    );
    let ((first_hook, first_count), (second_hook, second_count)) = (one.counting(), two.counting());
    let first = Running::start(one.manager()?.hook(first_hook)).await?;
    let second = Running::start(two.manager()?.hook(second_hook)).await?;
    one.until_called(&first_count).await?;
    two.until_called(&second_count).await?;
    let (good_one, good_two) = (declared(&one).await?, declared(&two).await?);
    assert_ne!(good_one, good_two);
    configurations(&one)
        .delete(one.name(), &DeleteParams::default())
        .await?;
    repaired(&one, &good_one, "one of two products").await?;
    assert_eq!(declared(&two).await?, good_two);
    first.stop().await?;
    second.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_leaves_the_registration_alone() -> Result<()> {
    let fixture = Fixture::new("restart").await?;
    let (hook, count) = fixture.counting();
    let version = async || -> Result<_> {
        Ok(configurations(&fixture)
            .get(fixture.name())
            .await?
            .resource_version())
    };
    let first = Running::start(fixture.manager()?.hook(hook.clone())).await?;
    fixture.until_called(&count).await?;
    let before = version().await?;
    first.stop().await?;
    let second = Running::start(fixture.manager()?.hook(hook)).await?;
    assert_eq!(
        version().await?,
        before,
        "not one write: there was never a moment without it"
    );
    eventually(
        "the webhook to be called",
        Duration::from_secs(30),
        async || {
            fixture.ask().await?;
            Ok(Some(()))
        },
    )
    .await?;
    second.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn eirinix_configuration_is_deleted_unless_others_added_webhooks() -> Result<()> {
    let (fixture, shared) = (
        Fixture::new("eirinix").await?,
        Fixture::new("eirinix").await?,
    );
    let api = Api::<MutatingWebhookConfiguration>::all(fixture.client.clone());
    let webhook = |name: String| {
        json!({"name": name, "clientConfig": {"url": "https://gone.example.com/0"},
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore"})
    };
    let left = |fixture: &Fixture, others: &[Value]| -> Result<MutatingWebhookConfiguration> {
        let own = webhook(format!("0.{}.org", fixture.name()));
        let webhooks: Vec<_> = std::iter::once(&own).chain(others).collect();
        let name = format!("{}-mutating-hook", fixture.name());
        Ok(serde_json::from_value(
            json!({"metadata": {"name": name}, "webhooks": webhooks}),
        )?)
    };
    let parameters = PostParams::default();
    let gone = api.create(&parameters, &left(&fixture, &[])?).await?;
    let theirs = webhook("a.theirs.org".to_owned());
    let stays = api.create(&parameters, &left(&shared, &[theirs])?).await?;
    for fixture in [&fixture, &shared] {
        let (hook, _) = fixture.counting();
        let builder = fixture.manager()?.hook(hook).replace_eirinix();
        Running::start(builder).await?.stop().await?;
    }
    assert!(api.get_opt(&gone.name_any()).await?.is_none());
    assert!(api.get_opt(&stays.name_any()).await?.is_some());
    api.delete(&stays.name_any(), &DeleteParams::default())
        .await?;
    Ok(())
}
