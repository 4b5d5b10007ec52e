//! What the webhook consists of, put together.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, bail};
use kube::runtime::watcher;
use oz_admission::{Gate, Manager};
use oz_core::api::{ExecAccessTemplate, PodAccessTemplate};
use oz_engine::{Clock, guarded_store};
use oz_process::{RecordLog, shutdown_on_signal, signing_keys};

use crate::args::Args;
use crate::hooks::{Grounds, hooks};
use crate::templates::Templates;

/// The product's name: that of the webhook configurations, and the field manager of every write.
pub(crate) const FINGERPRINT: &str = "oz";

/// Runs until a signal, or until what it needs is lost.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let shutdown = shutdown_on_signal()?;
    let common = &args.common;
    let Some(address) = args.listen.0 else {
        bail!("failed to start: --listen says nowhere, but the API server must reach the hooks");
    };
    let listener = bind(address)?;
    let port = listener.local_addr()?.port();
    let (client, clock) = oz_engine::client(common.config().await?)?;
    let keys = signing_keys(&client, &common.namespace).await?;
    let records = RecordLog::start("oz-webhook", &common.replica)?;

    let (exec, feed_exec) =
        guarded_store::<ExecAccessTemplate>(&client, &(), None, watcher::Config::default());
    let (pod, feed_pod) =
        guarded_store::<PodAccessTemplate>(&client, &(), None, watcher::Config::default());
    let (exec_listed, pod_listed) =
        (Gate::new("ExecAccessTemplate list"), Gate::new("PodAccessTemplate list"));

    let mut builder = Manager::builder(client, FINGERPRINT)
        .namespace(&common.namespace)
        .identity(&common.replica)
        .listener(listener)
        .endpoint(args.endpoint(port))
        .registration(args.registration())
        .drain(args.drain)
        .gate(exec_listed.clone())
        .gate(pod_listed.clone())
        .clock(Arc::new(move || clock.now()));
    let mut probes = None;
    if let Some(address) = args.health_probe_bind_address.0 {
        let listener = bind(address)?;
        probes = Some(listener.local_addr()?);
        builder = builder.plain_listener(listener);
    }
    let grounds = Grounds {
        keys,
        exec_templates: Templates::new(exec.clone()),
        pod_templates: Templates::new(pod.clone()),
        records: Arc::new(records),
        namespace: common.namespace.as_str().into(),
        operator: args.operator().into(),
    };
    for hook in hooks(&grounds) {
        builder = builder.hook(hook);
    }
    let manager = builder.build()?;
    tracing::info!(port, probes = probes.map(tracing::field::display), operator = %grounds.operator, "serving the hooks");

    let open = async {
        futures::join!(
            async { exec.ready().await; exec_listed.open() },
            async { pod.ready().await; pod_listed.open() },
        );
        std::future::pending::<()>().await;
    };
    let mut watches = [tokio::spawn(feed_exec), tokio::spawn(feed_pod)].into_iter();
    let watched = futures::future::select_all(&mut watches);
    tokio::select! {
        ended = manager.run(shutdown.cancelled_owned()) => Ok(ended?),
        (ended, ..) = watched => bail!("failed to go on: a watch of templates ended: {ended:?}"),
        () = open => Ok(()),
    }
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("failed to listen on {address}"))
}
