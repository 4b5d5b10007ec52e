//! The audit trail, as an auditor reads it: events, checkpoints, logs, public keys.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use oz_api::names;
use oz_testkit::{CONDITION_TIMEOUT, Cluster, Process, eventually};
use oz_trail::verify::{Evidence, Report, Terms, verify};
use oz_trail::{AuditEvent, Published, Trust};
use serde_json::Value;

use crate::{NAMESPACE, install, unregister};

/// The ConfigMap with the signatures of the trail.
const CHECKPOINTS: &str = "oz-audit-checkpoints";

/// A reader of the audit trail of a cluster.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "a client has none")]
pub struct Auditor {
    client: Client,
    pinned: Vec<String>,
    /// The logs that are verified along with the objects.
    pub logs: Vec<PathBuf>,
}

impl Auditor {
    /// Returns an auditor that pins the operator keys that are published now; they vouch for those of the
    /// other writers.
    ///
    /// # Errors
    /// When the keys cannot be read.
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

    /// Pins the key that a component publishes and for which no operator vouches.
    ///
    /// # Errors
    /// When the key is not published, or cannot be read.
    pub async fn pin(&mut self, component: &str) -> Result<()> {
        let secrets = names::key_secrets(component).context("it signs no trail")?;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let published = api.get(secrets.1).await?.data.unwrap_or_default();
        let key = published.get(names::AUDIT_ENTRY).context("no key")?;
        let key = std::str::from_utf8(&key.0)?;
        self.pinned.push(format!("{component} {}", key.trim()));
        Ok(())
    }

    /// Adds the log of this process to the evidence.
    pub fn log(&mut self, process: &Process) {
        self.logs.push(process.stdout().to_owned());
    }

    /// Returns the API of events as raw objects.
    #[must_use]
    pub fn events(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<AuditEvent>(&()))
    }

    /// Returns the audit records: the specs of events, and the lines in the logs of processes that were
    /// killed before the events were created.
    ///
    /// # Errors
    /// When an event or log cannot be read.
    pub async fn records(&self) -> Result<Vec<Value>> {
        let mut records = self.specs().await?;
        for path in &self.logs {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("failed to read {}", path.display()))?;
            // The last line of a killed process may be incomplete.
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

    /// Returns all evidence for the verification.
    ///
    /// # Errors
    /// When part of it cannot be read.
    pub async fn evidence(&self) -> Result<Evidence> {
        let mut evidence = Evidence::default();
        // The signed data first: data that is added during the reading is only additional.
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let map = maps.get_opt(CHECKPOINTS).await?;
        for (slot, text) in map.and_then(|map| map.data).unwrap_or_default() {
            evidence.checkpoint(&format!("ConfigMap {CHECKPOINTS}, {slot}"), &text);
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

    /// Returns the result of the verification.
    ///
    /// # Errors
    /// When part of the evidence cannot be read.
    pub async fn report(&self) -> Result<Report> {
        self.report_since(None).await
    }

    /// Returns the trusted keys: the pinned keys, and those for which they vouch.
    ///
    /// # Errors
    /// If the published keys cannot be read.
    pub async fn trust(&self) -> Result<Trust> {
        let mut trust = Trust::pinned(self.pinned.iter().map(String::as_str))?;
        trust.extend(&published(&self.client).await?);
        Ok(trust)
    }

    /// Returns the result of the verification if events from before an instant may be deleted.
    ///
    /// # Errors
    /// When part of the evidence cannot be read.
    pub async fn report_since(&self, kept: Option<Timestamp>) -> Result<Report> {
        let evidence = self.evidence().await?;
        let terms = Terms {
            trust: self.trust().await?,
            objects_kept_since: kept,
            ..Terms::default()
        };
        Ok(verify(evidence, &terms))
    }

    /// Returns the specs of the events about a request, oldest first.
    ///
    /// # Errors
    /// When the events cannot be listed.
    pub async fn list_for_request(&self, namespace: &str, request: &str) -> Result<Vec<Value>> {
        let mut specs = self.specs().await?;
        specs.retain(|spec| {
            spec["request"]["namespace"] == namespace && spec["request"]["name"] == request
        });
        Ok(specs)
    }

    /// Returns the specs of the events about all requests of a namespace, oldest first.
    ///
    /// # Errors
    /// When the events cannot be listed.
    pub async fn in_namespace(&self, namespace: &str) -> Result<Vec<Value>> {
        let mut specs = self.specs().await?;
        specs.retain(|spec| spec["request"]["namespace"] == namespace);
        Ok(specs)
    }
}

/// Removes the audit trail that other tests have left in a cluster: without oz running, an administrator can.
///
/// # Errors
/// When the API server refuses the removal.
pub async fn clear_trail(cluster: &Cluster) -> Result<()> {
    install(cluster).await?;
    unregister(cluster)?;
    let admin = cluster.client("admin").await?;
    let events: Api<AuditEvent> = Api::all(admin.clone());
    eventually("the events to go", CONDITION_TIMEOUT, async || {
        let nothing = events
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await;
        let left = events.list(&ListParams::default()).await?;
        Ok((nothing.is_ok() && left.items.is_empty()).then_some(()))
    })
    .await?;
    let maps: Api<ConfigMap> = Api::namespaced(admin, NAMESPACE);
    match maps.delete(CHECKPOINTS, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => drop(other?),
    }
    Ok(())
}

async fn published(client: &Client) -> Result<Vec<Published>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    // Without an operator the ConfigMap does not exist.
    let map = maps.get_opt("oz-audit-keys").await?;
    map.and_then(|map| map.data)
        .unwrap_or_default()
        .values()
        .map(|text| serde_json::from_str(text).context("not a published key"))
        .collect()
}
