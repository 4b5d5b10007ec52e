//! Dedicated pods, with an operator that is killed between any two writes, or may create none.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt;
use kube::api::ListParams;
use oz_api::labels;
use oz_e2e::{Operator, Options, Scene, System, TEMPLATE, exec_request, install, pod_request, run};
use serde_json::json;

use crate::alone;

/// Returns the UIDs of the pods that were made for the request with this UID.
async fn made(scene: &Scene, uid: &str) -> Result<BTreeSet<String>> {
    let marked = ListParams::default().labels(&format!("{}={uid}", labels::OWNER_UID));
    let pods = scene.api::<Pod>().list(&marked).await?;
    Ok(pods.iter().filter_map(ResourceExt::uid).collect())
}

#[tokio::test]
async fn killed_at_any_moment_the_next_one_finds_the_pod_and_makes_no_other() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let scene = Scene::set(cluster, "killpod").await?;
    let network = json!({"network": {"egress": "None"}});
    scene.pod_template("pod", &network).await?;
    let alice = scene.pod_requests("alice").await?;
    let mut interrupted = 0;
    // The moment of the kill moves through the few milliseconds that a grant takes. It takes longer on a busy machine.
    for milliseconds in (5..=75).step_by(7).chain([150, 300, 600, 1200]) {
        if milliseconds > 75 && interrupted > 0 {
            break;
        }
        let name = format!("kill-{milliseconds}");
        let created = alice.create(&pod_request(&name, "pod", "1h")).await?;
        let uid = created.uid().unwrap_or_default();
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        system.operator.process.kill9();
        let before = made(&scene, &uid).await?;
        interrupted += usize::from(!before.is_empty());
        system.operator = Operator::start(cluster, &Options::default()).await?;
        let asked = alice.ready(&name).await?;
        let after = made(&scene, &uid).await?;
        assert_eq!(after.len(), 1, "{name}: one pod");
        assert!(before.is_empty() || before == after, "{name}: made once");
        assert_eq!(after.first(), asked.status().pod_uid.as_ref(), "{name}");
        let (role, binding) = scene.grant(&asked.object_name()).await?;
        assert!(role.is_some() && binding.is_some(), "{name}");
        let policies = scene.api::<NetworkPolicy>();
        let policy = policies.get_opt(&asked.object_name()).await?;
        assert!(policy.is_some(), "{name}");
    }
    assert!(interrupted > 0, "it never came as far as a pod");
    Ok(())
}

#[tokio::test]
async fn exec_access_continues_without_right_to_create_pods() -> Result<()> {
    let (_turn, cluster) = alone().await?;
    let mut system = System::start(cluster).await?;
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(["delete", "clusterrolebinding", "oz-operator-pods"]);
    run(kubectl)?;
    system.operator.process.kill9();
    let without = Options::default().set("access.pods", false);
    let operator = Operator::start(cluster, &without).await?;
    let scene = Scene::set(cluster, "nopods").await?;
    let alice = scene.requests("alice").await?;
    let asked = alice.granted(&exec_request("exec", TEMPLATE, "5m")).await;
    drop(operator);
    // The next test needs the binding again.
    install(cluster).await?;
    let binding = asked?.object_name();
    assert!(
        scene
            .api::<RoleBinding>()
            .get_opt(&binding)
            .await?
            .is_some()
    );
    Ok(())
}
