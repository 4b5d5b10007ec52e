//! `ozctl audit keys`: prints the public keys, to be pinned where the cluster's administrators
//! cannot change them.

use clap::Args;
use oz_api::names::AUDIT_PUBLIC_KEYS as KEYS;

use super::verify::Oz;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::{output, trail};

/// Print the public keys of the audit trail, to keep them outside the cluster
#[derive(Args)]
pub(super) struct Keys {
    #[command(flatten)]
    oz: Oz,
}

impl Keys {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let keys = trail::keys(&cluster, &self.oz.namespace).await?;
        if keys.published.is_empty() {
            return Err(Failure::new(format!(
                "no public key is published in ConfigMap {}/{KEYS}",
                self.oz.namespace
            ))
            .next(
                "name oz's namespace with --oz-namespace; if it is correct, check that oz runs: it \
                 publishes its key again within seconds",
            ));
        }
        for key in &keys.published {
            context.print(&format!("{}\n", key.pin()))?;
        }
        for (writer, key) in &keys.lost {
            context.say(&format!(
                "Note: {} signed with key {}, which is not published: verify its signatures with a \
                 kept copy of its public key",
                output::line(writer),
                output::line(key)
            ));
        }
        Ok(Exit::SUCCESS)
    }
}
