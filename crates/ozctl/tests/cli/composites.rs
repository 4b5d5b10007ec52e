//! `ozctl composites`, and `ozctl explain` of an object that a composite reconciles.

use serde_json::{Value, json};

use crate::output::{run_commands, shows};
use crate::shop::{self, from_now};
use crate::stub::{Answer, ReceivedRequest, Stub, status};

const UID: &str = "f1";

const POLICY: &str = "\
package fleets

children[child] {
	time.now_ns() < time.parse_rfc3339_ns(input.parent.spec.validUntil)
	name := input.parent.spec.names[_]
	child := {
		\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\",
		\"metadata\": {\"name\": name}, \"data\": {\"value\": input.parent.spec.value},
	}
}

status := {\"phase\": phase}
phase := \"Late\" { time.now_ns() >= time.parse_rfc3339_ns(input.parent.spec.lateFrom) }
phase := \"Early\" { time.now_ns() < time.parse_rfc3339_ns(input.parent.spec.lateFrom) }
";

fn composite(name: &str, resource: &str, url: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": name, "uid": name},
        "spec": {
            "parentResource": {"apiVersion": "example.org/v1", "resource": resource},
            "childResources": [{
                "apiVersion": "v1", "resource": "configmaps", "updateStrategy": {"method": "InPlace"},
            }],
            "generateSelector": true,
            "hooks": {"sync": {"webhook": {"url": url}}},
        },
        "status": status,
    })
}

fn condition(type_: &str, holds: bool, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": if holds { "True" } else { "False" }, "reason": reason,
        "message": message, "lastTransitionTime": from_now(-900),
    })
}

fn runs() -> Value {
    json!({
        "account": "oz-system/oz-composites",
        "conditions": [
            condition("Accepted", true, "Accepted", "the composite is accepted"),
            condition("Permitted", true, "Permitted", "oz-system/oz-composites has the required rights"),
            condition("Running", true, "Running", "parents are reconciled"),
        ],
    })
}

fn composites() -> Vec<Value> {
    let mut policy = runs();
    policy["policyDigest"] = json!(format!("sha256:{}", "0".repeat(64)));
    policy["language"] = json!("v0");
    let mut refused = runs();
    let lacks = "oz-system/oz-composites lacks these rules of a ClusterRole: {}";
    refused["conditions"][1] = condition("Permitted", false, "PermissionMissing", lacks);
    refused["conditions"][2] = condition("Running", false, "Stopped", "see the other conditions");
    vec![
        composite(
            "fleets",
            "fleets",
            "http://opa.policies:8181/v0/data/fleets",
            &policy,
        ),
        composite("ships", "ships", "http://ships.functions/sync", &runs()),
        composite("rafts", "rafts", "http://rafts.functions/sync", &refused),
        composite(
            "boats",
            "boats",
            "http://boats.functions/sync",
            &Value::Null,
        ),
    ]
}

fn rego(name: &str, policy: &Value) -> Value {
    let mut status = runs();
    status["policyDigest"] = json!(format!("sha256:{}", "1".repeat(64)));
    status["language"] = json!("v1");
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "RegoController",
        "metadata": {"name": name, "uid": name},
        "spec": {
            "parent": {"apiVersion": "example.org/v1", "resource": "fleets"},
            "children": [{"apiVersion": "v1", "resource": "configmaps"}],
            "policy": policy,
            "runAs": {"namespace": "oz-system", "serviceAccount": "oz-composites"},
        },
        "status": status,
    })
}

fn regos() -> Vec<Value> {
    let key =
        json!({"configMapRef": {"namespace": "policies", "name": "crews", "key": "crew.rego"}});
    vec![
        rego("crews", &key),
        rego("flags", &json!({"inline": "package controller"})),
    ]
}

fn list(kind: &str, items: &Value) -> Answer {
    let (api_version, items) = ("v1", items.clone());
    (
        200,
        json!({"apiVersion": api_version, "kind": format!("{kind}List"), "metadata": {}, "items": items}),
    )
}

fn parent(kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "example.org/v1", "kind": kind,
        "metadata": {"name": "one", "namespace": "shop", "uid": UID}, "spec": spec,
    })
}

/// Returns a parent whose children and status change with time.
fn fleet() -> Value {
    let spec = json!({
        "names": ["new", "old"], "value": "x", "lateFrom": from_now(3600),
        "validUntil": from_now(7200),
    });
    parent("Fleet", &spec)
}

/// Returns a ConfigMap that the fleet controls.
fn child(name: &str, value: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": name,
            "labels": {"controller-uid": UID},
            "ownerReferences": [{
                "apiVersion": "example.org/v1", "kind": "Fleet", "name": "one", "uid": UID,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "data": {"value": value},
    })
}

fn event(reason: &str, regarding: &Value, note: &str) -> Value {
    json!({
        "metadata": {"name": "e", "namespace": "shop"}, "reason": reason, "type": "Warning",
        "note": note, "regarding": regarding, "eventTime": from_now(-600),
    })
}

