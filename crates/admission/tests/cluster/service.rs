//! Two replicas behind one address under a steady load, and the possible harm to their configuration.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::ConfigMap},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use oz_admission::{CancellationToken, Hook, Notes, Operation, mutate_fn};
use oz_testkit::eventually;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::fixture::{Fixture, LONG, Running, bound};

/// The number of consecutive changed calls after which the API server has seen a repair.
const HEARD: usize = 50;

/// A replica behind the Service.
struct Replica {
    running: Running,
    address: SocketAddr,
}

/// Two replicas behind one address, which like a Service directs new connections to a ready replica, and
/// does not affect open ones.
pub struct Service {
    pub fixture: Fixture,
    hook: Hook,
    ready: Arc<Mutex<Vec<SocketAddr>>>,
    replicas: Vec<Replica>,
    forwarding: JoinHandle<()>,
}

impl Service {
    pub async fn start(prefix: &str) -> Result<Self> {
        let fixture = Fixture::new(prefix).await?;
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

    pub async fn stop(mut self) -> Result<()> {
        for replica in self.replicas.drain(..) {
            replica.running.stop().await?;
        }
        self.forwarding.abort();
        Ok(())
    }

    /// Makes one call, which may fail.
    pub async fn ask(&self) -> Result<ConfigMap> {
        let (parameters, object) = question();
        Ok(self.fixture.api().create(&parameters, &object).await?)
    }

    /// Harms the configuration and waits for the repair. Returns the time from the response to the harm
    /// until the repair.
    pub async fn harm_configuration(&self, which: usize) -> Result<Duration> {
        let api = Api::<MutatingWebhookConfiguration>::all(self.fixture.client.clone());
        let name = self.fixture.name().to_owned();
        match harm_to_configuration(which) {
            None => drop(api.delete(&name, &DeleteParams::default()).await?),
            Some(harm) => {
                let harm: json_patch::Patch = serde_json::from_value(harm)?;
                let patch = Patch::<()>::Json(harm);
                api.patch(&name, &PatchParams::default(), &patch).await?;
            }
        }
        let began = Instant::now();
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
        Ok(began.elapsed())
    }

    async fn add(&mut self) -> Result<()> {
        let listener = bound(0)?;
        let address = listener.local_addr()?;
        let builder = self.fixture.without_listener().listener(listener);
        let builder = builder
            .hook(self.hook.clone())
            .drain(Duration::from_secs(1));
        let running = Running::start(builder).await?;
        self.ready.lock().push(address);
        self.replicas.push(Replica { running, address });
        Ok(())
    }

    /// Restarts a replica like a Deployment does: one more, then one less.
    pub async fn restart(&mut self) -> Result<()> {
        self.add().await?;
        let old = self.replicas.remove(0);
        let ready = self.ready.clone();
        let stopped = tokio::spawn(old.running.stop());
        // Endpoints follow readiness with a delay.
        tokio::time::sleep(Duration::from_millis(200)).await;
        ready.lock().retain(|it| *it != old.address);
        stopped.await?
    }
}

async fn forward(front: TcpListener, ready: Arc<Mutex<Vec<SocketAddr>>>) {
    let mut turn = 0;
    while let Ok((mut near, _)) = front.accept().await {
        turn += 1;
        let to = {
            let ready = ready.lock();
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

/// The results of the calls.
#[derive(Default)]
pub struct Calls {
    changed: AtomicUsize,
    changed_in_a_row: AtomicUsize,
    /// True while a user has broken the configuration, and until the API server has seen its repair.
    pub excused: AtomicBool,
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
            self.lost.lock().push(wrong);
        }
    }

    pub async fn until_heard(&self) -> Result<()> {
        self.changed_in_a_row.store(0, Ordering::Relaxed);
        eventually("calls to be changed again", LONG, async || {
            Ok((self.changed_in_a_row.load(Ordering::Relaxed) >= HEARD).then_some(()))
        })
        .await
    }
}

/// Returns a call, only so that the API server calls the webhooks.
fn question() -> (PostParams, ConfigMap) {
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
    (parameters, object)
}

async fn load(api: Api<ConfigMap>, calls: Arc<Calls>, stop: CancellationToken) {
    let (parameters, object) = question();
    // Each of eight clients makes 25 calls a second, if the machine allows it.
    let mut pace = tokio::time::interval(Duration::from_millis(40));
    while !stop.is_cancelled() {
        pace.tick().await;
        let excused = calls.excused.load(Ordering::SeqCst);
        let outcome = api.create(&parameters, &object).await;
        calls.note(excused, outcome);
    }
}

/// A load of 200 calls a second, if the machine allows it.
pub struct Load {
    pub calls: Arc<Calls>,
    stop: CancellationToken,
    workers: Vec<JoinHandle<()>>,
    began: Instant,
}

impl Load {
    /// Starts the load, and waits until calls are changed.
    pub async fn start(service: &Service) -> Result<Self> {
        let (calls, stop) = (Arc::new(Calls::default()), CancellationToken::new());
        calls.excused.store(true, Ordering::SeqCst);
        let worker = |_| tokio::spawn(load(service.fixture.api(), calls.clone(), stop.clone()));
        let workers = (0..8).map(worker).collect();
        calls.until_heard().await?;
        calls.excused.store(false, Ordering::SeqCst);
        Ok(Self {
            calls,
            stop,
            workers,
            began: Instant::now(),
        })
    }

    /// Stops the load. No call may be lost, except while an external change causes it.
    pub async fn stop(self, what: &str) -> Result<()> {
        let seconds = self.began.elapsed().as_secs_f64();
        self.stop.cancel();
        for worker in self.workers {
            worker.await?;
        }
        let changed = self.calls.changed.load(Ordering::Relaxed);
        let excused = self.calls.excused_calls.load(Ordering::Relaxed);
        let lost = self.calls.lost.lock().clone();
        eprintln!(
            "figure: {what}: {changed} calls changed, {:.0} a second, {excused} within what a vandal did, \
             {} lost",
            f64::from(u32::try_from(changed)?) / seconds,
            lost.len(),
        );
        let first = &lost[..lost.len().min(5)];
        ensure!(lost.is_empty(), "{what}: {} lost: {first:?}", lost.len());
        Ok(())
    }
}

/// The number of kinds of harm.
pub const HARMS: usize = 6;

/// Returns the harm to the configuration; `None` deletes it.
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
