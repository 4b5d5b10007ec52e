//! Containers of a running pod that would run another image: the pod and its UID stay, and the code in it is
//! exchanged.

use std::collections::BTreeMap;

use serde_json::Value;

/// The maximum number of changes that are listed; the others are only counted.
const NAMED: usize = 4;

/// Returns the changes, each as `container: before -> after`, for containers that a running pod can change.
#[must_use]
pub fn changed(old: &Value, new: &Value) -> Vec<String> {
    let (old, new) = (images(old), images(new));
    let names: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let image = |images: &BTreeMap<_, String>, name| images.get(name).cloned().unwrap_or_default();
    names
        .into_iter()
        .map(|name| (name, image(&old, name), image(&new, name)))
        .filter(|(_, before, after)| before != after)
        .map(|((_, container), before, after)| format!("{container}: {before} -> {after}"))
        .collect()
}

/// Summarizes the changes in one bounded line.
#[must_use]
pub fn summary(changes: &[String]) -> String {
    let named = changes.iter().take(NAMED).cloned().collect::<Vec<_>>();
    match changes.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{}, and {more} more", named.join(", ")),
    }
}

fn images(pod: &Value) -> BTreeMap<(&'static str, String), String> {
    let of = |list: &'static str| {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.map(move |container| {
            let text = |field: &str| container[field].as_str().unwrap_or_default().to_owned();
            ((list, text("name")), text("image"))
        })
    };
    of("containers").chain(of("initContainers")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(image: &str, init: &str) -> Value {
        json!({ "spec": {
            "containers": [{ "name": "app", "image": image }, { "name": "side", "image": "side:1" }],
            "initContainers": [{ "name": "app", "image": init }],
        } })
    }

    #[test]
    fn images_are_compared_by_container() {
        let old = pod("web:1", "init:1");
        assert!(changed(&old, &old).is_empty());
        assert_eq!(
            changed(&old, &pod("web:2", "init:1")),
            ["app: web:1 -> web:2"]
        );
        assert_eq!(
            changed(&old, &pod("web:1", "init:2")),
            ["app: init:1 -> init:2"]
        );
        let mut labelled = old.clone();
        labelled["metadata"] = json!({ "labels": { "a": "b" } });
        assert!(changed(&old, &labelled).is_empty());
        assert!(!changed(&old, &json!(null)).is_empty());
    }

    #[test]
    fn a_summary_is_bounded() {
        let many: Vec<String> = (0..1000).map(|number| format!("c{number}")).collect();
        assert_eq!(summary(&many), "c0, c1, c2, c3, and 996 more");
        assert_eq!(summary(&many[..1]), "c0");
    }
}
