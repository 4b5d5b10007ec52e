//! One supplied certificate after the other. Pure.
//!
//! Clients trust what is registered. So what is behind a new certificate is registered beside what
//! is behind the old one first, the new one is served second, and the old authorities are left out when no
//! replica can be serving with one of theirs any more. Nobody keeps a record of it: replicas go by what is
//! registered, and leave each other's as it is where that does no harm.

use std::time::Duration;

use jiff::Timestamp;

use crate::certificate::{
    authority::Leaf, rotation::after, secret::certificates, supplied::Supplied,
};

/// How long an authority must have been registered before anything of its is served: as long as API
/// servers take to notice.
pub(super) const SETTLE: Duration = Duration::from_secs(10);
/// How long the authorities of the one before stay registered, and how long a certificate waits at most
/// for its own to be, which somebody else may have to do.
const OVERLAP: Duration = Duration::from_secs(600);

/// What is served, what is offered, and which authorities still have to be trusted.
#[derive(Debug, Default)]
pub(super) struct Succession {
    served: Option<Supplied>,
    offered: Option<(Supplied, Timestamp)>,
    /// Authorities (PEM) of earlier ones, and since when they are that.
    previous: Vec<(String, Timestamp)>,
}

impl Succession {
    /// Takes note of what is supplied. `live` are the bundles that are registered. Returns what is to be
    /// registered, if that is for us to say.
    pub(super) fn offer(
        &mut self,
        supplied: &Supplied,
        live: &[String],
        now: Timestamp,
    ) -> Option<String> {
        let registered = one_of_all(live);
        if self.served.is_none() && self.offered.is_none() {
            // Other replicas may serve with one of these.
            let known = registered.iter().flatten().cloned();
            self.previous = known.map(|pem| (pem, now)).collect();
        }
        if !self.is_latest(supplied) {
            self.offered = Some((supplied.clone(), now));
        }
        let offered = supplied.bundle.as_ref()?;
        if let Some(served) = &mut self.served
            && served.bundle.as_ref() != Some(offered)
            && served.leaf.key.cert == supplied.leaf.key.cert
        {
            // Other authorities behind the same certificate.
            let old = served.bundle.replace(offered.clone());
            self.previous
                .extend(old.into_iter().flatten().map(|pem| (pem, now)));
        }
        self.previous
            .retain(|(pem, since)| !offered.contains(pem) && now < after(*since, OVERLAP * 2));
        let mut required = offered.clone();
        let served = self.served.iter().filter_map(|it| it.bundle.as_ref());
        let recent = self.previous.iter();
        let recent = recent.filter(|(_, since)| now < after(*since, OVERLAP));
        for pem in served.flatten().chain(recent.map(|(pem, _)| pem)) {
            if !required.contains(pem) {
                required.push(pem.clone());
            }
        }
        let allowed =
            |pem: &String| required.contains(pem) || self.previous.iter().any(|(it, _)| it == pem);
        match registered {
            Some(registered)
                if registered.iter().all(allowed)
                    && required.iter().all(|pem| registered.contains(pem)) =>
            {
                Some(registered.concat())
            }
            _ => Some(required.concat()),
        }
    }

    fn is_latest(&self, supplied: &Supplied) -> bool {
        let offered = self.offered.as_ref().map(|(offered, _)| offered);
        let latest = offered.or(self.served.as_ref());
        latest.is_some_and(|it| it.leaf.key.cert == supplied.leaf.key.cert)
    }

    /// When what is offered may be served; none if nothing is.
    pub(super) fn due(
        &self,
        published_since: impl Fn(&str) -> Option<Timestamp>,
        unknown: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let (offered, since) = self.offered.as_ref()?;
        let Some(served) = &self.served else {
            return Some(now);
        };
        let Some(bundle) = &offered.bundle else {
            return Some(now);
        };
        let at_last = after(*since, OVERLAP).min(served.leaf.until);
        if unknown {
            return Some(after(*since, SETTLE).min(at_last));
        }
        let published: Option<Vec<_>> = bundle.iter().map(|pem| published_since(pem)).collect();
        let last = published.and_then(|published| published.into_iter().max());
        Some(last.map_or(at_last, |last| after(last, SETTLE).min(at_last)))
    }

    /// Serves what is offered.
    pub(super) fn take(&mut self, now: Timestamp) -> Option<Leaf> {
        let (offered, _) = self.offered.take()?;
        let leaf = offered.leaf.clone();
        let before = self.served.replace(offered);
        let bundle = before.and_then(|before| before.bundle);
        self.previous
            .extend(bundle.into_iter().flatten().map(|pem| (pem, now)));
        Some(leaf)
    }
}

/// The certificates of these bundles, if they all have the same.
fn one_of_all(bundles: &[String]) -> Option<Vec<String>> {
    let first = bundles.first()?;
    let same = bundles.iter().all(|bundle| bundle == first);
    same.then(|| certificates(first))
}
