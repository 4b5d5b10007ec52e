//! The configuration by which the running operator decides: the ConfigMap that its Deployment mounts, and the values that
//! the flags of the Deployment set instead.

use std::fmt;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec};
use kube::Api;
use kube::api::ListParams;
use kube::core::ObjectMeta;
use oz_api::Name;
use oz_config::{KEY, OzConfiguration};
use oz_core::settings::Settings;

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::printable;

/// The name of the volume with the configuration in a pod template.
const VOLUME: &str = "configuration";
/// The flag that sets one value instead of the file.
const SET: &str = "--set";
/// The labels of the ConfigMap of the chart.
const LABELS: &str = "app.kubernetes.io/name=oz,app.kubernetes.io/component=configuration";

/// The configuration by which the operator decides, and its source.
pub struct Configured {
    /// The configuration.
    pub config: OzConfiguration,
    /// The parts of it that determine grants.
    pub settings: Settings,
    /// The source of the configuration.
    pub source: Source,
}

/// The source of the operator's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user passed values.
    Given,
    /// This ConfigMap.
    ConfigMap(String),
    /// This ConfigMap, without the values that flags of the Deployment set instead.
    ConfigMapAlone {
        /// The namespace and the name.
        name: String,
        /// The reason why the flags are not known.
        why: String,
    },
    /// The flags of this Deployment, which mounts no ConfigMap.
    Deployment(String),
    /// The configuration is not known: the defaults are used, for this reason.
    Defaults(String),
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => formatter.write_str("by the given configuration"),
            Self::ConfigMap(name) => {
                write!(formatter, "by the configuration in ConfigMap {name}")
            }
            Self::ConfigMapAlone { name, why } => {
                write!(
                    formatter,
                    "by the configuration in ConfigMap {name}, without the values that flags set instead: {why}"
                )
            }
            Self::Deployment(name) => {
                write!(formatter, "by the flags in Deployment {name}")
            }
            Self::Defaults(why) => {
                write!(
                    formatter,
                    "by the defaults of the operator's configuration: {why}"
                )
            }
        }
    }
}

impl Configured {
    /// Returns the configuration with the values in `given`, or else that of the operator that runs in `namespace`.
    pub async fn read(cluster: &Cluster, namespace: &str, given: &[String]) -> Result<Self> {
        if !given.is_empty() {
            let config = OzConfiguration::read_with(None, given);
            let config = config.map_err(|error| Failure::new(error.to_string()))?;
            return Ok(Self::new(config, namespace, Source::Given));
        }
        let deployments = deployments(cluster, namespace).await;
        let found = Found::read(cluster, namespace, deployments.as_deref()).await;
        let found = found.and_then(|found| Ok((found.config()?, found.source)));
        Ok(match found {
            Ok((config, source)) => Self::new(config, namespace, source),
            Err(failure) => {
                let source = Source::Defaults(failure.message().to_owned());
                Self::new(OzConfiguration::default(), namespace, source)
            }
        })
    }

    fn new(config: OzConfiguration, namespace: &str, source: Source) -> Self {
        Self {
            settings: config.settings(namespace),
            config,
            source,
        }
    }

    /// Checks whether the configuration is the operator's own, and not the defaults.
    pub fn is_known(&self) -> bool {
        !matches!(self.source, Source::Defaults(_))
    }
}

/// The configuration of a process in the cluster, as it is written.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// The source.
    pub source: Source,
    /// The namespace and the name of the Deployment; `None` if the Deployments could not be read.
    pub deployment: Option<String>,
    /// The text in the ConfigMap, if there is one.
    pub text: Option<String>,
    /// The values that flags set instead, as PATH=VALUE.
    pub sets: Vec<String>,
}

impl Found {
    /// Reads the configuration of the operator in `namespace`, among these Deployments. If the user may not list them,
    /// it is the only ConfigMap with the labels of the configuration.
    ///
    /// # Errors
    /// There is no operator; or a part of the configuration cannot be read, or does not exist.
    pub async fn read(
        cluster: &Cluster,
        namespace: &str,
        deployments: Result<&[Deployment], &Failure>,
    ) -> Result<Self> {
        match deployments {
            Ok(deployments) => {
                let none =
                    || Failure::new(format!("no operator was found in namespace {namespace}"));
                let deployment = operator(deployments).ok_or_else(none)?;
                Self::from_deployment(cluster, namespace, deployment).await
            }
            Err(unread) => Self::alone(cluster, namespace, unread).await,
        }
    }

