//! The credentials that the broker lent: in memory only, for a few minutes, and only while the grants name them. Several
//! requests that need the same credential ask the broker once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::Method;
use oz_api::harness::wire::{
    CREDENTIAL_PATH, CredentialRequest, LENT_SECONDS, LentCredential, MAX_VALUE,
};
use oz_egress::grants::Granted;
use parking_lot::Mutex;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::grants::State;
use crate::broker::{Broker, Call, Failure};

/// The maximum number of lent credentials in memory, one for each credential and host.
const MAX_LENT: usize = 256;
/// The time for which a refusal is remembered: each question is an audit record.
const REFUSAL: Duration = Duration::from_secs(1);

/// A credential that the broker lent.
pub(crate) struct Lent {
    pub(crate) value: Zeroizing<String>,
    pub(crate) version: String,
    until: Instant,
}

/// The last answer of the broker about a credential for a host.
enum Answer {
    Lent(Arc<Lent>),
    Refused { message: String, until: Instant },
}

/// An answer, and the lock of the request that fetches it.
type Slot = Arc<tokio::sync::Mutex<Option<Answer>>>;

/// The lent credentials.
#[derive(Default)]
pub(crate) struct Credentials {
    /// The responses, by name and host.
    slots: Mutex<HashMap<(String, String), Slot>>,
}

impl Credentials {
    /// Returns a credential for requests to a host, from memory or from the broker.
    ///
    /// # Errors
    /// The reason why the broker did not lend it.
    pub(crate) async fn lend(
        &self,
        broker: &Broker,
        granted: &Granted,
        name: &str,
        host: &str,
    ) -> Result<Arc<Lent>, String> {
        let slot = self.slot(name, host);
        let mut answer = slot.lock().await;
        let now = Instant::now();
        match &*answer {
            Some(Answer::Lent(lent))
                if lent.until > now && granted.has_credential(name, host, &lent.version) =>
            {
                return Ok(Arc::clone(lent));
            }
            Some(Answer::Refused { message, until }) if *until > now => {
                return Err(message.clone());
            }
            _ => *answer = None,
        }
        match ask(broker, name, host).await {
            Ok(lent) => {
                let lent = Arc::new(lent);
                *answer = Some(Answer::Lent(Arc::clone(&lent)));
                Ok(lent)
            }
            Err(error) => {
                let message = format!("{error:#}");
                *answer = Some(Answer::Refused {
                    message: message.clone(),
                    until: Instant::now() + REFUSAL,
                });
                Err(message)
            }
        }
    }

    fn slot(&self, name: &str, host: &str) -> Slot {
        let mut slots = self.slots.lock();
        if slots.len() >= MAX_LENT {
            slots.clear();
        }
        let slot = slots.entry((name.to_owned(), host.to_owned()));
        Arc::clone(slot.or_default())
    }

    /// Drops the credentials that have expired, or that the grants do not name any more. A request in progress keeps
    /// its answer from memory, too.
    pub(crate) fn retain(&self, state: &State) {
        let now = Instant::now();
        let mut slots = self.slots.lock();
        let Ok(granted) = state.granted() else {
            slots.clear();
            return;
        };
        slots.retain(|(name, host), slot| {
            slot.try_lock().is_ok_and(|answer| match &*answer {
                Some(Answer::Lent(lent)) => {
                    lent.until > now && granted.has_credential(name, host, &lent.version)
                }
                // After a change, a refusal may be an obsolete one.
                Some(Answer::Refused { .. }) | None => false,
            })
        });
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.slots.lock().len()
    }
}

async fn ask(broker: &Broker, name: &str, host: &str) -> Result<Lent> {
    let request = CredentialRequest {
        name: name.to_owned(),
        host: host.to_owned(),
    };
    let body = serde_json::to_vec(&request).context("failed to create the request")?;
    let call = Call {
        // Each character may take six bytes in JSON.
        most: 8 * MAX_VALUE,
        ..Call::new(Method::POST, CREDENTIAL_PATH, body)
    };
    let begun = Instant::now();
    let answer = broker.ask(call).await.map_err(Failure::into_error)?;
    let LentCredential {
        value,
        version,
        seconds,
    } = serde_json::from_slice(&answer).context("failed to read the broker's response")?;
    let value = Zeroizing::new(value);
    ensure!(
        (1..=MAX_VALUE).contains(&value.len()),
        "the value of the credential has a size that cannot be sent"
    );
    if value.chars().any(char::is_control) {
        bail!("the value of the credential has control characters");
    }
    Ok(Lent {
        value,
        version,
        until: begun + Duration::from_secs(seconds.min(LENT_SECONDS)),
    })
}