fn kinds() -> Value {
    let kinds = ["Fleet", "Ship", "Raft", "Boat"];
    let kinds = kinds.map(|kind| {
        json!({
            "name": format!("{}s", kind.to_lowercase()), "kind": kind, "namespaced": true,
            "singularName": "", "verbs": ["get", "list"],
        })
    });
    json!({"kind": "APIResourceList", "groupVersion": "example.org/v1", "resources": kinds})
}

fn answer(asked: &ReceivedRequest, policy: &str) -> Answer {
    let path = asked.what.strip_prefix("GET /").unwrap_or_default();
    match path {
        "apis/metacontroller.k8s.io/v1alpha1/compositecontrollers" => {
            list("CompositeController", &json!(composites()))
        }
        "apis/crds.wizardofoz.co/v1alpha1/regocontrollers" => {
            list("RegoController", &json!(regos()))
        }
        "apis/crds.wizardofoz.co/v1alpha1/regocontrollers/flags" => (200, regos()[1].clone()),
        "apis/crds.wizardofoz.co/v1alpha1/regocontrollers/rafts"
        | "apis/crds.wizardofoz.co/v1alpha1/regocontrollers/nothing" => {
            status(404, "regocontrollers.crds.wizardofoz.co not found")
        }
        "apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/flags" => status(
            404,
            "compositecontrollers.metacontroller.k8s.io \"flags\" not found",
        ),
        "apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/rafts" => {
            (200, composites()[2].clone())
        }
        "apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/nothing" => status(
            404,
            "compositecontrollers.metacontroller.k8s.io \"nothing\" not found",
        ),
        "apis/example.org/v1" => (200, kinds()),
        "api/v1" => {
            let maps = json!({
                "name": "configmaps", "kind": "ConfigMap", "namespaced": true, "singularName": "",
                "verbs": ["get", "list"],
            });
            (
                200,
                json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [maps]}),
            )
        }
        "apis/example.org/v1/fleets" => list("Fleet", &json!([parent("Fleet", &json!({}))])),
        "apis/example.org/v1/namespaces/shop/fleets" => list("Fleet", &json!([fleet()])),
        "apis/example.org/v1/ships" => list("Ship", &json!([])),
        "apis/example.org/v1/namespaces/shop/fleets/one" => (200, fleet()),
        "apis/example.org/v1/namespaces/shop/fleets/two" => {
            status(404, "fleets.example.org \"two\" not found")
        }
        "apis/example.org/v1/namespaces/shop/ships/one" => {
            (200, parent("Ship", &json!({"sails": from_now(3600)})))
        }
        "api/v1/namespaces/policies/configmaps" => {
            let map = json!({
                "metadata": {"name": "fleets", "namespace": "policies"},
                "data": {"fleets.rego": policy, "fleets_test.rego": "none"},
            });
            list("ConfigMap", &json!([map]))
        }
        "api/v1/namespaces/shop/configmaps" => {
            let children = [child("old", "y"), child("gone", "x")];
            list("ConfigMap", &json!(children))
        }
        "apis/events.k8s.io/v1/events" if asked.query.contains("SyncError") => {
            let of_ship = json!({"kind": "Ship", "name": "one", "uid": UID});
            let note = "ships (Timeout): http://ships.functions/sync did not answer within 10s";
            list("Event", &json!([event("SyncError", &of_ship, note)]))
        }
        "apis/events.k8s.io/v1/events" => {
            let of_boats = json!({"kind": "CompositeController", "name": "boats"});
            let note = "the API server has no boats.example.org in example.org/v1";
            list("Event", &json!([event("NotAccepted", &of_boats, note)]))
        }
        "apis/events.k8s.io/v1/namespaces/shop/events" => {
            let of_ship = json!({"kind": "Ship", "name": "one", "uid": UID});
            let note = "ships (Timeout): http://ships.functions/sync did not answer within 10s";
            list("Event", &json!([event("SyncError", &of_ship, note)]))
        }
        _ => shop::answer(asked),
    }
}

#[test]
fn composites_are_listed_and_explained_for_parent() {
    let stub = Stub::start(|asked| answer(asked, POLICY));
    let lines = [
        "composites",
        "composites -o wide",
        "composites rafts -o yaml",
        "composites flags",
        "composites -o name",
        "composites nothing",
        "explain fleets/one",
        "explain fleets.example.org/one -o json",
        "explain ships/one",
        "explain ships/one -o json",
        "explain fleets/two",
        "explain pods/one",
    ];
    shows(&run_commands(&stub, &lines), "composites");
}

