//! The route of grants. A request with the digest of the current grants is held until a change of the policies of the
//! namespace, the run, the keys of webhook and operator, or a Secret that the run may use.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, StatusCode};
use oz_api::harness::wire::{GRANTS_HOLD_SECONDS, MAX_GRANTS, RunGrants};
use oz_runs::caller::{self, Caller, RunState};
use oz_runs::lending::Terms;
use oz_runtime::Subscription;
use tokio::time::Instant;

use crate::answer::Refused;
use crate::policies::lenders;
use crate::polls::PollGuard;
use crate::routes::Broker;
use crate::runs::Run;
use crate::write::RunName;

/// The version of a Secret that was not read for these grants.
const NOT_READ: &str = "unread";
/// The time for which several changes are collected into one response: a policy that is edited ten times a second causes
/// at most ten responses a second.
const COLLECT: Duration = Duration::from_millis(100);

/// Returns the digest in a query.
pub(crate) fn seen(query: Option<&str>) -> Option<&str> {
    let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    let mut seen = pairs.filter(|(name, _)| *name == "seen");
    seen.next().map(|(_, value)| value)
}

impl Broker {
    /// Responds with the grants of a run, unless its proxy has seen them.
    pub(crate) async fn grants(
        &self,
        caller: &Caller,
        run: Run,
        query: Option<&str>,
    ) -> Result<Response<Body>, Refused> {
        let until = Instant::now() + Duration::from_secs(GRANTS_HOLD_SECONDS);
        if run.standing == RunState::Ending {
            return Err(caller::run_over(caller, &run.name.name).into());
        }
        let terms = self.runs.terms(&run)?;
        let name = run.into_name();
        self.policies.ready().await?;
        let held = self.polls.hold(&caller.uid, &name);
        loop {
            let grants = Box::pin(self.view(&terms, held.as_ref())).await;
            // The run may have ended while a Secret was read.
            self.lives(caller, &name)?;
            let is_seen = seen(query) == Some(&grants.digest);
            let held = held.as_ref().filter(|held| !held.is_superseded());
            let Some(held) = held.filter(|_| is_seen) else {
                return respond(&grants);
            };
            let is_due = tokio::select! {
                () = held.changed() => false,
                () = tokio::time::sleep_until(until) => true,
                () = self.stop.cancelled() => true,
            };
            self.lives(caller, &name)?;
            if is_due {
                return respond(&grants);
            }
            tokio::time::sleep(COLLECT).await;
        }
    }

    /// Wakes held requests when policies, runs, keys or Secrets change, until the subscriptions are dropped.
    pub(crate) fn subscribe(&self) -> Vec<Subscription> {
        let polls = Arc::clone(&self.polls);
        let [runs, operator_keys] = self.runs.subscribe(move |uid| match uid {
            Some(uid) => polls.wake_run(uid),
            None => polls.wake_all(),
        });
        let polls = Arc::clone(&self.polls);
        let policies = self.policies.store.subscribe(move |change| {
            if let Some(namespace) = &change.object().metadata.namespace {
                polls.wake_namespace(namespace);
            }
        });
        let polls = Arc::clone(&self.polls);
        let webhook_keys = self
            .policies
            .webhook_keys
            .subscribe(move |_| polls.wake_all());
        vec![runs, operator_keys, policies, webhook_keys]
    }

    fn lives(&self, caller: &Caller, run: &RunName) -> Result<(), Refused> {
        match self.runs.is_over(run) {
            true => Err(caller::run_over(caller, &run.name).into()),
            false => Ok(()),
        }
    }

    /// Returns the grants of this moment.
    async fn view(&self, terms: &Terms, held: Option<&PollGuard<'_>>) -> RunGrants {
        let namespace = &terms.run.namespace;
        let secrets: BTreeSet<String> = {
            let policies = self.policies.list(namespace);
            let lenders = lenders(&policies, &terms.template);
            let names = lenders.secrets(terms).into_iter();
            names.map(ToOwned::to_owned).collect()
        };
        if let Some(held) = held {
            // Before the versions are read: a later change wakes the request.
            held.uses(secrets.clone());
        }
        let versions = self
            .secrets
            .versions(namespace, &secrets, &self.polls)
            .await;
        // The policies may have changed while the Secrets were read.
        let policies = self.policies.list(namespace);
        let version = |name: &str| match versions.get(name) {
            Some(version) => version.clone(),
            None => NOT_READ.to_owned(),
        };
        lenders(&policies, &terms.template).grants(terms, version, &self.certificates)
    }
}

fn respond(grants: &RunGrants) -> Result<Response<Body>, Refused> {
    // Texts and numbers always serialise.
    let text = serde_json::to_vec(grants).unwrap_or_default();
    if text.len() > MAX_GRANTS {
        let message = format!(
            "the broker policies for the template grant so many hosts that their list exceeds \
             {MAX_GRANTS} bytes: grant domains (*.example.com) instead of hosts"
        );
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        return Err(Refused::new(status, "TooManyGrants", message));
    }
    let mut response = Response::new(Body::from(text));
    let content = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, content);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_digest_is_the_first_of_its_name() {
        for (query, expected) in [
            (None, None),
            (Some(""), None),
            (Some("seen"), None),
            (Some("seen="), Some("")),
            (Some("seen=abc"), Some("abc")),
            (Some("other=1&seen=abc&seen=def"), Some("abc")),
        ] {
            assert_eq!(seen(query), expected, "{query:?}");
        }
    }
}
