//! The locked users and objects, and how a user locks and unlocks.

use serde_json::{Value, json};

use crate::output::{run_commands, shows};
use crate::shop::{self, from_now};
use crate::stub::{Answer, ReceivedRequest, Stub, status};

const GROUP: &str = "crds.wizardofoz.co/v1alpha1";

fn lock(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": GROUP, "kind": "AccessLock",
        "metadata": {"name": name, "uid": name, "creationTimestamp": from_now(-3600)},
        "spec": spec,
    })
}

fn locks() -> Vec<Value> {
    let hours = 3600;
    vec![
        lock(
            "devs-freeze",
            &json!({
                "target": {"group": "devs"}, "reason": "freeze", "exceptEmergency": true,
                "until": from_now(5 * hours + 30),
            }),
        ),
        lock(
            "laptop",
            &json!({"target": {"user": "mallory"}, "reason": "stolen \u{1b}[2J laptop"}),
        ),
        lock(
            "past",
            &json!({
                "target": {"template": {"namespace": "shop", "name": "shell"}}, "reason": "wrong",
                "until": from_now(-60),
            }),
        ),
    ]
}

/// Answers as to a user who may lock, but may not remove a lock on themselves.
fn answer(asked: &ReceivedRequest) -> Answer {
    let (method, path) = asked.what.split_once(' ').unwrap_or_default();
    let prefix = "/apis/crds.wizardofoz.co/v1alpha1/accesslocks";
    let Some(name) = path.strip_prefix(prefix) else {
        return shop::answer(asked);
    };
    let name = name.trim_start_matches('/');
    let found = locks()
        .into_iter()
        .find(|lock| lock["metadata"]["name"] == name);
    match (method, found) {
        ("GET", _) if name.is_empty() => (
            200,
            json!({
                "apiVersion": GROUP, "kind": "AccessLockList", "metadata": {"resourceVersion": "8"},
                "items": locks(),
            }),
        ),
        ("GET", Some(lock)) => (200, lock),
        ("DELETE", Some(lock)) if name != "devs-freeze" => (200, lock),
        ("DELETE", Some(_)) => status(403, "whom a lock names does not change or remove it"),
        ("POST", _) => {
            let mut made = asked.body.clone();
            let prefix = made["metadata"]["generateName"]
                .as_str()
                .unwrap()
                .to_owned();
            made["metadata"] = json!({"name": format!("{prefix}x7k2p")});
            (201, made)
        }
        _ => status(404, &format!("accesslocks \"{name}\" not found")),
    }
}

#[test]
fn locks_are_created_listed_and_removed() {
    let lines = [
        "locks",
        "locks -o wide",
        "locks -o name",
        "lock user alice@example.com --reason INC-42",
        "lock group devs --reason INC-42 --for 8h --except-emergency",
        "lock namespace shop --reason INC-42 --until 2099-01-01T00:00:00Z",
        "lock template shell --reason INC-42",
        "lock user alice",
        "lock user alice --reason INC-42 --for=-1h",
        "lock user alice --reason INC-42 --for 1h --until 2099-01-01T00:00:00Z",
        "lock pod web-0 --reason INC-42",
        "unlock laptop",
        "unlock devs-freeze",
        "unlock nothing",
        "unlock ../pods",
    ];
    shows(&run_commands(&Stub::start(answer), &lines), "locks");
}

#[test]
fn the_json_of_locks_is_that_of_the_api() {
    let said = run_commands(&Stub::start(answer), &["locks -o json"]);
    let json: Value = serde_json::from_str(said.split_once('\n').unwrap().1).unwrap();
    assert_eq!(json["items"].as_array().unwrap().len(), 3);
    assert_eq!(json["items"][0]["spec"]["target"], json!({"group": "devs"}));
    assert_eq!(json["items"][0]["kind"], "AccessLock");
}

#[test]
fn nothing_is_locked() {
    let said = run_commands(&shop::open(), &["locks"]);
    assert!(said.contains("Nothing is locked."), "{said}");
}

#[test]
fn explain_names_lock_that_blocks_user() {
    let said = run_commands(
        &Stub::start(answer),
        &["explain --template shell --user alice --group devs"],
    );
    assert!(
        said.contains("group devs is locked by AccessLock devs-freeze"),
        "{said}"
    );
}
