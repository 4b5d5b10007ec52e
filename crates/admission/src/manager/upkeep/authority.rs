//! Certificates of the manager's own authority.

use std::sync::Arc;

use jiff::Timestamp;

use super::{super::error::UpkeepError, Source, Upkeep};
use crate::{
    certificate::{
        authority::{Authority, Error},
        rotation::after,
        secret::Stored,
        signer::Signer,
        store::Circumstances,
    },
    server::paths::Served,
};

impl Upkeep {
    /// Returns the content of the Secret after every due step.
    pub(in super::super) async fn authority(
        &mut self,
        now: Timestamp,
    ) -> Result<(Stored, Option<Timestamp>), UpkeepError> {
        let leaf = self.current.leaf();
        let published = &self.published;
        let circumstances = Circumstances {
            now,
            // No client trusts an expired authority, published or not.
            serving: leaf.as_ref().and_then(|leaf| leaf.serving(now)),
            published_since: &|pem| published.get(pem).copied(),
            may_stage: self.publish,
            started: Some(self.started),
            callers: &self.callers,
        };
        let Source::SelfSigned { store, .. } = &mut self.source else {
            // The function is called only for self-signed sources.
            return Err(Error::NotAuthority.into());
        };
        let (stored, wake) = store.settle(&circumstances).await?;
        self.report.expiry("ca", stored.active.until);
        self.paths
            .serve(stored.paths.clone().map_or(Served::Plain, Served::Keyed));
        let certificate = &stored.active.certificate;
        self.report.authority(certificate, stored.active.until);
        self.bundle = Some(Some(stored.trusted().collect()));
        Ok((stored, wake))
    }

    /// Returns the authority last found in the Secret.
    pub(super) fn held(&self) -> Option<Arc<Authority>> {
        match &self.source {
            Source::SelfSigned { store, .. } => store.held(),
            _ => None,
        }
    }

    /// Performs the due signing, and opens the gate once there is a certificate to serve.
    fn signing<T>(
        &self,
        sign: impl FnOnce(&Signer<'_>) -> Result<T, Error>,
    ) -> Result<Option<T>, UpkeepError> {
        let Source::SelfSigned { policy, .. } = &self.source else {
            return Ok(None);
        };
        let done = sign(&Signer {
            policy,
            names: &self.declared.endpoint.certificate_names(),
            current: &self.current,
        })?;
        if let (Some(gates), Some(_)) = (&self.gates, self.current.leaf()) {
            gates.certificate.open();
        }
        Ok(Some(done))
    }

    /// Signs the first leaf, and a new one before it expires, as long as the authority is the same.
    pub(super) fn renew(&self, authority: &Authority, now: Timestamp) -> Result<(), UpkeepError> {
        self.signing(|signer| signer.renew(authority, now))
            .map(drop)
    }

    /// Signs with an authority that has taken over, once clients trust it. Returns the instant of the next
    /// check of the leaf.
    pub(super) fn follow(
        &self,
        stored: &Stored,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, UpkeepError> {
        let since = self.published.get(&stored.active.certificate).copied();
        let followed = self.signing(|signer| signer.follow(stored, since, now))?;
        Ok(followed.flatten())
    }

    /// Returns the instant at which a staged authority has been published for long enough.
    pub(in super::super) fn promotion(&self, stored: &Stored) -> Option<Timestamp> {
        let Source::SelfSigned { policy, .. } = &self.source else {
            return None;
        };
        let next = stored.next.as_ref()?;
        let since = self.published.get(&next.certificate)?;
        Some(after(*since, policy.settle))
    }
}
