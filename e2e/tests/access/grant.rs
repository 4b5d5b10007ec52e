//! The rights of a grant, its user, and its cost in requests to the API server.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use oz_api::{ExecAccessTemplate, Operation, Phase, TargetKind};
use oz_e2e::{NAMESPACE, Scene, TEMPLATE, active, exec_request, exec_template, records_of};
use oz_testkit::{CONDITION_TIMEOUT, eventually, fixtures};
use oz_trail::Action;

use crate::{scene, system};

#[tokio::test]
async fn access_is_for_the_requester_alone_on_one_pod() -> Result<()> {
    let scene = scene("grant").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("debug", TEMPLATE, "5m"))
        .await?;
    let pod = asked.pod();

    let (role, binding) = scene.grant(&asked.object_name()).await?;
    let role = role.context("no role")?;
    let binding = binding.context("no binding")?;
    let subjects = binding.subjects.unwrap_or_default();
    assert_eq!(subjects.len(), 1);
    assert_eq!(
        (subjects[0].kind.as_str(), subjects[0].name.as_str()),
        ("User", "alice")
    );
    let rules: Vec<_> = role
        .rules
        .unwrap_or_default()
        .into_iter()
        .map(|rule| {
            let names = rule.resource_names.unwrap_or_default();
            (
                rule.resources.unwrap_or_default().join(","),
                rule.verbs.join(","),
                names.join(","),
            )
        })
        .collect();
    assert_eq!(
        rules,
        [
            ("pods".into(), "get,list,watch".into(), pod.clone()),
            ("pods/exec".into(), "get,create".into(), pod.clone()),
        ]
    );

    let other = scene
        .pods
        .iter()
        .map(ResourceExt::name_any)
        .find(|name| *name != pod);
    let other = other.context("no other pod")?;
    assert!(
        scene.can("alice", "create", &format!("pods/{pod}/exec"))?
            || can_exec(&scene, "alice", &pod)?
    );
    assert!(!can_exec(&scene, "alice", &other)?);
    assert!(
        !can_exec(&scene, "bob", &pod)?,
        "bob is of the same group, but did not ask"
    );
    assert!(!can_exec(&scene, "mallory", &pod)?);
    Ok(())
}

/// Checks by a real exec: through the API server, its authorization and a node.
fn can_exec(scene: &Scene, user: &str, pod: &str) -> Result<bool> {
    let output = scene
        .cluster
        .kubectl(user)
        .args(["exec", "-n", scene.name(), pod, "--", "echo", "inside"])
        .output()?;
    Ok(output.status.success() && output.stdout == b"inside\n")
}

