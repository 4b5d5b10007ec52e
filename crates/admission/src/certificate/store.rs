//! The rotation steps on the shared Secret.
//!
//! Replicas may compete: every write names the resourceVersion on which it was decided, and the replica
//! that loses reads again and finds the step already done.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};

use super::{
    CertPolicy,
    authority::{self, Authority},
    rotation::{Step, next_step},
    secret::{SecretAddress, Stored, path_keys, salvage},
    shared::next_shared_step,
};
use crate::{
    caller::KnownCallers,
    metrics::Metrics,
    server::paths::{PathKey, PathKeys},
};

/// The number of attempts after lost races before the error is returned.
const ATTEMPTS: usize = 20;

/// The reason for which the authority is unavailable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API server did not carry out the call.
    #[error("failed to {verb} Secret {namespace}/{name}")]
    Api {
        /// The attempted operation.
        verb: &'static str,
        /// The namespace of the Secret.
        namespace: String,
        /// The name of the Secret.
        name: String,
        /// The error of the call.
        source: Box<kube::Error>,
    },
    /// The cryptography failed.
    #[error(transparent)]
    Authority(#[from] authority::Error),
    /// Other writers kept changing the Secret.
    #[error("failed to write Secret {namespace}/{name}: another client keeps changing it")]
    Contended {
        /// The namespace of the Secret.
        namespace: String,
        /// The name of the Secret.
        name: String,
    },
}

/// The inputs of the steps in addition to the Secret.
pub(crate) struct Circumstances<'a> {
    pub(crate) now: Timestamp,
    /// The authority (PEM) of the leaf in use.
    pub(crate) serving: Option<&'a str>,
    /// The instant since which a certificate is in every configuration.
    pub(crate) published_since: &'a (dyn Fn(&str) -> Option<Timestamp> + Sync),
    /// True if a staged authority will be published: a process that only serves must not begin a rotation
    /// that it cannot finish.
    pub(crate) may_stage: bool,
    /// The instant at which this process started, if it serves hooks.
    pub(crate) started: Option<Timestamp>,
    /// The callers that this process knows.
    pub(crate) callers: &'a KnownCallers,
}

/// The Secret, and its last content.
pub(crate) struct Store {
    api: Api<Secret>,
    home: SecretAddress,
    policy: CertPolicy,
    metrics: Metrics,
    /// The last valid authority. If the Secret is lost, the store writes this authority into it again, so
    /// that clients are not affected.
    held: Option<Arc<Authority>>,
    /// The last valid keys of paths.
    held_paths: Option<PathKeys>,
}

impl Store {
    pub(crate) fn new(
        client: kube::Client,
        home: SecretAddress,
        policy: CertPolicy,
        metrics: Metrics,
    ) -> Self {
        let api = Api::namespaced(client, &home.namespace);
        Self {
            api,
            home,
            policy,
            metrics,
            held: None,
            held_paths: None,
        }
    }

    /// Returns the authority last found in the Secret.
    pub(crate) fn held(&self) -> Option<Arc<Authority>> {
        self.held.clone()
    }

    /// Performs all due steps. Returns the resulting content of the Secret, and the instant of the next
    /// read.
    pub(crate) async fn settle(
        &mut self,
        circumstances: &Circumstances<'_>,
    ) -> Result<(Stored, Option<Timestamp>), Error> {
        for _ in 0..ATTEMPTS {
            let secret = self
                .api
                .get_opt(&self.home.name)
                .await
                .map_err(|source| self.failed("read", source))?;
            let step = next_step(
                secret.as_ref(),
                &self.policy,
                circumstances.now,
                circumstances.serving,
                circumstances.published_since,
            );
            let stored = secret.as_ref().and_then(|secret| Stored::read(secret).ok());
            let step = match (step, &stored) {
                (Step::Wait(wake), Some(stored)) => self.shared_step(stored, circumstances, wake),
                (step, _) => step,
            };
            let wake = match step {
                Step::Wait(wake) => wake,
                Step::Stage(_) | Step::KeyPaths | Step::StagePaths if !circumstances.may_stage => {
                    None
                }
                step => {
                    let wanted = self.after(step, secret.as_ref(), stored, circumstances)?;
                    self.write(step, secret.as_ref(), &wanted).await?;
                    continue;
                }
            };
            if let Some(stored) = stored {
                let (callers, now) = (circumstances.callers, circumstances.now);
                callers.merge(&stored.callers, now);
                self.metrics.callers_known(callers.count(now));
                self.held = Some(stored.active.clone());
                self.held_paths.clone_from(&stored.paths);
                return Ok((stored, wake));
            }
        }
        Err(Error::Contended {
            namespace: self.home.namespace.clone(),
            name: self.home.name.clone(),
        })
    }

    fn shared_step(
        &self,
        stored: &Stored,
        circumstances: &Circumstances<'_>,
        wake: Option<Timestamp>,
    ) -> Step {
        let Some(started) = circumstances.started else {
            return Step::Wait(wake);
        };
        let times = (started, circumstances.now);
        next_shared_step(stored, &self.policy, circumstances.callers, times, wake)
    }

