//! A cache of rendered pods: many users request access by one template, and each of their requests is
//! reconciled repeatedly. The cache has no other effect: it returns the result of [`render`](super::render).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Model, MutateError, Rendered, render};
use crate::validate::AccessPod;

/// The maximum number of cached pods.
const KEPT: usize = 64;
/// The maximum size of all cached pods together, in bytes of JSON.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// The renderer of each pod once for a template and a generation of its workload. Cheap to clone; clones
/// share the cached pods.
#[derive(Clone, Debug, Default)]
pub struct RenderCache(Arc<Mutex<Kept>>);

/// The digest of the template's spec, and the source of the pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RenderKey {
    template: String,
    workload: Option<String>,
    access_modes: BTreeMap<String, Vec<String>>,
}

type RenderResult = Arc<Result<Rendered, MutateError>>;

#[derive(Debug, Default)]
struct Kept {
    pods: BTreeMap<RenderKey, RenderResult>,
    /// The cached pods, the oldest first.
    order: VecDeque<(RenderKey, usize)>,
    bytes: usize,
}

impl RenderCache {
    /// Renders a pod as [`render`] does; `template` is the digest of the spec to which `pod` belongs. A model
    /// without a version is rendered each time.
    #[must_use]
    pub fn render(&self, template: &str, pod: &AccessPod, model: Option<&Model>) -> RenderResult {
        let key = match model {
            Some(Model { version: None, .. }) => return Arc::new(render(pod, model)),
            model => RenderKey {
                template: template.to_owned(),
                workload: model.and_then(|model| model.version.clone()),
                access_modes: model.map_or_else(BTreeMap::new, |it| it.access_modes.clone()),
            },
        };
        let lock = || self.0.lock();
        if let Some(known) = lock().pods.get(&key) {
            return Arc::clone(known);
        }
        // Not under the lock: a caller for another pod does not wait for this one.
        let made = Arc::new(render(pod, model));
        lock().keep(key, Arc::clone(&made));
        made
    }
}

impl Kept {
    fn keep(&mut self, key: RenderKey, made: RenderResult) {
        let bytes = made.as_ref().as_ref().map_or(0, Rendered::bytes);
        if bytes > KEPT_BYTES || self.pods.insert(key.clone(), made).is_some() {
            return;
        }
        self.bytes += bytes;
        self.order.push_back((key, bytes));
        while self.order.len() > KEPT || self.bytes > KEPT_BYTES {
            let Some((oldest, bytes)) = self.order.pop_front() else {
                break;
            };
            self.pods.remove(&oldest);
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mutate::tests::{access_pod, model, plain};

    fn versioned(version: &str) -> Model {
        Model {
            version: Some(version.to_owned()),
            ..model(plain())
        }
    }

    #[test]
    fn a_pod_is_rendered_once_for_each_template_and_generation_of_the_workload() {
        let cache = RenderCache::default();
        let pod = access_pod(json!({}));
        let (one, two) = (versioned("uid/1"), versioned("uid/2"));
        let mut claimed = one.clone();
        claimed
            .access_modes
            .insert("data".into(), vec!["RWO".into()]);
        let first = cache.render("a", &pod, Some(&one));
        assert!(Arc::ptr_eq(&first, &cache.render("a", &pod, Some(&one))));
        for (template, model) in [("b", &one), ("a", &two), ("a", &claimed)] {
            let other = cache.render(template, &pod, Some(model));
            assert!(!Arc::ptr_eq(&first, &other));
        }
        let unknown = model(plain());
        let each = || cache.render("a", &pod, Some(&unknown));
        assert!(!Arc::ptr_eq(&each(), &each()));
        assert_eq!(each(), first);
    }

    #[test]
    fn failed_rendering_is_cached() {
        let cache = RenderCache::default();
        let pod = access_pod(json!({"defaultContainerName": "none"}));
        let failed = || cache.render("a", &pod, Some(&versioned("uid/1")));
        assert!(failed().is_err() && Arc::ptr_eq(&failed(), &failed()));
    }

    #[test]
    fn little_is_kept() {
        let fat = json!({"podAnnotations": {"fat": "x".repeat(KEPT_BYTES / 4)}});
        for (mutation, many, most) in [(json!({}), 2 * KEPT, KEPT), (fat, 5, 3)] {
            let cache = RenderCache::default();
            let pod = access_pod(mutation);
            for number in 0..many {
                let _ = cache.render("a", &pod, Some(&versioned(&number.to_string())));
            }
            let kept = cache.0.lock();
            assert_eq!((kept.pods.len(), kept.order.len()), (most, most));
            assert!(kept.bytes <= KEPT_BYTES);
        }
    }
}
