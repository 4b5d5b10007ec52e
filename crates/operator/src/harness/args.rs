//! The flags of harness runs.

use std::collections::BTreeMap;

use anyhow::Context;
use clap::{ArgAction, Args};
use ipnet::IpNet;
use oz_api::names;
use oz_runs::objects::Broker;
use oz_runs::pod::Settings;
use oz_runs::seed;

use crate::composites::label;

/// Whether and how HarnessRuns are run.
#[derive(Args, Clone, Debug)]
pub(crate) struct HarnessArgs {
    /// Run HarnessRuns (paddock.dev/v1alpha1): sandboxed runs of AI agents, on workspaces of their own.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) harness: bool,

    /// Image of the container that fetches the prompt of a run and reports for it.
    #[arg(long, value_name = "IMAGE", required_if_eq("harness", "true"))]
    pub(crate) harness_image: Option<String>,

    /// When that image is pulled: Always, IfNotPresent or Never.
    #[arg(long, default_value = "IfNotPresent", value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub(crate) harness_pull_policy: String,

    /// Image with git, ssh and a shell by which the repositories of workspaces are cloned. Name it by its digest:
    /// it is run with the credentials that a workspace names.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) harness_git_image: Option<String>,

    /// Ranges of addresses, as ADDRESS/BITS, that what fills workspaces must not reach, besides link-local ones: those of
    /// Services and nodes, so that no URL of a workspace leads to the API server.
    #[arg(long, value_delimiter = ',', value_name = "RANGES")]
    pub(crate) seed_denied_ranges: Vec<IpNet>,

    /// End runs, and the Jobs that fill workspaces, when a NetworkPolicy that oz did not make lets their pods reach more
    /// than oz does, and refuse those that would begin so. Otherwise that is recorded, and told by the condition Confined.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) harness_require_confined: bool,

    /// The Service in the operator's namespace by which the pods of runs find the broker; its port is called
    /// broker.
    #[arg(long, default_value = names::BROKER, value_name = "NAME")]
    pub(crate) broker_service: String,

    /// Port of the broker's pods.
    #[arg(long, default_value_t = 8443, value_name = "PORT")]
    pub(crate) broker_port: u16,

    /// The labels of the broker's pods, which alone the pods of runs may reach: one each.
    #[arg(long, default_value = "app.kubernetes.io/name=oz-broker", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) broker_label: Vec<(String, String)>,
}

impl HarnessArgs {
    /// Returns the settings for the pods of runs.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let image = self.harness_image.clone();
        Ok(Settings {
            image: image.context("--harness needs --harness-image")?,
            pull_policy: self.harness_pull_policy.clone(),
        })
    }

    /// Returns the settings for the seeds of workspaces.
    pub(crate) fn seeds(&self) -> seed::Settings {
        let image = self.harness_git_image.clone();
        seed::Settings {
            image: image.filter(|image| !image.is_empty()),
            pull_policy: self.harness_pull_policy.clone(),
            denied: self.seed_denied_ranges.clone(),
        }
    }

    /// Returns the location of brokers.
    pub(crate) fn broker(&self, namespace: &str) -> Broker {
        let labels: BTreeMap<String, String> = self.broker_label.iter().cloned().collect();
        Broker {
            namespace: namespace.to_owned(),
            labels,
            port: self.broker_port,
        }
    }
}
