//! The identification of a user to the API server: by a certificate of the cluster's own authority,
//! or by impersonation through the kubeconfig of a user who may impersonate.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::pki::{Authority, pem};

/// The means to act as any user.
#[derive(Debug)]
pub(crate) enum Access {
    /// The private authority of the cluster, which the testkit holds.
    Certificates(Box<Authority>),
    /// The user's own kubeconfig, and the PEM certificates of the server's authority.
    Impersonation(Box<Kubeconfig>, String),
}

/// The cluster of the user's kubeconfig.
pub(crate) struct Current {
    pub(crate) access: Access,
    pub(crate) server_url: String,
    /// The name of the context.
    pub(crate) context: String,
    /// The version that the API server reports.
    pub(crate) version: String,
}

impl Access {
    /// Opens the authority that a running cluster left in `pki`.
    pub(crate) fn attach(pki: &Path) -> Result<Self> {
        Ok(Self::Certificates(Box::new(Authority::open(pki)?)))
    }

    /// Returns the cluster that the user's kubeconfig names.
    pub(crate) async fn current() -> Result<Current> {
        let kubeconfig = Kubeconfig::read().context("failed to read the current kubeconfig")?;
        let context = kubeconfig
            .current_context
            .clone()
            .context("failed to choose a cluster: the kubeconfig has no current context")?;
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default())
                .await
                .with_context(|| format!("failed to load context {context}"))?;
        let roots = config.root_cert.iter().flatten();
        let authority = roots.map(|der| pem("CERTIFICATE", der)).collect();
        let access = Self::Impersonation(Box::new(kubeconfig), authority);
        let server_url = config
            .cluster_url
            .to_string()
            .trim_end_matches('/')
            .to_owned();
        let version = connect(config)?.apiserver_version().await;
        let version =
            version.with_context(|| format!("failed to ask {server_url} for its version"))?;
        Ok(Current {
            access,
            server_url,
            context,
            version: version.git_version,
        })
    }

    /// Returns the certificates (PEM) of the API server's authority.
    pub(crate) fn authority(&self) -> &str {
        match self {
            Self::Certificates(authority) => authority.certificate(),
            Self::Impersonation(_, authority) => authority,
        }
    }

    /// Returns a kubeconfig that acts as `user` in `groups`.
    pub(crate) fn kubeconfig(
        &self,
        server_url: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<Vec<u8>> {
        match self {
            Self::Certificates(authority) => {
                let identity = authority.client(user, groups)?;
                crate::kubeconfig::kubeconfig(server_url, authority.certificate(), user, &identity)
            }
            Self::Impersonation(current, _) => impersonating(current, user, groups),
        }
    }

    /// Returns such a kubeconfig with a certificate of X.509 version 1; `None` if the testkit signs
    /// no certificates.
    pub(crate) fn kubeconfig_of_version_1(
        &self,
        server_url: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<Option<Vec<u8>>> {
        let Self::Certificates(authority) = self else {
            return Ok(None);
        };
        let identity = authority.client_of_version_1(user, groups)?;
        let own = authority.certificate();
        crate::kubeconfig::kubeconfig(server_url, own, user, &identity).map(Some)
    }
}

fn impersonating(current: &Kubeconfig, user: &str, groups: &[&str]) -> Result<Vec<u8>> {
    let mut kubeconfig = current.clone();
    // The owner of the kubeconfig is the administrator.
    if user != "admin" {
        for named in &mut kubeconfig.auth_infos {
            if let Some(auth) = &mut named.auth_info {
                auth.impersonate = Some(user.to_owned());
                auth.impersonate_groups = Some(groups.iter().map(ToString::to_string).collect());
            }
        }
    }
    serde_json::to_vec_pretty(&kubeconfig)
        .with_context(|| format!("failed to write the kubeconfig of {user}"))
}

/// Returns a client for the kubeconfig at `path`.
pub(crate) async fn client(path: &Path) -> Result<kube::Client> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    // kube answers 429, 503 and 504 with up to 15 retries, which would hide them from a test.
    config.default_retry = false;
    connect(config)
}

fn connect(config: kube::Config) -> Result<kube::Client> {
    // A second call finds a provider installed already, which is sufficient.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Ok(kube::Client::try_from(config)?)
}