#[test]
fn plan_shows_changes_of_manifests_and_of_policies_field_by_field() {
    let stub = Stub::start(|asked| answer(asked, POLICY));
    let write = |name: &str, content: &Value| {
        let path = stub.directory.path().join(name);
        std::fs::write(path, content.to_string()).unwrap();
    };
    let changed = POLICY.replace(
        "input.parent.spec.names[_]",
        "[\"new\", \"old\", \"other\"][_]",
    );
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "fleets", "namespace": "policies"}, "data": {"fleets.rego": changed},
    });
    write("policy.json", &map);
    let mut own = rego(
        "planned",
        &json!({"inline": "package controller\nchildren := []\n"}),
    );
    own.as_object_mut().unwrap().remove("status");
    write("rego.json", &own);
    let mut fleet = parent("Fleet", &json!({}));
    fleet["metadata"]["name"] = json!("two");
    write("parent.json", &fleet);
    write(
        "children.json",
        &json!({"kind": "List", "apiVersion": "v1", "items": []}),
    );
    write("none.json", &json!({"apiVersion": "v1", "kind": "Pod"}));
    let lines = [
        "-n shop composites plan -f policy.json",
        "-n shop composites plan -f rego.json",
        "composites plan -f rego.json --parent parent.json --children children.json -o json",
        "composites plan -f none.json",
        "composites plan -f missing.json",
        "composites plan -f rego.json --parent policy.json",
        "composites plan",
    ];
    shows(&run_commands(&stub, &lines), "composites_plan");
}

/// A composite may have a kind of a published group as its parent, of which oz has another kind of the same name.
#[test]
fn explain_finds_parent_in_written_group() {
    let mut of_group = composite(
        "nights",
        "transientrolebindings",
        "http://nights.functions/sync",
        &runs(),
    );
    of_group["spec"]["parentResource"]["apiVersion"] = json!("example.com/v1");
    let stub = Stub::start(move |asked| {
        let path = asked.what.strip_prefix("GET /").unwrap_or_default();
        match path {
            "apis/metacontroller.k8s.io/v1alpha1/compositecontrollers" => {
                list("CompositeController", &json!([of_group]))
            }
            "apis/example.com/v1" => {
                let kind = json!({
                    "name": "transientrolebindings", "kind": "TransientRoleBinding",
                    "namespaced": true, "singularName": "", "verbs": ["get", "list"],
                });
                let listed = json!({
                    "kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": [kind],
                });
                (200, listed)
            }
            "apis/example.com/v1/namespaces/shop/transientrolebindings/one" => {
                let mut night = parent("TransientRoleBinding", &json!({}));
                night["apiVersion"] = json!("example.com/v1");
                (200, night)
            }
            _ => answer(asked, POLICY),
        }
    });
    let told = run_commands(&stub, &["explain transientrolebindings.example.com/one"]);
    assert!(
        told.contains("composite  CompositeController nights"),
        "{told}"
    );
}

#[test]
fn explain_reports_policy_that_does_not_compile() {
    let stub = Stub::start(|asked| answer(asked, "package fleets\n\nchildren := [\n"));
    let told = run_commands(&stub, &["explain fleets/one"]);
    assert!(
        told.contains("but: the policy in policies does not compile: fleets/fleets.rego:"),
        "{told}"
    );
    assert!(told.ends_with("=> 1\n"), "{told}");
}

#[test]
fn without_the_definition_it_is_said_what_to_switch_on() {
    let is_composite =
        |what: &str| what.contains("compositecontrollers") || what.contains("regocontrollers");
    let stub = Stub::start(move |asked| match is_composite(&asked.what) {
        true => status(404, "the server could not find the requested resource"),
        false => answer(asked, POLICY),
    });
    let told = run_commands(&stub, &["composites", "explain fleets/one"]);
    assert!(told.contains("Next: switch composites on"), "{told}");
    assert!(told.contains("fleets is not a kind of request"), "{told}");
}

#[test]
fn unlistable_composite_kind_is_reported_and_other_is_shown() {
    let stub = Stub::start(|asked| match asked.what.contains("compositecontrollers") {
        true => status(404, "the server could not find the requested resource"),
        false => answer(asked, POLICY),
    });
    let told_so = run_commands(&stub, &["composites", "composites -o name"]);
    let words =
        "Not shown: the cluster has no CompositeControllers (metacontroller.k8s.io/v1alpha1)";
    assert_eq!(told_so.matches(words).count(), 2, "{told_so}");
    assert!(
        told_so.contains("regocontroller.crds.wizardofoz.co/crews"),
        "{told_so}"
    );
    let stub = Stub::start(|asked| match asked.what.contains("regocontrollers") {
        true => status(403, "regocontrollers is forbidden: alice cannot list them"),
        false => answer(asked, POLICY),
    });
    let told_so = run_commands(&stub, &["composites", "composites -o name"]);
    let words = "Not shown: regocontrollers is forbidden: alice cannot list them";
    assert_eq!(told_so.matches(words).count(), 2, "{told_so}");
    assert!(
        told_so.contains("compositecontroller.metacontroller.k8s.io/fleets"),
        "{told_so}"
    );
    assert!(!told_so.contains("=> 1"), "{told_so}");
}
