//! The extensions of the examples, and their managers.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod annotator;
pub mod env_injector;
pub mod no_moving_tags;
pub mod pod_diary;
pub mod widget_versions;

use std::net::SocketAddr;

use oz_admission::{Endpoint, Manager, ManagerBuilder, NamespaceScope};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The command line of an example: `<namespace> <address>`.
pub struct Arguments {
    /// The only namespace that the example handles; it also contains the Secret.
    pub namespace: String,
    /// The listening address, under which the API server also reaches the example.
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

    /// Returns the scope of every hook of the examples.
    pub fn here(&self) -> NamespaceScope {
        NamespaceScope::Only(vec![self.namespace.clone()])
    }
}

/// Creates a builder of a manager for an example, on the cluster of the environment.
pub async fn manager(name: &str, arguments: &Arguments) -> Result<ManagerBuilder, Failure> {
    // The process selects the cryptography of its client; the server names its own.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = kube::Client::try_default().await?;
    Ok(
        Manager::builder(client, &format!("{name}-{}", arguments.namespace))
            .namespace(&arguments.namespace)
            .listen(arguments.address)
            .endpoint(Endpoint::Url(format!("https://{}", arguments.address))),
    )
}

/// Runs the manager until a first signal, and stops at once at a second one.
pub async fn run(manager: ManagerBuilder) -> Result<(), Failure> {
    let shutdown = oz_admission::shutdown_on_signal()?;
    manager.build()?.run(shutdown.cancelled_owned()).await?;
    Ok(())
}
