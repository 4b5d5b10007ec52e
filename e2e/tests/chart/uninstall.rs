//! The chart's pre-delete hook, under exactly the rights that the hook has: all access ends, with or without an
//! operator,
//! and no object of oz blocks other users.

use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use oz_api::ExecAccessRequest;
use oz_api::harness::{HarnessRun, Workspace};
use oz_api::rego::RegoController;
use oz_core::transient::FINALIZER;
use oz_e2e::{
    NAMESPACE, Operator, Options, Scene, System, TEMPLATE, Webhook, apply_as, exec_request, left,
    records_of, run, volume,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, cargo_binary, eventually};
use serde_json::{Value, json};

use crate::{TURN, kubectl, name_of, rendered};

const USER: &str = "system:serviceaccount:oz-system:oz-uninstall";

/// Grants the hook's service account the rights that the chart grants it.
fn permit(cluster: &Cluster) -> Result<()> {
    let objects: Vec<Value> = rendered(&["--set=composites.enabled=true,harness.enabled=true"])?
        .into_iter()
        .filter(|object| {
            let name = name_of(object);
            name.ends_with(" oz-uninstall") && !name.starts_with("Job")
        })
        .collect();
    assert_eq!(objects.len(), 5);
    kubectl(cluster, &["apply"], &objects)
}

fn uninstall(cluster: &Cluster, patience: &str) -> Result<Command> {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:oz-system"];
    let mut command = Command::new(cargo_binary("oz-operator")?);
    command
        .arg("--kubeconfig")
        .arg(cluster.issue_kubeconfig(USER, &groups)?)
        .args(["--namespace=oz-system", "uninstall"])
        .arg(format!("--timeout={patience}"));
    Ok(command)
}

/// Returns the timeout of the hook for the operator, and kills the operator if the test is to run without it.
fn patience(operator: &mut Operator, deserted: bool) -> &'static str {
    if !deserted {
        return "60s";
    }
    operator.process.kill9();
    "3s"
}

async fn assert_nothing_left_but(cluster: &Cluster, spared: &[&str]) -> Result<()> {
    let mut left = left(&cluster.client("admin").await?).await?;
    left.retain(|object| !spared.contains(&object.as_str()));
    assert!(left.is_empty(), "{left:?}");
    let forbidden = cluster.audit().entries()?.by_user(USER);
    let forbidden = forbidden.filter(|entry| entry.code == 403);
    assert!(forbidden.is_empty(), "{forbidden:?}");
    Ok(())
}

#[tokio::test]
async fn the_operator_ends_all_access_before_the_webhooks_go() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    let mut system = System::start(cluster).await?;
    permit(cluster)?;
    let scene = Scene::set(cluster, "leaving").await?;
    let alice = scene.requests("alice").await?;
    alice
        .granted(&exec_request("debug", TEMPLATE, "30m"))
        .await?;
    // The webhook's Deployment does not exist here: the webhook is a process of this machine.
    system.webhook.process.kill9();

    run(uninstall(cluster, "60s")?)?;

    // No Deployment stops the operator here: it continues to run, and may not create a Secret.
    assert_nothing_left_but(cluster, &[]).await?;
    let ended = records_of(&system.operator.process, scene.name(), "debug")?;
    let last = ended.last().context("no record")?;
    assert_eq!(format!("{last:?}"), "AccessRevoked", "{ended:?}");
    assert!(alice.api().get_opt("debug").await?.is_none());
    Ok(())
}

/// Creates a pod of a webhook that was evicted: it has ended, and still exists.
async fn evicted(cluster: &Cluster) -> Result<(Api<Pod>, Pod)> {
    let pods: Api<Pod> = Api::namespaced(cluster.client("admin").await?, NAMESPACE);
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "evicted", "labels": {"app.kubernetes.io/component": "webhook"}},
        "spec": {
            "schedulerName": "nobody",
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "webhook", "image": "webhook",
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    }))?;
    let pod = pods.create(&PostParams::default(), &pod).await?;
    let failed = Patch::Merge(json!({"status": {"phase": "Failed", "reason": "Evicted"}}));
    pods.patch_status("evicted", &PatchParams::default(), &failed)
        .await?;
    Ok((pods, pod))
}

