//! Transient bindings: a role is bound to subjects until an instant, and not longer.

use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use oz_api::{BindingStatus, Phase, TransientClusterRoleBinding, TransientRoleBinding, conditions};
use oz_core::transient::Kind;
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::request::{self, Retry, waits_for_others};

/// The interval between checks for the binding.
const LOOK: Duration = Duration::from_millis(200);

/// The content of a transient binding.
#[derive(Clone, Debug, Default)]
pub struct Ask<'a> {
    /// The prefix of its name.
    pub prefix: &'a str,
    /// The role: NAME, clusterrole/NAME or role/NAME.
    pub role: &'a str,
    /// The user.
    pub user: Option<&'a str>,
    /// The groups.
    pub groups: &'a [String],
    /// The service accounts, each NAMESPACE:NAME.
    pub service_accounts: &'a [String],
    /// The beginning of the window.
    pub from: Option<&'a str>,
    /// The end of the window.
    pub until: Option<&'a str>,
    /// The duration of the window.
    pub duration: Option<&'a str>,
    /// The reason.
    pub reason: Option<&'a str>,
    /// The change ticket.
    pub ticket: Option<&'a str>,
    /// Whether the binding is an emergency.
    pub emergency: bool,
}

/// The reason why a transient binding cannot be created, or is not in effect.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The prefix of the name is invalid.
    #[error(transparent)]
    Prefix(Failure),
    /// The text does not name a role.
    #[error("{0} is not a role")]
    Role(String),
    /// The text does not name a service account.
    #[error("{0} is not NAMESPACE:NAME of a service account")]
    ServiceAccount(String),
    /// The request has no subject.
    #[error("the binding has no subject")]
    Nobody,
    /// The content is not the content of a transient binding.
    #[error("failed to create the request: {0}")]
    Content(serde_json::Error),
    /// The binding was denied, or ended.
    #[error("{role} is not bound ({phase}): {}", .why.as_deref().unwrap_or_default())]
    NotBound {
        /// The kind and the name of the role.
        role: String,
        /// The phase.
        phase: Phase,
        /// The message of the operator, if there is one.
        why: Option<String>,
    },
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Self {
        let next = match error {
            BindError::Prefix(failure) => return failure,
            BindError::Role(_) => "write NAME, clusterrole/NAME or role/NAME",
            BindError::Nobody => "name a subject with --user, --group or --serviceaccount",
            error => return Self::new(error.to_string()),
        };
        Self::new(error.to_string()).next(next)
    }
}

impl Ask<'_> {
    /// Returns the kind and the name of the role.
    ///
    /// # Errors
    /// The text does not name a role.
    pub fn role(&self) -> Result<(&'static str, &str), BindError> {
        match self.role.split_once('/') {
            None => Ok(("ClusterRole", self.role)),
            Some(("clusterrole", name)) => Ok(("ClusterRole", name)),
            Some(("role", name)) => Ok(("Role", name)),
            Some(_) => Err(BindError::Role(self.role.to_owned())),
        }
    }

    /// Returns the object to create.
    ///
    /// # Errors
    /// A field of the binding is missing or invalid.
    pub fn object(&self) -> Result<Value, BindError> {
        let prefix = self.prefix;
        request::check_prefix(prefix).map_err(BindError::Prefix)?;
        let (kind, name) = self.role()?;
        let mut spec = Map::new();
        spec.insert("roleRef".to_owned(), json!({"kind": kind, "name": name}));
        spec.insert("subjects".to_owned(), self.subjects()?.into());
        for (field, value) in [
            ("validFrom", self.from),
            ("validUntil", self.until),
            ("duration", self.duration),
            ("reason", self.reason),
            ("ticket", self.ticket),
        ] {
            if let Some(value) = value {
                spec.insert(field.to_owned(), value.into());
            }
        }
        if self.emergency {
            spec.insert("emergency".to_owned(), true.into());
        }
        Ok(json!({"metadata": {"generateName": format!("{prefix}-")}, "spec": spec}))
    }

    fn subjects(&self) -> Result<Vec<Value>, BindError> {
        let user = self.user.iter();
        let mut subjects: Vec<Value> = user
            .map(|name| json!({"kind": "User", "name": name}))
            .collect();
        let groups = self.groups.iter();
        subjects.extend(groups.map(|name| json!({"kind": "Group", "name": name})));
        for account in self.service_accounts {
            let (namespace, name) = account
                .split_once(':')
                .ok_or_else(|| BindError::ServiceAccount(account.clone()))?;
            subjects.push(json!({
                "kind": "ServiceAccount", "name": name, "namespace": namespace,
            }));
        }
        match subjects.is_empty() {
            true => Err(BindError::Nobody),
            false => Ok(subjects),
        }
    }
}

