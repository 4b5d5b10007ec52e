//! Reconciling, on the leader only: every pod gets an annotation.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{Controller, controller::Action, watcher},
};
use oz_admission::{CancellationToken, Cx, Task, TaskError};
use serde_json::json;

pub const ANNOTATION: &str = "example.com/seen";

pub struct Annotator {
    pub namespace: String,
}

impl Task for Annotator {
    async fn run(&self, cx: &Cx, stop: CancellationToken) -> Result<(), TaskError> {
        let pods = Api::<Pod>::namespaced(cx.client.clone(), &self.namespace);
        Controller::new(pods, watcher::Config::default())
            .graceful_shutdown_on(stop.cancelled_owned())
            .run(annotate, on_error, Arc::new(cx.client.clone()))
            .for_each(|_| async {})
            .await;
        Ok(())
    }
}

async fn annotate(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
    if !pod.annotations().contains_key(ANNOTATION) {
        let pods =
            Api::<Pod>::namespaced(Client::clone(&client), &pod.namespace().unwrap_or_default());
        let patch = json!({"metadata": {"annotations": {ANNOTATION: "yes"}}});
        pods.patch(
            &pod.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await?;
    }
    Ok(Action::await_change())
}

fn on_error(_: Arc<Pod>, _: &kube::Error, _: Arc<Client>) -> Action {
    Action::requeue(Duration::from_secs(1))
}
