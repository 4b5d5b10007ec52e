//! Flags that every oz binary has.

use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgAction, Args};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tracing::Metadata;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::kubeconfig;

/// Flags that every oz binary has.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// File with the connection to the cluster. By default the pod's own service account, or what
    /// $KUBECONFIG names.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace that oz runs in: its Secrets and leases are there.
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "oz-system",
        value_name = "NAME"
    )]
    pub namespace: String,

    /// Name of this replica, the holder of leases and the writer of records.
    #[arg(long, env = "POD_NAME", default_value = "oz-0", value_name = "NAME")]
    pub replica: String,

    /// Filter of the log, such as `info` or `info,oz_engine=debug`, instead of the configured one.
    #[arg(long, env = "OZ_LOG", value_name = "FILTER")]
    pub log: Option<String>,

    #[command(flatten)]
    zap: Zap,
}

/// Flags of the original, accepted so that existing manifests start; `--log` replaces them.
#[derive(Args, Clone, Debug)]
struct Zap {
    #[arg(long, hide = true, num_args = 0..=1, action = ArgAction::Set, default_missing_value = "true")]
    zap_devel: Option<bool>,
    #[arg(long, hide = true)]
    zap_encoder: Option<String>,
    #[arg(long, hide = true)]
    zap_log_level: Option<String>,
    #[arg(long, hide = true)]
    zap_stacktrace_level: Option<String>,
    #[arg(long, hide = true)]
    zap_time_encoding: Option<String>,
}

/// The target under which kube's client logs whole responses of the API server that do not decode,
/// among them environment variables and Secrets of other users. No log level shows these lines.
const LOGS_BODIES: &str = "kube_client::client";
/// The target of the watcher. Its errors quote the value that does not decode; the callers of the
/// watcher log these errors.
const QUOTES_BODIES: &str = "kube_runtime::watcher";

fn is_without_bodies(metadata: &Metadata<'_>) -> bool {
    // The submodules log connections, not their content.
    metadata.target() != LOGS_BODIES && !metadata.target().starts_with(QUOTES_BODIES)
}

/// The format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text lines for users.
    Text,
    /// JSON objects, one per line.
    Json,
}

impl Common {
    /// Starts logging on standard error; standard output is for audit records. `filter` applies unless the flag
    /// replaces it.
    ///
    /// # Errors
    /// When the filter does not parse.
    pub fn start_logging(&self, filter: &str, format: LogFormat) -> anyhow::Result<()> {
        let filter = self.log.as_deref().unwrap_or(filter);
        let filter = EnvFilter::try_new(filter)
            .with_context(|| format!("failed to read the log filter {filter}"))?;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = match format {
            LogFormat::Json => lines.json().boxed(),
            LogFormat::Text => lines
                .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
                .boxed(),
        };
        let lines = lines.with_filter(filter_fn(is_without_bodies));
        tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .init();
        Ok(())
    }

    /// Returns the connection to the cluster, with the name and version of `program` as its user
    /// agent.
    ///
    /// # Errors
    /// When no connection is configured, or its file cannot be read.
    pub async fn config(&self, program: &str) -> anyhow::Result<Config> {
        let mut config = self.connection().await?;
        let agent = format!("{program}/{}", env!("CARGO_PKG_VERSION"));
        config.headers.push(("user-agent".parse()?, agent.parse()?));
        Ok(config)
    }

    async fn connection(&self) -> anyhow::Result<Config> {
        let (found, source) = match &self.kubeconfig {
            Some(file) => (kubeconfig::read(file).map(Some), file.display().to_string()),
            None => (
                kubeconfig::find(std::env::var_os("KUBECONFIG").as_deref()),
                "the kubeconfig".to_owned(),
            ),
        };
        let found = found.with_context(|| {
            format!("failed to read {source}; name another file with --kubeconfig or $KUBECONFIG")
        })?;
        let Some(found) = found else {
            return Config::incluster()
                .context("failed to find a cluster; name one with --kubeconfig or $KUBECONFIG");
        };
        let names_proxy = names_proxy(&found);
        let config = Config::from_custom_kubeconfig(found, &KubeConfigOptions::default()).await;
        let mut config = config.with_context(|| format!("failed to use {source}"))?;
        // The library takes the proxy of the environment, which is for servers outside the cluster.
        config.proxy_url = config.proxy_url.filter(|_| names_proxy);
        Ok(config)
    }
}
/// Checks whether the current context of a kubeconfig names a proxy for the API server.
fn names_proxy(kubeconfig: &Kubeconfig) -> bool {
    let current = kubeconfig.current_context.as_ref();
    let contexts = &kubeconfig.contexts;
    let context = contexts.iter().find(|one| Some(&one.name) == current);
    let name = context.and_then(|one| Some(&one.context.as_ref()?.cluster));
    let clusters = &kubeconfig.clusters;
    let cluster = clusters.iter().find(|one| Some(&one.name) == name);
    let proxy = cluster.and_then(|one| one.cluster.as_ref()?.proxy_url.as_deref());
    proxy.is_some_and(|proxy| !proxy.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proxy_of_current_cluster_is_one_of_api_server() {
        let kubeconfig = |current: &str| -> Kubeconfig {
            serde_json::from_value(serde_json::json!({
                "current-context": current,
                "contexts": [
                    {"name": "direct", "context": {"cluster": "direct", "user": "a"}},
                    {"name": "proxied", "context": {"cluster": "proxied", "user": "a"}},
                    {"name": "lost", "context": {"cluster": "none", "user": "a"}},
                ],
                "clusters": [
                    {"name": "direct", "cluster": {"server": "https://a.test"}},
                    {"name": "proxied", "cluster": {
                        "server": "https://b.test", "proxy-url": "http://proxy:3128",
                    }},
                ],
            }))
            .unwrap()
        };
        for (current, expected) in [
            ("direct", false),
            ("proxied", true),
            ("lost", false),
            ("other", false),
        ] {
            assert_eq!(names_proxy(&kubeconfig(current)), expected, "{current}");
        }
    }
}
