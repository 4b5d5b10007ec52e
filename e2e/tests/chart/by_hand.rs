//! The manifests of `deploy`, as an administrator without Helm applies them: each folder by one command. The cluster is
//! a separate one, since the other tests leave the namespace and the policies in theirs.

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Api;
use oz_core::policies::{Installation, Policy};
use oz_e2e::{NAMESPACE, repository, run};
use oz_testkit::{Cluster, ClusterOptions};

#[tokio::test]
async fn folder_applied_to_empty_cluster_is_accepted_and_its_policies_have_no_fault() -> Result<()>
{
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    for folder in ["deploy/rbac", "deploy/policies"] {
        let mut kubectl = cluster.kubectl("admin");
        kubectl.args(["apply", "-R", "-f"]);
        kubectl.arg(repository().join(folder));
        run(kubectl).with_context(|| format!("failed to apply {folder}"))?;
    }

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
