//! The operator's flags. Those of the original are accepted under their names, so that existing
//! manifests start.

use clap::{ArgAction, Parser, Subcommand};
use jiff::SignedDuration;
use kube::Resource as _;
use oz_api::duration::{not_negative, positive};
use oz_api::{ExecAccessRequest, PodAccessRequest, Reviewers, names};
use oz_audit::{AuditArgs, SealKeyArgs};
use oz_core::access::emergency::break_glass;
use oz_core::build::NameServer;
use oz_core::gate::GateAccount;
use oz_core::policies::BreakGlassArgs;
use oz_core::settings::{self, Settings};
use oz_core::transient::TransientArgs;
use oz_gating::registration::GateService;
use oz_runtime::{Address, Common};

use crate::composites::CompositeArgs;
use crate::harness::HarnessArgs;
use crate::uninstall;

/// Grants access to pods for a limited time, and takes it away again.
#[derive(Clone, Debug, Parser)]
// A flag that is there twice has its last value: charts and manifests are extended at the end.
#[command(name = names::OPERATOR, version, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) transient: TransientArgs,

    /// Where to serve /metrics, as IP:PORT or :PORT; 0 for nowhere.
    #[arg(long, default_value = ":8443", value_name = "ADDRESS")]
    pub(crate) metrics_bind_address: Address,

    /// Where to serve /healthz and /readyz, as IP:PORT or :PORT; 0 for nowhere.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,

    /// Compete for a Lease before writing. Needed with more than one replica.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) leader_elect: bool,

    /// How long a request is kept after it is over, such as 1h or 30m. By default 1m if it was granted,
    /// which the AuditEvents tell of from then on, and 1h if it was not; 1h for all without
    /// --audit-objects. While it is kept, who applies the same manifest again asks for nothing.
    #[arg(long, value_name = "DURATION", value_parser = not_negative)]
    pub(crate) keep_finished: Option<SignedDuration>,

    #[command(flatten)]
    pub(crate) audit: AuditArgs,

    /// Who is asked about tickets, which templates and policies name: {"checks": {NAME: {"url", "accept",
    /// "tokenFile", "caFile", "timeout", "whenAway", "every"}}}.
    #[arg(long, value_name = "JSON")]
    pub(crate) tickets: Option<String>,

    /// How long AuditEvents are kept in the cluster, such as 720h; each goes at the exact instant.
    #[arg(long, default_value = "720h", value_name = "DURATION", value_parser = not_negative)]
    pub(crate) audit_retention: SignedDuration,

    /// How many AuditEvents are kept in the cluster, whatever their age; 0 for any number. With more,
    /// the oldest are deleted, which is put on record first.
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    pub(crate) audit_max_events: u64,

    #[command(flatten)]
    pub(crate) seal_keys: SealKeyArgs,

    /// How long a pod made for a request may take to get ready, such as 5m.
    #[arg(long, default_value = settings::POD_READY_TIMEOUT, value_name = "DURATION", value_parser = not_negative)]
    pub(crate) pod_ready_timeout: SignedDuration,

    /// Make pods for PodAccessRequests. Without it, they and their templates are left as they are, and
    /// the operator needs no right to create pods.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) pod_access: bool,

    /// The name servers that pods may ask whose template says `egress: Dns`: NAMESPACE/LABEL=VALUE for
    /// pods, ADDRESS/BITS for others, such as a cache on each node; either may end in :PORT.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = settings::NAME_SERVERS,
        value_name = "NAME_SERVERS"
    )]
    pub(crate) name_servers: Vec<NameServer>,

    /// Make a pod only if the author of its template could: it is created in their name first, without
    /// being stored, so that what admission would refuse to them is not made for them. Needs the right
    /// to impersonate, which lets whoever holds the operator's account do anything.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) impersonate_authors: bool,

    /// Minutes between two looks at the target of a template.
    #[arg(long, default_value_t = 5, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(0..=1440))]
    pub(crate) template_reconciliation_interval: u32,

    /// Accepted for existing manifests, without effect: requests are looked at when something
    /// changes and at the exact instant when time alone changes something.
    #[arg(long, value_name = "MINUTES")]
    pub(crate) request_reconciliation_interval: Option<u32>,

    /// Watch and write in these namespaces only. By default in all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) access_namespaces: Vec<String>,

    /// The service account of oz's gate, as NAMESPACE/NAME, for templates that say `sessions: Gate`. Without it
    /// requests by such templates are refused.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) gate_service_account: Option<GateAccount>,

    /// The Service of oz's gate in oz's namespace, as NAME:PORT. The APIService that leads there is taken away when
    /// no gate was ready for 30 s, since the API server deletes no namespace while it does not answer, and put back
    /// when one is. Without it the APIService is left alone.
    #[arg(long, value_name = "NAME:PORT", requires = "gate_service_account")]
    pub(crate) gate_service: Option<GateService>,

    /// Run scripts in the containers that people are let into: to end sessions with their grant,
    /// and to find out beforehand where sessions can be made to end by themselves.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) cut_sessions: bool,

    /// Seconds between two looks at all Roles and bindings for what bears oz's decisions and belongs to
    /// nothing.
    #[arg(long, hide = true, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sweep_interval: u64,

    /// What the names of oz's ValidatingAdmissionPolicies and of its service accounts begin with: the
    /// operator says aloud when one of these policies is missing or was changed. By default none is
    /// looked for.
    #[arg(long, default_value = "", value_name = "NAME")]
    pub(crate) policies: String,

    #[command(flatten)]
    pub(crate) break_glass: BreakGlassArgs,

    /// How long after the end of its time a review of what somebody opened as break-glass is due, such as 24h.
    #[arg(long, default_value = "24h", value_name = "DURATION", value_parser = positive)]
    pub(crate) break_glass_review_within: SignedDuration,

    /// Groups whose members review what was opened as break-glass, but for whoever opened it. By default whoever may
    /// write reviews there (ClusterRole oz-review-access).
    #[arg(long, value_delimiter = ',', value_name = "GROUPS")]
    pub(crate) break_glass_reviewers: Vec<String>,

    #[command(flatten)]
    pub(crate) composites: CompositeArgs,

    #[command(flatten)]
    pub(crate) harness: HarnessArgs,

    /// How many requests are worked on at once.
    #[arg(long, default_value_t = 32, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: u16,

    #[command(subcommand)]
    pub(crate) task: Option<Task>,
}

