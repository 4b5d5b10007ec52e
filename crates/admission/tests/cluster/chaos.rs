//! Chaos: whatever happens to Secret, configuration and replicas, in any order, no call fails by us, and
//! nothing goes by unchanged but while somebody keeps it so.
//!
//! A minute of it is a test; `OZ_CHAOS_SECONDS=300` makes it longer, `OZ_CHAOS_SEED` repeats an order.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration,
        core::v1::{ConfigMap, Secret},
    },
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use oz_admission::{CancellationToken, Hook, Notes, Operation, ROTATE_ANNOTATION, mutate_fn};
use oz_testkit::eventually;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::fixture::{Fixture, LONG, Running, bound};

/// Calls that were changed in a row, after which the API server has heard of a repair.
const HEARD: usize = 50;

/// A replica behind the Service.
struct Replica {
    running: Running,
    address: SocketAddr,
}

/// Two replicas behind one address, which takes new connections to whichever is ready and leaves those
/// that are open as they are, as a Service does.
struct Service {
    fixture: Fixture,
    hook: Hook,
    ready: Arc<Mutex<Vec<SocketAddr>>>,
    replicas: Vec<Replica>,
    forwarding: JoinHandle<()>,
}

impl Service {
    async fn start() -> Result<Self> {
        let fixture = Fixture::new("chaos").await?;
        let label = |_: &_, _: &_, object: &mut ConfigMap| {
            object.labels_mut().insert("seen".into(), "yes".into());
            Ok(Notes::none())
        };
        let hook = Hook::mutating("label", mutate_fn(label))
            .on([Operation::Create])
            .namespaces(fixture.here());
        let ready = Arc::new(Mutex::new(Vec::new()));
        let front = bound(fixture.port)?;
        front.set_nonblocking(true)?;
        let front = TcpListener::from_std(front)?;
        let forwarding = tokio::spawn(forward(front, ready.clone()));
        let mut service = Self {
            fixture,
            hook,
            ready,
            replicas: Vec::new(),
            forwarding,
        };
        for _ in 0..2 {
            service.add().await?;
        }
        Ok(service)
    }

    async fn add(&mut self) -> Result<()> {
        let listener = bound(0)?;
        let address = listener.local_addr()?;
        let builder = self.fixture.manager()?.listener(listener);
        let builder = builder
            .hook(self.hook.clone())
            .drain(Duration::from_secs(1));
        let running = Running::start(builder).await?;
        self.ready.lock().unwrap().push(address);
        self.replicas.push(Replica { running, address });
        Ok(())
    }

    /// As a Deployment does it: one more, then one less.
    async fn restart(&mut self) -> Result<()> {
        self.add().await?;
        let old = self.replicas.remove(0);
        let ready = self.ready.clone();
        let stopped = tokio::spawn(old.running.stop());
        // Endpoints follow readiness a moment later.
        tokio::time::sleep(Duration::from_millis(200)).await;
        ready.lock().unwrap().retain(|it| *it != old.address);
        stopped.await?
    }
}

async fn forward(front: TcpListener, ready: Arc<Mutex<Vec<SocketAddr>>>) {
    let mut turn = 0;
    while let Ok((mut near, _)) = front.accept().await {
        turn += 1;
        let to = {
            let ready = ready.lock().unwrap();
            ready.get(turn % ready.len().max(1)).copied()
        };
        tokio::spawn(async move {
            if let Some(to) = to
                && let Ok(mut far) = TcpStream::connect(to).await
            {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            }
        });
    }
}

/// What became of the calls.
#[derive(Default)]
struct Calls {
    changed: AtomicUsize,
    changed_in_a_row: AtomicUsize,
    /// While somebody has broken the configuration, and until the API server has heard of its repair.
    excused: AtomicBool,
    excused_calls: AtomicUsize,
    lost: Mutex<Vec<String>>,
}

