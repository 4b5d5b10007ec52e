//! `ozctl version`: prints the version of this program, and of the API server if it responds.

use clap::Args;
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{TextFormat, json, yaml};

/// Show the version of ozctl, and of the cluster's API server
#[derive(Args)]
pub(crate) struct Version {
    /// Do not ask the cluster
    #[arg(long)]
    client: bool,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Version {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let ours = env!("CARGO_PKG_VERSION");
        let mut versions = json!({"clientVersion": ours});
        let mut unknown = None;
        if !self.client {
            match server(context).await {
                Ok(version) => versions["serverVersion"] = json!(version),
                // The version of ozctl is known without a cluster.
                Err(failure) => unknown = Some(failure),
            }
        }
        let text = match self.output {
            TextFormat::Json => json(&versions)?,
            TextFormat::Yaml => yaml(&versions)?,
            TextFormat::Text => {
                let server = versions["serverVersion"].as_str();
                let server =
                    server.map_or(String::new(), |version| format!("Kubernetes: {version}\n"));
                format!("ozctl: v{ours}\n{server}")
            }
        };
        context.print(&text)?;
        unknown.map_or(Ok(Exit::SUCCESS), Err)
    }
}

async fn server(context: &Context) -> Result<String> {
    let cluster = context.cluster().await?;
    let version = cluster.answer(cluster.client.apiserver_version()).await?;
    Ok(version.git_version)
}
