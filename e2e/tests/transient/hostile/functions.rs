//! Functions behind HTTP that fail, are slow, respond with too much data, or request more than a composite may do.

use anyhow::{Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use oz_testkit::AuditMark;
use serde_json::{Value, json};

use super::Neighbour;
use crate::composites::{HANGS, World, config_maps};
use crate::support::*;

fn map(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

/// Responding with 200 and a page, half of a document, or deeply nested lists: the operator ignores the response, keeps
/// the children, and records an event with the error.
#[tokio::test]
async fn invalid_response_of_function_keeps_children() -> Result<()> {
    let beside = Neighbour::set("no-answer").await?;
    oz().await?.hooks.add("no-answer", |request| {
        let spec = &request["parent"]["spec"];
        match spec["say"].as_str() {
            Some("page") => json!("<html>all is well</html>"),
            Some("half") => json!(r#"{"children": ["#),
            Some("nested") => json!("[".repeat(200_000)),
            _ => config_maps(request),
        }
    });
    let world = World::set("no-answer", "InPlace", |_| {}).await?;
    for (name, say) in [("page", "page"), ("half", "half"), ("nested", "nested")] {
        let spec = json!({"names": [name], "value": "x"});
        world.fleet(name, &spec).await?;
        world.value(name, "x").await?;
        world
            .change(name, &json!({"say": say, "names": [], "value": "y"}))
            .await?;
        let note = world.event_on(name, "SyncError").await?;
        ensure!(note.contains("JSON"), "{say}: {note}");
        world.value(name, "x").await?;
    }
    beside.goes_on().await
}

/// Accepting a call and never responding: the operator continues to serve other composites, and deletes a child at its
/// expiry.
#[tokio::test]
async fn a_call_that_hangs() -> Result<()> {
    let beside = Neighbour::set("hanging").await?;
    let function = oz().await?.hooks.add("hanging", config_maps);
    let world = World::set("hanging", "InPlace", |composite| {
        let annotations = json!({
            "oz.wizardofoz.co/window-until": ".spec.until", "oz.wizardofoz.co/window-from": ".spec.from",
        });
        composite["metadata"]["annotations"] = annotations;
        composite["spec"]["hooks"]["sync"]["webhook"]["timeout"] = json!("60s");
    })
    .await?;
    let from = Timestamp::now();
    let until = from + SignedDuration::from_secs(6);
    let spec = json!({
        "names": ["a"], "value": "x", "from": from.to_string(), "until": until.to_string(),
    });
    world.fleet("one", &spec).await?;
    world.value("a", "x").await?;
    function.answer_with(HANGS);
    world.change("one", &json!({"value": "y"})).await?;
    beside.goes_on().await?;
    world.gone("a").await?;
    let gone = Timestamp::now();
    if gone < until {
        let fixture = &world.fixture;
        let log = fixture.cluster.audit().since(AuditMark::default())?;
        let writes = log.in_namespace(fixture.name()).writes();
        let log = std::fs::read_to_string(oz().await?.operator.process.stderr())?;
        let log: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("hanging"))
            .collect();
        bail!("the child was deleted at {gone} instead of {until}: {writes:#?} {log:#?}");
    }
    // The operator still waits for the response.
    ensure!(!world.is_told("one", "SyncError").await?);
    function.answer_with(0);
    Ok(())
}

/// Returning 10,000 children, or a response of 16 MiB: the operator ignores the whole response.
#[tokio::test]
async fn an_answer_without_measure() -> Result<()> {
    let beside = Neighbour::set("measureless").await?;
    oz().await?.hooks.add(
        "measureless",
        |request| match request["parent"]["spec"]["say"].as_str() {
            Some("many") => {
                let maps = (0..10_000).map(|number| map(json!({"name": format!("m{number}")})));
                json!({"children": maps.collect::<Vec<_>>()})
            }
            _ => json!({"children": [], "status": {"text": "x".repeat(16 << 20)}}),
        },
    );
    let world = World::set("measureless", "InPlace", |_| {}).await?;
    for (say, told) in [("many", "10000 children, of at most 1000"), ("much", "8")] {
        world.fleet(say, &json!({"say": say})).await?;
        let note = world.event_on(say, "SyncError").await?;
        ensure!(note.contains(told), "{say}: {note}");
    }
    let made = world.config_maps().list(&Default::default()).await?;
    let made = made
        .items
        .iter()
        .filter(|map| map.metadata.owner_references.is_some());
    assert_eq!(made.count(), 0);
    beside.goes_on().await
}

/// Returning children of an undeclared kind, in another namespace, without a name, of oz's own kinds, with oz's labels,
/// with a forged expiry, or with another owner: the operator denies them with an event, or creates them with the parent
/// as their only owner.
#[tokio::test]
async fn foreign_children_of_function_are_refused_or_owned_by_parent() -> Result<()> {
    let beside = Neighbour::set("strangers").await?;
    oz().await?.hooks.add(
        "strangers",
        |request| json!({"children": [request["parent"]["spec"]["child"]]}),
    );
    let world = World::set("strangers", "InPlace", |_| {}).await?;
    let far = json!({"name": "far", "namespace": "kube-system"});
    let marked = json!({"name": "marked", "labels": {"oz.wizardofoz.co/owner": "x"}});
    let refused = [
        (
            "undeclared",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
        ),
        ("far", map(far)),
        ("nameless", map(json!({}))),
        (
            "request",
            json!({
                "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "ExecAccessRequest",
                "metadata": {"name": "r"}, "spec": {"templateName": "shell"},
            }),
        ),
        ("marked", map(marked)),
    ];
    for (name, child) in refused {
        world.fleet(name, &json!({"child": child})).await?;
        let note = world.event_on(name, "SyncError").await?;
        ensure!(note.contains("ResponseInvalid"), "{name}: {note}");
    }
    let forged = json!({
        "name": "forged",
        "annotations": {"oz.wizardofoz.co/until": "2020-01-01T00:00:00Z"},
        "finalizers": ["example.org/stays"],
        "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other", "controller": true,
        }],
    });
    let parent = world
        .fleet("forged", &json!({"child": map(forged)}))
        .await?;
    // The operator creates no child that it denies, and a created child belongs to its parent.
    let settled = world.child_or_event("forged", "forged").await?;
    if let Some(child) = settled {
        let owners = child.metadata.owner_references.unwrap_or_default();
        ensure!(
            owners.len() == 1 && Some(&owners[0].uid) == parent.metadata.uid.as_ref(),
            "{owners:?}"
        );
    }
    beside.goes_on().await
}

