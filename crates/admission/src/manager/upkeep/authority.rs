//! Certificates of an authority of the manager's own.

use std::sync::Arc;

use jiff::Timestamp;

use super::{super::error::UpkeepError, Source, Upkeep};
use crate::{
    certificate::{
        authority::{Authority, Error},
        rotation::after,
        secret::Stored,
        store::Circumstances,
    },
    server::paths::Served,
};

impl Upkeep {
    /// What the Secret says after every step that is due.
    pub(in super::super) async fn authority(
        &mut self,
        now: Timestamp,
    ) -> Result<(Stored, Option<Timestamp>), UpkeepError> {
        let leaf = self.current.leaf();
        let published = &self.published;
        let circumstances = Circumstances {
            now,
            // An authority that has ended is trusted by nobody, published or not.
            serving: leaf
                .as_ref()
                .filter(|leaf| now < leaf.until)
                .and_then(|leaf| leaf.issuer.as_deref()),
            published_since: &|pem| published.get(pem).copied(),
            may_stage: self.publish,
        };
        let Source::SelfSigned { store, .. } = &mut self.source else {
            // Only called for sources of our own.
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

    fn sign(&self, authority: &Authority, now: Timestamp) -> Result<(), UpkeepError> {
        let Source::SelfSigned { policy, .. } = &self.source else {
            return Ok(());
        };
        let names = self.declared.endpoint.certificate_names();
        let leaf = authority.sign(&names, now, policy.leaf_life)?;
        tracing::info!(until = %leaf.until, "signed a serving certificate");
        self.take(leaf);
        Ok(())
    }

    /// The authority last found in the Secret.
    pub(super) fn held(&self) -> Option<Arc<Authority>> {
        match &self.source {
            Source::SelfSigned { store, .. } => store.held(),
            _ => None,
        }
    }

    /// Signs the first leaf, and a new one before it ends, as long as the authority is the same.
    pub(super) fn renew(&self, authority: &Authority, now: Timestamp) -> Result<(), UpkeepError> {
        let Source::SelfSigned { policy, .. } = &self.source else {
            return Ok(());
        };
        let due = self.current.leaf().is_none_or(|leaf| {
            let same = leaf.issuer.as_ref() == Some(&authority.certificate);
            // A leaf that has ended convinces nobody: there is nothing to lose by another one.
            now >= leaf.until || (same && now >= policy.renewal(leaf.from, leaf.until))
        });
        if due {
            self.sign(authority, now)
        } else {
            Ok(())
        }
    }

    /// Signs with an authority that has taken over, once clients will trust it. Returns when
    /// to look at the leaf again.
    pub(super) fn follow(
        &self,
        stored: &Stored,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, UpkeepError> {
        let (Source::SelfSigned { policy, .. }, Some(leaf)) = (&self.source, self.current.leaf())
        else {
            return Ok(None);
        };
        let active = &stored.active.certificate;
        if leaf.issuer.as_ref() != Some(active) {
            // If nobody can tell, whoever promoted it has waited in our place.
            let unknown = stored.promoted_at.unwrap_or(now);
            let since = self.published.get(active);
            let trusted = since.map_or(unknown, |since| after(*since, policy.settle));
            if now < trusted {
                return Ok(Some(trusted));
            }
            self.sign(&stored.active, now)?;
        }
        let leaf = self.current.leaf();
        Ok(leaf.map(|leaf| policy.renewal(leaf.from, leaf.until)))
    }

    /// When a staged authority will have been published for long enough.
    pub(in super::super) fn promotion(&self, stored: &Stored) -> Option<Timestamp> {
        let Source::SelfSigned { policy, .. } = &self.source else {
            return None;
        };
        let next = stored.next.as_ref()?;
        let since = self.published.get(&next.certificate)?;
        Some(after(*since, policy.settle))
    }
}
