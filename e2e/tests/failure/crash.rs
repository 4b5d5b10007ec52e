//! Kills of the operator without warning, at any moment.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams, PropagationPolicy};
use oz_api::{ExecAccessRequest, Phase, labels};
use oz_e2e::{
    LEASE_AND_TURNS, Operator, Options, Scene, System, TEMPLATE, exec_request, install,
    records_about, records_of, unregister,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use oz_trail::Action;

use crate::alone;

#[tokio::test]
async fn request_deleted_during_downtime_leaves_only_its_record() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "down").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice.granted(&exec_request("gone", TEMPLATE, "1h")).await?;

    system.operator.process.kill9();
    alice.api().delete("gone", &DeleteParams::default()).await?;
    let (name, role) = (asked.object_name(), asked.role_name());
    // No operator runs: the garbage collector ends access.
    scene.gone::<RoleBinding>(&name, CONDITION_TIMEOUT).await?;
    assert!(
        scene.api::<Role>().get_opt(&role).await?.is_some(),
        "the Role is what tells of it"
    );

    let operator = Operator::start(cluster, &Options::default()).await?;
    scene.gone::<Role>(&role, CONDITION_TIMEOUT).await?;
    assert_eq!(
        records_of(&operator.process, scene.name(), "gone")?,
        [Action::AccessRevoked]
    );
    Ok(())
}

#[tokio::test]
async fn orphaned_binding_is_deleted_at_start_and_lookalike_stays() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "left").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice.granted(&exec_request("left", TEMPLATE, "1h")).await?;
    let name = asked.object_name();
    let bindings = scene.api::<RoleBinding>();
    let ours = bindings.get(&name).await?;

    system.operator.process.kill9();
    let orphaning = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    alice.api().delete("left", &orphaning).await?;
    let within = CONDITION_TIMEOUT;
    scene.gone::<ExecAccessRequest>("left", within).await?;
    let now = DeleteParams::default();
    scene.api::<Role>().delete(&asked.role_name(), &now).await?;
    let left = bindings.get(&name).await?;
    assert_eq!(left.metadata.owner_references, None, "nothing ends it");
    let mut forged = ours.clone();
    forged.metadata = ObjectMeta {
        name: Some("forged".to_owned()),
        labels: ours.metadata.labels,
        annotations: ours.metadata.annotations,
        ..ObjectMeta::default()
    };
    // The policy, while it is in place, denies such a binding.
    unregister(cluster)?;
    bindings.create(&PostParams::default(), &forged).await?;
    install(cluster).await?;

    let operator = Operator::start(cluster, &Options::default()).await?;
    scene.gone::<RoleBinding>(&name, CONDITION_TIMEOUT).await?;
    assert!(bindings.get_opt("forged").await?.is_some());
    eventually("the record of it", CONDITION_TIMEOUT, async || {
        let records = records_of(&operator.process, scene.name(), "left")?;
        Ok((records == [Action::AccessRevoked]).then_some(()))
    })
    .await
}

#[tokio::test]
async fn grant_that_expired_during_downtime_ends_at_restart() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "late").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice.granted(&exec_request("late", TEMPLATE, "3s")).await?;
    let until = asked.status().expires_at.context("no end")?;

    system.operator.process.kill9();
    alice.create(&exec_request("fresh", TEMPLATE, "1h")).await?;
    eventually("the end to pass", CONDITION_TIMEOUT, async || {
        Ok((Timestamp::now() > until).then_some(()))
    })
    .await?;

    let operator = Operator::start(cluster, &Options::default()).await?;
    alice.phase("late", Phase::Expired).await?;
    alice.ready("fresh").await?;
    let (role, binding) = eventually("all of it to go", CONDITION_TIMEOUT, async || {
        let left = scene.grant(&asked.object_name()).await?;
        Ok(left.0.is_none().then_some(left))
    })
    .await?;
    assert!(role.is_none() && binding.is_none());
    assert_eq!(
        records_about(&operator.process, &asked.request)?,
        [Action::AccessExpired]
    );
    Ok(())
}

