//! Running: the effect by which a port starts and stops a composite.

use oz_api::Uid;
use oz_core::controller::{Effect, Step};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::composites::Composites;
use super::survey::{Kinds, Survey};
use crate::account::Account;
use crate::declared::Family;
use crate::mode::Mode;
use crate::source::{Declaration, Source};

/// Name of the port that starts and stops composites.
pub const PORT: &str = "composites";

/// The composite to run, as input of the port.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The declaration; `None` if nothing runs for it.
    pub composite: Option<Declaration>,
    /// The kinds of the composite.
    pub family: Option<Family>,
    /// The service account that reads and writes.
    pub account: Account,
    /// Whether the parents' status may hold observedGeneration.
    pub observes_generation: bool,
    /// Digest of the policy: a composite with another policy is started again.
    pub policy: Option<String>,
    /// The mode.
    pub mode: Mode,
}

/// The response of the port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Runs {
    /// Whether functions are called.
    pub running: bool,
}

impl<S: Source> Composites<S> {
    /// Returns the step that stops a composite.
    pub(super) fn stop(&self, uid: Uid<'_>) -> Step {
        self.effect(uid, None, None, None, Mode::Ends)
    }

    /// Returns the step that runs a composite only for the expiry of its children.
    pub(super) fn only_end(&self, uid: Uid<'_>, composite: &S, survey: Option<&Survey>) -> Step {
        self.effect(uid, Some(composite), survey, None, Mode::Ends)
    }

    /// Returns the step that runs a composite in a mode.
    pub(super) fn effect(
        &self,
        uid: Uid<'_>,
        composite: Option<&S>,
        survey: Option<&Survey>,
        policy: Option<String>,
        mode: Mode,
    ) -> Step {
        // An account that is not listed is not used, also for the expiry of children that it created.
        let account = composite.map(|composite| composite.account(&self.accounts.default));
        let account = account.and_then(|named| self.accounts.listed(Some(&named)).cloned());
        let composite = composite.map(|composite| {
            let mut composite = composite.clone().without_status();
            let metadata = composite.meta_mut();
            metadata.managed_fields = None;
            // A change of these fields does not start a composite again.
            metadata.resource_version = None;
            metadata.finalizers = None;
            metadata.deletion_timestamp = None;
            metadata.deletion_grace_period_seconds = None;
            composite.declaration()
        });
        let run = Run {
            composite,
            family: survey.and_then(|survey| match &survey.kinds {
                Kinds::Served { family, .. } => Some(family.clone()),
                Kinds::Unknown | Kinds::NoParents => None,
            }),
            account: account.unwrap_or_else(|| self.accounts.default.clone()),
            observes_generation: survey.is_some_and(|survey| survey.observes_generation),
            policy,
            mode,
        };
        Step::Effect(Effect {
            port: PORT.to_owned(),
            key: uid.to_string(),
            payload: serde_json::to_value(run).unwrap_or_else(|_| json!({})),
        })
    }
}
