//! A manager that runs against the shared cluster, and a load of requests through it.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use axum::{Router, body::Body, http::Request};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use oz_admission::{
    CancellationToken, CertPolicy, CertSource, Cx, Endpoint, Hook, Manager, ManagerBuilder,
    NamespaceScope, Notes, Operation, Rejection, Review, Validate,
};
use oz_testkit::{Cluster, TestNamespace, eventually};
use tokio::{net::TcpSocket, task::JoinHandle};
use tower::ServiceExt;

/// A timeout that suffices on a machine that is busy with other work.
pub const LONG: Duration = Duration::from_secs(60);

/// Returns a number from the environment, for measurements.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The fixture of one test in the cluster.
pub struct Fixture {
    pub namespace: TestNamespace,
    pub client: kube::Client,
    pub port: u16,
}

impl Fixture {
    pub async fn new(prefix: &str) -> Result<Self> {
        let cluster = Cluster::shared().await?;
        let namespace = TestNamespace::create(cluster, prefix).await?;
        let client = cluster.client("admin").await?;
        // No process reserves the port until the first replica binds it; the kernel reuses ports slowly.
        let port = bound(0)?.local_addr()?.port();
        Ok(Self {
            namespace,
            client,
            port,
        })
    }

    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Creates a builder of a manager of this fixture, named after its namespace. Replicas share the port:
    /// a manager that is built and does not run would receive connections and not accept them.
    pub fn manager(&self) -> Result<ManagerBuilder> {
        Ok(self.without_listener().listener(bound(self.port)?))
    }

    /// Creates the same builder without a listener, to register and not to run.
    pub fn without_listener(&self) -> ManagerBuilder {
        Manager::builder(self.client.clone(), self.name())
            .namespace(self.name())
            .endpoint(Endpoint::Url(format!("https://127.0.0.1:{}", self.port)))
            .certificates(CertSource::SelfSigned(quick()))
            .drain(Duration::ZERO)
    }

    pub fn here(&self) -> NamespaceScope {
        NamespaceScope::Only(vec![self.name().to_owned()])
    }

    /// Creates a hook on ConfigMaps of this namespace that allows every request and counts.
    pub fn counting(&self) -> (Hook, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let hook = Hook::validating("count", Count(count.clone()))
            .on([Operation::Create])
            .namespaces(self.here());
        (hook, count)
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), self.name())
    }

    /// Creates a ConfigMap, only so that the API server calls the webhooks.
    pub async fn ask(&self) -> Result<(), kube::Error> {
        ask(&self.api()).await
    }

    /// Waits until the API server calls the webhook: it learns of a webhook with a delay.
    pub async fn until_called(&self, count: &AtomicUsize) -> Result<()> {
        eventually("the webhook to be called", LONG, async || {
            self.ask().await?;
            Ok((count.load(Ordering::Relaxed) > 0).then_some(()))
        })
        .await
    }
}

async fn ask(api: &Api<ConfigMap>) -> Result<(), kube::Error> {
    let object = ConfigMap {
        metadata: ObjectMeta {
            generate_name: Some("ask-".to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    api.create(&dry_run, &object).await.map(drop)
}

/// Returns a policy with lifetimes of hours, but with renewals and rotations in seconds.
pub fn quick() -> CertPolicy {
    CertPolicy {
        settle: Duration::from_secs(1),
        overlap: Duration::from_secs(3),
        ..CertPolicy::default()
    }
}

struct Count(Arc<AtomicUsize>);

impl Validate for Count {
    type Object = ConfigMap;

    async fn validate(&self, _: &Cx, _: &Review<ConfigMap>) -> Result<Notes, Rejection> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Notes::none())
    }
}

/// Binds a socket on a port that several replicas may share; 0 chooses one.
pub fn bound(port: u16) -> Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
    Ok(socket.listen(1024)?.into_std()?)
}

/// A running manager.
pub struct Running {
    plain: Router,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), oz_admission::Error>>,
}

