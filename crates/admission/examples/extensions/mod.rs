//! The extensions that the examples run, and how each of them gets its manager.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod annotator;
pub mod env_injector;
pub mod no_moving_tags;
pub mod pod_diary;
pub mod widget_versions;

use std::net::SocketAddr;

use oz_admission::{Endpoint, Manager, ManagerBuilder, NamespaceScope};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What an example is told on its command line: `<namespace> <address>`.
pub struct Arguments {
    /// The only namespace it looks at, and where its Secret goes.
    pub namespace: String,
    /// Where it listens, and where the API server reaches it.
    pub address: SocketAddr,
}

impl Arguments {
    pub fn read() -> Result<Self, Failure> {
        let mut arguments = std::env::args().skip(1);
        let (Some(namespace), Some(address)) = (arguments.next(), arguments.next()) else {
            return Err(
                "usage: <namespace> <address>, for instance: default 127.0.0.1:8443".into(),
            );
        };
        Ok(Self {
            namespace,
            address: address.parse()?,
        })
    }

    /// The scope of every hook here.
    pub fn here(&self) -> NamespaceScope {
        NamespaceScope::Only(vec![self.namespace.clone()])
    }
}

/// A manager for an example, on the cluster of the environment.
pub async fn manager(name: &str, arguments: &Arguments) -> Result<ManagerBuilder, Failure> {
    // The process decides which cryptography its client uses; the server names its own.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = kube::Client::try_default().await?;
    Ok(
        Manager::builder(client, &format!("{name}-{}", arguments.namespace))
            .namespace(&arguments.namespace)
            .listen(arguments.address)
            .endpoint(Endpoint::Url(format!("https://{}", arguments.address))),
    )
}

/// Runs it until it is asked to end, and at once when asked twice.
pub async fn run(manager: ManagerBuilder) -> Result<(), Failure> {
    let shutdown = oz_admission::shutdown_on_signal()?;
    manager.build()?.run(shutdown.cancelled_owned()).await?;
    Ok(())
}
