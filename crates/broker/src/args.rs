//! The broker's flags. Flags that the other processes also have use the same names.

use clap::Parser;
use oz_api::names;
use oz_config::{Component, ConfigArgs, OzConfiguration};
use oz_runtime::{Address, Common};

/// Hands the pods of harness runs their prompts, and takes their reports.
#[derive(Clone, Debug, Parser)]
// The last value of a repeated flag applies: charts and manifests append flags.
#[command(name = names::BROKER, version, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Address for the pods of runs, as IP:PORT or :PORT.
    #[arg(long, default_value = ":8443", value_name = "ADDRESS")]
    pub(crate) listen: Address,

    /// Address of /healthz, /readyz and /metrics, as IP:PORT or :PORT; 0 for none.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,
}

/// Returns the names and addresses for which the broker's certificate is valid, in oz's namespace.
pub(crate) fn certificate_names(config: &OzConfiguration, namespace: &str) -> Vec<String> {
    let name = config.installation.component_name(Component::Broker.name());
    let service = [
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.cluster.local"),
        format!("{name}.{namespace}"),
    ];
    let further = config.harness.broker.certificate_names.iter();
    let further = further.filter(|it| !it.is_empty()).cloned();
    service.into_iter().chain(further).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_covers_service_and_configured_names() {
        let mut config = OzConfiguration::default();
        config.installation.name = "team-oz".to_owned();
        let names = ["127.0.0.1", "broker.example.com", ""];
        config.harness.broker.certificate_names = names.map(ToOwned::to_owned).to_vec();
        assert_eq!(
            certificate_names(&config, "oz"),
            [
                "team-oz-broker.oz.svc",
                "team-oz-broker.oz.svc.cluster.local",
                "team-oz-broker.oz",
                "127.0.0.1",
                "broker.example.com"
            ]
        );
    }
}
