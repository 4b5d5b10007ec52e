//! The key that seals stamps and grants, in a Secret that whichever process starts first fills, that
//! every process watches, and in which the leader replaces the key from time to time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use oz_core::access::seal::{Keys, Turn};
use oz_core::names::SIGNING_KEY as NAME;
use oz_runtime::{Clock, Data, SecretCell, StoreEvent, Task, is_empty};
use tokio::time::Instant;

/// The key that seals.
const CURRENT: &str = "key";
/// The key before it, which still opens what it sealed.
const PREVIOUS: &str = "previous";
/// Annotation: when a key was made.
pub(crate) const MADE_AT: &str = "oz.wizardofoz.co/key-made-at";

/// How long a key that has just come opens only. Within this every process has heard of it.
const SETTLE: Duration = Duration::from_secs(10);
/// How often to look whether the key is old.
const LOOK: Duration = Duration::from_secs(3_600);

fn cell(client: &Client, namespace: &str) -> SecretCell {
    SecretCell::new(client, namespace, NAME, MADE_AT)
}

/// What became of the keys of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyNews {
    /// Others open than did before.
    Opens,
    /// Another seals, of which this is the id.
    Seals(String),
}

/// Reads the signing keys, or makes the first one.
///
/// # Errors
/// When the Secret is not there, can be neither read nor filled, or holds no usable key.
pub async fn signing_keys(client: &Client, namespace: &str) -> anyhow::Result<Keys> {
    let (secret, _) = cell(client, namespace).filled(fresh).await?;
    keys(&secret)
        .and_then(|keys| Ok(Keys::new(keys)?))
        .with_context(|| {
            format!(
                "failed to use Secret {namespace}/{NAME}; empty it to have a new key made \
                 (requests that wait for a grant must then be created again)"
            )
        })
}

fn keys(secret: &Secret) -> anyhow::Result<Vec<Vec<u8>>> {
    let data = secret.data.as_ref().context("it has no data")?;
    let current = data
        .get(CURRENT)
        .with_context(|| format!("it has no entry {CURRENT}"))?;
    let previous = data.get(PREVIOUS);
    Ok(std::iter::once(current)
        .chain(previous)
        .map(|key| key.0.clone())
        .collect())
}

/// Keeps the keys of a process what the Secret says, and tells of it. One that was emptied is filled
/// again, with another key: whoever empties it ends what the old one sealed. While there is none, the
/// keys stay what they were.
pub struct SigningKeyWatch {
    cell: SecretCell,
    keys: Keys,
    tell: Arc<dyn Fn(KeyNews) + Send + Sync>,
}

impl SigningKeyWatch {
    /// Keeps `keys` up to date.
    pub fn new(
        client: &Client,
        namespace: &str,
        keys: Keys,
        tell: impl Fn(KeyNews) + Send + Sync + 'static,
    ) -> Self {
        Self {
            cell: cell(client, namespace),
            keys,
            tell: Arc::new(tell),
        }
    }

    /// What the Secret says after an event, if that may be news.
    async fn found(
        &self,
        event: StoreEvent<oz_runtime::Guarded<Secret>>,
    ) -> Option<anyhow::Result<Vec<Vec<u8>>>> {
        match event {
            StoreEvent::Apply(secret) | StoreEvent::InitApply(secret) => match secret.0 {
                Ok(secret) if !is_empty(&secret) => Some(keys(&secret)),
                Ok(_) => Some(self.again().await),
                Err(undecodable) => Some(Err(undecodable.into())),
            },
            StoreEvent::Delete(_) => Some(self.again().await),
            StoreEvent::Init | StoreEvent::InitDone => None,
        }
    }

    /// The keys of a Secret that was emptied and is filled again, by whoever is first.
    async fn again(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        let (secret, _) = self.cell.filled(fresh).await?;
        keys(&secret)
    }

    /// Takes in what was found; says whether a key that has come is still to seal.
    fn adopt(&self, found: anyhow::Result<Vec<Vec<u8>>>) -> Option<bool> {
        match found.and_then(|found| Ok(self.keys.adopt(found)?)) {
            Ok(Turn::None) => Some(false),
            Ok(Turn::Begun) => {
                (self.tell)(KeyNews::Opens);
                Some(true)
            }
            Ok(Turn::Over) => {
                (self.tell)(KeyNews::Opens);
                Some(false)
            }
            Ok(Turn::AtOnce) => {
                (self.tell)(KeyNews::Opens);
                (self.tell)(KeyNews::Seals(self.keys.id()));
                Some(false)
            }
            Err(error) => {
                tracing::error!(
                    secret = %self.cell,
                    "the signing key cannot be used, so the one before it stays in use: {error:#}"
                );
                None
            }
        }
    }
}

impl Task for SigningKeyWatch {
    async fn run(&self) {
        let mut watch = self.cell.watch();
        let mut settles: Option<Instant> = None;
        loop {
            let settled = async {
                match settles {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = watch.next(|_| {}) => {
                    let Some(found) = self.found(event).await else {
                        continue;
                    };
                    settles = match self.adopt(found) {
                        Some(true) => settles.or(Some(Instant::now() + SETTLE)),
                        Some(false) => None,
                        None => settles,
                    };
                }
                () = settled => {
                    settles = None;
                    if self.keys.settle() {
                        (self.tell)(KeyNews::Seals(self.keys.id()));
                    }
                }
            }
        }
    }
}

/// Replaces the key whenever it is older than `life`. The one before it still opens, until the next takes
/// its place.
pub struct SigningKeyRotation {
    cell: SecretCell,
    clock: Arc<dyn Clock>,
    life: SignedDuration,
}

impl SigningKeyRotation {
    /// Replaces the key in `namespace`.
    pub fn new(client: &Client, clock: impl Clock, namespace: &str, life: SignedDuration) -> Self {
        Self {
            cell: cell(client, namespace),
            clock: Arc::new(clock),
            life,
        }
    }

    async fn replace_if_due(&self) -> anyhow::Result<()> {
        let now = self.clock.now();
        let Some(found) = self.cell.older(self.life, now).await? else {
            return Ok(());
        };
        let before = keys(&found)?.swap_remove(0);
        let next = Data::from([
            (CURRENT.to_owned(), ByteString(random()?)),
            (PREVIOUS.to_owned(), ByteString(before)),
        ]);
        self.cell.replace(found, next, now).await.map(drop)
    }
}

impl Task for SigningKeyRotation {
    async fn run(&self) {
        loop {
            if let Err(error) = self.replace_if_due().await {
                tracing::warn!("failed to replace the signing key: {error:#}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn fresh() -> anyhow::Result<Data> {
    Ok(Data::from([(CURRENT.to_owned(), ByteString(random()?))]))
}

fn random() -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; Keys::MIN_BYTES];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("failed to get random bytes"))?;
    Ok(bytes)
}