    /// Returns the content of the Secret after `step`.
    fn after(
        &self,
        step: Step,
        secret: Option<&Secret>,
        stored: Option<Stored>,
        circumstances: &Circumstances<'_>,
    ) -> Result<Stored, Error> {
        let now = circumstances.now;
        let Some(mut stored) = stored.filter(|_| !matches!(step, Step::Replace(_))) else {
            return self.replacement(secret, now);
        };
        match step {
            Step::Stage(_) => {
                stored.next = Some(Arc::new(self.generate(now)?));
                // The key of the paths follows.
                if stored
                    .paths
                    .as_ref()
                    .is_some_and(|paths| paths.next.is_none())
                {
                    stored.paths_at = None;
                }
                stored.rotated.clone_from(&stored.rotate);
            }
            Step::Promote => {
                if let Some(next) = stored.next.take() {
                    let old = std::mem::replace(&mut stored.active, next);
                    stored.previous.push(old.certificate.clone());
                    stored.promoted_at = Some(now);
                }
            }
            Step::KeyPaths => {
                let held = self.held_paths.clone();
                stored.paths = Some(held.map_or_else(new_keys, Ok)?);
                stored.paths_at = Some(now);
            }
            Step::StagePaths | Step::PromotePaths | Step::ForgetPaths => {
                if let Some(paths) = &mut stored.paths {
                    exchange(paths, step)?;
                }
                // The instant of the last change of the active key; the removal of the previous key does
                // not count.
                if step != Step::ForgetPaths {
                    stored.paths_at = Some(now);
                }
            }
            Step::Callers => {
                if let Some(callers) = circumstances.callers.to_share(&stored.callers, now) {
                    stored.callers = callers;
                }
            }
            Step::Remember => {
                if let (Some(paths), Some(held)) = (&mut stored.paths, &self.held_paths)
                    && !paths.contains(&held.active)
                {
                    paths.previous = Some(held.active.clone());
                    stored.paths_at = Some(now);
                }
                stored
                    .previous
                    .extend(circumstances.serving.map(str::to_owned));
                stored.promoted_at = Some(now);
            }
            Step::Forget => {
                stored.previous.clear();
                stored.promoted_at = None;
            }
            Step::Wait(_) | Step::Replace(_) => {}
        }
        Ok(stored)
    }

    fn replacement(&self, secret: Option<&Secret>, now: Timestamp) -> Result<Stored, Error> {
        let good = self.held.clone().filter(|held| now < held.until);
        let active = match good {
            Some(held) => held,
            None => Arc::new(self.generate(now)?),
        };
        let previous: Vec<_> = secret
            .into_iter()
            .flat_map(|secret| salvage(secret, now))
            .filter(|pem| *pem != active.certificate)
            .collect();
        // As with the authority, the keys in use take precedence over keys that another writer stored.
        let kept = self
            .held_paths
            .clone()
            .or_else(|| secret.and_then(path_keys));
        let paths = kept.map_or_else(new_keys, Ok)?;
        let mut stored = Stored::new(active, Some(paths));
        stored.paths_at = Some(now);
        stored.promoted_at = (!previous.is_empty()).then_some(now);
        stored.previous = previous;
        Ok(stored)
    }

    fn generate(&self, now: Timestamp) -> Result<Authority, Error> {
        Ok(Authority::generate(
            &self.home.fingerprint,
            now,
            self.policy.ca_life,
        )?)
    }

    async fn write(&self, step: Step, base: Option<&Secret>, wanted: &Stored) -> Result<(), Error> {
        let secret = wanted.write(base, &self.home);
        let parameters = PostParams {
            field_manager: Some(self.home.fingerprint.clone()),
            ..PostParams::default()
        };
        let outcome = match base {
            None => self.api.create(&parameters, &secret).await,
            Some(base) if base.immutable == Some(true) => {
                self.make_again(base, &parameters, secret).await
            }
            Some(_) => {
                self.api
                    .replace(&self.home.name, &parameters, &secret)
                    .await
            }
        };
        match outcome {
            Ok(_) => {
                tracing::info!(
                    ?step,
                    secret = self.home.name,
                    "changed the certificate authority"
                );
                self.metrics.rotation_step(step);
                Ok(())
            }
            // Another replica was faster, or the Secret was deleted during the write: read again.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(source) => Err(self.failed("write", source)),
        }
    }

    /// Deletes an immutable Secret, with preconditions as read, and creates it again.
    async fn make_again(
        &self,
        base: &Secret,
        parameters: &PostParams,
        mut secret: Secret,
    ) -> Result<Secret, kube::Error> {
        let delete = DeleteParams {
            preconditions: Some(Preconditions {
                uid: base.metadata.uid.clone(),
                resource_version: base.metadata.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        self.api.delete(&self.home.name, &delete).await?;
        secret.immutable = None;
        secret.metadata = ObjectMeta {
            name: secret.metadata.name.take(),
            namespace: secret.metadata.namespace.take(),
            labels: secret.metadata.labels.take(),
            annotations: secret.metadata.annotations.take(),
            ..ObjectMeta::default()
        };
        self.api.create(parameters, &secret).await
    }

    fn failed(&self, verb: &'static str, source: kube::Error) -> Error {
        Error::Api {
            verb,
            namespace: self.home.namespace.clone(),
            name: self.home.name.clone(),
            source: Box::new(source),
        }
    }
}

fn exchange(paths: &mut PathKeys, step: Step) -> Result<(), authority::Error> {
    match step {
        Step::StagePaths => paths.next = Some(generate_key()?),
        Step::PromotePaths => paths.promote(),
        _ => paths.previous = None,
    }
    Ok(())
}

fn generate_key() -> Result<PathKey, authority::Error> {
    Ok(PathKey::generate()?)
}

fn new_keys() -> Result<PathKeys, authority::Error> {
    Ok(PathKeys::new(generate_key()?))
}
