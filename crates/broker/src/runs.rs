//! The run of a pod: from the watches, or from the API server if a watch has not delivered the object yet. The broker
//! watches the metadata of pods and Jobs, and the metadata and phases of runs; it does not watch prompts.

use axum::http::StatusCode;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject};
use kube::{Client, Resource};
use oz_api::harness::{HarnessRun, RunPhase};
use oz_api::names::SEAL_KEYS;
use oz_core::lifecycle::seal::{Keys, Owner as SealOwner};
use oz_runs::caller::{self, Caller, Owner, RunState};
use oz_runs::lending::Terms;
use oz_runs::pod::RUN_LABEL;
use oz_runtime::{CallError, Change, Feeds, Keep, Kind, Selection, Store, Subscription};

use crate::answer::Refused;
use crate::lean::{Lean, phase};
use crate::write::RunName;

/// The data of a run that a call of its pod requires.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) name: RunName,
    /// The number of events in the status of the run.
    pub(crate) recent_events: usize,
    pub(crate) standing: RunState,
    /// The metadata of the run's Job.
    job: ObjectMeta,
}

impl Run {
    /// Returns the name, without what else was read of the run.
    pub(crate) fn into_name(self) -> RunName {
        self.name
    }
}

/// The runs, by their pods.
pub(crate) struct Runs {
    client: Client,
    pods: Store<Lean<Pod>>,
    jobs: Store<Lean<Job>>,
    runs: Store<Lean<HarnessRun>>,
    /// The Secret with the operator's public keys, which verify vouchers.
    operator_keys: Store<Secret>,
}

impl Runs {
    /// Starts the watches.
    pub(crate) fn new(client: Client, feeds: &Feeds, namespace: &str) -> Self {
        fn kept<K>(feeds: &Feeds, selection: Selection) -> Store<Lean<K>>
        where
            K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
                + std::fmt::Debug
                + 'static,
        {
            feeds.store_of(&Kind::from_type::<K>(), selection, &Keep::default())
        }
        let labelled = || Selection::default().labels(RUN_LABEL).metadata_only();
        Self {
            client,
            pods: kept(feeds, labelled()),
            jobs: kept(feeds, labelled()),
            runs: kept(feeds, Selection::default()),
            operator_keys: feeds.store_in(
                &Kind::from_type::<Secret>(),
                namespace,
                Selection::with_name(SealOwner::Operator.public_keys()),
            ),
        }
    }

    /// Returns the run of the caller. A pod that is being deleted may report as long as its token is valid.
    pub(crate) async fn find(&self, caller: &Caller) -> Result<Run, Refused> {
        let space = caller.namespace.as_str();
        let pod = self
            .get_or_read(&self.pods, space, &caller.pod, &caller.uid)
            .await?;
        let owner = caller::job_of(caller, pod.as_ref().map(|it| &it.metadata))?;
        let job = self
            .get_or_read(&self.jobs, space, &owner.name, &owner.uid)
            .await?;
        let job = job.map(|it| it.metadata);
        let run_owner = caller::run_of(caller, &owner, job.as_ref(), &self.keys()?)?;
        caller::confined(caller, pod.as_ref().map(|it| &it.metadata), &run_owner)?;
        let run = self
            .get_or_read(&self.runs, space, &run_owner.name, &run_owner.uid)
            .await?;
        let run = run.as_ref().map(|it| (&it.metadata, it.phase));
        let standing = caller::standing(caller, &run_owner, run)?;
        let Owner { name, uid } = run_owner;
        Ok(Run {
            name: RunName {
                namespace: caller.namespace.clone(),
                name,
                uid,
            },
            recent_events: job.as_ref().map_or(0, caller::recent_events),
            standing,
            job: job.unwrap_or_default(),
        })
    }

    /// Returns the terms of a run, from the decision that the operator sealed into the run's Job.
    pub(crate) fn terms(&self, run: &Run) -> Result<Terms, Refused> {
        let RunName {
            namespace,
            name,
            uid,
        } = &run.name;
        Terms::open(&self.keys()?, &run.job, namespace, name, uid).map_err(|error| {
            let message =
                format!("failed to read the grants of harness run {namespace}/{name}: {error}");
            Refused::new(StatusCode::FORBIDDEN, "NoDecision", message)
        })
    }

    /// Checks whether a run has ended, by the watch alone. A run that the watch has not delivered yet is active.
    pub(crate) fn is_over(&self, run: &RunName) -> bool {
        let watched = self.runs.get(Some(&run.namespace), &run.name);
        let watched = watched.filter(|it| it.metadata.uid.as_deref() == Some(&run.uid));
        match watched {
            Some(found) => is_ending(&found),
            None => self.runs.is_gone(&run.uid),
        }
    }