#[tokio::test]
async fn without_an_operator_access_ends_all_the_same() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    let mut system = System::start(cluster).await?;
    permit(cluster)?;
    let scene = Scene::set(cluster, "deserted").await?;
    let alice = scene.requests("alice").await?;
    // A requester can keep their request with finalizers, including oz's, and that delays nothing.
    let mut request = exec_request("debug", TEMPLATE, "30m");
    request.metadata.finalizers = Some(vec![FINALIZER.to_owned(), "example.com/other".to_owned()]);
    alice.granted(&request).await?;
    system.operator.process.kill9();
    system.webhook.process.kill9();
    let (pods, evicted) = evicted(cluster).await?;

    run(uninstall(cluster, "3s")?)?;

    pods.delete(&evicted.name_any(), &DeleteParams::default())
        .await?;
    let kept = format!("ExecAccessRequest {} debug", scene.name());
    assert_nothing_left_but(cluster, &[&kept]).await?;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    scene
        .api::<ExecAccessRequest>()
        .patch("debug", &PatchParams::default(), &free)
        .await?;
    Ok(())
}

/// Installs Fleets, and the account that may reconcile them.
fn fleets(cluster: &Cluster) -> Result<()> {
    oz_e2e::install_composites(cluster)?;
    let rights = json!([
        {"apiGroups": ["test.example.org"], "resources": ["fleets"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": ["test.example.org"], "resources": ["fleets/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "create", "patch", "delete"]},
    ]);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "fleets.test.example.org"},
        "spec": {
            "group": "test.example.org", "scope": "Namespaced",
            "names": {"kind": "Fleet", "plural": "fleets", "singular": "fleet", "listKind": "FleetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    });
    let rbac = "rbac.authorization.k8s.io";
    let may = [
        definition,
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "fleets"}, "rules": rights}),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "fleets"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "fleets"},
            "subjects": [{"kind": "ServiceAccount", "name": "oz-composites", "namespace": "oz-system"}],
        }),
    ];
    kubectl(cluster, &["apply"], &may)?;
    oz_e2e::established(cluster)
}

/// Creates a Fleet with a child that expires, by a RegoController; checks its finalizers, and returns the API of
/// Fleets.
async fn fleet(cluster: &Cluster, scene: &Scene) -> Result<Api<DynamicObject>> {
    let policy = "package controller\n\nchildren contains {\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \
                  \"metadata\": {\"name\": input.parent.metadata.name}}\n";
    let rego = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "RegoController",
        "metadata": {"name": "fleets"},
        "spec": {
            "parent": {"apiVersion": "test.example.org/v1", "resource": "fleets"},
            "children": [{"apiVersion": "v1", "resource": "configmaps"}],
            "policy": {"inline": policy},
            "window": {"until": ".spec.validUntil"},
            "runAs": {"namespace": "oz-system", "serviceAccount": "oz-composites"},
        },
    });
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let fleet = json!({
        "apiVersion": "test.example.org/v1", "kind": "Fleet",
        "metadata": {"name": "one", "namespace": scene.name()},
        "spec": {"validUntil": until.to_string()},
    });
    kubectl(cluster, &["apply"], &[rego, fleet])?;
    let admin = cluster.client("admin").await?;
    let children: Api<ConfigMap> = Api::namespaced(admin.clone(), scene.name());
    eventually("the child", CONDITION_TIMEOUT, async || {
        Ok(children.get_opt("one").await?)
    })
    .await?;
    let kind = GroupVersionKind::gvk("test.example.org", "v1", "Fleet");
    let resource = ApiResource::from_gvk_with_plural(&kind, "fleets");
    let fleets: Api<DynamicObject> = Api::namespaced_with(admin, scene.name(), &resource);
    let held = fleets.get("one").await?.finalizers().to_vec();
    assert_eq!(held, ["oz.wizardofoz.co/regocontroller-fleets"]);
    Ok(fleets)
}

/// Checks that the parent has no finalizer, that its child with an expiry is deleted, and that the RegoController is
/// deleted.
async fn assert_let_go(cluster: &Cluster, fleets: &Api<DynamicObject>) -> Result<()> {
    let one = fleets.get("one").await?;
    assert!(one.finalizers().is_empty(), "{:?}", one.finalizers());
    let admin = cluster.client("admin").await?;
    let namespace = one.namespace().context("no namespace")?;
    let children: Api<ConfigMap> = Api::namespaced(admin.clone(), &namespace);
    assert!(
        children.get_opt("one").await?.is_none(),
        "its child is there"
    );
    let regos: Api<RegoController> = Api::all(admin);
    assert!(
        regos.get_opt("fleets").await?.is_none(),
        "it is declared still"
    );
    Ok(())
}