#[tokio::test]
async fn status_events_and_audit_records_of_grant_agree() -> Result<()> {
    let scene = scene("status").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice
        .granted(&exec_request("debug", TEMPLATE, "5m"))
        .await?;
    let status = asked.status();
    assert!(active(&status));
    assert_eq!(status.requester.as_deref(), Some("alice"));
    let created = asked
        .request
        .creation_timestamp()
        .context("no creation time")?
        .0;
    assert_eq!(
        status.expires_at,
        Some(created + jiff::SignedDuration::from_mins(5))
    );
    let pod: Pod = scene.api().get(&asked.pod()).await?;
    assert_eq!(status.pod_uid, pod.uid());
    assert_eq!(
        status.access_message,
        Some(format!(
            "kubectl exec -ti -n {} {} -- /bin/sh",
            scene.name(),
            asked.pod()
        ))
    );
    let owners = asked.request.owner_references();
    let template: ExecAccessTemplate = scene.api().get(TEMPLATE).await?;
    assert_eq!(
        owners
            .iter()
            .map(|owner| Some(owner.uid.clone()))
            .collect::<Vec<_>>(),
        [template.uid()]
    );

    let system = system().await?;
    assert_eq!(
        records_of(&system.webhook.process, scene.name(), "debug")?,
        [Action::RequestCreated]
    );
    assert_eq!(
        records_of(&system.operator.process, scene.name(), "debug")?,
        [Action::AccessGranted]
    );
    let events: Api<Event> = scene.api();
    eventually("the event AccessGranted", CONDITION_TIMEOUT, async || {
        let seen = events.list(&ListParams::default()).await?;
        Ok(seen
            .items
            .into_iter()
            .find(|event| event.reason.as_deref() == Some("AccessGranted")))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_grant_costs_three_writes() -> Result<()> {
    let scene = scene("cost").await?;
    let alice = scene.requests("alice").await?;
    let mark = scene.cluster.audit().mark()?;
    alice
        .granted(&exec_request("debug", TEMPLATE, "5m"))
        .await?;
    let operator = format!("system:serviceaccount:{NAMESPACE}:oz-operator");
    let writes = scene
        .cluster
        .audit()
        .since(mark)?
        .by_user(&operator)
        .in_namespace(scene.name())
        .writes()
        .filter(|entry| {
            !["events", "execaccesstemplates"].contains(&entry.resource.as_str()) && !entry.dry_run
        });
    let counts: Vec<_> = writes
        .counts()
        .into_keys()
        .map(|(_, verb, what)| format!("{verb} {what}"))
        .collect();
    assert_eq!(writes.len(), 3, "{counts:?}");
    Ok(())
}

/// The API server reads a list that must be current from etcd where its cache is behind, every object of the namespace:
/// a user who fills a namespace with pods of a megabyte would slow the grants of all users. The operator does not list
/// the
/// namespace's RoleBindings, which are as many as its grants, at all.
#[tokio::test]
async fn a_grant_takes_no_list_that_must_be_current_and_none_of_bindings() -> Result<()> {
    system().await?.operator.reserves().await?;
    let scene = scene("cached").await?;
    let alice = scene.requests("alice").await?;
    // The first grant of a workload reads its selector.
    alice
        .granted(&exec_request("first", TEMPLATE, "5m"))
        .await?;
    let mark = scene.cluster.audit().mark()?;
    let asked = exec_request("debug", TEMPLATE, "5m");
    let pod = alice.granted(&asked).await?.pod().to_owned();
    let entries = scene.cluster.audit().since(mark)?;
    let operator = format!("system:serviceaccount:{NAMESPACE}:oz-operator");
    let entries = entries.by_user(&operator).in_namespace(scene.name());
    for resource in ["pods", "replicasets"] {
        let lists = entries.clone().with_verb("list");
        let lists = lists.filter(|entry| entry.resource == resource);
        assert!(!lists.is_empty(), "{resource}");
        for list in lists.iter() {
            let uri = &list.request_uri;
            assert!(uri.contains("resourceVersion=0"), "{uri}");
        }
    }
    let lists = entries.clone().with_verb("list");
    let bindings = lists.filter(|entry| entry.resource == "rolebindings");
    assert!(bindings.is_empty(), "{}", bindings.len());
    let confirmed = entries.with_verb("get").on("", "pods");
    assert!(confirmed.iter().any(|entry| entry.name == pod), "{pod}");
    Ok(())
}

#[tokio::test]
async fn a_named_pod_is_the_one_and_a_changed_mind_needs_a_new_request() -> Result<()> {
    let scene = scene("named").await?;
    let alice = scene.requests("alice").await?;
    for pod in &scene.pods {
        let mut request = exec_request(&format!("for-{}", pod.name_any()), TEMPLATE, "5m");
        request.spec.target_pod = pod.metadata.name.clone();
        assert_eq!(alice.granted(&request).await?.pod(), pod.name_any());
    }
    Ok(())
}

#[tokio::test]
async fn every_kind_of_workload_is_a_target() -> Result<()> {
    system().await?;
    let scene = Scene::empty(oz_testkit::Cluster::shared().await?, "kinds").await?;
    fixtures::stateful_set(&scene.admin, scene.name(), "db", 2).await?;
    fixtures::daemon_set(&scene.admin, scene.name(), "agent").await?;
    let alice = scene.requests("alice").await?;
    for (kind, target) in [
        (TargetKind::StatefulSet, "db"),
        (TargetKind::DaemonSet, "agent"),
    ] {
        scene.template(&exec_template(target, kind, target)).await?;
        let asked = alice.granted(&exec_request(target, target, "5m")).await?;
        assert!(asked.pod().starts_with(target), "{kind}: {}", asked.pod());
    }
    Ok(())
}

#[tokio::test]
async fn a_pod_that_only_looks_like_the_workloads_is_never_chosen() -> Result<()> {
    let scene = scene("alike").await?;
    let sets: Vec<ReplicaSet> = scene.api().list(&ListParams::default()).await?.items;
    let labels = sets[0]
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.match_labels.clone());
    // With the hash of the replica set, the replica set would adopt the pod, which would then be the workload's own.
    let labels: std::collections::BTreeMap<_, _> = labels
        .unwrap_or_default()
        .into_iter()
        .filter(|(key, _)| key != "pod-template-hash")
        .collect();
    let stray: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "aaa-stray", "labels": labels},
        "spec": {"containers": [{"name": "app", "image": "stray"}]},
    }))?;
    scene.api().create(&Default::default(), &stray).await?;
    eventually("the stray pod to be Ready", CONDITION_TIMEOUT, async || {
        let pod: Pod = scene.api().get("aaa-stray").await?;
        Ok(fixtures::is_ready(&pod).then_some(()))
    })
    .await?;
    let alice = scene.requests("alice").await?;
    for number in 0..5 {
        let asked = alice
            .granted(&exec_request(&format!("ask-{number}"), TEMPLATE, "5m"))
            .await?;
        assert_ne!(asked.pod(), "aaa-stray");
    }
    let mut request = exec_request("stray", TEMPLATE, "5m");
    request.spec.target_pod = Some("aaa-stray".into());
    let created = alice.create(&request).await?;
    let status = alice
        .until(&created.name_any(), "to say why it waits", |status| {
            !status.conditions.is_empty()
        })
        .await?
        .status
        .context("no status")?;
    assert_eq!(status.phase, Phase::Pending);
    assert!(
        oz_e2e::conditions_line(&status)
            .contains("aaa-stray not found among the pods of Deployment web")
    );
    Ok(())
}

