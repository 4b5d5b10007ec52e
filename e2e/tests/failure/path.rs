//! Requests that did not pass the webhook, or have the stamp of another request: oz trusts no field that a user could
//! have written.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use kube::ResourceExt;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use oz_api::{ExecAccessRequest, Phase, labels};
use oz_e2e::{
    Operator, Options, Scene, System, TEMPLATE, conditions_line, exec_request, install, repository,
    run, unregister,
};
use oz_testkit::eventually;
use serde_json::json;

use crate::alone;

#[tokio::test]
async fn without_a_stamp_nothing_is_granted_and_the_reason_says_what_to_do() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    install(cluster).await?;
    unregister(cluster)?;
    let operator = Operator::start(cluster, &Options::default()).await?;
    let scene = Scene::set(cluster, "unstamped").await?;
    let alice = scene.requests("alice").await?;
    let stamped = |name: &str, member: &str| {
        let mut request = exec_request(name, TEMPLATE, "5m");
        let stamp = json!({"user": "alice", "groups": ["devs"], member: "AAAA"});
        request.metadata.annotations = Some(BTreeMap::from([
            (labels::REQUESTED_BY.to_owned(), "alice".to_owned()),
            (labels::REQUESTER.to_owned(), stamp.to_string()),
        ]));
        request
    };
    for (request, reason) in [
        (exec_request("plain", TEMPLATE, "5m"), "NotStamped"),
        (stamped("forged", "sig"), "StampForged"),
        // A webhook of a release in which all components shared one key stamped like this.
        (stamped("retired", "mac"), "StampRetired"),
    ] {
        let name = request.name_any();
        alice.create(&request).await?;
        let status = alice.phase(&name, Phase::Denied).await?;
        let line = conditions_line(&status);
        assert!(
            line.contains(&format!("RequesterVerified=False ({reason}")),
            "{line}"
        );
        assert!(line.contains("create the request again"), "{line}");
    }
    // The canary has detected it too.
    let metrics = operator.metrics().await?;
    assert!(metrics.contains("oz_canary_stamped 0"), "{metrics}");
    Ok(())
}

#[tokio::test]
async fn a_stamp_is_for_one_request() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "copied").await?;
    let alice = scene.requests("alice").await?;
    let named = alice
        .granted(&exec_request("named", TEMPLATE, "5m"))
        .await?
        .request;
    let mut generated = exec_request("", TEMPLATE, "5m");
    (generated.metadata.name, generated.metadata.generate_name) = (None, Some("gen-".into()));
    let generated = alice.granted(&generated).await?.request;

    // The webhook is removed from the path, and mallory copies alice's stamps.
    system.webhook.process.kill9();
    unregister(cluster)?;
    let mallory = scene.requests("mallory").await?;
    for (original, name, prefix, reason) in [
        (&named, Some("other"), None, "StampOfAnotherRequest"),
        (&generated, None, Some("gen-"), "StampReplayed"),
        (&generated, Some("gen-mine"), None, "StampOfAnotherRequest"),
    ] {
        let mut copy = exec_request("", TEMPLATE, "5m");
        copy.metadata.name = name.map(str::to_owned);
        copy.metadata.generate_name = prefix.map(str::to_owned);
        copy.metadata.annotations = original.metadata.annotations.clone();
        let created = mallory.create(&copy).await?;
        let status = mallory.phase(&created.name_any(), Phase::Denied).await?;
        assert!(
            conditions_line(&status).contains(reason),
            "{reason}: {}",
            conditions_line(&status)
        );
    }
    Ok(())
}

#[tokio::test]
async fn undecodable_object_does_not_stop_others() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    install(cluster).await?;
    unregister(cluster)?;
    let scene = Scene::set(cluster, "odd").await?;
    // An older or foreign version of the definition might have admitted such an object.
    let lenient = json!([{
        "op": "replace",
        "path": "/spec/versions/0/schema/openAPIV3Schema",
        "value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }]);
    let mut patch = cluster.kubectl("admin");
    patch.args([
        "patch",
        "crd",
        "execaccessrequests.crds.wizardofoz.co",
        "--type=json",
        "-p",
    ]);
    patch.arg(lenient.to_string());
    run(patch)?;
    let resource = ApiResource::erase::<ExecAccessRequest>(&());
    let objects: kube::Api<DynamicObject> =
        kube::Api::namespaced_with(scene.admin.clone(), scene.name(), &resource);
    let odd =
        DynamicObject::new("odd", &resource).data(json!({"spec": {"templateName": ["a", "list"]}}));
    eventually(
        "the odd object to be let in",
        Duration::from_secs(30),
        async || Ok(Some(objects.create(&PostParams::default(), &odd).await?)),
    )
    .await?;
    let mut replace = cluster.kubectl("admin");
    replace
        .args(["replace", "-f"])
        .arg(repository().join("charts/oz/files/crds/execaccessrequests.yaml"));
    run(replace)?;

    let system = System::start(cluster).await?;
    let alice = scene.requests("alice").await?;
    alice.granted(&exec_request("fine", TEMPLATE, "5m")).await?;
    let metrics = system.operator.metrics().await?;
    let counted = metrics.lines().any(|line| {
        line.starts_with("oz_undecodable_objects")
            && line.contains("ExecAccessRequest")
            && line.ends_with(" 1")
    });
    assert!(counted, "{metrics}");
    Ok(())
}

#[tokio::test]
async fn without_the_webhook_no_request_is_admitted() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "closed").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("before", TEMPLATE, "5m"))
        .await?;
    system.webhook.process.kill9();
    assert!(
        alice
            .create(&exec_request("after", TEMPLATE, "5m"))
            .await
            .is_err()
    );
    // The requester can still delete a granted request: deletions are never gated.
    alice.api().delete("before", &Default::default()).await?;
    eventually("the grant to go", Duration::from_secs(60), async || {
        let (role, binding) = scene.grant(&asked.object_name()).await?;
        Ok((role.is_none() && binding.is_none()).then_some(()))
    })
    .await?;
    Ok(())
}
