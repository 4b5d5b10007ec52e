//! Enforcing and observing namespaces, and their behaviour while oz is down.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use oz_api::{TargetKind, labels};
use oz_e2e::{
    Options, Scene, System, TEMPLATE, Webhook, exec_request, exec_template, install, records_in,
    refusal,
};
use oz_testkit::{CONDITION_TIMEOUT, eventually, fixtures};
use oz_trail::Action;
use serde_json::json;

use crate::alone;

#[tokio::test]
async fn enforcing_namespace_admits_connections_with_grant_only() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "enforcing").await?;
    scene
        .standing("bob", "pods/exec", &["get", "create"])
        .await?;
    let open = scene
        .exec("bob", &[&scene.pod()?, "--", "echo", "in"])
        .output()?;
    assert_eq!(refusal(&open), None, "observing refuses nobody");

    scene.enforce().await?;
    let refused = eventually("bob to be refused", CONDITION_TIMEOUT, async || {
        Ok(refusal(
            &scene.exec("bob", &[&scene.pod()?, "--", "true"]).output()?,
        ))
    })
    .await?;
    assert!(refused.contains("bob has no grant for pod"), "{refused}");
    assert!(refused.contains("ozctl create exec"), "{refused}");

    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    let echo = scene
        .exec("alice", &[&granted.pod(), "--", "echo", "a b", ""])
        .output()?;
    assert_eq!(refusal(&echo), None);
    assert_eq!(String::from_utf8(echo.stdout)?, "a b \n");
    let other = scene
        .pods
        .iter()
        .filter_map(|pod| pod.metadata.name.clone());
    let other = other
        .into_iter()
        .find(|name| *name != granted.pod())
        .context("one pod")?;
    scene
        .standing("alice", "pods/exec", &["get", "create"])
        .await?;
    let elsewhere = refusal(&scene.exec("alice", &[&other, "--", "true"]).output()?);
    assert!(elsewhere.is_some_and(|why| why.contains("not to pod")));

    alice.api().delete("mine", &DeleteParams::default()).await?;
    let revoked = eventually("alice to be refused", CONDITION_TIMEOUT, async || {
        Ok(refusal(
            &scene
                .exec("alice", &[&granted.pod(), "--", "true"])
                .output()?,
        ))
    })
    .await?;
    assert!(revoked.contains("oz: "), "{revoked}");

    let records = records_in(&system.webhook.process)?;
    let of = |user: &str, action: Action| {
        let records = records.iter();
        let theirs = records.filter(|record| {
            record.action == action && record.user.as_ref().is_some_and(|who| who.user == user)
        });
        theirs.cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("alice", Action::SessionOpened).len(), 1);
    assert_eq!(of("alice", Action::SessionOpened)[0].request.name, "mine");
    assert_eq!(of("bob", Action::SessionOpened)[0].reason, "Observed");
    let events: Api<Event> = scene.api();
    eventually("the events on the pod", CONDITION_TIMEOUT, async || {
        let events = events.list(&ListParams::default()).await?.items;
        let has = |reason: &str| {
            events.iter().any(|event| {
                event.reason.as_deref() == Some(reason)
                    && event.involved_object.kind.as_deref() == Some("Pod")
            })
        };
        Ok((has("SessionOpened") && has("SessionRefused")).then_some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn denied_kubectl_exec_is_recorded_once() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "once").await?;
    scene
        .standing("bob", "pods/exec", &["get", "create"])
        .await?;
    scene.enforce().await?;
    eventually("bob to be refused", CONDITION_TIMEOUT, async || {
        Ok(refusal(
            &scene.exec("bob", &[&scene.pod()?, "--", "true"]).output()?,
        ))
    })
    .await?;
    let counted = || -> Result<usize> {
        let records = records_in(&system.webhook.process)?;
        let refused = records.iter().filter(|record| {
            record.action == Action::SessionRefused && record.request.namespace == scene.name()
        });
        Ok(refused.count())
    };
    let before = counted()?;
    let again = scene.exec("bob", &[&scene.pod()?, "--", "ls"]).output()?;
    assert!(refusal(&again).is_some());
    assert_eq!(counted()?, before + 1);
    Ok(())
}

/// Removes the rights on AuditEvents from the webhook's role.
async fn without_events(admin: &kube::Client) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    let role = roles.get("oz-webhook").await?;
    let mut rules = role.rules.unwrap_or_default();
    for rule in &mut rules {
        if let Some(resources) = &mut rule.resources {
            resources.retain(|resource| resource != "auditevents");
        }
    }
    rules.retain(|rule| rule.resources.as_ref().is_none_or(|all| !all.is_empty()));
    let patch = Patch::Merge(json!({ "rules": rules }));
    let parameters = PatchParams::default();
    roles.patch("oz-webhook", &parameters, &patch).await?;
    Ok(())
}

#[tokio::test]
async fn a_session_that_cannot_be_put_on_record_is_refused_unless_that_is_not_required()
-> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "optional").await?;
    scene.enforce().await?;
    let alice = scene.requests("alice").await?;
    let granted = alice.granted(&exec_request("mine", TEMPLATE, "5m")).await?;
    let enter = || -> Result<Option<String>> {
        let pod = granted.pod();
        Ok(refusal(
            &scene.exec("alice", &[&pod, "--", "true"]).output()?,
        ))
    };
    without_events(&scene.admin).await?;
    let mut came = Vec::new();
    for required in [true, false] {
        system.webhook.process.kill9();
        let options = Options::default().set("webhook.auditRequired", required);
        system.webhook = Webhook::start(cluster, &options).await?;
        came.push((enter()?, system.webhook.metrics().await?));
    }
    install(cluster).await?;
    let opened = |metrics: &str| {
        let mut lines = metrics.lines();
        lines.find_map(|line| {
            let count = line.strip_prefix("oz_audit_unrecorded_sessions_total ")?;
            count.parse::<u32>().ok()
        })
    };
    let [(refused, before), (entered, after)] = &came[..] else {
        unreachable!("two were tried")
    };
    let why = refused.as_ref().context("nobody was refused")?;
    assert!(why.contains("record"), "{why}");
    assert_eq!((entered, opened(before)), (&None, Some(0)));
    assert_eq!(opened(after), Some(1));
    Ok(())
}

