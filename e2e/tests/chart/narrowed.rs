//! A reduced installation: transient bindings that are switched off while some are in effect, and an oz that serves
//! single namespaces. The operator has only the rights of the reduced chart.

use anyhow::{Context as _, Result, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use oz_api::{Phase, TransientClusterRoleBinding, TransientRoleBinding};
use oz_core::transient::Kind;
use oz_e2e::{
    Operator, Options, Scene, TEMPLATE, Webhook, exec_request, forbidden, install, repository, run,
    unregister,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually};
use serde_json::{Value, json};

use crate::permissions::KINDS;
use crate::{TURN, kubectl, rendered};

/// Returns a binding of alison to `view` that begins at once.
fn binding<K: Kind>(name: &str, lasts: SignedDuration) -> Result<K> {
    Ok(serde_json::from_value(json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()),
        "metadata": {"name": name},
        "spec": {
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "alison"}],
            "validUntil": Timestamp::now() + lasts,
        },
    }))?)
}

async fn create<K: Kind>(api: &Api<K>, name: &str, lasts: SignedDuration) -> Result<()> {
    let binding = binding(name, lasts)?;
    api.create(&PostParams::default(), &binding).await?;
    reaches(api, name, Phase::Active).await
}

async fn reaches<K: Kind>(api: &Api<K>, name: &str, phase: Phase) -> Result<()> {
    eventually(
        &format!("{name} to be {phase}"),
        CONDITION_TIMEOUT,
        async || {
            let object = api.get(name).await?;
            match object.status() {
                Some(status) if status.phase == phase => Ok(Some(())),
                status => bail!("{status:?}"),
            }
        },
    )
    .await
}

async fn goes<K: Kind>(api: &Api<K>, name: &str) -> Result<()> {
    api.delete(name, &DeleteParams::default()).await?;
    eventually(
        &format!("{name} to be gone"),
        CONDITION_TIMEOUT,
        async || Ok(api.get_opt(name).await?.is_none().then_some(())),
    )
    .await
}

fn refused<T: std::fmt::Debug>(answer: kube::Result<T>) -> Result<String> {
    match answer {
        Err(kube::Error::Api(status)) => Ok(status.message.clone()),
        other => bail!("{other:?}"),
    }
}

fn as_administrator(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(arguments);
    run(kubectl).map(drop)
}

fn nothing_was_forbidden(cluster: &Cluster, mark: oz_testkit::AuditMark) -> Result<()> {
    let forbidden = forbidden(cluster, mark, &["oz-operator", "oz-webhook"])?;
    assert!(forbidden.is_empty(), "{forbidden:?}");
    Ok(())
}

#[tokio::test]
async fn bindings_end_at_expiry_after_feature_is_disabled() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    install(cluster).await?;
    let roles = repository().join("deploy/rbac/transient/operator.yaml");
    let roles = roles.display().to_string();
    as_administrator(
        cluster,
        &["apply", "--server-side", "--force-conflicts", "-f", &roles],
    )?;
    let on = Options::default().flag("--set=transient.bindableRoles=[view]");
    let (_webhook, mut operator) =
        tokio::try_join!(Webhook::start(cluster, &on), Operator::start(cluster, &on))?;
    let scene = Scene::empty(cluster, "off").await?;
    let bindings = scene.api::<TransientRoleBinding>();
    let everywhere: Api<TransientClusterRoleBinding> = Api::all(scene.admin.clone());
    let (soon, late) = (SignedDuration::from_secs(20), SignedDuration::from_hours(1));
    create(&bindings, "late", late).await?;
    create(&bindings, "soon", soon).await?;
    create(&everywhere, "off-soon", soon).await?;

    operator.process.kill9();
    as_administrator(cluster, &["delete", "-f", &roles])?;
    let mark = cluster.audit().mark()?;
    let _operator = Operator::start(cluster, &Options::default()).await?;

    reaches(&bindings, "soon", Phase::Expired).await?;
    reaches(&everywhere, "off-soon", Phase::Expired).await?;
    // A binding in effect stays in effect until its expiry, or until a user deletes it.
    reaches(&bindings, "late", Phase::Active).await?;
    goes(&bindings, "late").await?;
    goes(&bindings, "soon").await?;
    goes(&everywhere, "off-soon").await?;
    let made = scene.api::<RoleBinding>();
    for name in ["late", "soon"] {
        assert!(made.get_opt(name).await?.is_none());
    }
    let made: Api<ClusterRoleBinding> = Api::all(scene.admin.clone());
    assert!(made.get_opt("off-soon").await?.is_none());
    nothing_was_forbidden(cluster, mark)?;
    unregister(cluster)
}

