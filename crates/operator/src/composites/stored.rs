//! The dry runs that show whether an application would change a child: once per process for each version of the child.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use oz_composites::stored::Doubt;
use oz_core::controller::Failure;
use oz_engine::Cx;
use oz_runtime::within;
use parking_lot::Mutex;

/// The field manager of the fields that composites write.
pub(super) const FIELD_MANAGER: &str = "oz/composite";

/// The maximum number of results in memory.
const MANY: usize = 10_000;

/// The results of dry runs by UID of the child, each with the hash of the desired and the existing content.
#[derive(Default)]
pub(super) struct DryRuns(Mutex<HashMap<String, (u64, bool)>>);

fn hash(doubt: &Doubt) -> u64 {
    let mut hasher = DefaultHasher::new();
    doubt.child.object.data.to_string().hash(&mut hasher);
    doubt.live.object.data.to_string().hash(&mut hasher);
    hasher.finish()
}

impl DryRuns {
    /// Returns whether an application would not change a child. If the dry run fails, the application follows.
    pub(super) async fn is_stored(&self, cx: &Cx, doubt: &Doubt) -> bool {
        let Some(uid) = doubt.live.object.metadata.uid.clone() else {
            return false;
        };
        let hash = hash(doubt);
        let known = self.0.lock().get(&uid).copied();
        if let Some((_, unchanged)) = known.filter(|(known, _)| *known == hash) {
            return unchanged;
        }
        let applied = dry_run(cx, doubt).await;
        let unchanged = applied.is_ok_and(|applied| doubt.is_unchanged(&applied));
        let mut known = self.0.lock();
        if known.len() >= MANY {
            known.clear();
        }
        known.insert(uid, (hash, unchanged));
        unchanged
    }
}

async fn dry_run(cx: &Cx, doubt: &Doubt) -> Result<DynamicObject, Failure> {
    let (child, live) = (&doubt.child, &doubt.live);
    let key = child.key();
    let mut desired = child.object.clone();
    desired.metadata.uid.clone_from(&live.object.metadata.uid);
    desired.metadata.resource_version = None;
    desired.metadata.managed_fields = None;
    let api: Api<DynamicObject> = match &key.namespace {
        Some(namespace) => Api::namespaced_with(cx.client().clone(), namespace, &child.resource),
        None => Api::all_with(cx.client().clone(), &child.resource),
    };
    let parameters = PatchParams::apply(FIELD_MANAGER).force().dry_run();
    let name = key.name()?;
    let what = || format!("failed to apply {key} as a dry run");
    let patch = Patch::Apply(&desired);
    let applied = api.patch(name.as_str(), &parameters, &patch);
    within(applied, what).await.map_err(oz_engine::of_call)
}
