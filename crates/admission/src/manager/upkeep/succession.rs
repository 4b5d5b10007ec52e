//! The succession of supplied certificates. Pure.
//!
//! Clients trust the registered authorities. So the authority of a new certificate is registered in
//! addition to the old one first, the new certificate is served second, and the old authorities are removed
//! when no replica can serve a certificate of theirs any more. No replica stores this state: replicas
//! derive it from the registered bundles, and keep each other's bundles where that does no harm.

use std::time::Duration;

use jiff::Timestamp;

use crate::certificate::{
    authority::Leaf, rotation::after, secret::certificates, supplied::Supplied,
};

/// The time for which an authority must have been registered before a certificate of it is served: the
/// delay with which API servers notice the registration.
pub(super) const SETTLE: Duration = Duration::from_secs(10);
/// The time for which the authorities of the preceding certificate stay registered, and the maximum time
/// for which a certificate waits for the registration of its authority, which another component may
/// have to perform.
const OVERLAP: Duration = Duration::from_secs(600);

/// The served certificate, the offered certificate, and the authorities that must still be trusted.
#[derive(Debug, Default)]
pub(super) struct Succession {
    served: Option<Supplied>,
    offered: Option<(Supplied, Timestamp)>,
    /// Authorities (PEM) of earlier certificates, and the instant at which each was superseded.
    previous: Vec<(String, Timestamp)>,
}

impl Succession {
    /// Records the supplied certificate. `live` are the registered bundles. Returns the bundle to register,
    /// or `None` if the supplied certificate has no bundle.
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
            // The bundle changed, and the certificate did not.
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

    /// Returns the instant from which the offered certificate may be served; `None` if none is offered.
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

    /// Serves the offered certificate.
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

/// Returns the certificates of these bundles, if all bundles are equal.
fn one_of_all(bundles: &[String]) -> Option<Vec<String>> {
    let first = bundles.first()?;
    let same = bundles.iter().all(|bundle| bundle == first);
    same.then(|| certificates(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::supplied::load;

    fn timestamp(seconds: i64) -> Timestamp {
        Timestamp::from_second(2_000_000_000 + seconds).unwrap()
    }

    /// Creates a self-signed certificate, which is its own authority.
    fn one() -> Supplied {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["hooks.acme.svc".to_owned()]).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let key = key.serialize_pem();
        load(pem.as_bytes(), key.as_bytes(), Some(pem.as_bytes())).unwrap()
    }

    fn bundle(of: &[&Supplied]) -> String {
        of.iter()
            .flat_map(|it| it.bundle.clone().unwrap())
            .collect()
    }

    /// Creates a replica that serves with the first certificate.
    fn serving(first: &Supplied) -> Succession {
        let mut succession = Succession::default();
        assert_eq!(
            succession.offer(first, &[], timestamp(0)),
            Some(bundle(&[first]))
        );
        assert_eq!(
            succession.due(|_| None, false, timestamp(0)),
            Some(timestamp(0))
        );
        succession.take(timestamp(0)).unwrap();
        assert_eq!(succession.due(|_| None, false, timestamp(0)), None);
        succession
    }

    #[test]
    fn the_next_is_registered_first_served_second_and_the_one_before_left_out_last() {
        let (first, next) = (one(), one());
        let mut succession = serving(&first);
        let live = [bundle(&[&first])];
        let both = bundle(&[&next, &first]);
        assert_eq!(
            succession.offer(&next, &live, timestamp(100)),
            Some(both.clone())
        );
        let nowhere = |_: &str| None;
        assert_eq!(
            succession.due(nowhere, false, timestamp(101)),
            Some(timestamp(100 + 600)),
            "nobody registers it: it waits for so long"
        );
        let registered = |_: &str| Some(timestamp(102));
        assert_eq!(
            succession.due(registered, false, timestamp(103)),
            Some(timestamp(112))
        );
        assert_eq!(
            succession.due(nowhere, true, timestamp(103)),
            Some(timestamp(110)),
            "nobody can tell"
        );
        succession.take(timestamp(112)).unwrap();
        let live = [both.clone()];
        let offered = succession.offer(&next, &live, timestamp(112 + 599));
        assert_eq!(offered.as_ref(), Some(&both));
        // A bundle that another replica still has registered is kept for a while, and not required.
        let later = timestamp(112 + 601);
        assert_eq!(succession.offer(&next, &live, later), Some(both));
        assert_eq!(succession.offer(&next, &[], later), Some(bundle(&[&next])));
        let end = timestamp(112 + 1201);
        assert_eq!(succession.offer(&next, &live, end), Some(bundle(&[&next])));
    }

    #[test]
    fn late_replica_keeps_registered_certificates_of_other_replicas() {
        let (first, next) = (one(), one());
        let mut late = Succession::default();
        let live = [bundle(&[&first])];
        let both = bundle(&[&next, &first]);
        assert_eq!(late.offer(&next, &live, timestamp(0)), Some(both.clone()));
        late.take(timestamp(0)).unwrap();
        // The order in which another replica wrote them does not matter.
        let other = bundle(&[&first, &next]);
        assert_eq!(
            late.offer(&next, std::slice::from_ref(&other), timestamp(5)),
            Some(other.clone())
        );
        // A foreign certificate is not kept.
        let foreign = [other + &bundle(&[&one()])];
        assert_eq!(late.offer(&next, &foreign, timestamp(6)), Some(both));
    }

    #[test]
    fn a_certificate_of_the_same_authority_or_of_an_unknown_one_is_served_at_once() {
        let (first, mut next) = (one(), one());
        let mut succession = serving(&first);
        next.bundle.clone_from(&first.bundle);
        let live = [bundle(&[&first])];
        assert_eq!(
            succession.offer(&next, &live, timestamp(50)),
            Some(live[0].clone())
        );
        let long_since = |_: &str| Some(timestamp(1));
        assert!(succession.due(long_since, false, timestamp(50)).unwrap() <= timestamp(50));
        succession.take(timestamp(50)).unwrap();
        let mut bare = one();
        bare.bundle = None;
        assert_eq!(succession.offer(&bare, &[], timestamp(60)), None);
        assert_eq!(
            succession.due(|_| None, false, timestamp(60)),
            Some(timestamp(60))
        );
    }
}
