//! The webhook's flags. Flags that the other processes also have use the same names.

use clap::Parser;
use oz_admission::{Endpoint, RegistrationMode};
use oz_api::names;
use oz_config::{Component, ConfigArgs, OzConfiguration};
use oz_runtime::{Address, Common};

/// Stamps access requests with who asks, and refuses what oz would never grant.
#[derive(Clone, Debug, Parser)]
// A flag that is there twice has its last value: charts and manifests are extended at the end.
#[command(name = names::WEBHOOK, version, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Address of the hooks, as IP:PORT or :PORT.
    #[arg(long, default_value = ":9443", value_name = "ADDRESS")]
    pub(crate) listen: Address,

    /// Address of /healthz, /readyz and /metrics, as IP:PORT or :PORT; 0 for none.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,
}

/// Returns the address at which the API server reaches the hooks of a webhook in `namespace` that listens on `port`.
pub(crate) fn endpoint(config: &OzConfiguration, namespace: &str, port: u16) -> Endpoint {
    match &config.webhook.url {
        Some(url) => Endpoint::Url(match url.trim_end_matches('/').strip_suffix(":0") {
            Some(host) => format!("{host}:{port}"),
            None => url.clone(),
        }),
        None => Endpoint::Service {
            name: config
                .installation
                .component_name(Component::Webhook.name()),
            namespace: namespace.to_owned(),
            port: config.webhook.service.port.get(),
        },
    }
}

/// Returns whether this process maintains the webhook configurations.
pub(crate) fn registration(config: &OzConfiguration) -> RegistrationMode {
    if config.webhook.register {
        RegistrationMode::Maintain
    } else {
        RegistrationMode::Never
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_server_uses_service_without_url() {
        let service = |name: &str, port| Endpoint::Service {
            name: name.into(),
            namespace: "oz".into(),
            port,
        };
        let url = |url: &str| Endpoint::Url(url.into());
        for (set, expected) in [
            (&[][..], service("oz-webhook", 443)),
            (
                &["installation.name=team", "webhook.service.port=8443"],
                service("team-webhook", 8443),
            ),
            (
                &["webhook.url=https://10.0.0.7:9443"],
                url("https://10.0.0.7:9443"),
            ),
            (
                &["webhook.url=https://127.0.0.1:0"],
                url("https://127.0.0.1:4567"),
            ),
            (&["webhook.url=https://[::1]:0/"], url("https://[::1]:4567")),
        ] {
            let set: Vec<String> = set.iter().map(ToString::to_string).collect();
            let config = OzConfiguration::read_with(None, &set).unwrap();
            assert_eq!(endpoint(&config, "oz", 4567), expected, "{set:?}");
        }
    }
}
