//! The audit trail, read back as an auditor would: events, checkpoints, logs, public keys.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use oz_api::names;
use oz_testkit::Process;
use oz_trail::verify::{Evidence, Report, Terms, verify};
use oz_trail::{AuditEvent, Published, Trust};
use serde_json::Value;

use crate::NAMESPACE;

/// Reads the trail of a cluster.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "a client has none")]
pub struct Auditor {
    client: Client,
    pinned: Vec<String>,
    /// Logs to judge along with the objects.
    pub logs: Vec<PathBuf>,
}

impl Auditor {
    /// One who pins the keys of the operator that are published now; they vouch for those of the other writers.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn pinning(client: &Client) -> Result<Self> {
        let keys = published(client).await?;
        Ok(Self {
            client: client.clone(),
            pinned: keys
                .into_iter()
                .filter(|key| key.writer.is_none())
                .map(|key| key.public_key)
                .collect(),
            logs: Vec::new(),
        })
    }

    /// Pins the key that a component publishes, where no operator vouches for it.
    ///
    /// # Errors
    /// When it is not published, or cannot be read.
    pub async fn pin(&mut self, component: &str) -> Result<()> {
        let secrets = names::key_secrets(component).context("it signs no trail")?;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let published = api.get(secrets.1).await?.data.unwrap_or_default();
        let key = published.get(names::AUDIT_ENTRY).context("no key")?;
        let key = std::str::from_utf8(&key.0)?;
        self.pinned.push(format!("{component} {}", key.trim()));
        Ok(())
    }

    /// Has the log of this process judged as well.
    pub fn log(&mut self, process: &Process) {
        self.logs.push(process.stdout().to_owned());
    }

    /// Events as raw API objects.
    #[must_use]
    pub fn events(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<AuditEvent>(&()))
    }

    /// What is on record: the specs of events, and what is in the logs of processes that were killed before the events
    /// were made.
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn records(&self) -> Result<Vec<Value>> {
        let mut records = self.specs().await?;
        for path in &self.logs {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("failed to read {}", path.display()))?;
            // The last line of a process that was killed may be half written.
            let lines = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            records.extend(lines);
        }
        Ok(records)
    }

    async fn specs(&self) -> Result<Vec<Value>> {
        let events = self.events().list(&ListParams::default()).await?;
        let specs = events.into_iter().map(|event| event.data["spec"].clone());
        Ok(specs.collect())
    }

    /// Everything that there is to judge.
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn evidence(&self) -> Result<Evidence> {
        let mut evidence = Evidence::default();
        // What is signed first: what comes meanwhile is only more.
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let map = maps.get_opt("oz-audit-checkpoints").await?;
        for (slot, text) in map.and_then(|map| map.data).unwrap_or_default() {
            evidence.checkpoint(&format!("ConfigMap oz-audit-checkpoints, {slot}"), &text);
        }
        evidence.objects();
        for event in self.events().list(&ListParams::default()).await? {
            evidence.object(&serde_json::to_value(&event)?);
        }
        for path in &self.logs {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("failed to read {}", path.display()))?;
            evidence.log(&path.display().to_string(), &text);
        }
        Ok(evidence)
    }

    /// What verifying says.
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn report(&self) -> Result<Report> {
        self.report_since(None).await
    }

    /// The trusted keys: the pinned keys, and those that they vouch for.
    ///
    /// # Errors
    /// If the published keys cannot be read.
    pub async fn trust(&self) -> Result<Trust> {
        let mut trust = Trust::pinned(self.pinned.iter().map(String::as_str))?;
        trust.extend(&published(&self.client).await?);
        Ok(trust)
    }

    /// What verifying says, if events from before an instant may be gone.
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn report_since(&self, kept: Option<Timestamp>) -> Result<Report> {
        let evidence = self.evidence().await?;
        let terms = Terms {
            trust: self.trust().await?,
            objects_kept_since: kept,
            ..Terms::default()
        };
        Ok(verify(evidence, &terms))
    }

    /// The specs of the events about a request, oldest first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn of(&self, namespace: &str, request: &str) -> Result<Vec<Value>> {
        let mut specs = self.specs().await?;
        specs.retain(|spec| {
            spec["request"]["namespace"] == namespace && spec["request"]["name"] == request
        });
        Ok(specs)
    }
}

async fn published(client: &Client) -> Result<Vec<Published>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    // Without an operator there is none.
    let map = maps.get_opt("oz-audit-keys").await?;
    map.and_then(|map| map.data)
        .unwrap_or_default()
        .values()
        .map(|text| serde_json::from_str(text).context("not a published key"))
        .collect()
}
