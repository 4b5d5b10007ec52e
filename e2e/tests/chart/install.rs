//! The chart on a real API server with Helm: installed, upgraded, rolled back, uninstalled. The pods are kwok's here
//! and
//! do nothing; on a real node they do.

use anyhow::Result;
use oz_e2e::{Scene, run};
use oz_testkit::Cluster;

use crate::TURN;

fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(arguments);
    run(kubectl)
}

fn helm(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let mut helm = oz_e2e::helm(cluster)?;
    helm.args(arguments);
    run(helm)
}

#[tokio::test]
async fn the_notes_warn_of_what_the_values_leave_to_people() -> Result<()> {
    let _turn = TURN.lock().await;
    let mut helm = oz_e2e::helm(Cluster::shared().await?)?;
    helm.args(["install", "oz", &oz_e2e::chart(), "--dry-run=server"])
        .args(["--take-ownership", "--namespace=default"])
        .args(["--set=uninstall.hook=false"]);
    let said = run(helm)?;
    for expected in [
        "oz is in the namespace `default`",
        "docs/guides/uninstall.md has the commands",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn chart_is_installed_upgraded_rolled_back_and_uninstalled() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    let helm = |arguments: &[&str]| helm(cluster, arguments);
    let chart = oz_e2e::chart();
    let wait = ["--wait", "--timeout=120s"];

    // Helm installs over the objects that other tests of this cluster applied by hand, as over an installation of the
    // original.
    let install = [
        "install",
        "oz",
        &chart,
        "--create-namespace",
        "--take-ownership",
    ];
    let said = helm(&[&install[..], &wait].concat())?;
    assert!(said.contains("helm test oz"), "{said}");
    let label = [
        "label",
        "namespace",
        "oz-system",
        "pod-security.kubernetes.io/enforce=restricted",
    ];
    kubectl(cluster, &label)?;
    let changed = "--set=operator.replicas=3,priorityClass.value=1000000";
    let upgrade = ["upgrade", "oz", &chart, changed];
    helm(&[&upgrade[..], &wait].concat())?;
    let replicas = |expected: &str| -> Result<()> {
        let path = "-ojsonpath={.status.readyReplicas}";
        let get = ["get", "deployment", "oz-operator", "--namespace=oz-system"];
        assert_eq!(kubectl(cluster, &[&get[..], &[path]].concat())?, expected);
        Ok(())
    };
    replicas("3")?;
    helm(&[&["rollback", "oz", "1"][..], &wait].concat())?;
    replicas("2")?;
    helm(&["uninstall", "oz", "--wait", "--timeout=120s"])?;

    let left = "clusterroles,clusterrolebindings,priorityclasses,mutatingwebhookconfigurations";
    let selector = "--selector=app.kubernetes.io/instance=oz";
    assert_eq!(kubectl(cluster, &["get", left, selector, "-oname"])?, "");
    let left = "all,serviceaccounts,roles,rolebindings,secrets,poddisruptionbudgets,jobs";
    let get = ["get", left, selector, "-oname", "--namespace=oz-system"];
    // The trail outlives the release, and so does the key that signs it; a key that other tests applied by hand is not
    // Helm's.
    let left = kubectl(cluster, &get)?;
    assert!(
        ["", "secret/oz-audit-key\n"].contains(&left.as_str()),
        "{left}"
    );
    // The definitions stay: their deletion would delete all templates and records.
    let kept = kubectl(cluster, &["get", "crds", "-oname"])?;
    assert!(kept.contains("execaccesstemplates.crds.wizardofoz.co"));

    // The chart installs again over the objects that stayed.
    helm(&["install", "oz", &chart])?;
    helm(&["uninstall", "oz", "--wait", "--timeout=120s"])?;
    Ok(())
}

/// The pods of kwok run no process of oz, and no component registers a webhook.
#[tokio::test]
async fn the_policies_refuse_while_nothing_of_oz_runs() -> Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::shared().await?;
    let helm = |arguments: &[&str]| helm(cluster, arguments);
    // This also removes the admission policies that other tests applied by hand: they would answer first.
    oz_e2e::unregister(cluster)?;
    let names = ["install", "oz", &oz_e2e::chart(), "--take-ownership"];
    helm(
        &[
            &names[..],
            &["--create-namespace", "--set=fullnameOverride=access"],
        ]
        .concat(),
    )?;
    let scene = Scene::set(cluster, "locks").await?;
    scene.locks_hold("access").await?;
    helm(&["uninstall", "oz", "--wait", "--timeout=120s"])?;
    let selector = "--selector=app.kubernetes.io/instance=oz";
    let get = ["get", "validatingadmissionpolicies", selector, "-oname"];
    assert_eq!(kubectl(cluster, &get)?, "");
    Ok(())
}
