//! A service of the calling program, with the sockets, limits and certificates of hooks: for clients other
//! than the API server, which learn the trusted authority from another component.

mod bundle;
mod upkeep;

use std::{future::Future, net::TcpListener, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use oz_runtime::{Listen, Runtime, RuntimeError};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    CertPolicy,
    certificate::resolver::Current,
    manager::Error,
    metrics::Metrics,
    server::{
        Limits,
        accept::{Server, Stop},
    },
};
pub use bundle::BUNDLE_KEY;
use upkeep::{Settings, Upkeep};

/// The timeout for open calls after the service stops accepting calls.
const FINISH: Duration = Duration::from_secs(30);

/// A router behind TLS, with certificates of an authority that all replicas share.
///
/// The authority is in the Secret `<fingerprint>-admission-ca` unless the policy names another. Its
/// certificates are published in a ConfigMap, under [`BUNDLE_KEY`], for the component that distributes them
/// to clients. A new authority signs only after it has been published for [`CertPolicy::settle`]: the
/// maximum time for which a client may use an outdated bundle.
///
/// Each request carries an `Arc<`[`Peer`](crate::Peer)`>`: until the router marks a peer as known, the
/// connection of the peer takes one of a few slots, and may be evicted for others.
#[derive(Debug)]
pub struct TlsService {
    /// The name of the product: it names the objects in the cluster, and is the field manager of every
    /// write.
    pub fingerprint: String,
    /// The namespace of Secret and ConfigMap.
    pub namespace: String,
    /// The ConfigMap in which the certificates of the authority are published.
    pub config_map: String,
    /// The names and addresses in the serving certificate.
    pub names: Vec<String>,
    /// The lifetimes of certificates.
    pub certificates: CertPolicy,
    /// The limits of the server.
    pub limits: Limits,
    /// The time for which the service still accepts calls after readiness has failed.
    pub drain: Duration,
    /// The bound socket.
    pub listener: TcpListener,
    /// The router that handles requests.
    pub router: Router,
    /// The clients of the service.
    pub clients: Clients,
}

/// The clients of a [`TlsService`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// Any client that can reach the port, without a certificate.
    #[default]
    Any,
    /// The API server, which forwards the requests of its clients (an `APIService`). The service
    /// requests a certificate; if the client holds the key of one, each request carries an
    /// `Arc<`[`ClientCertificate`]`>`, which [`ClientAuthority`](crate::ClientAuthority) verifies. Only
    /// over HTTP/1.1, where a connection can change to another protocol (`hyper::upgrade`); the connection
    /// then counts toward no limit here.
    ///
    /// [`ClientCertificate`]: crate::ClientCertificate
    FrontProxy,
}

impl TlsService {
    /// Runs with `runtime` until `shutdown` is ready, then drains: readiness fails first, the service
    /// accepts calls for a while, and finishes open calls; the parts of `runtime` end after them.
    ///
    /// # Errors
    /// TLS cannot be set up, or a part ends that the process requires.
    pub async fn run(
        self,
        mut runtime: Runtime,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), Error> {
        let metrics = Metrics::new(&mut runtime.registry());
        let current = Current::default();
        let stop = Stop::default();
        let serving = runtime.readiness().gate("serving");
        let settings = Settings {
            fingerprint: self.fingerprint,
            namespace: self.namespace,
            config_map: self.config_map,
            names: self.names,
            policy: self.certificates,
        };
        let upkeep = Upkeep::new(settings, &runtime, current.clone(), metrics.clone());
        runtime.part("certificates", |stop| async move {
            stop.run_until_cancelled(upkeep.run()).await;
        });
        let listener = Listen::Bound(self.listener).bind().await?;
        let upgrades = self.clients == Clients::FrontProxy;
        let config = if upgrades {
            current.front_proxy_config()?
        } else {
            current.server_config(None)?
        };
        let server = Server {
            tls: TlsAcceptor::from(Arc::new(config)),
            upgrades,
            current,
            router: self.router,
            limits: self.limits,
            metrics,
            stop: stop.clone(),
        };
        let mut server = AbortOnDropHandle::new(tokio::spawn(server.serve(listener)));
        let mut running = runtime.start().await?;
        serving.open();
        let mut shutdown = pin!(shutdown);
        tokio::select! {
            () = &mut shutdown => {}
            failed = running.failed() => return Err(failed.into()),
            _ = &mut server => return Err(RuntimeError::Ended("the server".into()).into()),
        }
        serving.close("serving");
        stop.draining.cancel();
        tokio::time::sleep(self.drain).await;
        stop.gently.cancel();
        let _ = tokio::time::timeout(FINISH, &mut server).await;
        running.stop().await;
        Ok(())
    }
}
