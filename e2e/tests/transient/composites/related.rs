//! Functions that receive other objects than their parents' children.

use anyhow::{Result, ensure};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use serde_json::{Value, json};

use super::hooks::HOST;
use super::world::World;
use crate::regos;
use crate::support::*;

/// Returns a copy of each ConfigMap in the request, except the function's children.
fn copies(request: &Value) -> Value {
    let related = request["related"]["ConfigMap.v1"].as_object();
    let sources = related.into_iter().flatten();
    let copies = sources.map(|(_, source)| {
        let name = source["metadata"]["name"].as_str().unwrap_or_default();
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("copy-{name}")}, "data": source["data"],
        })
    });
    json!({"children": copies.collect::<Vec<_>>()})
}

#[tokio::test]
async fn a_function_is_shown_what_it_asks_for_and_hears_of_its_changes() -> Result<()> {
    let hooks = &oz().await?.hooks;
    let sync = hooks.add("customized", copies);
    let customize = hooks.add("customized-which", |request| {
        let spec = &request["parent"]["spec"];
        json!({"relatedResources": [{
            "apiVersion": "v1", "resource": "configmaps", "names": spec["names"],
        }]})
    });
    let world = World::set("customized", "InPlace", |composite| {
        composite["spec"]["hooks"]["customize"] =
            json!({"webhook": {"url": format!("http://{HOST}/customized-which")}});
    })
    .await?;
    world.condition("Running", "True").await?;
    world.source("a", &json!({}), "x").await?;
    world.source("other", &json!({}), "x").await?;
    world.fleet("one", &json!({"names": ["a", "b"]})).await?;
    world.value("copy-a", "x").await?;
    let related = sync.last()["related"].clone();
    ensure!(related["ConfigMap.v1"]["other"].is_null(), "{related}");
    ensure!(
        customize.last().get("children").is_none(),
        "{}",
        customize.last()
    );
    // The function receives changed, new and deleted objects, and the operator does not ask again for the selection.
    let asked = customize.calls();
    world.source("a", &json!({}), "y").await?;
    world.value("copy-a", "y").await?;
    world.source("b", &json!({}), "x").await?;
    world.value("copy-b", "x").await?;
    world.config_maps().delete("b", &Default::default()).await?;
    world.gone("copy-b").await?;
    for number in 0..10 {
        let value = number.to_string();
        world.source("a", &json!({}), &value).await?;
        world.value("copy-a", &value).await?;
    }
    // It asks when it checks the permissions of the composite, which is not at each change.
    let again = customize.calls() - asked;
    ensure!(again < 5, "it was asked {again} times");
    world.change("one", &json!({"names": ["other"]})).await?;
    world.value("copy-other", "x").await?;
    world.gone("copy-a").await?;
    Ok(())
}

#[tokio::test]
async fn by_the_second_version_it_sees_other_namespaces_and_what_fails_changes_nothing()
-> Result<()> {
    let hooks = &oz().await?.hooks;
    let sync = hooks.add("customized2", copies);
    let customize = hooks.add("customized2-which", |request| {
        let spec = &request["parent"]["spec"];
        json!({"relatedResources": [{
            "apiVersion": "v1", "resource": "configmaps", "namespace": spec["from"], "names": ["shared"],
        }]})
    });
    let world = World::set("customized2", "InPlace", |composite| {
        let hook = |name: &str| {
            json!({"version": "v2", "webhook": {"url": format!("http://{HOST}/{name}")}})
        };
        composite["spec"]["hooks"] =
            json!({"sync": hook("customized2"), "customize": hook("customized2-which")});
    })
    .await?;
    let other = Fixture::set("customized2-other").await?;
    let maps = kube::Api::namespaced(other.admin.clone(), other.name());
    let shared = |value: &str| json!({"metadata": {"name": "shared"}, "data": {"value": value}});
    apply_as::<k8s_openapi::api::core::v1::ConfigMap>(&maps, shared("x")).await?;
    world.condition("Running", "True").await?;
    world.fleet("one", &json!({"from": other.name()})).await?;
    world.value("copy-shared", "x").await?;
    let key = format!("{}/shared", other.name());
    let related = sync.last()["related"].clone();
    ensure!(related["ConfigMap.v1"][&key].is_object(), "{related}");
    apply_as(&maps, shared("y")).await?;
    world.value("copy-shared", "y").await?;

    customize.answer_with(500);
    let asked = customize.calls();
    world
        .change("one", &json!({"from": other.name(), "more": 1}))
        .await?;
    eventually("it to be asked again", CONDITION_TIMEOUT, async || {
        Ok((customize.calls() > asked).then_some(()))
    })
    .await?;
    let note = world.event("SyncError").await?;
    ensure!(note.contains("customized2-which"), "{note}");
    world.value("copy-shared", "y").await?;
    customize.answer_with(0);
    Ok(())
}

#[tokio::test]
async fn rights_for_what_customize_selects_are_reported_with_all_others() -> Result<()> {
    let hooks = &oz().await?.hooks;
    hooks.add("customized3", |_| json!({"children": []}));
    hooks.add("customized3-which", |_| {
        json!({"relatedResources": [
            {"apiVersion": "apps/v1", "resource": "statefulsets"},
            {"apiVersion": "v1", "resource": "endpoints"},
        ]})
    });
    let world = World::set("customized3", "InPlace", |composite| {
        composite["spec"]["childResources"][0] =
            json!({"apiVersion": "v1", "resource": "limitranges"});
        composite["spec"]["hooks"]["customize"] =
            json!({"webhook": {"url": format!("http://{HOST}/customized3-which")}});
    })
    .await?;
    world.fleet("one", &json!({})).await?;
    let message = world
        .condition_because("Permitted", "False", "PermissionMissing")
        .await?;
    ensure!(message.contains("limitranges"), "{message}");
    let related = [
        r#"{"apiGroups":[""],"resources":["endpoints"],"verbs":["list","watch"]}"#,
        r#"{"apiGroups":["apps"],"resources":["statefulsets"],"verbs":["list","watch"]}"#,
    ];
    world
        .status("one list of all missing rules", |status| {
            let permitted = oz_api::conditions::find(&status.conditions, "Permitted");
            permitted.is_some_and(|permitted| {
                let has = |rule: &&str| permitted.message.contains(*rule);
                permitted.message.contains("limitranges") && related.iter().all(has)
            })
        })
        .await?;
    Ok(())
}

/// A policy that copies the ConfigMaps with its label.
const COPIES: &str = r#"package controller

children contains {
    "apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"name": concat("-", ["copy", name])}, "data": source.data,
} if {
    some name, source in input.related["ConfigMap.v1"]
}
"#;

#[tokio::test]
async fn a_policy_is_shown_what_its_controller_relates() -> Result<()> {
    oz().await?;
    let world = regos::World::set_rego("rego-shown", |rego| {
        rego["spec"]["policy"]["inline"] = json!(COPIES);
        rego["spec"]["related"] = json!([{
            "apiVersion": "v1", "resource": "configmaps",
            "labelSelector": {"matchLabels": {"source": "yes"}},
        }]);
    })
    .await?;
    world
        .condition_because("Running", "True", "Running")
        .await?;
    world.source("a", &json!({"source": "yes"}), "x").await?;
    world.fleet("one", &json!({})).await?;
    world.value("copy-a", "x").await?;
    world.source("a", &json!({"source": "yes"}), "y").await?;
    world.value("copy-a", "y").await?;
    // The policy no longer receives a ConfigMap that loses the label.
    world.source("a", &json!({}), "y").await?;
    world.gone("copy-a").await
}
