//! The ConfigMap with the certificates that clients must trust, and the instant since which it contains
//! them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams},
};
use oz_runtime::{CallError, within};

use crate::{certificate::secret::certificates, registration::FINGERPRINT_LABEL};

/// The key of the ConfigMap that contains the certificates, as PEM.
pub const BUNDLE_KEY: &str = "ca.crt";
/// The annotation with the instant at which the newest certificate was added.
const PUBLISHED_ANNOTATION: &str = "oz-admission/published-at";

/// The address of the ConfigMap.
pub(super) struct Bundle {
    api: Api<ConfigMap>,
    fingerprint: String,
    namespace: String,
    name: String,
}

/// The certificates to publish, and the instant since which all of them are published.
#[derive(Debug, PartialEq)]
struct Published {
    text: String,
    since: Timestamp,
}

impl Bundle {
    pub(super) fn new(client: &Client, fingerprint: &str, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            fingerprint: fingerprint.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Publishes all of `wanted` (PEM), and returns the instant since which each of them is published.
    pub(super) async fn publish(
        &self,
        wanted: &[String],
        now: Timestamp,
    ) -> Result<BTreeMap<String, Timestamp>, CallError> {
        let what = |verb: &str| {
            format!(
                "failed to {verb} ConfigMap {}/{}",
                self.namespace, self.name
            )
        };
        let found = within(self.api.get_opt(&self.name), || what("read")).await?;
        let (published, stale) = next(found.as_ref(), wanted, now);
        if stale {
            let map = self.map(&published);
            let apply = PatchParams::apply(&self.fingerprint).force();
            let patch = Patch::Apply(&map);
            let patched = self.api.patch(&self.name, &apply, &patch);
            within(patched, || what("write")).await?;
            tracing::info!(
                config_map = self.name,
                "published the certificate authority"
            );
        }
        let since = published.since;
        Ok(wanted.iter().map(|pem| (pem.clone(), since)).collect())
    }

    fn map(&self, published: &Published) -> ConfigMap {
        let labels = BTreeMap::from([(FINGERPRINT_LABEL.to_owned(), self.fingerprint.clone())]);
        let since = published.since.to_string();
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                annotations: Some(BTreeMap::from([(PUBLISHED_ANNOTATION.to_owned(), since)])),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(
                BUNDLE_KEY.to_owned(),
                published.text.clone(),
            )])),
            ..ConfigMap::default()
        }
    }
}

/// Returns the certificates to publish, and whether they are not published yet.
fn next(found: Option<&ConfigMap>, wanted: &[String], now: Timestamp) -> (Published, bool) {
    let annotations = found.and_then(|map| map.metadata.annotations.as_ref());
    let since = annotations.and_then(|all| all.get(PUBLISHED_ANNOTATION)?.parse().ok());
    let text = found.and_then(|map| map.data.as_ref()?.get(BUNDLE_KEY));
    let known = text.into_iter().flat_map(|text| certificates(text));
    let known: Vec<_> = known.collect();
    // An instant in the future does not prove that a replica waited.
    let since: Option<Timestamp> = since.filter(|since| *since <= now);
    let added = wanted.iter().any(|pem| !known.contains(pem));
    let wanted = wanted.concat();
    let stale = text != Some(&wanted) || since.is_none();
    let since = since.filter(|_| !added).unwrap_or(now);
    let published = Published {
        text: wanted,
        since,
    };
    (published, stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n")
    }

    fn timestamp(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn map(wanted: &[String], since: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                annotations: Some(BTreeMap::from([(
                    PUBLISHED_ANNOTATION.to_owned(),
                    since.to_owned(),
                )])),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(BUNDLE_KEY.to_owned(), wanted.concat())])),
            ..ConfigMap::default()
        }
    }

    #[test]
    fn the_time_counts_from_the_last_certificate_that_was_added() {
        let (old, new) = (pem("old"), pem("new"));
        let (first, second) = (timestamp(100), timestamp(200));
        let (published, stale) = next(None, std::slice::from_ref(&old), first);
        assert_eq!((published.since, stale), (first, true));
        let there = map(std::slice::from_ref(&old), &first.to_string());
        let (published, stale) = next(Some(&there), std::slice::from_ref(&old), second);
        assert_eq!((published.since, stale), (first, false));
        let both = [old.clone(), new.clone()];
        let (published, stale) = next(Some(&there), &both, second);
        assert_eq!((published.since, stale), (second, true));
        // Another order, and one certificate fewer, do not matter to clients.
        let there = map(&both, &first.to_string());
        for fewer in [vec![new.clone(), old.clone()], vec![new.clone()]] {
            let (published, stale) = next(Some(&there), &fewer, second);
            assert_eq!((published.since, stale), (first, true));
        }
    }

    #[test]
    fn bundle_with_foreign_content_is_stale_and_replaced() {
        let wanted = [pem("ours")];
        for (found, since) in [
            (map(&[pem("theirs")], "1970-01-01T00:00:01Z"), 50),
            (map(&wanted, "soon"), 50),
            (map(&wanted, "2999-01-01T00:00:00Z"), 50),
            (
                map(&[pem("theirs"), pem("ours")], "1970-01-01T00:00:01Z"),
                1,
            ),
        ] {
            let (published, stale) = next(Some(&found), &wanted, timestamp(50));
            assert!(stale);
            assert_eq!(published.since, timestamp(since), "{found:?}");
            assert_eq!(published.text, wanted.concat());
        }
    }
}
