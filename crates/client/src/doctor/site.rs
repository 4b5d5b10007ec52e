//! The installation of oz that is examined.

use k8s_openapi::api::apps::v1::Deployment;
use oz_config::OzConfiguration;

use crate::cluster::Cluster;
use crate::explain::operator::{self, Found};
use crate::failure::{Failure, Result};

/// An installation of oz in a cluster.
pub(super) struct Site<'a> {
    pub(super) cluster: &'a Cluster,
    /// The namespace of oz.
    pub(super) oz: &'a str,
    /// The Deployments of oz, if the user may read them.
    pub(super) deployments: Result<Vec<Deployment>>,
    /// The configuration of the operator as it is written, if the user may read it.
    pub(super) found: Result<Found>,
    /// The same configuration, if it is valid.
    pub(super) config: Result<OzConfiguration>,
}

impl<'a> Site<'a> {
    pub(super) async fn read(cluster: &'a Cluster, oz: &'a str) -> Self {
        let deployments = operator::deployments(cluster, oz).await;
        let found = Found::read(cluster, oz, deployments.as_deref()).await;
        let config = match &found {
            Ok(found) => found.config(),
            Err(failure) => Err(Failure::new(failure.message())),
        };
        Self {
            cluster,
            oz,
            deployments,
            found,
            config,
        }
    }

    /// Returns the Deployments; none if the user may not read them.
    pub(super) fn readable(&self) -> &[Deployment] {
        self.deployments.as_deref().unwrap_or(&[])
    }
}

/// Returns the command that prints the logs of a component, independent of the release's name.
pub(super) fn logs(oz: &str, component: &str) -> String {
    format!(
        "kubectl logs -n {oz} -l app.kubernetes.io/name=oz,app.kubernetes.io/component={component}"
    )
}
