//! The key that seals stamps and grants, in a Secret that whichever process starts first fills, that
//! every process watches, and in which the operator replaces the key from time to time.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use oz_core::access::seal::{Keys, Turn};
use oz_core::names::SIGNING_KEY as NAME;
use oz_runtime::Clock;
use tokio::time::Instant;

use oz_runtime::secret_cell;

/// The key that seals.
const CURRENT: &str = "key";
/// The key before it, which still opens what it sealed.
const PREVIOUS: &str = "previous";

/// How long a key that has just come opens only. Within this every process has heard of it.
const SETTLE: Duration = Duration::from_secs(10);
/// How often to look whether the key is old.
const LOOK: Duration = Duration::from_secs(3_600);

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
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let (secret, made) = secret_cell::filled(&secrets, NAME, fresh).await?;
    if made {
        tracing::info!(secret = %format!("{namespace}/{NAME}"), "made the signing key");
    }
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

/// Keeps `keys` what the Secret says, as long as the process lasts, and tells of it. One that was
/// emptied is filled again, with another key: whoever empties it ends what the old one sealed. While
/// there is none, the keys stay what they were.
pub async fn follow_signing_keys(
    client: Client,
    namespace: String,
    keys: Keys,
    tell: impl Fn(KeyNews),
) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let ours = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let mut watch = pin!(watcher(secrets, ours).default_backoff());
    let mut settles: Option<Instant> = None;
    loop {
        let settled = async {
            match settles {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let found = tokio::select! {
            event = watch.next() => match event {
                Some(Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret))) => {
                    if secret_cell::is_empty(&secret) {
                        again(&client, &namespace).await
                    } else {
                        self::keys(&secret)
                    }
                }
                Some(Ok(watcher::Event::Delete(_))) => again(&client, &namespace).await,
                Some(Ok(watcher::Event::Init | watcher::Event::InitDone)) => continue,
                Some(Err(error)) => {
                    tracing::debug!(%error, "the watch of the signing key failed and is tried again");
                    continue;
                }
                None => return,
            },
            () = settled => {
                settles = None;
                if keys.settle() {
                    tell(KeyNews::Seals(keys.id()));
                }
                continue;
            }
        };
        match found.and_then(|found| Ok(keys.adopt(found)?)) {
            Ok(Turn::None) => settles = None,
            Ok(Turn::Begun) => {
                settles = settles.or(Some(Instant::now() + SETTLE));
                tell(KeyNews::Opens);
            }
            Ok(Turn::Over) => {
                settles = None;
                tell(KeyNews::Opens);
            }
            Ok(Turn::AtOnce) => {
                settles = None;
                tell(KeyNews::Opens);
                tell(KeyNews::Seals(keys.id()));
            }
            Err(error) => tracing::error!(
                secret = %format!("{namespace}/{NAME}"),
                "the signing key cannot be used, so the one before it stays in use: {error:#}"
            ),
        }
    }
}

/// The keys of a Secret that was emptied and is filled again, by whoever is first.
async fn again(client: &Client, namespace: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    signing_keys(client, namespace).await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    keys(&secrets.get(NAME).await?)
}

/// Replaces the key whenever it is older than `life`, as long as the process lasts. The one before it
/// still opens, until the next takes its place.
pub async fn replace_signing_key(
    client: Client,
    clock: impl Clock,
    namespace: String,
    life: SignedDuration,
) {
    loop {
        if let Err(error) = replace_if_due(&client, &clock, &namespace, life).await {
            tracing::warn!("failed to replace the signing key: {error:#}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn replace_if_due(
    client: &Client,
    clock: &impl Clock,
    namespace: &str,
    life: SignedDuration,
) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get(NAME).await?;
    let now = clock.now();
    let Some(made) = secret_cell::made(&found) else {
        return Ok(());
    };
    if now.duration_since(made) < life {
        return Ok(());
    }
    let mut next = found.clone();
    let before = keys(&found)?.swap_remove(0);
    next.data = Some(BTreeMap::from([
        (CURRENT.to_owned(), ByteString(random()?)),
        (PREVIOUS.to_owned(), ByteString(before)),
    ]));
    secret_cell::made_at(&mut next, now);
    // Another replica may have been faster, and then is right: the resource version tells.
    match secrets.replace(NAME, &PostParams::default(), &next).await {
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(()),
        other => other.map(drop).context("failed to update the Secret"),
    }
}

fn fresh() -> anyhow::Result<BTreeMap<String, ByteString>> {
    Ok(BTreeMap::from([(
        CURRENT.to_owned(),
        ByteString(random()?),
    )]))
}

fn random() -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; Keys::MIN_BYTES];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("failed to get random bytes"))?;
    Ok(bytes)
}
