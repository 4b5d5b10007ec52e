//! The pod that reads a transcript, and the order of runs on a workspace.

use oz_api::harness::{HarnessRun, Workspace};
use oz_runs::queue::{ahead, workspace_of};
use oz_runs::reader::{Program, Reading, Unreadable, allowed, pod};
use serde_json::{Value, json};

use crate::world::restricted;

fn reading<'a>(run: &'a str, file: &'a str, program: Program<'a>) -> Reading<'a> {
    Reading {
        namespace: "birds",
        run,
        workspace: "cage",
        file,
        program,
        deadline_seconds: 60,
    }
}

#[test]
fn a_reader_is_restricted_has_no_token_and_sees_one_folder_read_only() {
    let read = |program| pod(&reading("squawk", "events.jsonl", program)).unwrap();
    let own = read(Program::Own("oz-harness:1"));
    assert_eq!(restricted(&own), Vec::<String>::new());
    let spec = &own["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["activeDeadlineSeconds"], 60);
    assert_eq!(spec["restartPolicy"], "Never");
    let container = &spec["containers"][0];
    assert_eq!(
        container["volumeMounts"],
        json!([{
            "name": "workspace", "mountPath": "/transcript", "readOnly": true,
            "subPath": ".paddock/runs/squawk",
        }])
    );
    assert_eq!(
        spec["volumes"],
        json!([{
            "name": "workspace",
            "persistentVolumeClaim": {"claimName": "ws-cage", "readOnly": true},
        }])
    );
    let words = |pod: &Value| pod["spec"]["containers"][0]["command"].clone();
    assert_eq!(
        words(&own),
        json!(["/oz-harness", "cat", "--", "/transcript/events.jsonl"])
    );
    let other = read(Program::Cat("busybox@sha256:0"));
    assert_eq!(
        words(&other),
        json!(["cat", "--", "/transcript/events.jsonl"])
    );
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    // No NetworkPolicy of a run, and no Job, takes it for theirs.
    assert_eq!(
        own["metadata"]["labels"],
        json!({"paddock.dev/reader-of": "squawk"})
    );
}

#[test]
fn a_reader_leaves_the_transcript_by_no_name() {
    for file in [
        "",
        ".",
        "..",
        "/etc/passwd",
        "a/../../b",
        "a//b",
        "a/",
        "../x",
        "./a",
        "a\0",
    ] {
        let refused = pod(&reading("squawk", file, Program::Own("i"))).unwrap_err();
        assert_eq!(refused, Unreadable::File(file.to_owned()));
    }
    for run in ["", "..", "a/b"] {
        let refused = pod(&reading(run, "result.json", Program::Own("i"))).unwrap_err();
        assert_eq!(refused, Unreadable::Run(run.to_owned()));
    }
    for file in ["result.json", "artifacts/report.md", "-n", "..."] {
        assert!(
            pod(&reading("squawk", file, Program::Own("i"))).is_ok(),
            "{file}"
        );
    }
}

#[test]
fn a_readers_name_fits_however_long_the_runs_is() {
    for run in [
        "a".repeat(63),
        format!("{}.b", "a".repeat(47)),
        "b".to_owned(),
    ] {
        let made = pod(&reading(&run, "result.json", Program::Own("i"))).unwrap();
        let name = made["metadata"]["generateName"].as_str().unwrap();
        // The API server adds five letters.
        assert!(name.len() + 5 <= 63, "{name}");
        assert!(!name.contains(".-") && !name.contains("--"), "{name}");
    }
}

#[test]
fn an_image_of_others_is_pinned_or_allowed() {
    let pinned = format!("example.com/cat@sha256:{}", "0a".repeat(32));
    let prefixes = ["example.org/".to_owned(), String::new()];
    for (image, is_allowed) in [
        (pinned.as_str(), true),
        ("example.org/cat:1", true),
        ("example.com/cat:1", false),
        ("example.com/cat@sha256:0a", false),
        ("", false),
    ] {
        assert_eq!(allowed(image, &prefixes).is_ok(), is_allowed, "{image}");
    }
}

/// A run that waits for its workspace.
fn run(name: &str, second: u32, workspace: Option<&str>, phase: Option<&str>) -> HarnessRun {
    let busy = json!({
        "type": "WorkspaceBound", "status": "False", "reason": "WorkspaceBusy", "message": "",
        "lastTransitionTime": "2026-01-31T09:00:00Z",
    });
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": format!("2026-01-31T09:00:{second:02}Z")},
        "spec": {"templateRef": {"name": "parrot"}, "prompt": "hi", "workspaceRef": workspace},
        "status": phase.map(|phase| json!({"phase": phase, "conditions": [busy]})),
    }))
    .unwrap()
}

#[test]
fn before_a_run_are_the_older_ones_of_its_workspace_that_are_not_over() {
    let cage = Some("cage");
    let mut going = run("going", 1, cage, None);
    going.metadata.deletion_timestamp = going.metadata.creation_timestamp.clone();
    let all = [
        run("late", 9, cage, None),
        run("b", 3, cage, Some("Pending")),
        run("a", 3, cage, Some("Running")),
        run("first", 2, cage, Some("Pending")),
        run("over", 1, cage, Some("Failed")),
        run("elsewhere", 1, Some("other"), None),
        run("alone", 1, None, None),
        going,
    ];
    let shared = json!({"metadata": {"name": "cage"}, "spec": {"storage": {"size": "1Gi"}}});
    let shared: Workspace = serde_json::from_value(shared).unwrap();
    let names = |run| -> Vec<&str> {
        let ahead = ahead(&shared, run, &all);
        let names = ahead.into_iter();
        names
            .filter_map(|run| run.metadata.name.as_deref())
            .collect()
    };
    assert_eq!(names(&all[1]), ["first", "a"]);
    assert_eq!(names(&all[3]), Vec::<&str>::new());
    assert_eq!(names(&all[6]), Vec::<&str>::new());
    assert_eq!(workspace_of(&all[1]).as_deref(), Some("cage"));
    assert_eq!(workspace_of(&all[6]).as_deref(), Some("alone-ws"));
}
