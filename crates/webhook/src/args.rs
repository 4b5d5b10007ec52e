//! The webhook's flags. Those that the operator has as well have the same names.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser};
use jiff::SignedDuration;
use oz_admission::{Endpoint, RegistrationMode};
use oz_api::duration::{positive, wait};
use oz_api::names;
use oz_audit::{AuditArgs, SealKeyArgs};
use oz_composites::Account;
use oz_core::policies::BreakGlassArgs;
use oz_core::transient::TransientArgs;
use oz_runtime::{Address, Common};
use oz_trail::CONNECTIONS_PER_MINUTE;

use crate::limits::RequestLimits;

/// Stamps access requests with who asks, and refuses what oz would never grant.
#[derive(Clone, Debug, Parser)]
// A flag that is there twice has its last value: charts and manifests are extended at the end.
#[command(name = names::WEBHOOK, version, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) transient: TransientArgs,

    /// Where to serve the hooks, as IP:PORT or :PORT.
    #[arg(long, default_value = ":9443", value_name = "ADDRESS")]
    pub(crate) listen: Address,

    /// Where to serve /healthz, /readyz and /metrics, as IP:PORT or :PORT; 0 for nowhere.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,

    /// Name of the Service, in oz's namespace, through which the API server reaches the hooks.
    #[arg(long, default_value = names::WEBHOOK, value_name = "NAME")]
    service_name: String,

    /// Port of that Service.
    #[arg(long, default_value_t = 443, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    service_port: u16,

    /// Address at which the API server reaches the hooks itself, in place of a Service. Port 0
    /// stands for the port that is listened on, as in https://127.0.0.1:0.
    #[arg(long, value_name = "URL", conflicts_with_all = ["service_name", "service_port"])]
    url: Option<String>,

    /// File with the authorities (PEM) of the certificates that the API servers present to webhooks:
    /// whoever has none of theirs gets no further than the handshake. Read at the start. By default
    /// nobody is asked for one.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,

    /// The operator's user name. Nobody else may write the status of templates and requests. By
    /// default that of the service account oz-operator in oz's namespace.
    #[arg(long, value_name = "NAME")]
    operator_user: Option<String>,

    /// The webhook's own user name. By default that of the service account oz-webhook in oz's
    /// namespace.
    #[arg(long, value_name = "NAME")]
    webhook_user: Option<String>,

    /// The broker's user name. Besides operator and webhook, it may write AuditEvents. By default that of
    /// the service account oz-broker in oz's namespace.
    #[arg(long, value_name = "NAME")]
    broker_user: Option<String>,

    /// The gate's user name, which may write AuditEvents as well. By default that of the service account
    /// oz-gate in oz's namespace.
    #[arg(long, value_name = "NAME")]
    gate_user: Option<String>,

    #[command(flatten)]
    pub(crate) seal_keys: SealKeyArgs,

    #[command(flatten)]
    pub(crate) audit: AuditArgs,

    /// In enforcing namespaces, refuse a session that cannot be put on record before it opens. With
    /// false it opens; that it is not on record is logged and counted.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) audit_required: bool,

    /// How many connections of one user to pods of enforcing namespaces are recorded within a minute; 0 for any number.
    /// Each has a record of its own, and more are refused (TooManyConnections). For break-glass groups there is no limit.
    /// Each replica counts for itself.
    #[arg(long, default_value_t = CONNECTIONS_PER_MINUTE, value_name = "COUNT")]
    pub(crate) max_connections_per_minute: u32,

    #[command(flatten)]
    pub(crate) limits: RequestLimits,

    #[command(flatten)]
    pub(crate) break_glass: BreakGlassArgs,

    /// How long the time is that one review of what somebody opens as break-glass in a namespace is about, such as
    /// 1h. Nothing is found of it before it is over.
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = positive)]
    pub(crate) break_glass_review_window: SignedDuration,

    /// Namespaces that the operator serves, as its own flag says: elsewhere nothing that is asked for
    /// would ever be given, so it is refused. By default all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) access_namespaces: Vec<String>,

    /// As which service account composites read and write, as NAMESPACE/NAME, as the operator's own flag
    /// says. Whoever creates or changes a CompositeController must be allowed to impersonate it. By default
    /// nobody is asked about CompositeControllers.
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) composite_account: Option<Account>,

    /// The namespaces of policies, as the operator's own flag says: who changes a ConfigMap there is put on record.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) policy_namespaces: Vec<String>,

    /// Serve the kinds of harness runs (paddock.dev/v1alpha1), as the operator's own flag says: runs are stamped with
    /// who submits them.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) harness: bool,

    /// Only serve: somebody else keeps the webhook configurations.
    #[arg(long)]
    no_register: bool,

    /// How long calls are still answered after a signal, until nobody sends any more.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = wait)]
    pub(crate) drain: Duration,
}

