//! Simulated proxies of harness runs. Each has the token of a pod of a run, and a separate connection to a broker; it
//! follows its grants and fetches the credential of [`lending`](crate::lending) as the proxy of a pod does. The pods have
//! no node.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use oz_api::harness::wire::{LentCredential, PROXY_AUDIENCE, RunGrants};
use oz_testkit::{CONDITION_TIMEOUT, eventually};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::lending::{HOST, NAME};
use crate::{Broker, BrokerAnswer, BrokerClient, Scene};

/// The number of pods that are created, and of credentials that are fetched, at once.
const AT_ONCE: usize = 16;
/// The pause of a proxy after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// Creates runs, each with a Job and a pod, and returns the tokens of the proxies of the pods.
///
/// # Errors
/// As the API server responds.
pub async fn proxy_tokens(scene: &Scene, count: usize) -> Result<Vec<String>> {
    let token = async |number: usize| {
        let name = format!("proxied-{number}");
        let run = scene.harness_run(&name, "x").await?;
        let pod = scene.pod_of_job(&name, &run).await?;
        scene.token(PROXY_AUDIENCE, Some(&pod)).await
    };
    stream::iter((0..count).map(token))
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

/// The codes of the refusals after the end of a run; its pod and the token are deleted soon after it.
const OVER: [&str; 4] = ["RunEnded", "NoRun", "NoPod", "Unauthenticated"];

/// The result of the last request of a proxy for its grants.
#[derive(Clone, Debug)]
enum State {
    /// None has succeeded yet; the last failure.
    Asking(String),
    Granted(Instant, RunGrants),
    /// The run is over.
    Over(Instant),
}

/// A simulated proxy, which follows its grants until it is dropped.
#[allow(missing_debug_implementations, reason = "a client has none")]
pub struct SimulatedProxy {
    token: String,
    broker: BrokerClient,
    state: watch::Receiver<State>,
    lent: Mutex<Option<LentCredential>>,
    following: JoinHandle<()>,
}

impl SimulatedProxy {
    fn start(token: &str, broker: BrokerClient) -> Self {
        let (sender, state) = watch::channel(State::Asking(String::new()));
        let following = tokio::spawn(follow(broker.clone(), token.to_owned(), sender));
        Self {
            token: token.to_owned(),
            broker,
            state,
            lent: Mutex::default(),
            following,
        }
    }

    /// Returns the value that the proxy would send to the host: the one that it was lent, while its grants contain the
    /// credential with the version of this value.
    #[must_use]
    pub fn value(&self) -> Option<String> {
        let lent = self.lent.lock().clone()?;
        let State::Granted(_, grants) = &*self.state.borrow() else {
            return None;
        };
        let mut credentials = grants.credentials.iter();
        let is_granted = credentials.any(|it| it.name == NAME && it.version == lent.version);
        is_granted.then_some(lent.value)
    }

    /// Requests the credential, and keeps it.
    async fn fetch(&self) -> Result<BrokerAnswer> {
        let answer = self.broker.credential(&self.token, NAME, HOST).await?;
        if answer.status == 200 {
            *self.lent.lock() = Some(serde_json::from_value(answer.body.clone())?);
        }
        Ok(answer)
    }
}

impl Drop for SimulatedProxy {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// Requests the grants again and again; the broker holds a request until they change.
async fn follow(broker: BrokerClient, token: String, state: watch::Sender<State>) {
    let mut seen = String::new();
    loop {
        let (failure, pause) = match broker.grants(&token, &seen).await {
            Ok(answer) if answer.status == 200 => {
                match serde_json::from_value::<RunGrants>(answer.body) {
                    Ok(grants) => {
                        if grants.digest != seen {
                            seen.clone_from(&grants.digest);
                            state.send_replace(State::Granted(Instant::now(), grants));
                        }
                        continue;
                    }
                    Err(error) => (error.to_string(), PAUSE),
                }
            }
            Ok(answer) if OVER.contains(&answer.code()) => {
                state.send_replace(State::Over(Instant::now()));
                return;
            }
            Ok(answer) => {
                let pause = answer.retry_after.map_or(PAUSE, Duration::from_secs);
                (format!("{answer:?}"), pause)
            }
            Err(error) => (format!("{error:#}"), PAUSE),
        };
        state.send_if_modified(|state| match state {
            State::Asking(last) => {
                *last = failure;
                true
            }
            _ => false,
        });
        tokio::time::sleep(pause).await;
    }
}

/// Simulated proxies of several brokers.
#[allow(missing_debug_implementations, reason = "a client has none")]
pub struct SimulatedProxies(pub Vec<SimulatedProxy>);

impl SimulatedProxies {
    /// Starts a proxy for each token; the brokers take turns.
    ///
    /// # Errors
    /// When the brokers have published no certificates.
    pub async fn start(scene: &Scene, tokens: &[String], brokers: &[&Broker]) -> Result<Self> {
        let first = brokers.first().context("no broker")?;
        let trusted = first.trusted(&scene.admin).await?;
        let all = tokens.iter().zip(brokers.iter().cycle());
        let proxies = all.map(|(token, broker)| {
            let client = broker.connect_trusting(&trusted)?;
            Ok(SimulatedProxy::start(token, client))
        });
        proxies.collect::<Result<_>>().map(Self)
    }

    /// Waits until the last grants of every proxy are as wanted; `None` stands for a run that is over. Returns the delays
    /// since `began` until they arrived, in order.
    ///
    /// # Errors
    /// When they do not arrive in time, with the state of a proxy that lacks them.
    pub async fn learn(
        &self,
        what: &str,
        began: Instant,
        wanted: impl Fn(Option<&RunGrants>) -> bool,
    ) -> Result<Vec<Duration>> {
        let arrived = |proxy: &SimulatedProxy| match &*proxy.state.borrow() {
            State::Granted(at, grants) if wanted(Some(grants)) => Ok(*at),
            State::Over(at) if wanted(None) => Ok(*at),
            other => Err(format!("{other:?}")),
        };
        eventually(what, CONDITION_TIMEOUT, async || {
            let states: Vec<_> = self.0.iter().map(arrived).collect();
            let missing = states.iter().filter(|it| it.is_err()).count();
            let example = states.iter().find_map(|it| it.as_ref().err());
            ensure!(missing == 0, "{missing} proxies lack it: {example:?}");
            let arrived = states.into_iter().flatten();
            let mut delays: Vec<_> = arrived.map(|at| at.duration_since(began)).collect();
            delays.sort();
            Ok(Some(delays))
        })
        .await
    }

    /// Returns the versions of the credential in the last grants of the proxies.
    #[must_use]
    pub fn versions(&self) -> BTreeSet<String> {
        let mut versions = BTreeSet::new();
        for proxy in &self.0 {
            if let State::Granted(_, grants) = &*proxy.state.borrow() {
                versions.extend(grants.credentials.iter().map(|it| it.version.clone()));
            }
        }
        versions
    }

    /// Has every proxy fetch the credential until it has this value.
    ///
    /// # Errors
    /// When a proxy does not get it in time.
    pub async fn fetch(&self, value: &str) -> Result<()> {
        let fetched = async |proxy: &SimulatedProxy| {
            eventually("the value", CONDITION_TIMEOUT, async || {
                let answer = proxy.fetch().await?;
                ensure!(answer.status == 200, "{answer:?}");
                Ok((proxy.value().as_deref() == Some(value)).then_some(()))
            })
            .await
        };
        self.each(fetched).await
    }

    /// Has every proxy fetch the credential, and checks that the broker refuses it with this code.
    ///
    /// # Errors
    /// When a proxy gets a value, or no such refusal in time.
    pub async fn are_refused(&self, code: &str) -> Result<()> {
        let refused = async |proxy: &SimulatedProxy| {
            let answer = eventually("a refusal", CONDITION_TIMEOUT, async || {
                let answer = proxy.fetch().await?;
                let is_decided = ![429, 503].contains(&answer.status);
                Ok(is_decided.then_some(answer))
            })
            .await?;
            ensure!(
                answer.status != 200 && answer.code() == code,
                "the broker responded {}",
                answer.status
            );
            Ok(())
        };
        self.each(refused).await
    }

    async fn each<'a, F>(&'a self, call: impl Fn(&'a SimulatedProxy) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        stream::iter(self.0.iter().map(call))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }
}
