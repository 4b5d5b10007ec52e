//! The rights of a grant, its user, its cost in requests to the API server, and its effect on other components.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use oz_api::{Phase, PodAccessTemplate, labels};
use oz_e2e::{
    NAMESPACE, Scene, WORKLOAD, conditions_line, pod_request, records_of, repository, run,
};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, eventually, fixtures};
use oz_trail::Action;
use serde_json::json;

use crate::support::{Requests, can_exec, pod_name, status, template};
use crate::{scene, system};

#[tokio::test]
async fn the_pod_is_for_the_requester_alone() -> Result<()> {
    let scene = scene("pod-grant").await?;
    template(&scene, "pod", json!({})).await?;
    let alice = Requests::new(&scene, "alice").await?;
    let request = alice.granted("mine", "pod", "5m").await?;
    let name = pod_name(&request);
    let pod: Pod = scene.api().get(&name).await?;
    assert!(fixtures::is_ready(&pod));
    let told = status(&request);
    assert_eq!(told.pod_uid, pod.uid());
    assert!(told.pod_digest.is_some());
    let role = told.role_name.as_ref().unwrap_or(&name);
    let created = format!("Success. Pod {name}, Role {role}, RoleBinding {name} created");
    let conditions = conditions_line(&told);
    assert!(conditions.contains(&created), "{conditions}");
    assert_eq!(
        told.access_message,
        Some(format!(
            "kubectl exec -ti -n {} {name} -- /bin/sh",
            scene.name()
        ))
    );
    let spec = pod.spec.context("no spec")?;
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    assert!(
        spec.active_deadline_seconds
            .is_some_and(|seconds| seconds <= 297)
    );

    assert!(can_exec(&scene, "alice", &name)?);
    assert!(!can_exec(&scene, "bob", &name)?, "bob did not ask");
    assert!(!can_exec(&scene, "alice", &scene.pods[0].name_any())?);
    let operator = &system().await?.operator.process;
    assert_eq!(
        records_of(operator, scene.name(), "mine")?,
        [Action::AccessGranted]
    );
    Ok(())
}

#[tokio::test]
async fn pod_request_of_user_outside_groups_is_refused() -> Result<()> {
    let scene = scene("pod-refused").await?;
    template(&scene, "pod", json!({})).await?;
    let mallory = Requests::new(&scene, "mallory").await?;
    // Either the webhook denies the request first, or the operator.
    match mallory.create("mine", "pod", "5m").await {
        Err(kube::Error::Api(answer)) => assert_eq!(answer.code, 403),
        Err(error) => return Err(error.into()),
        Ok(_) => drop(mallory.phase("mine", Phase::Denied).await?),
    }
    Ok(())
}

#[tokio::test]
async fn a_grant_costs_four_writes_and_one_when_ready() -> Result<()> {
    let scene = scene("pod-cost").await?;
    let narrow = json!({"network": {"egress": "Dns", "ingress": "None"}});
    template(&scene, "open", json!({})).await?;
    template(&scene, "narrow", narrow).await?;
    let alice = Requests::new(&scene, "alice").await?;
    for (kind, most) in [("open", 5), ("narrow", 6)] {
        let mark = scene.cluster.audit().mark()?;
        alice.granted(kind, kind, "5m").await?;
        let operator = format!("system:serviceaccount:{NAMESPACE}:oz-operator");
        let writes = scene
            .cluster
            .audit()
            .since(mark)?
            .by_user(&operator)
            .in_namespace(scene.name())
            .writes()
            .filter(|entry| {
                // The cost of a template depends on the time at which the operator sees it.
                let what = entry.resource.as_str();
                // The operator lowers the deadline of a pod that starts late, as on a busy machine.
                let is_lowered = what == "pods" && entry.verb == "patch";
                let is_aside = what == "events" || what.ends_with("accesstemplates");
                !is_aside && !is_lowered && !entry.dry_run
            });
        let counts: Vec<_> = writes
            .counts()
            .into_iter()
            .map(|((_, verb, what), count)| format!("{count} {verb} {what}"))
            .collect();
        assert!(writes.len() <= most, "{kind}: {counts:?}");
    }
    Ok(())
}