    /// Reads the configuration of the process in a Deployment.
    ///
    /// # Errors
    /// The ConfigMap that it mounts cannot be read, or does not exist.
    pub async fn from_deployment(
        cluster: &Cluster,
        namespace: &str,
        deployment: &Deployment,
    ) -> Result<Self> {
        let deployed = Name::from_metadata(&deployment.metadata)?;
        let deployed = format!("{namespace}/{deployed}");
        let sets = sets(&arguments(deployment));
        let Some(name) = config_map(deployment) else {
            return Ok(Self {
                source: Source::Deployment(deployed.clone()),
                deployment: Some(deployed),
                text: None,
                sets,
            });
        };
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
        let map = cluster.answer(maps.get(name)).await?;
        Ok(Self {
            source: Source::ConfigMap(format!("{namespace}/{name}")),
            deployment: Some(deployed),
            text: Some(text(namespace, name, map)?),
            sets,
        })
    }

    /// Reads the only ConfigMap with the labels of the configuration. `unread` is the reason why the Deployments are
    /// not known.
    async fn alone(cluster: &Cluster, namespace: &str, unread: &Failure) -> Result<Self> {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
        let selected = ListParams::default().labels(LABELS);
        let listed = cluster.answer(maps.list(&selected)).await;
        let mut maps = listed.map_err(|failure| failure.after(unread))?.items;
        let (Some(map), 0) = (maps.pop(), maps.len()) else {
            let text = format!("not exactly one ConfigMap of {namespace} has the labels {LABELS}");
            return Err(Failure::new(text).after(unread));
        };
        let name = Name::from_metadata(&map.metadata)?.to_string();
        Ok(Self {
            source: Source::ConfigMapAlone {
                name: format!("{namespace}/{name}"),
                why: unread.message().to_owned(),
            },
            deployment: None,
            text: Some(text(namespace, &name, map)?),
            sets: Vec::new(),
        })
    }

    /// Returns the configuration, with the values that flags set instead.
    ///
    /// # Errors
    /// The path of the field that is invalid.
    pub fn config(&self) -> Result<OzConfiguration> {
        let text = self.text.as_deref();
        OzConfiguration::read_with(text, &self.sets).map_err(|error| {
            let is_of_flags = text.is_none_or(|text| OzConfiguration::read(text).is_ok());
            let error = printable::line(&error.to_string());
            Failure::new(match (&self.source, &self.deployment) {
                (_, Some(name)) if is_of_flags => format!("Deployment {name}: {error}"),
                (Source::ConfigMap(name) | Source::ConfigMapAlone { name, .. }, _) => {
                    format!("ConfigMap {name}: {error}")
                }
                _ => error,
            })
        })
    }

