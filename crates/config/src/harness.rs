//! Harness runs.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{NotNegative, Text};

/// Harness runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Harness {
    /// Serve harness runs, the kinds of paddock.dev.
    pub enabled: bool,
    /// Image of oz's container in the pods of runs. Required if harness runs are enabled.
    pub image: String,
    /// The pull policy of that image, and of gitImage.
    pub pull_policy: PullPolicy,
    /// Image that clones the repositories of workspaces: any image with git, ssh and /bin/sh. The image runs with the
    /// credentials that workspaces name. If empty, workspaces with a seed fail, and report this.
    pub git_image: String,
    /// Ranges of addresses (ADDRESS/BITS) that the pods that clone repositories must not reach, in addition to
    /// link-local addresses: name the ranges of Services and nodes, and private ranges without a git server. The proxies
    /// of runs connect to no address in these ranges either.
    #[schemars(inner(regex(pattern = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")))]
    pub seed_denied_ranges: Vec<Text<IpNet>>,
    /// End runs, and the Jobs that fill workspaces, when a NetworkPolicy that oz did not create allows their pods to
    /// reach more than oz does, and deny the start of runs and Jobs in this state. Otherwise oz records the state, and
    /// the condition Confined is False.
    pub require_confined: bool,
    /// Certificate authorities (PEM) that the proxies of runs trust for the hosts that policies grant, in addition to
    /// the public ones.
    #[serde(rename = "upstreamCA")]
    pub upstream_ca: String,
    /// The broker: the server that the pods of runs connect to.
    pub broker: Broker,
}

/// The pull policy of an image.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema, strum::Display,
)]
pub enum PullPolicy {
    /// Pull at each start.
    Always,
    /// Pull if the node does not have the image.
    #[default]
    IfNotPresent,
    /// Never pull.
    Never,
}

/// The broker.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Broker {
    /// Port that the broker's pods listen on.
    pub port: NonZeroU16,
    /// Labels of the broker's pods, the only pods that the pods of runs may reach.
    pub labels: BTreeMap<String, String>,
    /// Further names and addresses for which the broker's certificate is valid.
    pub certificate_names: Vec<String>,
    /// Time after SIGTERM during which the broker still answers calls, until no client sends any more.
    pub drain: NotNegative,
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            port: const { NonZeroU16::new(8443).unwrap() },
            labels: BTreeMap::from([("app.kubernetes.io/name".to_owned(), "oz-broker".to_owned())]),
            certificate_names: Vec::new(),
            drain: NotNegative::seconds(5),
        }
    }
}