impl Calls {
    fn note(&self, excused: bool, outcome: Result<ConfigMap, kube::Error>) {
        let wrong = match outcome {
            Ok(object) if object.labels().contains_key("seen") => {
                self.changed.fetch_add(1, Ordering::Relaxed);
                self.changed_in_a_row.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Ok(_) => "went by unchanged".to_owned(),
            Err(error) => error.to_string(),
        };
        self.changed_in_a_row.store(0, Ordering::Relaxed);
        if excused || self.excused.load(Ordering::SeqCst) {
            self.excused_calls.fetch_add(1, Ordering::Relaxed);
        } else {
            self.lost.lock().unwrap().push(wrong);
        }
    }

    async fn until_heard(&self) -> Result<()> {
        self.changed_in_a_row.store(0, Ordering::Relaxed);
        eventually("calls to be changed again", LONG, async || {
            Ok((self.changed_in_a_row.load(Ordering::Relaxed) >= HEARD).then_some(()))
        })
        .await
    }
}

async fn load(api: Api<ConfigMap>, calls: Arc<Calls>, stop: CancellationToken) {
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let object = ConfigMap {
        metadata: ObjectMeta {
            generate_name: Some("ask-".to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    // 25 a second from each of eight, if the machine allows it.
    let mut pace = tokio::time::interval(Duration::from_millis(40));
    while !stop.is_cancelled() {
        pace.tick().await;
        let excused = calls.excused.load(Ordering::SeqCst);
        let outcome = api.create(&parameters, &object).await;
        calls.note(excused, outcome);
    }
}

/// Numbers that look random and are the same for the same seed (SplitMix64).
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

/// What is done to the Secret, as a patch; `None` deletes it.
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

/// What is done to the configuration; `None` deletes it.
fn harm_to_configuration(which: usize) -> Option<Value> {
    let change = |path: &str, value: Value| {
        Some(json!([{"op": "add", "path": format!("/webhooks/0/{path}"), "value": value}]))
    };
    match which {
        0 => None,
        1 => change("clientConfig/caBundle", json!(ByteString(b"QUJD".to_vec()))),
        2 => change("rules/0/operations", json!(["DELETE"])),
        3 => change("objectSelector/matchLabels", json!({"no": "such"})),
        4 => change("failurePolicy", json!("Ignore")),
        _ => change(
            "matchConditions",
            json!([{"name": "off", "expression": "false"}]),
        ),
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

    /// Nothing that happens to the Secret is an excuse.
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
            // It is being made again, from the harm before.
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

    /// From the harm until the API server has heard of the repair, calls go by unchanged or fail.
    async fn configuration(&mut self) -> Result<()> {
        let harm = harm_to_configuration(self.random.below(6));
        let api = Api::<MutatingWebhookConfiguration>::all(self.service.fixture.client.clone());
        let name = self.service.fixture.name().to_owned();
        self.calls.excused.store(true, Ordering::SeqCst);
        let began = Instant::now();
        let harmed = match harm {
            None => api.delete(&name, &DeleteParams::default()).await.map(drop),
            Some(harm) => {
                let harm: json_patch::Patch = serde_json::from_value(harm)?;
                let patch = Patch::<()>::Json(harm);
                let patched = api.patch(&name, &PatchParams::default(), &patch).await;
                patched.map(drop)
            }
        };
        harmed?;
        eventually("the configuration to be put right", LONG, async || {
            let Some(found) = api.get_opt(&name).await? else {
                return Ok(None);
            };
            let webhook = serde_json::to_value(&found.webhooks.unwrap_or_default()[0])?;
            let right = webhook["failurePolicy"] == "Fail"
                && webhook["rules"][0]["operations"] == json!(["CREATE"])
                && webhook["objectSelector"].get("matchLabels").is_none()
                && webhook["clientConfig"]["caBundle"] != json!(ByteString(b"QUJD".to_vec()))
                && webhook.get("matchConditions").is_none();
            Ok(right.then_some(()))
        })
        .await?;
        let repaired = began.elapsed();
        self.calls.until_heard().await?;
        self.calls.excused.store(false, Ordering::SeqCst);
        eprintln!(
            "figure: chaos: put right after {repaired:?}, the API server had heard of it after {:?}",
            began.elapsed()
        );
        Ok(())
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_in_any_order_no_call_is_lost() -> Result<()> {
    let length = Duration::from_secs(setting("OZ_CHAOS_SECONDS").unwrap_or(60));
    let clock = jiff::Timestamp::now().as_nanosecond();
    let seed = setting("OZ_CHAOS_SEED").unwrap_or(clock as u64);
    let mut service = Service::start().await?;
    let calls = Arc::new(Calls::default());
    let stop = CancellationToken::new();
    calls.excused.store(true, Ordering::SeqCst);
    let workers: Vec<_> = (0..8)
        .map(|_| tokio::spawn(load(service.fixture.api(), calls.clone(), stop.clone())))
        .collect();
    calls.until_heard().await?;
    calls.excused.store(false, Ordering::SeqCst);

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
    stop.cancel();
    for worker in workers {
        worker.await?;
    }
    let (changed, excused) = (&calls.changed, &calls.excused_calls);
    eprintln!(
        "figure: chaos: {turn} actions in {:?}, seed {seed}: {} calls changed, {} within what a vandal did",
        began.elapsed(),
        changed.load(Ordering::Relaxed),
        excused.load(Ordering::Relaxed),
    );
    let lost = calls.lost.lock().unwrap().clone();
    assert!(
        lost.is_empty(),
        "seed {seed}: {} lost: {:?}",
        lost.len(),
        &lost[..lost.len().min(5)]
    );
    for replica in service.replicas.drain(..) {
        replica.running.stop().await?;
    }
    service.forwarding.abort();
    Ok(())
}
