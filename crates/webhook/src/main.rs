//! The oz webhook: stamps requests with their requesters, and denies requests that the operator
//! could only deny later.

mod approval;
mod args;
mod attributed;
mod connect;
mod creation;
mod deletion;
mod guard_composite;
mod guard_copies;
mod guard_namespace;
mod guard_role_binding;
mod harness;
mod hooks;
mod limits;
mod lock;
mod note_author;
mod observe_policy;
mod permission;
mod policy;
mod record;
mod refusal;
mod review;
mod run;
mod stamp;
mod stamp_authors;
#[cfg(test)]
mod tests;
mod transient;
mod validate_audit_event;
mod validate_request;
mod validate_template;
mod watched;

use clap::Parser;
use oz_config::Component;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Before any connection, which requires a cryptography provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = args::Args::parse();
    let config = args.config.start(&args.common, Component::Webhook)?;
    run::run(args, config).await
}