#[tokio::test]
async fn with_every_replica_dead_break_glass_gets_in_and_grantees_of_enforcing_namespaces_do_not()
-> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let enforcing = Scene::set(cluster, "closed").await?;
    let observing = Scene::set(cluster, "open").await?;
    enforcing.enforce().await?;
    let mut granted = Vec::new();
    for scene in [&enforcing, &observing] {
        let alice = scene.requests("alice").await?;
        granted.push(
            alice
                .granted(&exec_request("mine", TEMPLATE, "10m"))
                .await?,
        );
    }
    let reach = |scene: &Scene, user: &str, pod: &str| {
        Ok::<_, anyhow::Error>(refusal(&scene.exec(user, &[pod, "--", "true"]).output()?))
    };
    assert_eq!(reach(&enforcing, "alice", &granted[0].pod())?, None);

    system.webhook.process.kill9();
    system.operator.process.kill9();
    for scene in [&enforcing, &observing] {
        assert_eq!(
            reach(scene, "admin", &scene.pod()?)?,
            None,
            "{}",
            scene.name()
        );
    }
    let refused = reach(&enforcing, "alice", &granted[0].pod())?;
    assert!(refused.is_some_and(|why| why.contains("connect.kb.io")));
    // An observing namespace denies no connection.
    assert_eq!(reach(&observing, "alice", &granted[1].pod())?, None);
    Ok(())
}

#[tokio::test]
async fn a_pod_that_comes_back_under_its_name_is_another_pod() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::empty(cluster, "again").await?;
    fixtures::stateful_set(&scene.admin, scene.name(), "db", 1).await?;
    scene
        .template(&exec_template("db", TargetKind::StatefulSet, "db"))
        .await?;
    scene.enforce().await?;
    let alice = scene.requests("alice").await?;
    alice.granted(&exec_request("mine", "db", "10m")).await?;
    let enter = || {
        Ok::<_, anyhow::Error>(refusal(
            &scene.exec("alice", &["db-0", "--", "true"]).output()?,
        ))
    };
    assert_eq!(enter()?, None);

    // No operator revokes the grant: the hook alone must distinguish the two pods.
    system.operator.process.kill9();
    let pods: Api<Pod> = scene.api();
    let before = pods.get("db-0").await?.metadata.uid;
    let now = DeleteParams::default().grace_period(0);
    pods.delete("db-0", &now).await?;
    fixtures::ready_pods(&scene.admin, scene.name(), "app=db", 1).await?;
    assert_ne!(pods.get("db-0").await?.metadata.uid, before);
    let refused = eventually("alice to be refused", CONDITION_TIMEOUT, async || enter()).await?;
    assert!(refused.contains("was replaced"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn the_label_that_makes_a_namespace_enforcing_is_guarded() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let _system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "guarded").await?;
    scene.enforce().await?;
    let bind = |name: &str, user: &str, role: &str| {
        serde_json::from_value::<ClusterRoleBinding>(json!({
            "metadata": { "name": format!("{}-{name}", scene.name()) },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
            },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
        }))
    };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": format!("{}-labels", scene.name()) },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "patch", "update"] }],
    });
    let parameters = PostParams::default();
    Api::all(scene.admin.clone())
        .create(
            &parameters,
            &serde_json::from_value::<k8s_openapi::api::rbac::v1::ClusterRole>(role)?,
        )
        .await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(scene.admin.clone());
    let labels_role = format!("{}-labels", scene.name());
    bindings
        .create(&parameters, &bind("bob", "bob", &labels_role)?)
        .await?;
    bindings
        .create(&parameters, &bind("alice", "alice", "cluster-admin")?)
        .await?;

    let off = json!({ "metadata": { "labels": { labels::ENFORCE: null } } });
    let other = json!({ "metadata": { "labels": { labels::ENFORCE: "True" } } });
    let harmless = json!({ "metadata": { "labels": { "team": "shop" } } });
    let change = async |user: &str, change: &serde_json::Value| -> Result<Option<String>> {
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> =
            Api::all(cluster.client(user).await?);
        let patch = Patch::Merge(change);
        Ok(
            match namespaces
                .patch(scene.name(), &PatchParams::default(), &patch)
                .await
            {
                Ok(_) => None,
                Err(kube::Error::Api(status)) => Some(status.message.clone()),
                Err(error) => return Err(error.into()),
            },
        )
    };
    for forbidden in [&off, &other] {
        let refused = change("bob", forbidden).await?;
        assert!(refused.is_some_and(|why| why.contains("may not remove the label")));
    }
    assert_eq!(change("bob", &harmless).await?, None);
    // An administrator may, by RBAC or by break-glass.
    assert_eq!(change("alice", &off).await?, None);
    scene.enforce().await?;
    assert_eq!(change("admin", &off).await?, None);
    bindings
        .delete(&format!("{}-alice", scene.name()), &DeleteParams::default())
        .await?;
    Ok(())
}