/// Returns the options of an operator that runs composites.
fn running_composites() -> Options {
    Options::default().flag("--set=composites.enabled=true")
}

#[tokio::test]
async fn composites_let_go_of_their_parents_with_an_operator_and_without() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    for deserted in [false, true] {
        oz_e2e::install(cluster).await?;
        fleets(cluster)?;
        let mut system = System::start_with(cluster, &running_composites()).await?;
        permit(cluster)?;
        let name = if deserted { "idle" } else { "fleets" };
        let scene = Scene::set(cluster, name).await?;
        let fleets = fleet(cluster, &scene).await?;
        system.webhook.process.kill9();
        let patience = patience(&mut system.operator, deserted);
        let mut hook = uninstall(cluster, patience)?;
        hook.arg("--composite-account=oz-system/oz-composites");
        run(hook)?;
        assert_let_go(cluster, &fleets).await?;
        assert_nothing_left_but(cluster, &[]).await?;
    }
    Ok(())
}

/// Creates a run with a pod that no node takes, on a workspace that stays.
async fn waiting_run(scene: &Scene) -> Result<()> {
    let nowhere = json!({"spec": {"nodeSelector": {"no": "node"}}});
    scene.echo_template(nowhere).await?;
    let demo = json!({"metadata": {"name": "demo"}, "spec": {"storage": {"size": "1Gi"}}});
    let workspaces = scene.api::<Workspace>();
    apply_as(&workspaces, demo).await?;
    volume(&scene.admin, &format!("for-{}", scene.name())).await?;
    let run = json!({
        "metadata": {"name": "hello"},
        "spec": {"templateRef": {"name": "echo"}, "workspaceRef": "demo", "prompt": "hi"},
    });
    apply_as(&scene.api::<HarnessRun>(), run).await?;
    eventually(
        "the run to hold its workspace",
        CONDITION_TIMEOUT,
        async || {
            let job = scene.api::<Job>().get_opt("hello").await?;
            let is_held = !workspaces.get("demo").await?.finalizers().is_empty();
            Ok((job.is_some() && is_held).then_some(()))
        },
    )
    .await
}

#[tokio::test]
async fn runs_end_and_workspaces_stay_with_an_operator_and_without() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    for deserted in [false, true] {
        oz_e2e::install(cluster).await?;
        oz_e2e::install_harness(cluster)?;
        let admin = cluster.client("admin").await?;
        oz_e2e::announce_broker(&admin).await?;
        let options = Options::default().harness();
        let (mut webhook, mut operator) = tokio::try_join!(
            Webhook::start(cluster, &options),
            Operator::start(cluster, &options)
        )?;
        permit(cluster)?;
        let scene = Scene::empty(cluster, if deserted { "alone" } else { "ended" }).await?;
        waiting_run(&scene).await?;
        webhook.process.kill9();
        let patience = patience(&mut operator, deserted);
        let mut hook = uninstall(cluster, patience)?;
        hook.arg("--harness");
        run(hook)?;
        assert_nothing_left_but(cluster, &[]).await?;
        let runs = scene.api::<HarnessRun>().get_opt("hello").await?;
        assert!(runs.is_none(), "{runs:?}");
        let demo = scene.api::<Workspace>().get("demo").await?;
        assert!(demo.finalizers().is_empty(), "{:?}", demo.metadata);
        let claims = scene.api::<PersistentVolumeClaim>();
        let claims = claims.list(&ListParams::default()).await?.items;
        let kept = claims
            .iter()
            .all(|claim| claim.metadata.deletion_timestamp.is_none());
        assert!(claims.len() == 1 && kept, "{claims:?}");
        if !deserted {
            let ended = records_of(&operator.process, scene.name(), "hello")?;
            let last = ended.last().context("no record")?;
            assert_eq!(format!("{last:?}"), "RunEnded", "{ended:?}");
        }
    }
    Ok(())
}
