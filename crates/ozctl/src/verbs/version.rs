//! `ozctl version`: of this program, and of the API server if it answers.

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
    /// How to show it
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: TextFormat,
}

impl Version {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let ours = env!("CARGO_PKG_VERSION");
        let mut versions = json!({"clientVersion": ours});
        if !self.client {
            let cluster = context.cluster().await?;
            let server = cluster.answer(cluster.client.apiserver_version()).await?;
            versions["serverVersion"] = json!(server.git_version);
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
        Ok(Exit::SUCCESS)
    }
}
