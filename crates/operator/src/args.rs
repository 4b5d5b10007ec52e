//! The operator's flags. Those of the original are accepted under their names, so that existing
//! manifests start.

use clap::{ArgAction, Parser, Subcommand};
use oz_api::names;
use oz_config::ConfigArgs;
use oz_runtime::{Address, Common};

use crate::uninstall;

/// Grants access to pods for a limited time, and revokes it.
#[derive(Clone, Debug, Parser)]
// A flag that is there twice has its last value: charts and manifests are extended at the end.
#[command(name = names::OPERATOR, version, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Address of /metrics, as IP:PORT or :PORT; 0 for none.
    #[arg(long, default_value = ":8443", value_name = "ADDRESS")]
    pub(crate) metrics_bind_address: Address,

    /// Address of /healthz and /readyz, as IP:PORT or :PORT; 0 for none.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,

    /// Compete for a Lease before writing. Needed with more than one replica.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) leader_elect: bool,

    /// Minutes between two checks of a template's target, instead of operator.templateReconciliationInterval.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(0..=1440))]
    pub(crate) template_reconciliation_interval: Option<u32>,

    /// Accepted for existing manifests, without effect: the operator reconciles requests after changes and at the
    /// instants of their expiry.
    #[arg(long, value_name = "MINUTES")]
    pub(crate) request_reconciliation_interval: Option<u32>,

    #[command(subcommand)]
    pub(crate) task: Option<Task>,
}

/// The tasks that run once instead of the operator.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Task {
    /// Create a request without storing it, and see that it comes back stamped.
    Check,
    /// End all access and take the webhooks out of the API server, before oz is removed.
    Uninstall(uninstall::Options),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_original_are_accepted() {
        let args = Args::try_parse_from([
            "oz-operator",
            "--metrics-bind-address=127.0.0.1:8443",
            "--health-probe-bind-address=:8081",
            "--leader-elect",
            "--request-reconciliation-interval=5",
            "--template-reconciliation-interval=7",
            "--zap-devel=true",
            "--zap-encoder=json",
            "--zap-log-level=info",
            "--zap-stacktrace-level=panic",
            "--zap-time-encoding=iso8601",
        ])
        .unwrap();
        assert!(args.leader_elect);
        assert_eq!(args.template_reconciliation_interval, Some(7));
    }

    #[test]
    fn repeated_flag_has_last_value() {
        let args = Args::try_parse_from([
            "oz-operator",
            "--leader-elect",
            "--leader-elect=false",
            "--replica=a",
            "--replica=b",
        ])
        .unwrap();
        assert!(!args.leader_elect);
        assert_eq!(args.common.replica, "b");
        let task = ["oz-operator", "uninstall", "--timeout=1s", "--timeout=2s"];
        assert!(Args::try_parse_from(task).is_ok());
    }

    #[test]
    fn leader_election_can_be_set_either_way() {
        let parse = |flag| {
            Args::try_parse_from(["oz-operator", flag])
                .unwrap()
                .leader_elect
        };
        assert!(parse("--leader-elect=true"));
        assert!(!parse("--leader-elect=false"));
    }
}
