//! Chaos: regardless of changes to Secret, configuration and replicas, in any order, the library fails no
//! call, and no call passes unchanged except while an external change causes it.
//!
//! Twenty seconds of it are a test, five minutes its long form (`OZ_LONG=1`); `OZ_CHAOS_SEED` repeats an
//! order. The tests with one kind of harm alone, for figures, are here and in `supplied`.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use oz_admission::ROTATE_ANNOTATION;
use oz_testkit::{eventually, scaled};
use serde_json::{Value, json};

use crate::{
    fixture::{LONG, setting},
    service::{Calls, HARMS, Load, Service},
};

/// A generator of pseudo-random numbers that are the same for the same seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}

/// Returns the harm to the Secret, as a patch; `None` deletes it.
fn harm_to_secret(which: usize, turn: usize) -> Option<Value> {
    let garbage = ByteString(b"garbage".to_vec());
    match which {
        0 => None,
        1 => Some(json!({"data": {"ca.crt": garbage}})),
        2 => Some(json!({"data": {"ca.key": garbage}, "immutable": true})),
        3 => Some(json!({"data": {"ca.crt": null, "path-key": null}})),
        _ => Some(json!({"metadata": {"annotations": {ROTATE_ANNOTATION: turn.to_string()}}})),
    }
}

struct Vandal<'a> {
    service: &'a mut Service,
    calls: Arc<Calls>,
    random: Random,
}

impl Vandal<'_> {
    async fn act(&mut self, turn: usize) -> Result<()> {
        match self.random.below(12) {
            0..5 => self.secret(turn).await.context("a Secret that was harmed"),
            5..10 => self
                .configuration()
                .await
                .context("a configuration that was harmed"),
            _ => self.service.restart().await.context("a restart"),
        }
    }

    /// Harms the Secret; no call may fail because of it.
    async fn secret(&mut self, turn: usize) -> Result<()> {
        let fixture = &self.service.fixture;
        let api = fixture.api::<Secret>();
        let name = format!("{}-admission-ca", fixture.name());
        let Some(harm) = harm_to_secret(self.random.below(5), turn) else {
            api.delete(&name, &DeleteParams::default()).await?;
            return self.healed(&name).await;
        };
        let patch = Patch::Merge(harm);
        match api.patch(&name, &PatchParams::default(), &patch).await {
            Ok(_) => self.healed(&name).await,
            // The Secret is being created again, after the preceding harm.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn healed(&self, name: &str) -> Result<()> {
        let api = self.service.fixture.api::<Secret>();
        eventually("the Secret to heal", LONG, async || {
            let Some(secret) = api.get_opt(name).await? else {
                return Ok(None);
            };
            let data = secret.data.unwrap_or_default();
            let whole = ["ca.crt", "ca.key", "path-key"].iter().all(|key| {
                let value = data.get(*key).map(|value| value.0.as_slice());
                value.is_some_and(|value| value != b"garbage")
            });
            Ok((whole && secret.immutable.is_none()).then_some(()))
        })
        .await
    }

    /// Harms the configuration: until the API server has seen the repair, calls pass unchanged or fail.
    async fn configuration(&mut self) -> Result<()> {
        let which = self.random.below(HARMS);
        self.calls.excused.store(true, Ordering::SeqCst);
        self.service.harm_configuration(which).await?;
        self.calls.until_heard().await?;
        self.calls.excused.store(false, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_disturbances_lose_no_call() -> Result<()> {
    let length = Duration::from_secs(scaled(20, 300));
    let clock = jiff::Timestamp::now().as_nanosecond();
    let seed = setting("OZ_CHAOS_SEED").unwrap_or(clock as u64);
    let mut service = Service::start("chaos").await?;
    let load = Load::start(&service).await?;
    let calls = load.calls.clone();

    let began = Instant::now();
    let mut turn = 0;
    let mut vandal = Vandal {
        service: &mut service,
        calls: calls.clone(),
        random: Random(seed),
    };
    while began.elapsed() < length {
        turn += 1;
        let acted = vandal.act(turn).await;
        acted.with_context(|| format!("action {turn} of seed {seed}"))?;
    }
    let minutes = began.elapsed();
    eprintln!("figure: chaos: {turn} actions in {minutes:?}, seed {seed}");
    load.stop("chaos").await?;
    service.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn graceful_restarts_lose_no_call() -> Result<()> {
    let mut service = Service::start("restarts").await?;
    let load = Load::start(&service).await?;
    let restarts = scaled(3, 30);
    for _ in 0..restarts {
        service.restart().await?;
    }
    load.stop(&format!("{restarts} graceful restarts")).await?;
    service.stop().await
}

/// Each kind of harm to a configuration is repaired: measures its duration, and the delay until the API
/// server sees the repair. The number of immediate repairs of a manager is limited, so the test regularly
/// starts a new manager.
#[tokio::test(flavor = "multi_thread")]
async fn each_harm_to_a_configuration_is_undone_and_calls_are_changed_again() -> Result<()> {
    const OF_ONE_MANAGER: u64 = 18;
    let mut service = Service::start("harms").await?;
    let harms = scaled(HARMS as u64, 90);
    let (mut repaired, mut heard) = (Vec::new(), Vec::new());
    for turn in 0..harms {
        if turn > 0 && turn % OF_ONE_MANAGER == 0 {
            service.restart().await?;
            service.restart().await?;
        }
        let which = usize::try_from(turn)? % HARMS;
        repaired.push(service.harm_configuration(which).await?);
        let began = Instant::now();
        eventually("a call to be changed again", LONG, async || {
            let object = service.ask().await?;
            Ok(object.labels().contains_key("seen").then_some(()))
        })
        .await?;
        heard.push(began.elapsed());
    }
    for (what, times) in [
        (
            "from the API server's answer to the harm until it is undone",
            repaired,
        ),
        (
            "from there until a call is changed, which is the API server's own time",
            heard,
        ),
    ] {
        let (half, most) = (quantile(times.clone(), 50), quantile(times, 99));
        eprintln!("figure: {harms} harms: {what}: p50 {half:?}, p99 {most:?}");
    }
    service.stop().await
}

fn quantile(mut times: Vec<Duration>, percent: usize) -> Duration {
    times.sort();
    times[(times.len() - 1) * percent / 100]
}