#[tokio::test]
async fn no_service_lists_the_pod_and_no_replica_set_adopts_it() -> Result<()> {
    let scene = scene("pod-traffic").await?;
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": WORKLOAD},
        "spec": {"selector": {"app": WORKLOAD}, "ports": [{"port": 80}]},
    }))?;
    scene.api().create(&PostParams::default(), &service).await?;
    template(&scene, "pod", json!({})).await?;
    let alice = Requests::new(&scene, "alice").await?;
    let name = pod_name(&alice.granted("mine", "pod", "5m").await?);
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": WORKLOAD},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": WORKLOAD}}},
    }))?;
    let post = PostParams::default();
    scene.api().create(&post, &budget).await?;
    // The service lists a pod with the workload's labels that was made after ours: so it would have listed ours.
    let witness: Pod = serde_json::from_value(json!({
        "metadata": {"name": "witness", "labels": {"app": WORKLOAD}},
        "spec": {"containers": [{"name": "app", "image": "example.test/app:1"}]},
    }))?;
    scene.api().create(&PostParams::default(), &witness).await?;
    let listed = eventually(
        "the service to list the witness",
        CONDITION_TIMEOUT,
        async || {
            let slices = scene
                .api::<EndpointSlice>()
                .list(&ListParams::default())
                .await?;
            let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints);
            let names: Vec<String> = endpoints
                .filter_map(|endpoint| endpoint.target_ref?.name)
                .collect();
            Ok((names.iter().any(|name| name == "witness") && names.len() >= 3).then_some(names))
        },
    )
    .await?;
    assert!(!listed.contains(&name), "{listed:?}");
    let counted = eventually(
        "the budget to count the witness",
        CONDITION_TIMEOUT,
        async || {
            let budget: PodDisruptionBudget = scene.api().get(WORKLOAD).await?;
            let status = budget.status.unwrap_or_default();
            Ok((status.current_healthy >= 3).then_some(status.expected_pods))
        },
    )
    .await?;
    assert_eq!(counted, 3, "two of the workload and the witness");

    let pod: Pod = scene.api().get(&name).await?;
    let owners: Vec<String> = pod
        .owner_references()
        .iter()
        .map(|one| one.kind.clone())
        .collect();
    assert_eq!(owners, ["PodAccessRequest"]);
    let sets = scene
        .api::<ReplicaSet>()
        .list(&ListParams::default())
        .await?;
    let replicas = sets.items[0].status.as_ref().map(|status| status.replicas);
    assert_eq!(replicas, Some(2));
    Ok(())
}

#[tokio::test]
async fn a_network_policy_comes_before_the_pod_and_selects_it() -> Result<()> {
    let scene = scene("pod-network").await?;
    template(
        &scene,
        "pod",
        json!({"network": {"egress": "Dns", "ingress": "None"}}),
    )
    .await?;
    let alice = Requests::new(&scene, "alice").await?;
    let name = pod_name(&alice.granted("mine", "pod", "5m").await?);
    let pod: Pod = scene.api().get(&name).await?;
    let policy: NetworkPolicy = scene.api().get(&name).await?;
    assert!(policy.creation_timestamp() <= pod.creation_timestamp());
    let selector = policy.spec.and_then(|spec| spec.pod_selector);
    let selected = selector
        .and_then(|one| one.match_labels)
        .unwrap_or_default();
    assert!(!selected.is_empty());
    let carries = |(key, value): (&String, &String)| pod.labels().get(key) == Some(value);
    assert!(selected.iter().all(carries));
    Ok(())
}

#[tokio::test]
async fn a_pod_that_only_bears_our_name_and_marks_is_left_alone() -> Result<()> {
    let scene = scene("pod-forged").await?;
    let alice = Requests::new(&scene, "alice").await?;
    // While the request waits, every user who sees it knows the name of its pod.
    let request = alice.create("mine", "later", "5m").await?;
    let uid = request.uid().context("no UID")?;
    let name = oz_core::access::grant::object_name("mine", &uid);
    let forged: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {
                labels::MANAGED_BY: labels::OZ,
                labels::OWNER_KIND: "PodAccessRequest",
                labels::OWNER_UID: uid,
            },
        },
        "spec": {"containers": [{"name": "app", "image": "example.test/theirs:1"}]},
    }))?;
    let pods: Api<Pod> = scene.api();
    let forged = pods.create(&PostParams::default(), &forged).await?;
    template(&scene, "later", json!({})).await?;
    alice
        .until("mine", "to say what is in the way", |status| {
            conditions_line(status).contains("NameConflict")
        })
        .await?;
    let left = pods.get(&name).await?;
    assert_eq!(left.uid(), forged.uid());
    assert!(left.metadata.deletion_timestamp.is_none());
    assert!(
        left.metadata
            .managed_fields
            .into_iter()
            .flatten()
            .all(|entry| { entry.manager.as_deref() != Some("oz/podaccessrequest") })
    );

    pods.delete(&name, &DeleteParams::default().grace_period(0))
        .await?;
    let granted = alice.ready("mine").await?;
    assert_ne!(status(&granted).pod_uid, forged.uid());
    Ok(())
}

