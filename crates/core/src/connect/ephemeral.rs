//! Containers that an update of `pods/ephemeralcontainers` adds.
//! See <https://kubernetes.io/docs/concepts/workloads/pods/ephemeral-containers/>.

use serde_json::Value;

/// A container that is added to a running pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedContainer {
    /// Name of the container.
    pub name: String,
    /// Image that the container runs.
    pub image: String,
    /// The container of which it sees the processes; empty if none is named.
    pub target: String,
    /// The command and its arguments, as far as they are specified; the image defines the others.
    pub argv: Vec<String>,
    /// Whether the container has a terminal.
    pub tty: bool,
    /// Whether the container has standard input.
    pub stdin: bool,
}

/// Returns the containers that the pod has in `new` and not in `old`.
#[must_use]
pub fn added(old: &Value, new: &Value) -> Vec<AddedContainer> {
    let of = |pod: &Value| {
        let list = pod["spec"]["ephemeralContainers"].as_array();
        list.into_iter().flatten().cloned().collect::<Vec<_>>()
    };
    let before = of(old);
    let is_new = |one: &Value| !before.iter().any(|known| known["name"] == one["name"]);
    let added = of(new).into_iter().filter(is_new);
    added.map(|one| read(&one)).collect()
}

fn read(container: &Value) -> AddedContainer {
    let text = |field: &str| container[field].as_str().unwrap_or_default().to_owned();
    let words = |field: &str| {
        let words = container[field].as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(ToOwned::to_owned))
    };
    AddedContainer {
        name: text("name"),
        image: text("image"),
        target: text("targetContainerName"),
        argv: words("command").chain(words("args")).collect(),
        tty: container["tty"] == true,
        stdin: container["stdin"] == true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn existing_ephemeral_container_is_not_reported_as_added() {
        let one = json!({"name": "a", "image": "x"});
        let two = json!({
            "name": "b", "image": "y", "targetContainerName": "app", "command": ["sh"], "args": ["-c", "id"],
            "stdin": true,
        });
        let old = json!({"spec": {"ephemeralContainers": [one]}});
        let new = json!({"spec": {"ephemeralContainers": [one, two]}});
        let found = added(&old, &new);
        let expected = AddedContainer {
            name: "b".into(),
            image: "y".into(),
            target: "app".into(),
            argv: ["sh", "-c", "id"].map(Into::into).into(),
            tty: false,
            stdin: true,
        };
        assert_eq!(found, [expected]);
        assert!(added(&new, &new).is_empty());
        assert_eq!(added(&Value::Null, &new).len(), 2);
        assert!(added(&old, &Value::Null).is_empty());
    }
}
