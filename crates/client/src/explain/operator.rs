//! The running operator: its Deployment, and the flags by which it decides.

use std::fmt;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PodSpec;
use kube::Api;
use kube::api::ListParams;
use oz_api::Name;
use oz_core::settings::Settings;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};

/// The flags by which the operator decides, and their source.
pub struct Flags {
    /// The settings in the flags.
    pub settings: Settings,
    /// The source of the flags.
    pub source: Source,
}

/// The source of the operator's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user passed them.
    Given,
    /// This Deployment.
    Deployment(String),
    /// The flags are not known: the defaults are used, for this reason.
    Defaults(String),
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => formatter.write_str("by the operator's flags as they were given"),
            Self::Deployment(name) => {
                write!(formatter, "by the operator's flags in Deployment {name}")
            }
            Self::Defaults(why) => {
                write!(formatter, "by the defaults of the operator's flags: {why}")
            }
        }
    }
}

impl Flags {
    /// Returns the flags in `given`, or else those of the operator that runs in `namespace`.
    pub async fn of(cluster: &Cluster, namespace: &str, given: &[String]) -> Result<Self> {
        let read = |arguments: &[&str]| Settings::read(arguments, namespace);
        if !given.is_empty() {
            let given: Vec<&str> = given.iter().map(String::as_str).collect();
            return Ok(Self {
                settings: read(&given).map_err(Failure::new)?,
                source: Source::Given,
            });
        }
        let found = match deployments(cluster, namespace).await {
            Err(failure) => Err(failure.message().to_owned()),
            Ok(deployments) => match operator(&deployments) {
                None => Err(format!("no operator was found in namespace {namespace}")),
                Some(deployment) => read(&arguments(deployment)).and_then(|settings| {
                    let name = Name::from_metadata(&deployment.metadata);
                    let name = name.map_err(|error| error.to_string())?;
                    Ok(Self {
                        settings,
                        source: Source::Deployment(format!("{namespace}/{name}")),
                    })
                }),
            },
        };
        match found {
            Ok(found) => Ok(found),
            Err(why) => Ok(Self {
                settings: read(&[]).map_err(Failure::new)?,
                source: Source::Defaults(why),
            }),
        }
    }

    /// Checks whether the flags are the operator's own, and not defaults.
    pub fn are_known(&self) -> bool {
        !matches!(self.source, Source::Defaults(_))
    }
}

/// Lists the Deployments of oz.
pub async fn deployments(cluster: &Cluster, namespace: &str) -> Result<Vec<Deployment>> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), namespace);
    let parameters = ListParams::default().labels("app.kubernetes.io/name=oz");
    let list = cluster.answer(deployments.list(&parameters)).await?;
    Ok(list.items)
}

/// Returns the Deployment of the operator.
pub fn operator(deployments: &[Deployment]) -> Option<&Deployment> {
    let is_operator = |one: &&Deployment| {
        let labels = one.metadata.labels.iter().flatten();
        let mut labels = labels.filter(|(key, _)| *key == "app.kubernetes.io/component");
        labels.any(|(_, component)| component == "operator")
    };
    deployments.iter().find(is_operator)
}

/// Returns the pod spec of a Deployment.
pub fn pod(deployment: &Deployment) -> Option<&PodSpec> {
    deployment.spec.as_ref()?.template.spec.as_ref()
}

/// Returns the flags of the Deployment's containers.
pub fn arguments(deployment: &Deployment) -> Vec<&str> {
    let containers = pod(deployment).into_iter().flat_map(|pod| &pod.containers);
    let arguments = containers.flat_map(|container| container.args.iter().flatten());
    arguments.map(String::as_str).collect()
}
