//! Watching: prints the changes of pods.
#![allow(clippy::print_stdout)]

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use oz_admission::{Cx, Replay, Watch, WatchEvent, Watcher};

use super::Arguments;

pub struct PodDiary;

impl Watch for PodDiary {
    type Object = Pod;

    async fn on_event(&self, _: &Cx, event: WatchEvent<Pod>) {
        let what = match &event {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
        };
        println!("{what} {}", event.object().name_any());
    }
}

pub fn watcher(arguments: &Arguments) -> Watcher {
    Watcher::in_namespace(
        "pod-diary",
        &arguments.namespace,
        Replay::Existing,
        PodDiary,
    )
}
