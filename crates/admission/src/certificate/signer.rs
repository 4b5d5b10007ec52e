//! Serving certificates, signed by the authority that clients trust by now.

use jiff::Timestamp;

use super::{
    CertPolicy,
    authority::{Authority, Error},
    resolver::Current,
    rotation::after,
    secret::Stored,
};

/// A signer of the certificate that [`Current`] serves.
pub(crate) struct Signer<'a> {
    pub(crate) policy: &'a CertPolicy,
    /// The names and addresses of the certificate.
    pub(crate) names: &'a [String],
    pub(crate) current: &'a Current,
}

impl Signer<'_> {
    fn sign(&self, authority: &Authority, now: Timestamp) -> Result<(), Error> {
        let leaf = authority.sign(self.names, now, self.policy.leaf_life)?;
        tracing::info!(until = %leaf.until, "signed a serving certificate");
        self.current.swap(leaf);
        Ok(())
    }

    /// Signs the first leaf, and a new one before it expires, as long as the authority is the same.
    pub(crate) fn renew(&self, authority: &Authority, now: Timestamp) -> Result<(), Error> {
        let due = self.current.leaf().is_none_or(|leaf| {
            let same = leaf.issuer.as_ref() == Some(&authority.certificate);
            // No client accepts an expired leaf: another one can only be better.
            now >= leaf.until || (same && now >= self.policy.renewal(leaf.from, leaf.until))
        });
        if due {
            self.sign(authority, now)
        } else {
            Ok(())
        }
    }

    /// Signs with an authority that has taken over, once clients trust it. `since` is the instant of its
    /// publication, if known. Returns the instant of the next check of the leaf.
    pub(crate) fn follow(
        &self,
        stored: &Stored,
        since: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Error> {
        let Some(leaf) = self.current.leaf() else {
            return Ok(None);
        };
        if leaf.issuer.as_ref() != Some(&stored.active.certificate) {
            // If the instant is unknown, the replica that promoted the authority has already waited.
            let unknown = stored.promoted_at.unwrap_or(now);
            let trusted = since.map_or(unknown, |since| after(since, self.policy.settle));
            if now < trusted {
                return Ok(Some(trusted));
            }
            self.sign(&stored.active, now)?;
        }
        let leaf = self.current.leaf();
        Ok(leaf.map(|leaf| self.policy.renewal(leaf.from, leaf.until)))
    }
}
