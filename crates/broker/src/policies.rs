//! The broker policies, from a watch, and whether their specs have the webhook's stamp. Each version of a policy is
//! verified once.
//! See docs/adr/0046-brokers-lend-credentials-by-stamped-policies.md.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use oz_api::Requester;
use oz_api::harness::BrokerPolicy;
use oz_api::names::SEAL_KEYS;
use oz_core::lifecycle::seal::{Keys, Owner};
use oz_runs::lending::{Lenders, Stamped};
use oz_runs::policy_stamp;
use oz_runtime::{Feeds, Keep, Kind, Selection, Store};
use parking_lot::Mutex;

use crate::answer::Refused;

/// The maximum time for which a request waits for the first list of policies.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// The authors of the spec of a policy; or the reason why the stamp of the policy is not valid.
type Authors = Result<Arc<[Requester]>, Arc<str>>;

/// A policy with its authors.
pub(crate) type Verified = (Arc<BrokerPolicy>, Authors);

/// The policies and their stamps.
pub(crate) struct Policies {
    pub(crate) store: Store<BrokerPolicy>,
    /// The Secret with the webhook's public keys, which verify stamps.
    pub(crate) webhook_keys: Store<Secret>,
    known: Mutex<VerificationCache>,
}

/// The verified versions of policies.
#[derive(Default)]
struct VerificationCache {
    /// The published keys by which the stamps were verified.
    published: Vec<u8>,
    keys: Keys,
    /// The version and the authors, by UID.
    policies: HashMap<String, (String, Authors)>,
}

impl Policies {
    /// Starts the watches.
    pub(crate) fn new(feeds: &Feeds, namespace: &str) -> Self {
        let keep = Keep {
            group_of: Some(|policy: &BrokerPolicy| policy.metadata.namespace.as_deref()),
            lean: Some(|mut policy: BrokerPolicy| {
                policy.metadata.managed_fields = None;
                // The broker trusts no status.
                policy.status = None;
                policy
            }),
            ..Keep::default()
        };
        Self {
            store: feeds.store_of(
                &Kind::from_type::<BrokerPolicy>(),
                Selection::default(),
                &keep,
            ),
            webhook_keys: feeds.store_in(
                &Kind::from_type::<Secret>(),
                namespace,
                Selection::with_name(Owner::Webhook.public_keys()),
            ),
            known: Mutex::default(),
        }
    }

    /// Waits for the first list of policies and keys: before it, no policy would grant anything, and proxies would close
    /// the connections of runs.
    pub(crate) async fn ready(&self) -> Result<(), Refused> {
        let listed = async {
            self.store.ready().await;
            self.webhook_keys.ready().await;
        };
        let listed = tokio::time::timeout(READY_TIMEOUT, listed).await;
        listed.map_err(|_elapsed| Refused::busy("the broker policies are not listed yet"))
    }

    /// Returns the policies of a namespace.
    pub(crate) fn list(&self, namespace: &str) -> Vec<Verified> {
        let policies = self.store.group(namespace);
        let secrets = self.webhook_keys.objects();
        let data = secrets.first().and_then(|secret| secret.data.as_ref());
        let published = data.and_then(|data| data.get(SEAL_KEYS));
        let published = published.map_or(&[][..], |keys| &keys.0);
        let mut known = self.known.lock();
        known.follow(published);
        known.forget(self.store.len());
        let verified = policies.into_iter().map(|policy| {
            let authors = known.authors(&policy);
            (policy, authors)
        });
        verified.collect()
    }
}

impl VerificationCache {
    /// Verifies by these keys from now on.
    fn follow(&mut self, published: &[u8]) {
        if self.published == published {
            return;
        }
        self.policies.clear();
        self.published = published.to_vec();
        self.keys = Keys::default();
        let text = str::from_utf8(published).unwrap_or_default();
        if let Err(error) = self.keys.trust(Owner::Webhook, text) {
            tracing::warn!(%error, "no broker policy can be verified");
        }
    }

    /// Removes all entries if most are of policies that no longer exist.
    fn forget(&mut self, policies: usize) {
        if self.policies.len() > policies * 2 + 64 {
            self.policies.clear();
        }
    }

    fn authors(&mut self, policy: &BrokerPolicy) -> Authors {
        let metadata = &policy.metadata;
        let (Some(uid), Some(version)) = (&metadata.uid, &metadata.resource_version) else {
            return Err("the policy has no UID".into());
        };
        if let Some((known, authors)) = self.policies.get(uid)
            && known == version
        {
            return authors.clone();
        }
        let authors: Authors = match policy_stamp::verify(&self.keys, policy) {
            Ok(authors) => Ok(authors.into()),
            Err(error) => Err(error.to_string().into()),
        };
        self.policies
            .insert(uid.clone(), (version.clone(), authors.clone()));
        authors
    }
}

/// Returns the policies for a template.
pub(crate) fn lenders<'a>(policies: &'a [Verified], template: &str) -> Lenders<'a> {
    let stamped = policies.iter().map(|(policy, authors)| Stamped {
        policy,
        authors: match authors {
            Ok(authors) => Ok(&**authors),
            Err(why) => Err(&**why),
        },
    });
    Lenders::from_policies(stamped, template)
}
