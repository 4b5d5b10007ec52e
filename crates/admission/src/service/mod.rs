//! A service of the caller's own, on the sockets, the limits and the certificates that hooks have: for clients
//! other than the API server, which learn from somebody else whom to trust.

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

/// How long calls under way may take to finish once nothing more is accepted.
const FINISH: Duration = Duration::from_secs(30);

/// A router behind TLS, with certificates of an authority that all replicas share.
///
/// The authority lies in the Secret `<fingerprint>-admission-ca` unless the policy names another. Its
/// certificates are published in a ConfigMap, under [`BUNDLE_KEY`], for whoever tells the clients. A
/// new authority signs only once it has been published for [`CertPolicy::settle`]: that is how
/// long a client may go on with what it was told.
///
/// Each request carries an `Arc<`[`Peer`](crate::Peer)`>`: as long as the router has not said of a peer that it
/// is known, its connection is one of few, and may have to make room for others.
#[derive(Debug)]
pub struct TlsService {
    /// Names what is made in the cluster, and is the field manager of every write.
    pub fingerprint: String,
    /// Where Secret and ConfigMap are.
    pub namespace: String,
    /// The ConfigMap that the certificates of the authority are published in.
    pub config_map: String,
    /// Names and addresses that the serving certificate is for.
    pub names: Vec<String>,
    /// How long certificates live.
    pub certificates: CertPolicy,
    /// What the server puts up with.
    pub limits: Limits,
    /// How long calls are still taken after readiness has failed.
    pub drain: Duration,
    /// The socket.
    pub listener: TcpListener,
    /// What answers.
    pub router: Router,
    /// Who calls.
    pub clients: Clients,
}

/// Who calls a [`TlsService`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// Whoever gets there, without a certificate.
    #[default]
    Any,
    /// The API server, which passes on what its own clients ask for (an `APIService`). A certificate is asked
    /// for; of a client that holds the key of one, each request carries an `Arc<`[`ClientCertificate`]`>`, of
    /// which [`ClientAuthority`](crate::ClientAuthority) says whose it is. Over HTTP/1.1 alone, where a
    /// connection may become one of another protocol (`hyper::upgrade`); it then counts for no limit here.
    ///
    /// [`ClientCertificate`]: crate::ClientCertificate
    FrontProxy,
}

impl TlsService {
    /// Runs with `runtime` until `shutdown` is ready, then drains: readiness fails first, calls are still taken
    /// for a while, and those under way are finished; what `runtime` does ends after them.
    ///
    /// # Errors
    /// If TLS cannot be set up, or if something ends that the process cannot go on without.
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