    /// Checks at this moment that a run is live: by the watch, or by the API server if the watch has not delivered the
    /// run.
    pub(crate) async fn alive(&self, caller: &Caller, run: &RunName) -> Result<(), Refused> {
        let found = self
            .get_or_read(&self.runs, &run.namespace, &run.name, &run.uid)
            .await?;
        let owner = Owner {
            name: run.name.clone(),
            uid: run.uid.clone(),
        };
        let found = found.as_ref().map(|found| (&found.metadata, found.phase));
        match caller::standing(caller, &owner, found)? {
            RunState::Live => Ok(()),
            RunState::Ending => Err(caller::run_over(caller, &run.name).into()),
        }
    }

    /// Calls `wake` with the UID of each run that ends, and without one if the operator's keys change.
    pub(crate) fn subscribe(
        &self,
        wake: impl Fn(Option<&str>) + Clone + Send + Sync + 'static,
    ) -> [Subscription; 2] {
        let wake_all = wake.clone();
        [
            self.runs.subscribe(move |change| {
                let run = change.object();
                let is_gone = matches!(change, Change::Deleted(_));
                // Other changes, such as of reported events, do not change what the run may use.
                if is_gone || is_ending(run) {
                    wake(run.metadata.uid.as_deref());
                }
            }),
            self.operator_keys.subscribe(move |_| wake_all(None)),
        ]
    }

    /// Returns the keys that verify vouchers. As long as the operator has published no key, no Job is trusted.
    fn keys(&self) -> Result<Keys, Refused> {
        let operator = SealOwner::Operator;
        let secrets = self.operator_keys.objects();
        let data = secrets.first().and_then(|secret| secret.data.as_ref());
        let published = data.and_then(|data| data.get(SEAL_KEYS));
        let published = published.and_then(|keys| str::from_utf8(&keys.0).ok());
        let keys = Keys::default();
        let known = published.map(|published| keys.trust(operator, published));
        match known {
            Some(Ok(_)) => Ok(keys),
            _ => Err(Refused::busy(&format!(
                "Secret {} of oz's namespace has no keys yet, which the operator publishes there",
                operator.public_keys()
            ))),
        }
    }

    /// Returns the watched object with this UID; otherwise the object with this name from the API server.
    async fn get_or_read<K>(
        &self,
        store: &Store<Lean<K>>,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Option<Lean<K>>, Refused>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let watched = store.get(Some(namespace), name);
        if let Some(watched) = watched.filter(|it| it.metadata.uid.as_deref() == Some(uid)) {
            return Ok(Some(Lean::clone(&watched)));
        }
        let found = self.read::<K>(namespace, name).await?;
        Ok(found.map(|object| {
            let phase = phase_of(&object);
            Lean::new(object.metadata, phase)
        }))
    }

    async fn read<K>(&self, namespace: &str, name: &str) -> Result<Option<DynamicObject>, Refused>
    where
        K: Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<K>(&());
        let found = oz_runtime::get(&self.client, &resource, Some(namespace), name).await;
        found.map_err(|error: CallError| {
            tracing::warn!(%error, "failed to find the runs of pods");
            Refused::unavailable(&error)
        })
    }

    /// Returns the inline prompt of a live run, read at the time of the call: the broker reads prompts only here and
    /// stores none. There is no audit record of this: the pod gets the prompt of its run, and the submission of the run
    /// is recorded.
    pub(crate) async fn prompt(
        &self,
        caller: &Caller,
        run: &RunName,
    ) -> Result<Option<String>, Refused> {
        let found = self.read::<HarnessRun>(&run.namespace, &run.name).await?;
        let owner = Owner {
            name: run.name.clone(),
            uid: run.uid.clone(),
        };
        let phase: Option<RunPhase> = found.as_ref().and_then(phase_of);
        let metadata: Option<&ObjectMeta> = found.as_ref().map(|object| &object.metadata);
        match caller::standing(caller, &owner, metadata.map(|it| (it, phase)))? {
            RunState::Live => {}
            RunState::Ending => return Err(caller::run_over(caller, &run.name).into()),
        }
        let mut found = found.map(|object| object.data);
        let prompt = found.as_mut().and_then(|it| it.pointer_mut("/spec/prompt"));
        Ok(match prompt.map(serde_json::Value::take) {
            Some(serde_json::Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        })
    }
}

fn is_ending(run: &Lean<HarnessRun>) -> bool {
    run.phase.is_some_and(RunPhase::is_terminal) || run.metadata.deletion_timestamp.is_some()
}

fn phase_of(object: &DynamicObject) -> Option<RunPhase> {
    phase(object.data.pointer("/status/phase")?.as_str()?)
}
