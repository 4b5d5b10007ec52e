//! The gate's flags. Those that operator and webhook have as well have the same names.

use std::time::Duration;

use clap::Parser;
use oz_audit::AuditArgs;
use oz_core::duration::wait;
use oz_core::gate::GateAccount;
use oz_core::names;
use oz_runtime::{Address, Common};

/// Lets people into the pods of their grants, through the API server, and closes what they opened when the
/// grant ends.
#[derive(Clone, Debug, Parser)]
// A flag that is there twice has its last value: charts and manifests are extended at the end.
#[command(name = names::GATE, version, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    /// Where to serve the API server, as IP:PORT or :PORT.
    #[arg(long, default_value = ":8443", value_name = "ADDRESS")]
    pub(crate) listen: Address,

    /// Where to serve /healthz, /readyz and /metrics, as IP:PORT or :PORT; 0 for nowhere.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,

    /// Name of the Service, in oz's namespace, that the APIService names: the certificate is for that.
    #[arg(long, default_value = names::GATE, value_name = "NAME")]
    service_name: String,

    /// Name of the gate's own service account, in oz's namespace.
    #[arg(long, default_value = names::GATE, value_name = "NAME")]
    service_account: String,

    /// How many sessions are open at once, of all users.
    #[arg(long, default_value_t = 500, value_name = "COUNT")]
    pub(crate) max_sessions: usize,

    /// How many sessions one user has open at once. A forwarded port is one for each connection.
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    pub(crate) max_sessions_per_user: usize,

    #[command(flatten)]
    pub(crate) audit: AuditArgs,

    /// How long sessions may go on after a signal, while no new ones are opened.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = wait)]
    pub(crate) session_drain: Duration,

    /// How long calls are still answered after the last session has ended.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = wait)]
    pub(crate) drain: Duration,
}

impl Args {
    /// The names that the certificate is for.
    pub(crate) fn certificate_names(&self) -> Vec<String> {
        let (name, namespace) = (&self.service_name, &self.common.namespace);
        vec![
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
        ]
    }

    /// As whom sessions are opened.
    pub(crate) fn account(&self) -> GateAccount {
        GateAccount {
            namespace: self.common.namespace.clone(),
            name: self.service_account.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_and_account_are_of_the_namespace_that_the_gate_runs_in() {
        let flags = [
            "oz-gate",
            "--namespace=oz",
            "--service-name=team-oz-gate",
            "--service-account=team-gate",
        ];
        let args = Args::try_parse_from(flags).unwrap();
        assert_eq!(
            args.certificate_names(),
            ["team-oz-gate.oz.svc", "team-oz-gate.oz.svc.cluster.local"]
        );
        assert_eq!(args.account().to_string(), "oz/team-gate");
        assert!(Args::try_parse_from(["oz-gate", "--session-drain=-1s"]).is_err());
    }
}
