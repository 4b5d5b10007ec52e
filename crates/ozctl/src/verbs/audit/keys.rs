//! `ozctl audit keys`: the public keys, to be pinned where the cluster's administrators cannot
//! change them.

use clap::Args;
use oz_core::audit::Published;
use oz_core::names::AUDIT_PUBLIC_KEYS as KEYS;

use super::verify::Oz;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::trail::map;

/// Print the public keys of the trail, to keep them outside the cluster
#[derive(Args)]
pub(super) struct Keys {
    #[command(flatten)]
    oz: Oz,
}

impl Keys {
    pub(super) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let published = map(&cluster, &self.oz.namespace, KEYS).await?;
        if published.is_empty() {
            return Err(Failure::new(format!(
                "no public key is published in ConfigMap {}/{KEYS}",
                self.oz.namespace
            ))
            .next(
                "name oz's namespace with --oz-namespace; if that is it, see that oz runs, which publishes \
                 its key again within seconds",
            ));
        }
        for (_, text) in published {
            let key: Published = serde_json::from_str(&text).map_err(|error| {
                Failure::new(format!("failed to read a published key: {error}"))
            })?;
            context.print(&format!("{}\n", key.public_key))?;
        }
        Ok(Exit::SUCCESS)
    }
}
