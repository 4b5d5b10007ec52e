//! Controllers that are started and stopped while their engine runs. This is a separate process, because
//! the test measures its memory.

#[path = "../cluster/harness.rs"]
#[allow(dead_code, reason = "the engine's tests use the rest")]
mod harness;
#[path = "../timebox/mod.rs"]
mod timebox;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::PostParams;
use oz_engine::{Controllers, Engine, Running, Setup, StartError};
use oz_runtime::{Listen, Runtime, Selection};
use oz_testkit::{
    CONDITION_TIMEOUT, TestNamespace, eventually, free_address, resident_memory, with_namespace,
};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::harness::{api, cluster, engine_client, gone, phase, timebox};
use crate::timebox::{NEED, ObserveTimeboxes, Timebox, Timeboxes, inner_name, outer_name};

/// The number of starts and stops of a controller.
const ROUNDS: usize = 1_000;
/// The number of rounds after which nothing new is needed: connections, buffers, memory that is used
/// again.
const WARM: usize = 200;
/// The maximum growth of the process in all rounds after these, in bytes. A watch that remains takes
/// some 50 KiB.
const GROWTH: u64 = 8 * 1024 * 1024;

/// The lock of the test that counts: all tests share one API server and one process.
static ALONE: Mutex<()> = Mutex::const_new(());

fn start(controllers: &Controllers, name: &str) -> Result<(Timeboxes, Running)> {
    let controller = Timeboxes {
        name: Some(name.to_owned()),
        ..Timeboxes::default()
    };
    let observe = ObserveTimeboxes::new(controllers.feeds());
    let running = controllers.start(Setup::new(controller.clone(), observe))?;
    Ok((controller, running))
}