/// Applies the chart's roles, service accounts and bindings, without those of hooks, and deletes those that other tests
/// applied.
fn permit(cluster: &Cluster, flags: &[&str]) -> Result<Vec<Value>> {
    for names in [
        "oz-operator",
        "oz-operator-pods",
        "oz-operator-transient",
        "oz-webhook",
        "oz-webhook-transient",
    ] {
        let kinds = "clusterroles,clusterrolebindings";
        as_administrator(cluster, &["delete", kinds, names, "--ignore-not-found"])?;
    }
    let mut objects = rendered(flags)?;
    objects.retain(|object| {
        KINDS.contains(&object["kind"].as_str().unwrap_or_default())
            && object["metadata"]["annotations"]["helm.sh/hook"].is_null()
    });
    let apply = ["apply", "--server-side", "--force-conflicts"];
    kubectl(cluster, &apply, &objects)?;
    Ok(objects)
}

/// Checks that helm refuses to remove the namespace: that would now leave the access behind that was granted in it, and
/// the chart names all of it.
fn assert_namespace_cannot_be_removed(
    cluster: &Cluster,
    scene: &Scene,
    other: &Scene,
) -> Result<()> {
    let install = |namespace: &str| {
        let mut helm = oz_e2e::helm(cluster)?;
        helm.args(["install", "oz", &oz_e2e::chart(), "--take-ownership"])
            .args(["--dry-run=server", "--set"])
            .arg(format!("access.namespaces={{{namespace}}}"));
        run(helm)
    };
    install(scene.name())?;
    let Err(refusal) = install(other.name()) else {
        bail!("a namespace was taken away in which access is given");
    };
    let said = refusal.to_string();
    for (kind, name) in [
        ("rolebinding", "debug"),
        ("rolebinding", "shift"),
        ("transientrolebindings.crds.wizardofoz.co", "shift"),
    ] {
        let found = said.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(kind)
                && words.next().is_some_and(|it| it.starts_with(name))
                && line.ends_with(scene.name())
        });
        anyhow::ensure!(found, "{kind} {name}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn an_oz_for_some_namespaces_serves_those_and_refuses_in_others() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    install(cluster).await?;
    let scene = Scene::set(cluster, "served").await?;
    let other = Scene::set(cluster, "unserved").await?;
    let values = format!(
        "--set=access.namespaces={{{}}},transient.bindableRoles={{view}}",
        scene.name()
    );
    let applied = permit(cluster, &[&values])?;
    let mark = cluster.audit().mark()?;
    let options = Options::default()
        .flag("--set=transient.bindableRoles=[view]")
        .flag(&format!("--set=access.namespaces=[{}]", scene.name()));
    let (webhook, operator) = tokio::try_join!(
        Webhook::start(cluster, &options),
        Operator::start(cluster, &options)
    )?;

    let alice = scene.requests("alice").await?;
    let request = exec_request("debug", TEMPLATE, "30m");
    alice.granted(&request).await?;
    let elsewhere = other.requests("alice").await?;
    let said = refused(
        elsewhere
            .api()
            .create(&PostParams::default(), &request)
            .await,
    )?;
    assert!(said.contains("serves served-"), "{said}");

    let bindings = scene.api::<TransientRoleBinding>();
    create(&bindings, "shift", SignedDuration::from_hours(1)).await?;
    let unserved = other.api::<TransientRoleBinding>();
    let shift = binding("shift", SignedDuration::from_hours(1))?;
    let said = refused(unserved.create(&PostParams::default(), &shift).await)?;
    assert!(said.contains("add the namespace"), "{said}");

    let everywhere: Api<TransientClusterRoleBinding> = Api::all(scene.admin.clone());
    create(&everywhere, "served-shift", SignedDuration::from_hours(1)).await?;
    let events: Api<Event> = Api::namespaced(scene.admin.clone(), "default");
    eventually(
        "an event about the cluster's binding",
        CONDITION_TIMEOUT,
        async || {
            let list = events.list(&ListParams::default()).await?;
            let found = list.iter().any(|event| {
                let regarding = event.regarding.as_ref();
                regarding.and_then(|it| it.name.as_deref()) == Some("served-shift")
            });
            Ok(found.then_some(()))
        },
    )
    .await?;

    assert_namespace_cannot_be_removed(cluster, &scene, &other)?;

    goes(&everywhere, "served-shift").await?;
    goes(&bindings, "shift").await?;
    alice
        .api()
        .delete("debug", &DeleteParams::default())
        .await?;
    eventually("the grant to be gone", CONDITION_TIMEOUT, async || {
        let (role, binding) = scene.grant("debug").await?;
        Ok((role.is_none() && binding.is_none()).then_some(()))
    })
    .await?;
    nothing_was_forbidden(cluster, mark).context("under the roles of single namespaces")?;
    drop((webhook, operator));
    unregister(cluster)?;
    kubectl(cluster, &["delete", "--ignore-not-found"], &applied)
}
