//! Supplied certificates of another component: the manager reads them, publishes them, and then serves with
//! them.

use jiff::Timestamp;

use super::{super::error::UpkeepError, Source, Upkeep};
use crate::{
    certificate::{
        authority::Error,
        supplied::{self, Supplied},
    },
    server::paths::Served,
};

impl Upkeep {
    /// Reads the supplied certificate. An invalid one does not replace a valid one.
    pub(in super::super) async fn supplied(
        &mut self,
        now: Timestamp,
    ) -> Result<Supplied, UpkeepError> {
        let supplied = match &self.source {
            Source::Secret { api, name } => {
                let secret = api
                    .get(name)
                    .await
                    .map_err(|source| UpkeepError::Supplied {
                        namespace: self.declared.namespace.clone(),
                        name: name.clone(),
                        source: Box::new(source),
                    })?;
                supplied::from_secret(&secret)?
            }
            Source::Files { directory } => supplied::from_files(directory).await?,
            Source::SelfSigned { .. } => return Err(Error::NotAuthority.into()),
        };
        let names = self.declared.endpoint.certificate_names();
        supplied::check(&supplied, names.first().map(String::as_str), now)?;
        // The paths change before the certificate: a call follows the first handshake.
        self.paths
            .serve(supplied.paths.clone().map_or(Served::Plain, Served::Keyed));
        let live = if self.publish && supplied.bundle.is_some() {
            self.everywhere().await.into_iter().flatten().collect()
        } else {
            Vec::new()
        };
        self.bundle = Some(self.succession.offer(&supplied, &live, now));
        self.take_supplied(now);
        Ok(supplied)
    }

    /// Serves with the supplied certificate once clients trust it. Returns the instant at which they do.
    pub(super) fn take_supplied(&mut self, now: Timestamp) -> Option<Timestamp> {
        let published = |pem: &str| self.published.get(pem).copied();
        match self.succession.due(published, self.unknown, now) {
            Some(due) if now < due => Some(due),
            Some(_) => {
                let leaf = self.succession.take(now)?;
                tracing::info!(until = %leaf.until, "loaded a supplied certificate");
                self.take(leaf);
                None
            }
            None => None,
        }
    }
}