    /// Returns the place of a field's value: the ConfigMap, or the flag of the Deployment that sets it instead.
    #[must_use]
    pub fn place(&self, field: &str) -> String {
        let is_within = |one: &str, other: &str| {
            let rest = one.strip_prefix(other);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let paths = self.sets.iter().filter_map(|set| set.split_once('='));
        let mut paths = paths.map(|(path, _)| path);
        let flag = paths.find(|path| is_within(field, path) || is_within(path, field));
        match (&self.source, &self.deployment, flag) {
            (_, Some(name), Some(_)) => format!("Deployment {name}, --set {field}"),
            (Source::ConfigMap(name) | Source::ConfigMapAlone { name, .. }, _, _) => {
                format!("ConfigMap {name}, {field}")
            }
            (Source::Deployment(name), _, _) => {
                format!("default of {field}, in Deployment {name}")
            }
            (Source::Given | Source::Defaults(_), _, _) => format!("default of {field}"),
        }
    }
}

/// Returns the text of the configuration in a ConfigMap.
fn text(namespace: &str, name: &str, map: ConfigMap) -> Result<String> {
    let text = map.data.and_then(|mut data| data.remove(KEY));
    text.ok_or_else(|| {
        Failure::new(format!("ConfigMap {namespace}/{name} has no entry {KEY}")).not_found()
    })
}

/// Returns the values that flags set instead of a file: `--set=PATH=VALUE`, or the same as two arguments.
fn sets(arguments: &[&str]) -> Vec<String> {
    let mut sets = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix(SET) {
            Some("") => arguments.next().copied(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        sets.extend(value.map(ToOwned::to_owned));
    }
    sets
}

/// Returns the name of the ConfigMap that a Deployment mounts as its configuration.
fn config_map(deployment: &Deployment) -> Option<&str> {
    let volumes = pod(deployment)?.volumes.as_ref()?;
    let volume = volumes.iter().find(|volume| volume.name == VOLUME)?;
    let map = volume.config_map.as_ref()?;
    Some(&map.name)
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
    deployments
        .iter()
        .find(|one| is_of_component(one, "operator"))
}

/// Checks whether a Deployment is that of a component.
pub fn is_of_component(deployment: &Deployment, name: &str) -> bool {
    component(&deployment.metadata) == Some(name)
}

/// Returns the component in the labels of an object of oz.
pub fn component(metadata: &ObjectMeta) -> Option<&str> {
    let component = metadata.labels.as_ref()?.get("app.kubernetes.io/component");
    component.map(String::as_str)
}

/// Returns the pod spec of a Deployment.
pub fn pod(deployment: &Deployment) -> Option<&PodSpec> {
    deployment.spec.as_ref()?.template.spec.as_ref()
}

/// Returns the flags of the Deployment's containers.
fn arguments(deployment: &Deployment) -> Vec<&str> {
    let containers = pod(deployment).into_iter().flat_map(|pod| &pod.containers);
    let arguments = containers.flat_map(|container| container.args.iter().flatten());
    arguments.map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use kube::{Client, Config};
    use serde_json::{Value, json};

    use super::*;

    const PODS: &str = "access: {pods: false}";

    /// A Deployment of the operator that mounts this ConfigMap, and has these arguments.
    fn deployment(map: Option<&str>, arguments: &[&str]) -> Value {
        let volume = map.map(|name| json!([{"name": VOLUME, "configMap": {"name": name}}]));
        json!({
            "metadata": {"name": "oz-operator", "labels": {
                "app.kubernetes.io/component": "operator",
            }},
            "spec": {"selector": {}, "template": {"spec": {
                "volumes": volume,
                "containers": [{"name": "operator", "args": arguments}],
            }}},
        })
    }

    /// A ConfigMap with these fields in its configuration.
    fn map(name: &str, fields: &str) -> Value {
        let head = "apiVersion: config.oz.wizardofoz.co/v1alpha1\nkind: OzConfiguration\n";
        json!({"metadata": {"name": name}, "data": {KEY: format!("{head}{fields}")}})
    }

    fn list(kind: &str, items: Vec<Value>) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": items})
    }

    /// A cluster with these Deployments and ConfigMaps; with `None`, the user may not read them.
    fn cluster(deployments: Option<Vec<Value>>, maps: Option<Vec<Value>>) -> Cluster {
        let service = tower::service_fn(move |asked: http::Request<Body>| {
            let path = asked.uri().path().to_owned();
            let name = path.rsplit('/').next().unwrap().to_owned();
            let found = match name.as_str() {
                "deployments" => deployments
                    .clone()
                    .map(|items| Some(list("DeploymentList", items))),
                "configmaps" => maps.clone().map(|items| Some(list("ConfigMapList", items))),
                _ => maps.as_ref().map(|maps| {
                    let mut maps = maps.iter();
                    maps.find(|map| map["metadata"]["name"] == *name).cloned()
                }),
            };
            let status = |code: u16| {
                json!({
                    "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
                    "message": format!("{path}: {code}"), "reason": "",
                })
            };
            let (code, body) = match found {
                None => (403, status(403)),
                Some(None) => (404, status(404)),
                Some(Some(body)) => (200, body),
            };
            let body = Body::from(body.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body);
            async move { response }
        });
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let mut cluster = Cluster::new(config, "shop", None).unwrap();
        cluster.client = Client::new(service, "shop");
        cluster
    }

    fn source(source: &Source) -> &'static str {
        match source {
            Source::Given => "given",
            Source::ConfigMap(_) => "config map",
            Source::ConfigMapAlone { .. } => "config map alone",
            Source::Deployment(_) => "deployment",
            Source::Defaults(_) => "defaults",
        }
    }

