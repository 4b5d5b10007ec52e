//! Namespaces of hooks: no hook is skipped because a namespace was created again.

use std::sync::atomic::Ordering;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use oz_admission::{LabelledNamespace, NamespaceScope};
use oz_testkit::eventually;
use serde_json::json;

use crate::fixture::{Fixture, LONG, Running};

fn namespaces(fixture: &Fixture) -> Api<Namespace> {
    Api::all(fixture.client.clone())
}

/// Waits until the namespace has the label of the product.
async fn labelled(fixture: &Fixture, name: &str) -> Result<()> {
    let label = format!("oz-admission/scope-{}", fixture.name());
    eventually("the namespace to be labelled", LONG, async || {
        let found = namespaces(fixture).get(name).await?;
        let labels = found.metadata.labels.unwrap_or_default();
        Ok(labels.contains_key(&label).then_some(()))
    })
    .await
}

async fn create(fixture: &Fixture, name: &str) -> Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let parameters = PostParams::default();
    eventually("the namespace to be made", LONG, async || {
        // The preceding namespace may still be terminating.
        Ok(namespaces(fixture)
            .create(&parameters, &namespace)
            .await
            .ok())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_chosen_by_a_label_that_the_manager_owns() -> Result<()> {
    let fixture = Fixture::new("labelled").await?;
    let elsewhere = Fixture::new("unlabelled").await?;
    let (hook, count) = fixture.counting();
    let missing = "no-such-namespace".to_owned();
    let scope = NamespaceScope::Labelled(vec![
        fixture.name().into(),
        LabelledNamespace::optional(&missing),
    ]);
    let running = Running::start(fixture.manager()?.hook(hook.namespaces(scope))).await?;
    fixture.until_called(&count).await?;
    let before = count.load(Ordering::Relaxed);
    for _ in 0..10 {
        elsewhere.ask().await?;
    }
    assert_eq!(
        count.load(Ordering::Relaxed),
        before,
        "only the labelled namespace is looked at"
    );
    let namespaces = Api::<Namespace>::all(fixture.client.clone());
    assert!(
        namespaces.get_opt(&missing).await?.is_none(),
        "no namespace is made up"
    );
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_taken_off_and_a_namespace_made_again_are_labelled() -> Result<()> {
    let fixture = Fixture::new("relabel").await?;
    let (hook, _) = fixture.counting();
    let other = format!("{}-again", fixture.name());
    create(&fixture, &other).await?;
    let scope = NamespaceScope::Labelled(vec![other.as_str().into()]);
    let running = Running::start(fixture.manager()?.hook(hook.namespaces(scope))).await?;
    labelled(&fixture, &other).await?;

    let label = format!("oz-admission/scope-{}", fixture.name());
    let off = Patch::Merge(json!({"metadata": {"labels": {label: null}}}));
    namespaces(&fixture)
        .patch(&other, &PatchParams::default(), &off)
        .await?;
    labelled(&fixture, &other).await?;

    namespaces(&fixture)
        .delete(&other, &DeleteParams::default())
        .await?;
    create(&fixture, &other).await?;
    labelled(&fixture, &other).await?;
    namespaces(&fixture)
        .delete(&other, &DeleteParams::default())
        .await?;
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_is_not_ready_before_its_namespaces_exist() -> Result<()> {
    let fixture = Fixture::new("missing").await?;
    let (hook, _) = fixture.counting();
    let later = format!("{}-later", fixture.name());
    let scope = NamespaceScope::Labelled(vec![fixture.name().into(), later.as_str().into()]);
    let builder = || -> Result<_> {
        Ok(fixture
            .manager()?
            .hook(hook.clone().namespaces(scope.clone())))
    };
    let refused = builder()?.build()?.register().await;
    let refused = refused.expect_err("it registered").to_string();
    assert!(refused.contains(&later), "{refused}");

    let running = Running::launch(builder()?)?;
    labelled(&fixture, fixture.name()).await?;
    eventually("the failure to be counted", LONG, async || {
        let failures = "admission_upkeep_failures_total{name=\"namespaces\"}";
        Ok((running.metric(failures).await? > 0.0).then_some(()))
    })
    .await?;
    let (status, body) = running.get("/readyz").await?;
    if status == 200 || !body.contains("registration") {
        bail!("{status} {body}");
    }
    create(&fixture, &later).await?;
    running.until_ready().await?;
    labelled(&fixture, &later).await?;
    namespaces(&fixture)
        .delete(&later, &DeleteParams::default())
        .await?;
    running.stop().await
}