impl Args {
    /// How reviews of what break-glass groups open are opened.
    pub(crate) fn break_glass_terms(&self) -> break_glass::Terms {
        break_glass::Terms {
            within: self.break_glass_review_within,
            reviewers: Reviewers {
                groups: self.break_glass_reviewers.clone(),
                users: Vec::new(),
            },
        }
    }

    /// The kinds of requests for access that are served.
    pub(crate) fn access_kinds(&self) -> Vec<String> {
        let pod = self.pod_access.then(|| PodAccessRequest::kind(&()));
        let kinds = [ExecAccessRequest::kind(&())].into_iter().chain(pod);
        kinds.map(std::borrow::Cow::into_owned).collect()
    }

    /// What of the flags decides what is granted and how.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            keep_finished: settings::keep_finished(self.keep_finished, self.audit.has_objects()),
            pod_ready_timeout: self.pod_ready_timeout,
            pod_access: self.pod_access,
            name_servers: self.name_servers.clone(),
            impersonate_authors: self.impersonate_authors,
            cut_sessions: self.cut_sessions,
            access_namespaces: self.access_namespaces.clone(),
            gate: self.gate_service_account.clone(),
            policy_namespaces: self.composites.policy_namespaces.clone(),
            policy: (*self.transient.policy(&self.common.namespace)).clone(),
        }
    }
}

/// What to do once, in place of running.
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
    fn the_originals_flags_are_accepted() {
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
        assert_eq!(args.template_reconciliation_interval, 7);
    }

    #[test]
    fn a_flag_that_is_repeated_has_its_last_value_and_lists_have_all() {
        let args = Args::try_parse_from([
            "oz-operator",
            "--leader-elect",
            "--leader-elect=false",
            "--workers=1",
            "--workers=2",
            "--serve-example-com",
            "--serve-example-com",
            "--access-namespaces=a,b",
            "--access-namespaces=c",
        ])
        .unwrap();
        assert_eq!((args.leader_elect, args.workers), (false, 2));
        assert_eq!(args.access_namespaces, ["a", "b", "c"]);
        let task = ["oz-operator", "uninstall", "--patience=1s", "--patience=2s"];
        assert!(Args::try_parse_from(task).is_ok());
    }

    /// `ozctl explain` reads them without a parser of ours.
    #[test]
    fn operator_settings_equal_settings_read_from_flags() {
        for flags in [
            &[][..],
            &["--keep-finished=7m", "--pod-ready-timeout", "90s"],
            &["--audit-objects=false"],
            &["--audit-objects", "--keep-finished=0s"],
            &[
                "--pod-access=false",
                "--impersonate-authors",
                "--cut-sessions=false",
            ],
            &[
                "--impersonate-authors=false",
                "--pod-access",
                "--cut-sessions",
                "true",
            ],
            &[
                "--name-servers=dns/app=dns,10.0.0.10/32:5353",
                "--name-servers=x/y=z",
            ],
            &[
                "--access-namespaces=a,b",
                "--access-namespaces",
                "c",
                "--workers=3",
            ],
            &["--policy-namespaces=rules,more", "--policy-namespaces=most"],
            &[
                "--bindable-roles=view,shop/deploy*",
                "--max-binding-window=8h",
            ],
            &[
                "--max-binding-window-in=prod=1h,staging=30m",
                "--keep-finished=1h",
            ],
        ] {
            let command = [&["oz-operator", "--namespace=oz"], flags].concat();
            let args = Args::try_parse_from(&command).unwrap();
            let read = Settings::read(&command[1..], "oz").unwrap();
            assert_eq!(args.settings(), read, "{flags:?}");
        }
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

    #[test]
    fn finished_requests_cannot_be_kept_for_less_than_no_time() {
        assert!(Args::try_parse_from(["oz-operator", "--keep-finished=-1s"]).is_err());
        assert!(Args::try_parse_from(["oz-operator", "--keep-finished=1d"]).is_err());
        assert!(Args::try_parse_from(["oz-operator", "--keep-finished=0s"]).is_ok());
    }
}