#[tokio::test]
async fn killed_at_any_moment_of_a_grant_the_next_one_completes_it() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "kill").await?;
    let alice = scene.requests("alice").await?;
    // The moment of the kill moves through the few milliseconds that a grant takes.
    for milliseconds in (0..=44).step_by(4) {
        let name = format!("kill-{milliseconds}");
        alice.create(&exec_request(&name, TEMPLATE, "1h")).await?;
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        system.operator.process.kill9();
        let before = decided(&scene, &name).await?;
        system.operator = Operator::start(cluster, &Options::default()).await?;
        let asked = alice.ready(&name).await?;
        let after = decided(&scene, &name).await?;
        assert_eq!(after.len(), 1, "{name}: one decision");
        assert!(before.is_empty() || before == after, "{name}: decided once");
        let (_, binding) = scene.grant(&asked.object_name()).await?;
        assert!(binding.is_some(), "{name}");
    }
    let bindings = scene
        .api::<RoleBinding>()
        .list(&ListParams::default())
        .await?;
    let ours = bindings
        .items
        .iter()
        .filter(|one| one.metadata.owner_references.is_some())
        .count();
    assert_eq!(ours, 12, "one for each request");
    Ok(())
}

/// Returns the pods that Roles of this request name.
async fn decided(scene: &Scene, request: &str) -> Result<Vec<Option<Vec<String>>>> {
    let roles = scene.api::<Role>().list(&ListParams::default()).await?;
    let is_of = |role: &Role| {
        role.annotations()
            .get(labels::OWNER_NAME)
            .is_some_and(|it| it == request)
    };
    Ok(roles
        .items
        .into_iter()
        .filter(is_of)
        .filter_map(|role| role.rules)
        .map(|rules| rules.first().and_then(|rule| rule.resource_names.clone()))
        .collect())
}

#[tokio::test]
async fn killed_at_any_moment_of_an_end_the_next_one_ends_it() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "killend").await?;
    let alice = scene.requests("alice").await?;
    for milliseconds in (0..=60).step_by(15) {
        let name = format!("end-{milliseconds}");
        let asked = alice.granted(&exec_request(&name, TEMPLATE, "3s")).await?;
        let until =
            asked.status().expires_at.context("no end")? + Duration::from_millis(milliseconds);
        let left = until.duration_since(Timestamp::now());
        tokio::time::sleep(left.try_into().unwrap_or_default()).await;
        system.operator.process.kill9();
        system.operator = Operator::start(cluster, &Options::default()).await?;
        alice.phase(&name, Phase::Expired).await?;
        eventually(
            &format!("all of {name} to go"),
            CONDITION_TIMEOUT,
            async || {
                let (role, binding) = scene.grant(&asked.object_name()).await?;
                Ok((role.is_none() && binding.is_none()).then_some(()))
            },
        )
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn requests_that_cannot_be_satisfied_delay_nobodys_end_and_idling_writes_nothing()
-> Result<()> {
    let (_turn, cluster) = alone().await?;
    let system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "busy").await?;
    let alice = scene.requests("alice").await?;
    for number in 0..30 {
        let mut request = exec_request(&format!("stuck-{number}"), TEMPLATE, "1h");
        request.spec.target_pod = Some("not-there".into());
        alice.create(&request).await?;
    }
    let asked = alice
        .granted(&exec_request("brief", TEMPLATE, "4s"))
        .await?;
    let until = asked.status().expires_at.context("no end")?;
    let (name, within) = (asked.object_name(), CONDITION_TIMEOUT);
    scene.gone::<RoleBinding>(&name, within).await?;
    let lag = Timestamp::now().duration_since(until);
    assert!(lag < LEASE_AND_TURNS, "{lag:#}");

    // The latest records are signed a few seconds later, once.
    eventually(
        "the audit trail to be signed",
        CONDITION_TIMEOUT,
        async || {
            let metrics = system.operator.metrics().await?;
            let none = |name: &str| metrics.contains(&format!("oz_audit_{name} 0\n"));
            Ok((none("waiting") && none("unsigned")).then_some(()))
        },
    )
    .await?;

    // The operator is watched for ten idle seconds: it writes nothing.
    let mark = cluster.audit().mark()?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let operator = format!("system:serviceaccount:{}:oz-operator", oz_e2e::NAMESPACE);
    let writes = cluster
        .audit()
        .since(mark)?
        .by_user(&operator)
        .writes()
        .filter(|entry| entry.resource != "leases" && entry.resource != "events" && !entry.dry_run);
    assert_eq!(writes.len(), 0, "{:?}", writes.counts());
    Ok(())
}