/// The transient bindings of one kind in a cluster.
pub struct Bindings<'a, K> {
    cluster: &'a Cluster,
    scope: fn(&Cluster) -> Api<K>,
}

/// The effect of a transient binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The role is bound until this instant.
    Until(Timestamp),
    /// The role will be bound at this instant.
    From(Timestamp),
}

impl<'a> Bindings<'a, TransientRoleBinding> {
    /// Returns those in the chosen namespace.
    #[must_use]
    pub fn in_namespace(cluster: &'a Cluster) -> Self {
        let scope = Cluster::api;
        Self { cluster, scope }
    }
}

impl<'a> Bindings<'a, TransientClusterRoleBinding> {
    /// Returns those for the whole cluster.
    #[must_use]
    pub fn cluster_wide(cluster: &'a Cluster) -> Self {
        let scope = |cluster: &Cluster| Api::all(cluster.client.clone());
        Self { cluster, scope }
    }
}

impl<K: Kind> Bindings<'_, K> {
    fn api(&self) -> Api<K> {
        (self.scope)(self.cluster)
    }

    /// Creates the object that [`Ask::object`] returns, and returns its name.
    ///
    /// # Errors
    /// The object is malformed, or the API server refuses.
    pub async fn create(&self, object: Value) -> Result<String> {
        let object: K = serde_json::from_value(object).map_err(BindError::Content)?;
        let parameters = PostParams::default();
        let api = self.api();
        let created = self.cluster.answer(api.create(&parameters, &object));
        Ok(created.await?.name_any())
    }

    /// Waits until the role is bound or denied, or only its window must still open. `seen` gets the operator's message
    /// about approvals that it waits for, at each check.
    ///
    /// # Errors
    /// The role is not bound in time, or the API server refuses.
    pub async fn wait(
        &self,
        name: &str,
        role: &str,
        within: Duration,
        mut seen: impl FnMut(Option<&str>),
    ) -> Result<BindingStatus> {
        let mut retry = Retry::default();
        let looking = async {
            loop {
                match self.cluster.answer(self.api().get(name)).await {
                    Err(failure) => {
                        retry.with(failure).await?;
                        seen(None);
                    }
                    Ok(found) => {
                        retry.over();
                        let status = found.status();
                        if let Some(status) = status.filter(|status| is_settled(status)) {
                            return Ok(status.clone());
                        }
                        let conditions = status.map(|status| &status.conditions[..]);
                        seen(conditions.and_then(|all| waits_for_others(Phase::Pending, all)));
                        tokio::time::sleep(LOOK).await;
                    }
                }
            }
        };
        if let Ok(looked) = tokio::time::timeout(within, looking).await {
            return looked;
        }
        let late = format!("{role} was not bound within {within:?}");
        Err(match retry.at_the_end() {
            Some(failure) => failure.during(&late),
            None => Failure::new(late).next(format!(
                "`ozctl explain {}` shows the cause",
                Self::resource(name)
            )),
        })
    }

    /// Deletes an object, also if a connection to the API server is lost meanwhile. Success includes an object that
    /// does not exist any more.
    ///
    /// # Errors
    /// The API server refuses, or does not respond.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let delete = async |cluster: &Cluster| {
            let api = (self.scope)(cluster);
            match api.delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                answer => answer.map(drop).map_err(Failure::from),
            }
        };
        let failed = || format!("failed to revoke {}", Self::resource(name));
        let deleted = self.cluster.persist(delete).await;
        deleted.map_err(|failure| failure.during(&failed()))
    }

    /// Returns a name as kubectl writes it.
    #[must_use]
    pub fn resource(name: &str) -> String {
        format!("{}/{name}", <K as Resource>::plural(&()))
    }
}

/// Checks whether the role is bound or denied, or only its window must still open.
fn is_settled(status: &BindingStatus) -> bool {
    status.phase != Phase::Pending || status.next_transition_time.is_some()
}

/// Returns the effect of a transient binding of a role.
///
/// # Errors
/// The role is not bound, and will not be.
pub fn effect(role: &str, status: &BindingStatus) -> Result<Effect, BindError> {
    match (status.phase, status.expires_at, status.next_transition_time) {
        (Phase::Active, Some(until), _) => Ok(Effect::Until(until)),
        (Phase::Pending, _, Some(from)) => Ok(Effect::From(from)),
        (phase, ..) => {
            let ready = conditions::find(&status.conditions, "Ready");
            Err(BindError::NotBound {
                role: role.to_owned(),
                phase,
                why: ready.map(|ready| ready.message.clone()),
            })
        }
    }
}
