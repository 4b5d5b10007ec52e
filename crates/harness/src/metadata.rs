//! `metadata.json` of the transcript.

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Serialize;

use crate::args::Options;
use crate::convert::Outcome;
use crate::directory::Directory;

const NAME: &str = "metadata.json";

/// The identity and the status of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    schema_version: &'static str,
    run: String,
    workspace: String,
    template: String,
    mode: String,
    harness: Harness,
    started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
    /// Running, Completed, or Failed if the agent said so.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Harness {
    image: String,
}

impl Metadata {
    /// Creates the metadata of a run that began at this instant.
    pub(crate) fn new(options: &Options, started_at: Timestamp) -> Self {
        Self {
            schema_version: "1",
            run: options.run.clone(),
            workspace: options.workspace_name.clone(),
            template: options.template.clone(),
            mode: options.mode.clone(),
            harness: Harness {
                image: options.harness_image.clone(),
            },
            started_at,
            completed_at: None,
            status: "Running",
            reason: None,
        }
    }

    /// Records that the agent ended. Only the kubelet knows its exit code, which is in the run's status.
    pub(crate) fn complete(&mut self, now: Timestamp, outcome: Option<&Outcome>) {
        self.completed_at = Some(now);
        let failed = outcome.filter(|outcome| outcome.has_failed);
        self.status = if failed.is_some() {
            "Failed"
        } else {
            "Completed"
        };
        self.reason = failed
            .and_then(|outcome| outcome.summary.clone())
            .filter(|summary| !summary.is_empty());
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn write(&self, directory: &Directory) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("failed to write metadata.json")?;
        directory.replace(NAME, format!("{text}\n").as_bytes(), 0o660)
    }
}
