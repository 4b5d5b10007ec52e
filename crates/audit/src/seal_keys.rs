//! The sealing keys. Each component reads its private keys from a Secret that no other component may read, and
//! publishes its public keys in a Secret that no other component may write. The first replica creates the keys. Every
//! process watches both Secrets, and every component rotates its own keys.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use oz_api::names::SEAL_KEYS;
use oz_core::access::seal::{Keys, Owner, Turn};
use oz_runtime::{Clock, Data, Guarded, SecretCell, StoreEvent, Task};
use oz_trail::{Action, Decision, Record};
use tokio::time::Instant;

use crate::Trail;
use crate::key::random;
use crate::public::PublicKeys;

/// The entry with the key that seals.
const CURRENT: &str = "key";
/// The entry with the previous key. Its seals stay valid.
const PREVIOUS: &str = "previous";
/// Annotation: the creation time of a key.
const MADE_AT: &str = "oz.wizardofoz.co/key-created-at";

/// The time between the publication of a key and its first seal. Within it, every process receives the key.
const SETTLE: Duration = Duration::from_secs(10);
/// The interval between two checks of the age of a key.
const LOOK: Duration = Duration::from_secs(3_600);
/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(2);
/// The pause after further failures: an administrator has to repair the Secret, and an event reports the repair.
const LONG_PAUSE: Duration = Duration::from_secs(30);

type Private = [u8; Keys::BYTES];

fn cell(client: &Client, namespace: &str, owner: Owner) -> SecretCell {
    SecretCell::new(
        client,
        namespace,
        owner.private_keys(),
        &[CURRENT, PREVIOUS],
        MADE_AT,
    )
}

/// Reads the private keys of a component, or creates the first one; publishes its public keys, and reads the public
/// keys of the other components, if these are published.
///
/// # Errors
/// If a Secret of the component does not exist, can be neither read nor filled, or holds no usable key.
pub async fn seal_keys(client: &Client, namespace: &str, owner: Owner) -> anyhow::Result<Keys> {
    let cell = cell(client, namespace, owner);
    let (secret, _) = cell.filled(fresh).await?;
    let found = private_keys(&secret).with_context(|| {
        format!(
            "failed to use Secret {cell}; empty it to create a new key (objects with a seal of the \
             previous key, such as grants, must then be created again)"
        )
    })?;
    let public = public_keys(client, namespace, owner);
    let published = Keys::published(&found);
    let before = public.read().await?;
    let newest = published.lines().next();
    let is_known = before.is_some_and(|before| before.lines().any(|line| Some(line) == newest));
    let made = cell.made(&secret);
    let since = made.map(|made| Timestamp::now().duration_since(made));
    let is_new = since.is_some_and(|since| since.unsigned_abs() < SETTLE);
    public.publish(&published).await?;
    let keys = match &found[..] {
        // Another replica has just replaced the key: the new key seals as soon as every process knows it.
        [_, previous] if is_new || !is_known => {
            let keys = Keys::new(owner, &[*previous])?;
            keys.adopt(owner, &found)?;
            keys
        }
        _ => Keys::new(owner, &found)?,
    };
    for other in owner.verifies() {
        let others = public_keys(client, namespace, *other);
        let Some(text) = others.read().await? else {
            tracing::info!(secret = %others, "there are no public keys of {other} yet");
            continue;
        };
        if let Err(error) = keys.trust(*other, &text) {
            tracing::error!(secret = %others, "failed to open the seals of {other}: {error}");
        }
    }
    Ok(keys)
}

fn private_keys(secret: &Secret) -> anyhow::Result<Vec<Private>> {
    let data = secret.data.as_ref().context("it has no data")?;
    let current = data
        .get(CURRENT)
        .with_context(|| format!("it has no entry {CURRENT}"))?;
    let read = |key: &ByteString| {
        Private::try_from(key.0.as_slice())
            .with_context(|| format!("a key of it is not {} bytes long", Keys::BYTES))
    };
    let all = std::iter::once(current).chain(data.get(PREVIOUS));
    all.map(read).collect()
}

