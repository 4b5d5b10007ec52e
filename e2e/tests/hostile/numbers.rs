//! Oversized objects and large numbers of objects: thousands of annotations, finalizers, owner references and patches,
//! and hundreds of requests.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use oz_api::{ExecAccessRequest, ExecAccessTemplate, PodAccessTemplate};
use oz_e2e::{TEMPLATE, WORKLOAD, exec_request, pod_template, refused};
use oz_testkit::eventually;
use serde_json::{Map, Value, json};

use crate::Stage;

const SOON: Duration = Duration::from_secs(60);

/// Returns `count` empty annotations with the shortest possible names: 6,756 of them take less than 16 KiB.
pub(crate) fn annotations(count: usize) -> Value {
    let letters: Vec<char> = ('a'..='z').chain('A'..='Z').chain('0'..='9').collect();
    let name = |mut number: usize| {
        let mut name = String::new();
        loop {
            name.push(letters[number % letters.len()]);
            match (number / letters.len()).checked_sub(1) {
                Some(rest) => number = rest,
                None => return name,
            }
        }
    };
    let note = |number| (name(number), Value::from(""));
    Value::Object((0..count).map(note).collect::<Map<_, _>>())
}

fn with_metadata(name: &str, metadata: Value) -> Result<ExecAccessRequest> {
    let mut request = serde_json::to_value(exec_request(name, TEMPLATE, "5m"))?;
    for (field, value) in metadata.as_object().context("an object")? {
        request["metadata"][field] = value.clone();
    }
    Ok(serde_json::from_value(request)?)
}

/// Creating a request with 6,756 empty annotations, as many labels, 500 finalizers, or 500 owner references: the API
/// server denies the first three and names the limit; the webhook drops the owner references, and the API server denies
/// them when they are added later.
#[tokio::test]
async fn metadata_by_the_thousand() -> Result<()> {
    let stage = Stage::set("thousand").await?;
    let alice = stage.requests("alice").await?;
    let finalizers: Value = (0..500)
        .map(|n| json!(format!("example.com/{n}")))
        .collect();
    let owners: Value = (0..500)
        .map(
            |n| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": n.to_string()}),
        )
        .collect();
    for (metadata, enough) in [
        (
            json!({"annotations": annotations(6_756)}),
            "the maximum is 64",
        ),
        (json!({"labels": annotations(6_756)}), "the maximum is 64"),
        (json!({"finalizers": finalizers}), "the maximum is 16"),
    ] {
        let why = refused(alice.create(&with_metadata("many", metadata)?).await)?;
        assert!(why.contains(enough), "{why}");
    }
    let owned = with_metadata("owned", json!({"ownerReferences": owners}))?;
    let owned = alice.create(&owned).await?;
    assert_eq!(owned.metadata.owner_references.iter().flatten().count(), 1);
    let later = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
    let admin = stage.requests("admin").await?;
    refused(
        admin
            .api()
            .patch("owned", &PatchParams::default(), &later)
            .await,
    )?;
    Ok(())
}

/// Adding annotations to an existing request until it is large: the API server denies it beyond the limit; annotations
/// can be removed, and the request can be deleted.
#[tokio::test]
async fn metadata_that_grows_later() -> Result<()> {
    let stage = Stage::set("grows").await?;
    let rule = json!({
        "apiGroups": ["crds.wizardofoz.co"], "resources": ["execaccessrequests"],
        "verbs": ["patch", "update"],
    });
    stage.allow("annotate", "alice", &[rule]).await?;
    let alice = stage.requests("alice").await?;
    alice.create(&exec_request("mine", "later", "5m")).await?;
    let params = PatchParams::default();
    let notes = |count| Patch::Merge(json!({"metadata": {"annotations": annotations(count)}}));
    alice.api().patch("mine", &params, &notes(60)).await?;
    let why = refused(alice.api().patch("mine", &params, &notes(600)).await)?;
    assert!(why.contains("the maximum is 64"), "{why}");
    let none = Patch::Merge(json!({"metadata": {"annotations": {"b": null}}}));
    alice.api().patch("mine", &params, &none).await?;
    alice.api().delete("mine", &DeleteParams::default()).await?;
    Ok(())
}

