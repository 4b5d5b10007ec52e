use serde_json::json;

use super::*;

const POLICY: &str = r#"package controller

children contains {
    "apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"name": name}, "data": {"value": input.parent.spec.value},
} if {
    some name in data.fleet.names
}

children contains {
    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "until"},
} if {
    time.now_ns() < time.parse_rfc3339_ns(input.parent.spec.until)
}
"#;

/// Returns the manifests of a RegoController, and of the ConfigMap of its policy.
fn manifests(names: &str) -> Manifests {
    let rego = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "RegoController",
        "metadata": {"name": "fleets"},
        "spec": {
            "parent": {"apiVersion": "test.example.org/v1", "resource": "fleets"},
            "children": [{"apiVersion": "v1", "resource": "configmaps"}],
            "policy": {"configMapRef": {"namespace": "ops", "name": "fleets", "key": "policy"}},
            "runAs": {"namespace": "oz-system", "serviceAccount": "oz-composites"},
        },
    });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "fleets", "namespace": "ops"},
        "data": {"policy": POLICY, "fleet.yaml": format!("fleet: {{names: {names}}}")},
    });
    let mut manifests = Manifests::default();
    let text = format!("{rego}\n---\n{map}\n---\n# nothing\n");
    manifests.add("fleets.yaml", &text, "default").unwrap();
    manifests
}

fn parents() -> Vec<DynamicObject> {
    let parent = json!({
        "apiVersion": "test.example.org/v1", "kind": "Fleet",
        "metadata": {"name": "one", "namespace": "shop", "uid": "parent"},
        "spec": {"value": "y", "until": "2026-01-31T12:00:00Z"},
    });
    objects("parent.yaml", &parent.to_string()).unwrap()
}

/// Returns a child of the parent, as the API server stores it.
fn child(name: &str) -> DynamicObject {
    let child = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 2,
            "labels": {"controller-uid": "parent"},
            "ownerReferences": [{
                "apiVersion": "test.example.org/v1", "kind": "Fleet", "name": "one",
                "uid": "parent", "controller": true,
            }],
        },
        "data": {"value": "x"},
    });
    serde_json::from_value(child).unwrap()
}

async fn planned(names: &str, children: Vec<DynamicObject>) -> Planned {
    let wanted = Wanted {
        manifests: manifests(names),
        objects: Some(Objects {
            parents: parents(),
            children,
        }),
        namespaces: Vec::new(),
        everywhere: true,
        at: "2026-01-31T11:00:00Z".parse().unwrap(),
        hook_address: None,
    };
    plan(None, &wanted).await.unwrap().pop().unwrap()
}

#[tokio::test]
async fn plan_without_cluster_has_changes_now_and_later() {
    let planned = planned("[a, b]", vec![child("b"), child("c")]).await;
    let parent = &planned.parents[0];
    assert_eq!(parent.obstacle, None);
    let mut changes: Vec<_> = parent
        .changes
        .iter()
        .map(|change| (change.kind, change.name.as_str()))
        .collect();
    changes.sort_by_key(|(_, name)| *name);
    assert_eq!(
        changes,
        [
            (Kind::Create, "a"),
            (Kind::Change, "b"),
            (Kind::Delete, "c"),
            (Kind::Create, "until"),
        ]
    );
    let changed = parent.changes.iter().find(|change| change.name == "b");
    let changed = &changed.unwrap().fields;
    let value = Field {
        path: "data.value".to_owned(),
        from: Some(json!("x")),
        to: Some(json!("y")),
    };
    assert!(changed.contains(&value), "{changed:?}");
    let later: Vec<_> = parent
        .later
        .iter()
        .map(|moment| (moment.at, &moment.go))
        .collect();
    let until: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
    assert_eq!(later, [(until, &vec!["ConfigMap until".to_owned()])]);
    assert!(planned.has_changes() && !planned.has_obstacles());
}

/// Returns the plan of a RegoController without a policy, which deletes its parents at their end.
async fn planned_end(at: &str) -> Planned {
    let rego = json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "RegoController",
        "metadata": {"name": "fleets"},
        "spec": {
            "parent": {"apiVersion": "test.example.org/v1", "resource": "fleets"},
            "window": {"until": ".spec.until", "then": "Delete"},
            "runAs": {"namespace": "oz-system", "serviceAccount": "oz-composites"},
        },
    });
    let mut manifests = Manifests::default();
    manifests
        .add("fleets.yaml", &rego.to_string(), "default")
        .unwrap();
    let wanted = Wanted {
        manifests,
        objects: Some(Objects {
            parents: parents(),
            children: Vec::new(),
        }),
        namespaces: Vec::new(),
        everywhere: true,
        at: at.parse().unwrap(),
        hook_address: None,
    };
    plan(None, &wanted).await.unwrap().pop().unwrap()
}

#[tokio::test]
async fn plan_shows_the_deletion_of_the_parent_at_its_end() {
    let until = "2026-01-31T12:00:00Z";
    let planned = planned_end("2026-01-31T11:00:00Z").await;
    let parent = &planned.parents[0];
    assert_eq!((parent.changes.len(), &parent.obstacle), (0, &None));
    let later: Vec<_> = parent.later.iter().map(|it| (it.at, &it.go)).collect();
    let gone = vec!["Fleet shop/one".to_owned()];
    assert_eq!(later, [(until.parse().unwrap(), &gone)]);
    let planned = planned_end(until).await;
    let parent = &planned.parents[0];
    let changes: Vec<_> = parent
        .changes
        .iter()
        .map(|change| (change.kind, &change.object_kind[..], &change.name[..]))
        .collect();
    assert_eq!(changes, [(Kind::Delete, "Fleet", "one")]);
    assert!(parent.later.is_empty());
}

#[tokio::test]
async fn plan_of_policy_that_does_not_compile_is_an_obstacle() {
    let planned = planned("[a", vec![child("a")]).await;
    let parent = &planned.parents[0];
    let obstacle = parent.obstacle.as_deref().unwrap();
    assert!(obstacle.contains("fleets/fleet.yaml"), "{obstacle}");
    assert!(parent.changes.is_empty(), "{:?}", parent.changes);
}

#[test]
fn document_that_is_no_manifest_is_refused() {
    let mut manifests = Manifests::default();
    let error = manifests.add("a.yaml", "a: 1", "default").unwrap_err();
    assert!(error.message().starts_with("a.yaml: "), "{error:?}");
}