fn public_keys(client: &Client, namespace: &str, owner: Owner) -> PublicKeys {
    PublicKeys::new(client, namespace, owner.public_keys(), SEAL_KEYS)
}

/// A task that keeps the keys of a process equal to those in the Secrets. An emptied Secret with private keys is filled
/// with a new key, which revokes all seals of the old one. While the Secret does not exist, the process keeps its keys.
pub struct SealKeyWatch {
    cell: SecretCell,
    public: PublicKeys,
    others: Vec<(Owner, PublicKeys)>,
    keys: Keys,
    owner: Owner,
    trail: Trail,
    opens: Box<dyn Fn() + Send + Sync>,
}

impl SealKeyWatch {
    /// Creates a task that keeps `keys` up to date, records in `trail` which key seals, and calls `opens` after a
    /// change of the accepted keys.
    pub fn new(
        client: &Client,
        namespace: &str,
        (owner, keys): (Owner, Keys),
        trail: Trail,
        opens: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let public = |owner| public_keys(client, namespace, owner);
        Self {
            cell: cell(client, namespace, owner),
            public: public(owner),
            others: owner
                .verifies()
                .iter()
                .map(|other| (*other, public(*other)))
                .collect(),
            keys,
            owner,
            trail,
            opens: Box::new(opens),
        }
    }

    /// Returns the private keys after an event, if they may have changed.
    async fn found(
        &self,
        event: StoreEvent<Guarded<Secret>>,
    ) -> Option<anyhow::Result<Vec<Private>>> {
        match event {
            StoreEvent::Apply(secret) | StoreEvent::InitApply(secret) => match secret.0 {
                Ok(secret) if !self.cell.is_empty(&secret) => Some(private_keys(&secret)),
                Ok(_) => Some(self.again().await),
                Err(undecodable) => Some(Err(undecodable.into())),
            },
            StoreEvent::Delete(_) => {
                tracing::error!(
                    secret = %self.cell,
                    "the Secret with the signing key does not exist, and this process may not \
                        create Secrets: it keeps the key in use"
                );
                None
            }
            StoreEvent::Init | StoreEvent::InitDone => None,
        }
    }

    /// Reads the private keys again; creates one if the Secret is empty.
    async fn again(&self) -> anyhow::Result<Vec<Private>> {
        let (secret, _) = self.cell.filled(fresh).await?;
        private_keys(&secret)
    }

    /// Publishes the public keys, then adopts the private keys. Returns whether the newest key does not seal yet.
    async fn adopt(&self, found: &[Private]) -> anyhow::Result<bool> {
        self.public.publish(&Keys::published(found)).await?;
        let turn = self.keys.adopt(self.owner, found)?;
        if turn != Turn::None {
            (self.opens)();
        }
        if turn == Turn::AtOnce {
            self.record();
        }
        Ok(turn == Turn::Begun)
    }

    /// Records the change of the sealing key.
    fn record(&self) {
        let Some(id) = self.keys.newest(self.owner) else {
            return;
        };
        let message = format!("{} seals with the key {id}", self.owner);
        tracing::info!(key = id, "another key seals");
        let (action, note) = (Action::KeyRotated, Decision::Note);
        let now = self.trail.shared.clock.now();
        let record = Record::about(now, action, note, &id, "SigningKeyReplaced", message);
        self.trail.note(record.detail("signingKey", id));
    }