impl Running {
    /// Starts the manager and waits until it is ready.
    pub async fn start(builder: ManagerBuilder) -> Result<Self> {
        let running = Self::launch(builder)?;
        running.until_ready().await?;
        Ok(running)
    }

    /// Builds and starts the manager.
    pub fn launch(builder: ManagerBuilder) -> Result<Self> {
        Ok(Self::from_manager(builder.build()?))
    }

    /// Starts a manager that is already built.
    pub fn from_manager(manager: Manager) -> Self {
        let (plain, stop) = (manager.plain_router(), CancellationToken::new());
        let ended = tokio::spawn(manager.run(stop.clone().cancelled_owned()));
        Self { plain, stop, ended }
    }

    pub async fn until_ready(&self) -> Result<()> {
        eventually("the manager to be ready", LONG, async || {
            let (status, body) = self.get("/readyz").await?;
            if status == 200 {
                Ok(Some(()))
            } else {
                bail!("{body}")
            }
        })
        .await
    }

    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let response = self
            .plain
            .clone()
            .oneshot(Request::get(path).body(Body::empty())?)
            .await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.to_vec())?))
    }

    /// Returns the value of the one metric with a name and labels that begin with `prefix`.
    pub async fn metric(&self, prefix: &str) -> Result<f64> {
        let (_, text) = self.get("/metrics").await?;
        let values = text
            .lines()
            .filter(|line| line.starts_with(prefix))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        Ok(values.sum())
    }

    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.ended.await??)
    }

    /// Returns the error with which the manager ended without a shutdown.
    pub async fn ended(self) -> Result<oz_admission::Error> {
        let outcome = tokio::time::timeout(LONG, self.ended)
            .await
            .context("it still runs")??;
        outcome.err().context("it ended without an error")
    }
}

/// A load of requests through the webhook, one after the other on each of a few connections.
pub struct Load {
    stop: CancellationToken,
    workers: Vec<JoinHandle<(usize, Vec<String>)>>,
    began: Instant,
}

/// The result of a load.
#[derive(Debug)]
pub struct Outcome {
    pub answered: usize,
    pub failed: Vec<String>,
    pub per_second: f64,
}

impl Load {
    pub fn start(fixture: &Fixture) -> Self {
        let stop = CancellationToken::new();
        let worker = |_| {
            let (api, stop) = (fixture.api::<ConfigMap>(), stop.clone());
            tokio::spawn(async move {
                let (mut answered, mut failed) = (0, Vec::new());
                while !stop.is_cancelled() {
                    match ask(&api).await {
                        Ok(()) => answered += 1,
                        Err(error) => failed.push(error.to_string()),
                    }
                }
                (answered, failed)
            })
        };
        Self {
            workers: (0..8).map(worker).collect(),
            stop,
            began: Instant::now(),
        }
    }

    pub async fn stop(self) -> Result<Outcome> {
        self.stop.cancel();
        let seconds = self.began.elapsed().as_secs_f64();
        let mut outcome = Outcome {
            answered: 0,
            failed: Vec::new(),
            per_second: 0.0,
        };
        for worker in self.workers {
            let (answered, failed) = worker.await?;
            outcome.answered += answered;
            outcome.failed.extend(failed);
        }
        outcome.per_second = f64::from(u32::try_from(outcome.answered)?) / seconds;
        Ok(outcome)
    }
}

impl Outcome {
    /// Asserts that not one call failed. The function prints the rate, which depends on the other work of
    /// the machine.
    #[track_caller]
    pub fn unharmed(&self, what: &str) {
        eprintln!(
            "figure: {what}: {} reviews, {:.0} a second, {} failed",
            self.answered,
            self.per_second,
            self.failed.len()
        );
        assert!(
            self.failed.is_empty(),
            "{what}: {:?}",
            &self.failed[..self.failed.len().min(3)]
        );
        assert!(self.answered > 0, "{what}: nothing was asked");
    }
}