/// Waits until the controller has made a plan.
async fn looked(controller: &Timeboxes) -> Result<()> {
    let looked = async {
        while controller.plans.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let looked = tokio::time::timeout(CONDITION_TIMEOUT, looked).await;
    looked.context("the controller looks at nothing")
}

/// Returns the number of open watches of the namespaced kinds at the API server, by kind.
async fn watches(admin: &Client) -> Result<BTreeMap<String, u64>> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = admin.request_text(request).await?;
    let mut watches = BTreeMap::new();
    for line in text.lines() {
        let Some(series) = line.strip_prefix("apiserver_longrunning_requests{") else {
            continue;
        };
        let has = |label: &str| series.contains(label);
        if !has(r#"scope="namespace""#) || !has(r#"verb="WATCH""#) {
            continue;
        }
        for kind in ["timeboxes", "configmaps", "secrets"] {
            if has(&format!(r#"resource="{kind}""#)) {
                let count: u64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
                *watches.entry(kind.to_owned()).or_default() += count;
            }
        }
    }
    watches.retain(|_, count| *count > 0);
    Ok(watches)
}

async fn watches_are(admin: &Client, expected: &BTreeMap<String, u64>) -> Result<()> {
    eventually(
        "the watches to be as expected",
        CONDITION_TIMEOUT,
        async || {
            let now = watches(admin).await?;
            ensure!(now == *expected, "they are {now:?}, not {expected:?}");
            Ok(Some(()))
        },
    )
    .await
}

/// Returns the response of a probe of the engine.
async fn fetch(address: std::net::SocketAddr, path: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: oz\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// Returns the memory of this process, in bytes.
fn resident() -> Result<u64> {
    Ok(resident_memory(std::process::id())? * 1024)
}

/// An engine without controllers over one namespace.
struct Idle {
    controllers: Controllers,
    address: std::net::SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), oz_runtime::RuntimeError>>,
}

impl Idle {
    async fn start(user: &str, namespace: &TestNamespace) -> Result<Self> {
        let (client, clock) = engine_client(cluster().await?, user).await?;
        let address = free_address()?;
        let mut runtime = Runtime::new("oz", client, clock);
        runtime.feeds().restrict([namespace.name().to_owned()]);
        runtime.listen(Listen::Address(address));
        let engine = Engine::new(runtime);
        let controllers = engine.controllers().clone();
        let stop = CancellationToken::new();
        let task = tokio::spawn(engine.run(stop.clone()));
        Ok(Self {
            controllers,
            address,
            stop,
            task,
        })
    }

    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.task.await??)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_that_come_and_go_leave_nothing_behind() -> Result<()> {
    let _alone = ALONE.lock().await;
    let cluster = cluster().await?;
    with_namespace(cluster, "stopping", async |namespace| {
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let before = watches(&admin).await?;
        let engine = Idle::start("engine-stopping", namespace).await?;
        let (first, running) = start(&engine.controllers, "timebox-first")?;
        boxes.create(&PostParams::default(), &timebox("a")).await?;
        phase(&boxes, "a", "Open").await?;
        let metrics = fetch(engine.address, "/metrics").await?;
        for one in [
            r#"controller="timebox-first",verb="create""#,
            r#"oz_watch_age_seconds{kind="Timebox"}"#,
        ] {
            ensure!(metrics.contains(one), "{one} is not in:\n{metrics}");
        }
        let during = watches(&admin).await?;
        ensure!(during.get("timeboxes") == Some(&1), "{during:?}");
        running.stop().await;
        assert_eq!(Arc::strong_count(&first.plans), 1, "somebody has it");
        drop(first);

        let mut warm = None;
        for round in 0..ROUNDS {
            let (controller, running) = start(&engine.controllers, &format!("timebox-{round}"))?;
            looked(&controller).await?;
            running.stop().await;
            assert_eq!(Arc::strong_count(&controller.plans), 1, "somebody has it");
            if round == WARM {
                warm = Some(resident()?);
            }
        }
        let (warm, now) = (warm.context("too few rounds")?, resident()?);
        println!(
            "{} KiB after {WARM} rounds, {} KiB after {ROUNDS}",
            warm / 1024,
            now / 1024
        );
        assert!(now < warm + GROWTH, "from {warm} to {now} bytes");

        watches_are(&admin, &before).await?;
        let ready = fetch(engine.address, "/readyz").await?;
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        let metrics = fetch(engine.address, "/metrics").await?;
        for one in [r#"controller=""#, r#"kind=""#] {
            assert!(!metrics.contains(one), "{one} is in:\n{metrics}");
        }
        // The objects that the controllers wrote remain.
        assert!(boxes.get_opt("a").await?.is_some());
        let secrets = api::<Secret>(&admin, namespace);
        assert!(secrets.get_opt(&inner_name("a")).await?.is_some());
        engine.stop().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_several_use_ends_with_the_last_of_them() -> Result<()> {
    let _alone = ALONE.lock().await;
    let cluster = cluster().await?;
    with_namespace(cluster, "sharing", async |namespace| {
        let admin = cluster.client("admin").await?;
        let boxes = api::<Timebox>(&admin, namespace);
        let maps = api::<ConfigMap>(&admin, namespace);
        let before = watches(&admin).await?;
        let engine = Idle::start("engine-sharing", namespace).await?;
        let store = engine.controllers.feeds().store::<Timebox>();
        let (_, running) = start(&engine.controllers, "timebox")?;
        let Err(taken) = start(&engine.controllers, "timebox") else {
            bail!("two run under one name");
        };
        assert_eq!(
            taken.downcast::<StartError>()?,
            StartError::NameTaken("timebox".to_owned())
        );

        boxes.create(&PostParams::default(), &timebox("a")).await?;
        phase(&boxes, "a", "Open").await?;
        running.stop().await;
        // Without a controller the box does not change, but the store continues.
        boxes.create(&PostParams::default(), &timebox("b")).await?;
        eventually(
            "the store to show the second box",
            CONDITION_TIMEOUT,
            async || {
                let namespace = Some(namespace.name());
                Ok(store.get(namespace, "b").is_some().then_some(()))
            },
        )
        .await?;
        assert!(maps.get_opt(&outer_name("b")).await?.is_none());

        // A controller that starts in the place of another finds all changes since then.
        let (_, running) = start(&engine.controllers, "timebox")?;
        phase(&boxes, "b", "Open").await?;
        boxes
            .delete("a", &kube::api::DeleteParams::default())
            .await?;
        gone(&maps, &outer_name("a")).await?;
        // The watches of a stopped controller remain only as long as others use them.
        let needs = Selection::default().labels(NEED);
        let needs = engine.controllers.feeds().store_with::<ConfigMap>(needs);
        running.stop().await;
        drop(store);
        let mut left = before.clone();
        *left.entry("configmaps".to_owned()).or_default() += 1;
        watches_are(&admin, &left).await?;
        drop(needs);
        watches_are(&admin, &before).await?;
        engine.stop().await
    })
    .await
}
