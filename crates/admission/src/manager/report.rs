//! The reports of upkeep for users and dashboards: log, event, metric.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use oz_runtime::{Event, EventType, Notice, Recorder, with_causes};

use super::{Manager, error::UpkeepError};
use crate::{metrics::Metrics, registration::apply::Change};

pub(super) struct Report {
    recorder: Recorder,
    metrics: Metrics,
    observer: Option<Observer>,
    authority: Option<String>,
    notices: [Notice; 3],
}

/// The parts of upkeep, each independent of the failure of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Certificate,
    Registration,
    Namespaces,
}

impl Part {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Registration => "registration",
            Self::Namespaces => "namespaces",
        }
    }
}

/// An upkeep event, for programs that record such events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Upkeep {
    /// A configuration, or the conversion of a definition, differed from the declaration and was repaired.
    Repaired {
        /// The kind of the object.
        kind: &'static str,
        /// The name of the object.
        name: String,
        /// The changed field.
        what: String,
    },
    /// Another certificate authority signs from now on.
    AuthorityReplaced {
        /// The expiry of the authority.
        until: Timestamp,
    },
}

/// A function that receives the events of upkeep as they occur; it must return at once.
///
/// ```
/// use oz_admission::{ManagerBuilder, Upkeep};
///
/// fn recorded(builder: ManagerBuilder) -> ManagerBuilder {
///     builder.observer(std::sync::Arc::new(|upkeep| {
///         if let Upkeep::Repaired { kind, name, what } = upkeep {
///             println!("somebody changed {what} of the {kind} {name}");
///         }
///     }))
/// }
/// ```
pub type Observer = Arc<dyn Fn(Upkeep) + Send + Sync>;

impl Report {
    pub(super) fn new(manager: &Manager) -> Self {
        let readiness = manager.runtime.readiness();
        Self {
            notices: std::array::from_fn(|_| readiness.notice()),
            recorder: manager.recorder.clone(),
            metrics: manager.metrics.clone(),
            observer: manager.observer.clone(),
            authority: None,
        }
    }

    /// Reports the expiry of the `leaf` or the `ca`.
    pub(super) fn expiry(&self, name: &'static str, until: Timestamp) {
        self.metrics.expires(name, until);
    }

    /// Reports the result of a part of upkeep in this pass. Returns `true` if the part succeeded.
    pub(super) fn passed(
        &self,
        part: Part,
        outcome: &Result<(), UpkeepError>,
        now: Timestamp,
    ) -> bool {
        let name = part.as_str();
        let notice = &self.notices[part as usize];
        self.metrics.upkeep(name, outcome.is_ok(), now);
        match outcome {
            Ok(()) => notice.set(None),
            Err(error) => {
                let error = with_causes(error);
                tracing::warn!(part = name, error, "upkeep failed");
                notice.set(Some(format!("upkeep of the {name} fails: {error}")));
            }
        }
        outcome.is_ok()
    }

    /// Reports the authority that signs now.
    pub(super) fn authority(&mut self, certificate: &str, until: Timestamp) {
        if self.authority.as_deref() == Some(certificate) {
            return;
        }
        let replaced = self.authority.replace(certificate.to_owned()).is_some();
        if replaced {
            self.tell(|| Upkeep::AuthorityReplaced { until });
        }
    }

    fn tell(&self, upkeep: impl FnOnce() -> Upkeep) {
        if let Some(observer) = &self.observer {
            observer(upkeep());
        }
    }

    /// Reports that a configuration of an earlier replica, with other settings, was replaced by the one of
    /// this replica. This is not an external change: it appears in the log only.
    pub(super) fn replaced(&self, change: &Change) {
        let (kind, name) = (change.kind, &change.name);
        tracing::info!(
            kind,
            name,
            what = change.path,
            "another replica's registration was replaced"
        );
    }

    /// Reports that a configuration differed from the declaration and was repaired. A failure to publish
    /// the event is not an error, since the repair is complete.
    pub(super) async fn repaired(&self, change: &Change) {
        self.metrics.repaired(change.kind);
        let what = change.path.as_deref().unwrap_or("the whole object");
        let name = &change.name;
        tracing::warn!(kind = change.kind, name, what, "repaired the registration");
        self.tell(|| Upkeep::Repaired {
            kind: change.kind,
            name: name.clone(),
            what: what.to_owned(),
        });
        let event = Event {
            type_: EventType::Warning,
            reason: "RegistrationRepaired".to_owned(),
            note: Some(format!("{what} was changed or deleted, and is repaired")),
            action: "Repair".to_owned(),
            secondary: None,
        };
        let api_version = match change.kind {
            "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
            _ => "admissionregistration.k8s.io/v1",
        };
        let regarding = ObjectReference {
            api_version: Some(api_version.to_owned()),
            kind: Some(change.kind.to_owned()),
            name: Some(name.clone()),
            uid: change.uid.clone(),
            ..ObjectReference::default()
        };
        if let Err(error) = self.recorder.publish(&event, &regarding).await {
            tracing::debug!(error = with_causes(&error), "failed to publish an event");
        }
    }
}
