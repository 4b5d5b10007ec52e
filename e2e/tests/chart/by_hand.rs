//! The manifests of `deploy`, as an administrator without Helm applies them: each folder by one command. The clusters are
//! separate ones, since the other tests leave the namespace and the policies in theirs.

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Api;
use kube::api::PostParams;
use oz_core::policies::{Installation, Policy};
use oz_e2e::{NAMESPACE, repository, run};
use oz_testkit::{Cluster, ClusterOptions, Kubernetes};
use serde_json::json;

/// The minor version that one API server emulates: its own is three newer, which is as far as it goes back.
const EMULATED: u32 = 32;

/// The folders of definitions, as the chart installs them.
const DEFINITIONS: [&str; 4] = [
    "charts/oz/files/crds",
    "charts/oz/files/harness",
    "charts/oz/files/composites",
    "deploy/example-com",
];

/// Applies a folder with these options of kubectl.
fn apply(cluster: &Cluster, folder: &str, options: &[&str]) -> Result<()> {
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(["apply", "-R"]).args(options);
    kubectl.arg("-f").arg(repository().join(folder));
    run(kubectl).with_context(|| format!("failed to apply {folder}"))?;
    Ok(())
}

/// Applies the definitions, and waits until the API server serves their kinds. A warning is a failure.
fn define(cluster: &Cluster) -> Result<()> {
    for folder in DEFINITIONS {
        // The annotation of an apply at the client would be larger than the API server accepts.
        apply(cluster, folder, &["--server-side", "--warnings-as-errors"])?;
    }
    let mut kubectl = cluster.kubectl("admin");
    kubectl.args(["wait", "--for=condition=Established", "crds", "--all"]);
    kubectl.arg("--timeout=60s");
    run(kubectl).context("failed to wait for the definitions")?;
    Ok(())
}

async fn check_policies(cluster: &Cluster) -> Result<()> {
    let admin = cluster.client("admin").await?;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(admin.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(admin);
    let installation = Installation {
        name: "oz".to_owned(),
        namespace: NAMESPACE.to_owned(),
        break_glass: vec!["system:masters".to_owned()],
        harness: true,
        composites: true,
    };
    for expected in Policy::all(&installation)? {
        let name = &expected.name;
        let policy = policies.get(name).await?.spec;
        let binding = bindings.get(name).await?.spec;
        let fault = expected.fault(policy.as_ref(), binding.as_ref());
        assert_eq!(fault, None, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn folder_applied_to_empty_cluster_is_accepted_and_its_policies_have_no_fault() -> Result<()>
{
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    for folder in ["deploy/rbac", "deploy/policies"] {
        apply(&cluster, folder, &[])?;
    }
    check_policies(&cluster).await?;
    define(&cluster)
}

/// An older version reads the rules of definitions and policies with fewer functions. `make versions` has real ones.
#[tokio::test]
async fn definitions_and_policies_are_accepted_by_emulated_older_version() -> Result<()> {
    if Kubernetes::from_environment()? != Kubernetes::Usual {
        // The oldest version emulates none, and the newest one none that is as old.
        return Ok(());
    }
    let options = ClusterOptions {
        emulated_minor: Some(EMULATED),
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options).await?;
    define(&cluster)?;
    for folder in ["deploy/rbac", "deploy/policies"] {
        apply(&cluster, folder, &[])?;
    }
    check_policies(&cluster).await?;

    // It does refuse a function that is newer.
    let newer: ValidatingAdmissionPolicy = serde_json::from_value(json!({
        "metadata": { "name": "newer" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE"],
            }] },
            "validations": [{ "expression": "isSemver('1.0.0')" }],
        },
    }))?;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client("admin").await?);
    let created = policies.create(&PostParams::default(), &newer).await;
    let why = created.err().context("it was accepted")?.to_string();
    assert!(why.contains("isSemver"), "{why}");
    Ok(())
}