#[tokio::test]
async fn role_of_grant_has_operations_of_template() -> Result<()> {
    let scene = scene("operations").await?;
    let mut template = exec_template("logs", TargetKind::Deployment, oz_e2e::WORKLOAD);
    template.spec.access_config.operations = vec![Operation::Exec, Operation::Log];
    scene.template(&template).await?;
    let asked = scene
        .requests("alice")
        .await?
        .granted(&exec_request("logs", "logs", "5m"))
        .await?;
    assert!(scene.can("alice", "get", &format!("pods/{}", asked.pod()))?);
    let (role, _) = scene.grant(&asked.object_name()).await?;
    let resources: Vec<String> = role
        .and_then(|role| role.rules)
        .unwrap_or_default()
        .into_iter()
        .flat_map(|rule| rule.resources.unwrap_or_default())
        .collect();
    assert_eq!(resources, ["pods", "pods/exec", "pods/log"]);
    Ok(())
}

#[tokio::test]
async fn a_request_that_comes_before_its_template_is_granted_when_it_comes() -> Result<()> {
    let scene = scene("early").await?;
    let alice = scene.requests("alice").await?;
    alice.create(&exec_request("early", "later", "5m")).await?;
    let waiting = alice
        .until("early", "to miss its template", |status| {
            !status.conditions.is_empty()
        })
        .await?
        .status
        .context("no status")?;
    assert_eq!(waiting.phase, Phase::Pending);
    assert!(oz_e2e::conditions_line(&waiting).contains("TargetTemplateExists=False (NotFound"));
    let template = scene
        .template(&exec_template(
            "later",
            TargetKind::Deployment,
            oz_e2e::WORKLOAD,
        ))
        .await?;
    alice.ready("early").await?;
    // The request gets its template as owner later: the deletion of the template revokes the grant.
    let request = alice
        .until("early", "to be ready", |status| status.ready)
        .await?;
    eventually("the owner reference", CONDITION_TIMEOUT, async || {
        let request = alice.api().get(&request.name_any()).await?;
        Ok(request
            .owner_references()
            .iter()
            .any(|owner| Some(&owner.uid) == template.uid().as_ref())
            .then_some(()))
    })
    .await?;
    scene
        .api::<ExecAccessTemplate>()
        .delete("later", &DeleteParams::default())
        .await?;
    eventually(
        "the request to go with its template",
        CONDITION_TIMEOUT,
        async || Ok(alice.api().get_opt("early").await?.is_none().then_some(())),
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_template_says_whether_it_can_be_used() -> Result<()> {
    let scene = scene("template").await?;
    let good: Api<ExecAccessTemplate> = scene.api();
    eventually("the template to be ready", CONDITION_TIMEOUT, async || {
        let template = good.get(TEMPLATE).await?;
        Ok(template.status.filter(|status| status.ready).map(drop))
    })
    .await?;
    scene
        .template(&exec_template("astray", TargetKind::Deployment, "nowhere"))
        .await?;
    let status = eventually(
        "the template to miss its target",
        CONDITION_TIMEOUT,
        async || {
            let template = good.get("astray").await?;
            Ok(template
                .status
                .filter(|status| !status.conditions.is_empty()))
        },
    )
    .await?;
    assert!(!status.ready);
    let target =
        oz_api::conditions::find(&status.conditions, "TargetRefExists").context("no condition")?;
    assert_eq!(
        (target.status.as_str(), target.reason.as_str()),
        ("False", "NotFound")
    );
    Ok(())
}