    #[tokio::test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    async fn configuration_is_that_of_config_map_and_flags() {
        let mounting = |arguments: &[&str]| Some(vec![deployment(Some("oz-c"), arguments)]);
        let maps = |fields: &str| Some(vec![map("oz-c", fields)]);
        let two = || Some(vec![map("oz-c", PODS), map("oz-d", PODS)]);
        let without_entry = || Some(vec![json!({"metadata": {"name": "oz-c"}})]);
        // Deployments, ConfigMaps, values that the user passes, the source, part of its text, and whether pods are made.
        let set_true = ["--config=/x", "--set=access.pods=true"];
        let in_two_words = ["--set", "access.pods=true"];
        let cases: [(_, _, &[&str], _, &str, bool); 15] = [
            (
                mounting(&[]),
                maps(PODS),
                &[],
                "config map",
                "ConfigMap oz/oz-c",
                false,
            ),
            (
                mounting(&[]),
                maps(""),
                &[],
                "config map",
                "ConfigMap oz/oz-c",
                true,
            ),
            (
                mounting(&set_true),
                maps(PODS),
                &[],
                "config map",
                "oz/oz-c",
                true,
            ),
            (
                mounting(&in_two_words),
                maps(PODS),
                &[],
                "config map",
                "oz/oz-c",
                true,
            ),
            // The values of the user replace all others.
            (
                mounting(&[]),
                maps(PODS),
                &["operator.workers=2"],
                "given",
                "given",
                true,
            ),
            (
                mounting(&[]),
                maps(""),
                &["access.pods=false"],
                "given",
                "given",
                false,
            ),
            // Only one of the two may be read.
            (
                None,
                maps(PODS),
                &[],
                "config map alone",
                "namespaces/oz/deployments",
                false,
            ),
            (
                mounting(&[]),
                None,
                &[],
                "defaults",
                "configmaps/oz-c",
                true,
            ),
            (None, None, &[], "defaults", "configmaps", true),
            (
                None,
                two(),
                &[],
                "defaults",
                "not exactly one ConfigMap",
                true,
            ),
            // It is missing, or not valid.
            (
                mounting(&[]),
                Some(vec![]),
                &[],
                "defaults",
                "configmaps/oz-c: 404",
                true,
            ),
            (
                mounting(&[]),
                without_entry(),
                &[],
                "defaults",
                "no entry config.yaml",
                true,
            ),
            (
                mounting(&[]),
                maps("access: {pod: 1}"),
                &[],
                "defaults",
                "access.pod",
                true,
            ),
            // An installation without a ConfigMap, and none at all.
            (
                Some(vec![deployment(None, &["--set=access.pods=false"])]),
                maps(""),
                &[],
                "deployment",
                "Deployment oz/oz-operator",
                false,
            ),
            (
                Some(vec![]),
                maps(PODS),
                &[],
                "defaults",
                "no operator was found",
                true,
            ),
        ];
        for (deployments, maps, given, from, says, pods) in cases {
            let cluster = cluster(deployments, maps);
            let given: Vec<String> = given.iter().map(ToString::to_string).collect();
            let configured = Configured::read(&cluster, "oz", &given).await.unwrap();
            let text = configured.source.to_string();
            assert_eq!(source(&configured.source), from, "{text}");
            assert!(text.contains(says), "{text}");
            assert_eq!(configured.config.access.pods, pods, "{text}");
            assert_eq!(configured.settings.pod_access, pods, "{text}");
            assert_eq!(configured.is_known(), from != "defaults", "{text}");
        }
    }

    #[tokio::test]
    async fn failures_of_both_reads_are_named() {
        let cluster = cluster(None, None);
        let unread = deployments(&cluster, "oz").await;
        let failure = Found::read(&cluster, "oz", unread.as_deref()).await;
        let failure = failure.unwrap_err();
        assert!(failure.is_forbidden());
        let text = failure.message();
        assert!(
            text.contains("oz/deployments") && text.contains("oz/configmaps"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn value_of_unknown_field_is_refused() {
        let cluster = cluster(None, None);
        let given = ["access.pod=false".to_owned()];
        let failure = Configured::read(&cluster, "oz", &given)
            .await
            .err()
            .unwrap();
        assert!(failure.message().contains("access.pod"), "{failure}");
    }

    #[test]
    fn place_of_value_is_flag_before_config_map() {
        let place = |sets: &[&str]| {
            let found = Found {
                source: Source::ConfigMap("oz/oz-c".to_owned()),
                deployment: Some("oz/oz-webhook".to_owned()),
                text: None,
                sets: sets.iter().map(ToString::to_string).collect(),
            };
            found.place("webhook.breakGlassGroups")
        };
        let (map, flag) = (
            "ConfigMap oz/oz-c, webhook.breakGlassGroups",
            "Deployment oz/oz-webhook, --set webhook.breakGlassGroups",
        );
        for (sets, expected) in [
            (&[][..], map),
            (&["webhook.register=false"], map),
            (&["webhook.breakGlassGroup=[a]"], map),
            (
                &["webhook.register=false", "webhook.breakGlassGroups=[a]"],
                flag,
            ),
            (&["webhook={breakGlassGroups: [a]}"], flag),
        ] {
            assert_eq!(place(sets), expected, "{sets:?}");
        }
    }
}