impl Args {
    /// Where the API server reaches the hooks, which are served on `port`.
    pub(crate) fn endpoint(&self, port: u16) -> Endpoint {
        match &self.url {
            Some(url) => Endpoint::Url(match url.trim_end_matches('/').strip_suffix(":0") {
                Some(host) => format!("{host}:{port}"),
                None => url.clone(),
            }),
            None => Endpoint::Service {
                name: self.service_name.clone(),
                namespace: self.common.namespace.clone(),
                port: self.service_port,
            },
        }
    }

    /// The operator's user name.
    pub(crate) fn operator(&self) -> String {
        self.operator_user
            .clone()
            .unwrap_or_else(|| names::service_account(&self.common.namespace, names::OPERATOR))
    }

    /// The webhook's own user name.
    pub(crate) fn webhook(&self) -> String {
        self.webhook_user
            .clone()
            .unwrap_or_else(|| names::service_account(&self.common.namespace, names::WEBHOOK))
    }

    /// The broker's user name.
    pub(crate) fn broker(&self) -> String {
        self.broker_user
            .clone()
            .unwrap_or_else(|| names::service_account(&self.common.namespace, names::BROKER))
    }

    /// The gate's user name.
    pub(crate) fn gate(&self) -> String {
        self.gate_user
            .clone()
            .unwrap_or_else(|| names::service_account(&self.common.namespace, names::GATE))
    }

    /// Whether this process keeps the webhook configurations.
    pub(crate) fn registration(&self) -> RegistrationMode {
        if self.no_register {
            RegistrationMode::Never
        } else {
            RegistrationMode::Maintain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Args {
        Args::try_parse_from([&["oz-webhook", "--namespace=oz"], flags].concat()).unwrap()
    }

    #[test]
    fn the_api_server_comes_through_a_service_unless_it_is_given_a_url() {
        let service = |name: &str, port| Endpoint::Service {
            name: name.into(),
            namespace: "oz".into(),
            port,
        };
        let url = |url: &str| Endpoint::Url(url.into());
        for (flags, endpoint) in [
            (&[][..], service("oz-webhook", 443)),
            (
                &["--service-name=hooks", "--service-port=8443"],
                service("hooks", 8443),
            ),
            (
                &["--url=https://10.0.0.7:9443"],
                url("https://10.0.0.7:9443"),
            ),
            (
                &["--url=https://127.0.0.1:0"],
                url("https://127.0.0.1:4567"),
            ),
            (&["--url=https://[::1]:0/"], url("https://[::1]:4567")),
        ] {
            assert_eq!(parse(flags).endpoint(4567), endpoint, "{flags:?}");
        }
        let both = [
            "oz-webhook",
            "--url=https://127.0.0.1:1",
            "--service-name=hooks",
        ];
        assert!(Args::try_parse_from(both).is_err());
    }

    #[test]
    fn operator_user_defaults_to_service_account() {
        assert_eq!(
            parse(&[]).operator(),
            "system:serviceaccount:oz:oz-operator"
        );
        assert_eq!(parse(&["--operator-user=robin"]).operator(), "robin");
    }

    #[test]
    fn a_flag_that_is_repeated_has_its_last_value_and_lists_have_all() {
        let args = parse(&[
            "--drain=1s",
            "--drain=2s",
            "--no-register",
            "--no-register",
            "--break-glass-group=a",
            "--break-glass-group=b,c",
        ]);
        assert_eq!(args.drain, Duration::from_secs(2));
        assert_eq!(args.break_glass.break_glass_groups, ["a", "b", "c"]);
    }

    #[test]
    fn draining_takes_no_less_than_no_time() {
        assert_eq!(parse(&["--drain=0s"]).drain, Duration::ZERO);
        assert!(Args::try_parse_from(["oz-webhook", "--drain=-1s"]).is_err());
    }
}
