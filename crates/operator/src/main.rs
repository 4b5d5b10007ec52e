//! The oz operator: carries out the plans of `oz-core`, `oz-runs` and `oz-composites`.

mod access_policies;
mod answers;
mod approval_retention;
mod args;
mod as_author;
mod bindings;
mod canary;
mod composites;
mod container_exec;
mod continued;
mod emergencies;
mod evidence_seals;
mod exec_request;
mod exec_template;
mod gate_registration;
mod harness;
mod kept;
mod locks;
mod past_expiry;
mod pod_request;
mod pod_template;
mod policies;
mod retention;
mod review_stores;
mod reviews;
mod role_names;
mod roles;
mod run;
mod servers;
mod session_limits;
mod session_openings;
mod session_probes;
mod session_queue;
mod session_script;
mod sessions;
mod stamps;
mod sweep;
mod tickets;
mod uninstall;
mod waiting_bindings;
mod workload;

use clap::Parser;
use oz_config::Component;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Before any connection, which requires a cryptography provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut args = args::Args::parse();
    if let Some(minutes) = args.template_reconciliation_interval {
        let field = "operator.templateReconciliationInterval";
        args.config.set(field, minutes.into());
    }
    let config = args.config.start(&args.common, Component::Operator)?;
    match &args.task {
        None => run::run(args, config).await,
        Some(args::Task::Check) => canary::check(&args.common).await,
        Some(args::Task::Uninstall(options)) => uninstall::run(&args.common, options).await,
    }
}