#[tokio::test]
async fn a_request_that_extends_another_leaves_its_pod_as_it_is() -> Result<()> {
    let scene = scene("pod-extends").await?;
    template(&scene, "pod", json!({})).await?;
    let alice = Requests::new(&scene, "alice").await?;
    let first = alice.granted("first", "pod", "5m").await?;
    let pods: Api<Pod> = scene.api();
    let before = pods.get(&pod_name(&first)).await?;
    let mut next = pod_request("next", "pod", "10m");
    next.spec.extends = Some("first".to_owned());
    alice.api.create(&PostParams::default(), &next).await?;
    let next = alice.ready("next").await?;
    assert_ne!(pod_name(&next), pod_name(&first), "it has a pod of its own");
    let after = pods.get(&pod_name(&first)).await?;
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.annotations(), before.annotations());
    let now = status(&alice.ready("first").await?);
    assert_eq!(now.expires_at, status(&first).expires_at);
    Ok(())
}

#[tokio::test]
async fn a_pod_that_is_too_large_is_denied_with_the_numbers() -> Result<()> {
    let scene = scene("pod-ceiling").await?;
    let resources = json!({"limits": {"cpu": "4"}});
    let config = json!({
        "maxCpu": "1",
        "controllerTargetMutationConfig": {"resources": resources},
    });
    template(&scene, "large", config).await?;
    let alice = Requests::new(&scene, "alice").await?;
    alice.create("mine", "large", "5m").await?;
    let told = conditions_line(&alice.phase("mine", Phase::Denied).await?);
    assert!(told.contains("4 cpu, maxCpu is 1"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_template_says_whether_it_can_be_used() -> Result<()> {
    let scene = scene("pod-template").await?;
    template(&scene, "good", json!({})).await?;
    let patch = json!([{"op": "remove", "path": "/spec/hostname"}]);
    let broken = json!({"controllerTargetMutationConfig": {"patchSpecOperations": patch}});
    template(&scene, "broken", broken).await?;
    for (name, ready) in [("good", true), ("broken", false)] {
        let found = eventually(
            &format!("a status of {name}"),
            CONDITION_TIMEOUT,
            async || {
                let template = scene.api::<PodAccessTemplate>().get(name).await?;
                Ok(template
                    .status
                    .filter(|status| !status.conditions.is_empty()))
            },
        )
        .await?;
        assert_eq!(found.ready, ready, "{:?}", found.conditions);
        let told = found.conditions.iter().map(|one| one.message.as_str());
        let names_the_patch = told
            .into_iter()
            .any(|one| one.contains("patchSpecOperations[0]"));
        assert_eq!(names_the_patch, !ready);
    }
    Ok(())
}

#[tokio::test]
async fn the_examples_work_for_a_member_of_the_groups() -> Result<()> {
    system().await?;
    let scene = Scene::empty(Cluster::shared().await?, "pod-examples").await?;
    let apply = |user: &str, file: &str| {
        let mut kubectl = scene.cluster.kubectl(user);
        kubectl.args(["apply", "-n", scene.name(), "-f"]);
        kubectl.arg(repository().join("examples").join(file));
        run(kubectl)
    };
    apply("admin", "deployment.yaml")?;
    apply("admin", "pod_access_template.yaml")?;
    apply("admin", "custom_pod_access_template.yaml")?;
    apply("alice", "pod_access_request.yaml")?;
    let alice = Requests::new(&scene, "alice").await?;
    let request = alice.ready("deployment-example").await?;
    let name = pod_name(&request);
    assert_eq!(
        status(&request).access_message,
        Some(format!(
            "kubectl exec -ti -n {} {name} -- /bin/bash",
            scene.name()
        ))
    );
    let pod: Pod = scene.api().get(&name).await?;
    let container = &pod.spec.context("no spec")?.containers[0];
    assert_eq!(container.name, "shell", "renamed by the patch");
    assert_eq!(
        container.command.as_deref(),
        Some(&["/bin/sleep".to_owned()][..])
    );
    assert!(can_exec(&scene, "alice", &name)?);

    let own = alice.granted("own", "custom-pod", "5m").await?;
    assert!(
        can_exec(&scene, "alice", &pod_name(&own))?,
        "from a podSpec"
    );
    Ok(())
}
