//! The broker's flags. Flags that the operator and the webhook also have use the same names.

use std::time::Duration;

use clap::Parser;
use oz_api::duration::wait;
use oz_api::names;
use oz_audit::AuditArgs;
use oz_runtime::{Address, Common};

/// Hands the pods of harness runs their prompts, and takes their reports.
#[derive(Clone, Debug, Parser)]
// The last value of a repeated flag applies: charts and manifests append flags.
#[command(name = names::BROKER, version, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    /// Where to serve the pods of runs, as IP:PORT or :PORT.
    #[arg(long, default_value = ":8443", value_name = "ADDRESS")]
    pub(crate) listen: Address,

    /// Where to serve /healthz, /readyz and /metrics, as IP:PORT or :PORT; 0 for nowhere.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,

    /// Name of the Service, in oz's namespace, through which pods reach the broker: its certificate is for
    /// that.
    #[arg(long, default_value = names::BROKER, value_name = "NAME")]
    service_name: String,

    /// Further names and addresses that the certificate is for. Give it several times, or names with commas
    /// between them.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    certificate_names: Vec<String>,

    #[command(flatten)]
    pub(crate) audit: AuditArgs,

    /// How long calls are still answered after a signal, until nobody sends any more.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = wait)]
    pub(crate) drain: Duration,
}

impl Args {
    /// Returns the names and addresses for which the certificate is valid.
    pub(crate) fn certificate_names(&self) -> Vec<String> {
        let (name, namespace) = (&self.service_name, &self.common.namespace);
        let service = [
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
            format!("{name}.{namespace}"),
        ];
        let further = self.certificate_names.iter();
        service
            .into_iter()
            .chain(further.filter(|it| !it.is_empty()).cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_covers_service_and_configured_names() {
        let flags = [
            "oz-broker",
            "--namespace=oz",
            "--service-name=team-oz-broker",
            "--certificate-names=127.0.0.1,broker.example.com",
            "--certificate-names=",
        ];
        assert_eq!(
            Args::try_parse_from(flags).unwrap().certificate_names(),
            [
                "team-oz-broker.oz.svc",
                "team-oz-broker.oz.svc.cluster.local",
                "team-oz-broker.oz",
                "127.0.0.1",
                "broker.example.com"
            ]
        );
    }

    #[test]
    fn draining_takes_no_less_than_no_time() {
        assert!(Args::try_parse_from(["oz-broker", "--drain=-1s"]).is_err());
    }
}
