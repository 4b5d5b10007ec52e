//! The installation of oz that is examined.

use k8s_openapi::api::apps::v1::Deployment;

use crate::cluster::Cluster;
use crate::explain::operator;
use crate::failure::Result;

/// An installation of oz in a cluster.
pub(super) struct Site<'a> {
    pub(super) cluster: &'a Cluster,
    /// The namespace of oz.
    pub(super) oz: &'a str,
    /// The Deployments of oz, if the user may read them.
    pub(super) deployments: Result<Vec<Deployment>>,
}

impl<'a> Site<'a> {
    pub(super) async fn read(cluster: &'a Cluster, oz: &'a str) -> Self {
        Self {
            cluster,
            oz,
            deployments: operator::deployments(cluster, oz).await,
        }
    }

    /// Returns the Deployments; none if the user may not read them.
    pub(super) fn readable(&self) -> &[Deployment] {
        self.deployments.as_deref().unwrap_or(&[])
    }

    /// Returns the flags with which the operator is started.
    pub(super) fn arguments(&self) -> Vec<&str> {
        arguments(self.readable())
    }
}

/// Returns the flags of the operator among these Deployments.
pub(super) fn arguments(deployments: &[Deployment]) -> Vec<&str> {
    let operator = operator::operator(deployments).into_iter();
    operator.flat_map(operator::arguments).collect()
}

/// Returns the command that prints the logs of a component, independent of the release's name.
pub(super) fn logs(oz: &str, component: &str) -> String {
    format!(
        "kubectl logs -n {oz} -l app.kubernetes.io/name=oz,app.kubernetes.io/component={component}"
    )
}