/// Redirecting the operator to another address, or naming the machine itself, a link-local address or the API server in
/// any spelling: the operator sends no request there.
#[tokio::test]
async fn calls_to_where_none_belong() -> Result<()> {
    let beside = Neighbour::set("elsewhere").await?;
    let hooks = &oz().await?.hooks;
    let trap = hooks.add("trap", config_maps);
    let function = hooks.add("elsewhere", config_maps);
    function.answer_with(302);
    let world = World::set("elsewhere", "InPlace", |_| {}).await?;
    world.fleet("one", &json!({"names": ["a"]})).await?;
    let note = world.event_on("one", "SyncError").await?;
    ensure!(note.contains("302"), "{note}");
    let port = oz().await?.functions.port();
    for (number, host) in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "169.254.169.254",
        "kubernetes.default.svc",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("elsewhere-{number}");
        let world = World::set(&name, "InPlace", |composite| {
            let url = format!("http://{host}:{port}/trap");
            composite["spec"]["hooks"]["sync"]["webhook"]["url"] = json!(url);
        })
        .await?;
        world.fleet("one", &json!({"names": ["a"]})).await?;
        world.refusal("one").await?;
    }
    assert_eq!(trap.calls(), 0, "somebody was asked");
    beside.goes_on().await
}

/// Returning another child at each call: the operator slows the parent down, and an event reports it.
#[tokio::test]
async fn another_child_each_time() -> Result<()> {
    let beside = Neighbour::set("fickle").await?;
    let count = std::sync::atomic::AtomicUsize::new(0);
    let function = oz().await?.hooks.add("fickle", move |_| {
        let count = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        json!({"children": [map(json!({"name": format!("m{count}")}))]})
    });
    let world = World::set("fickle", "InPlace", |_| {}).await?;
    world.fleet("one", &json!({})).await?;
    let note = world.event_on("one", "SyncError").await?;
    ensure!(note.contains("NotConverging"), "{note}");
    ensure!(function.calls() < 60, "asked {} times", function.calls());
    beside.goes_on().await
}