    /// Follows the keys of the component.
    async fn own(&self) {
        let mut private = self.cell.watch();
        let mut public = self.public.watch();
        let mut last = String::new();
        // The keys to publish and adopt, and the instant at which the newest key seals.
        let mut pending: Option<(Vec<Private>, Instant)> = None;
        let mut settles: Option<Instant> = None;
        // The instant of the next attempt to read the private keys.
        let mut rereads: Option<Instant> = None;
        loop {
            let due = pending.as_ref().map(|(_, at)| *at);
            tokio::select! {
                event = private.next(|_| {}) => match self.found(event).await {
                    Some(Ok(found)) => {
                        pending = Some((found, Instant::now()));
                        rereads = None;
                    }
                    Some(Err(error)) => {
                        tracing::error!(
                            secret = %self.cell,
                            "failed to use the signing key; keeping the previous one: {error:#}"
                        );
                        rereads = Some(Instant::now() + AGAIN);
                    }
                    None => {}
                },
                event = public.next(|_| {}) => {
                    let said = self.public.said(event).and_then(Result::ok);
                    let is_other = said.is_some_and(|said| said.as_deref() != Some(last.as_str()));
                    if is_other && !last.is_empty() {
                        tracing::info!(secret = %self.public, "the published public keys differ \
                            from those in use");
                        rereads = Some(Instant::now() + AGAIN);
                    }
                }
                () = sleep_until(rereads) => match self.again().await {
                    Ok(found) => {
                        pending = Some((found, Instant::now()));
                        rereads = None;
                    }
                    Err(error) => {
                        tracing::warn!(secret = %self.cell, "failed to read the signing key: {error:#}");
                        rereads = Some(Instant::now() + LONG_PAUSE);
                    }
                },
                () = sleep_until(due) => {
                    let Some((found, due)) = &mut pending else { continue };
                    match self.adopt(found).await {
                        Ok(begun) => {
                            last = Keys::published(found);
                            settles = match begun {
                                true => settles.or(Some(Instant::now() + SETTLE)),
                                false => None,
                            };
                            pending = None;
                        }
                        Err(error) => {
                            tracing::warn!("keeping the signing key in use, before the next one: \
                                {error:#}");
                            *due = Instant::now() + AGAIN;
                        }
                    }
                }
                () = sleep_until(settles) => {
                    settles = None;
                    if self.keys.settle(self.owner) {
                        self.record();
                    }
                }
            }
        }
    }

    /// Follows the public keys of another component.
    async fn follow(&self, other: Owner, public: &PublicKeys) {
        let mut watch = public.watch();
        loop {
            let trusted = match public.said(watch.next(|_| {}).await) {
                Some(Ok(Some(text))) => {
                    let trusted = self.keys.trust(other, &text);
                    trusted.map_err(anyhow::Error::from)
                }
                // While no public keys are published, the known keys stay in use.
                Some(Ok(None)) | None => Ok(false),
                Some(Err(error)) => Err(error),
            };
            match trusted {
                Ok(true) => (self.opens)(),
                Ok(false) => {}
                Err(error) => tracing::error!(
                    secret = %public,
                    "failed to use the public keys; keeping the previous ones: {error:#}"
                ),
            }
        }
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl Task for SealKeyWatch {
    async fn run(&self) {
        let others = join_all(
            self.others
                .iter()
                .map(|(other, public)| self.follow(*other, public)),
        );
        tokio::join!(self.own(), others);
    }
}

/// A task that replaces the key of a component when it is older than `life`. Seals of the previous key stay valid until
/// the next rotation.
pub struct SealKeyRotation {
    cell: SecretCell,
    clock: Arc<dyn Clock>,
    life: SignedDuration,
}

impl SealKeyRotation {
    /// Creates a task that replaces the key of `owner` in `namespace`.
    pub fn new(
        client: &Client,
        clock: impl Clock,
        namespace: &str,
        owner: Owner,
        life: SignedDuration,
    ) -> Self {
        Self {
            cell: cell(client, namespace, owner),
            clock: Arc::new(clock),
            life,
        }
    }

    async fn replace_if_due(&self) -> anyhow::Result<()> {
        let now = self.clock.now();
        let Some(found) = self.cell.older(self.life, now).await? else {
            return Ok(());
        };
        let before = private_keys(&found)?.swap_remove(0);
        let next = Data::from([
            (CURRENT.to_owned(), ByteString(random()?.to_vec())),
            (PREVIOUS.to_owned(), ByteString(before.to_vec())),
        ]);
        self.cell.replace(found, next, now).await.map(drop)
    }
}

impl Task for SealKeyRotation {
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
    let key = ByteString(random()?.to_vec());
    Ok(Data::from([(CURRENT.to_owned(), key)]))
}