/// A template of 1.4 MB, a patch with a value of 100 KB, a patch with a hundred nested levels, and an annotation of 200
/// KB on an existing template: the API server denies each.
#[tokio::test]
async fn templates_without_measure() -> Result<()> {
    let stage = Stage::set("fat").await?;
    let pod_templates: Api<PodAccessTemplate> = stage.api();
    let params = PostParams::default();
    let args: Vec<String> = (0..100).map(|_| "x".repeat(14_000)).collect();
    let mutation = json!({"controllerTargetMutationConfig": {"args": args}});
    let fat = pod_template("fat", WORKLOAD, &mutation)?;
    let why = refused(pod_templates.create(&params, &fat).await)?;
    assert!(why.contains("the maximum is 65536"), "{why}");

    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    for (value, says) in [
        (json!("x".repeat(100_000)), "the maximum is 16384"),
        (deep, "must not nest more than 32"),
    ] {
        let operation = json!({"op": "add", "path": "/metadata/annotations/x", "value": value});
        let mutation =
            json!({"controllerTargetMutationConfig": {"patchSpecOperations": [operation]}});
        let template = pod_template("patched", WORKLOAD, &mutation)?;
        let why = refused(pod_templates.create(&params, &template).await)?;
        assert!(why.contains(says), "{why}");
    }

    let note = json!({"metadata": {"annotations": {"note": "x".repeat(200_000)}}});
    let patched = stage
        .api::<ExecAccessTemplate>()
        .patch(TEMPLATE, &PatchParams::default(), &Patch::Merge(note))
        .await;
    let why = refused(patched)?;
    assert!(why.contains("the maximum is 131072"), "{why}");
    Ok(())
}

/// The 21st waiting request of a user in one namespace: the webhook denies it; after the deletion of one the user may
/// create another, and another user may create requests throughout.
#[tokio::test]
async fn the_21st_request_of_a_user() -> Result<()> {
    let stage = Stage::set("user").await?;
    let alice = stage.requests("alice").await?;
    for number in 0..20 {
        let request = exec_request(&format!("mine-{number}"), "later", "5m");
        alice.create(&request).await?;
    }
    let one_more = exec_request("one-more", "later", "5m");
    let why = refused(alice.create(&one_more).await)?;
    assert!(
        why.contains("20 requests of user alice are pending"),
        "{why}"
    );
    stage.requests("bob").await?.create(&one_more).await?;
    alice
        .api()
        .delete("mine-0", &DeleteParams::default())
        .await?;
    let again = exec_request("again", "later", "5m");
    eventually("alice to be let ask again", SOON, async || {
        Ok(alice.create(&again).await.ok())
    })
    .await?;
    Ok(())
}

/// The 201st request of a namespace, in a burst of eleven users: the webhook denies it.
#[tokio::test]
async fn the_201st_request_of_a_namespace() -> Result<()> {
    let stage = Stage::set("crowd").await?;
    let mut refusals = Vec::new();
    for user in 0..11 {
        let user = format!("user-{user}");
        stage.cluster.issue_kubeconfig(&user, &["devs"])?;
        let requests = stage.requests(&user).await?;
        let created = (0..20).map(|number| {
            let (requests, name) = (requests.clone(), format!("of-{user}-{number}"));
            async move { requests.create(&exec_request(&name, "later", "5m")).await }
        });
        for created in futures::future::join_all(created).await {
            refusals.extend(created.err());
        }
    }
    assert_eq!(refusals.len(), 20, "{refusals:?}");
    let why = refusals[0].to_string();
    assert!(why.contains("200 requests"), "{why}");
    Ok(())
}
