//! `ozctl rego`: Rego policies on the user's machine, and objects of the cluster as their input.

use serde_json::json;

use crate::output::{run_commands, shows};
use crate::stub::{ReceivedRequest, Stub};

const POLICY: &str = "\
package controller

children[child] {
	time.now_ns() > time.parse_rfc3339_ns(input.parent.validFrom)
	time.now_ns() < time.parse_rfc3339_ns(input.parent.validUntil)
	child := {\"metadata\": {\"name\": input.parent.metadata.name}}
}

large { input.parent.number == 9007199254740993 }
";

/// A Rego policy with constant children and a status that changes.
const PHASES: &str = "\
package phases

children := []
status := {\"phase\": phase, \"now\": time.format(time.now_ns())}
default phase := \"Waiting\"
phase := \"Open\" if time.now_ns() >= time.parse_rfc3339_ns(input.parent.validFrom)
";

const TESTS: &str = "\
package controller

parent = {\"metadata\": {\"name\": \"night\"}, \"validFrom\": \"2026-01-01T00:00:00Z\", \"validUntil\": \"2026-01-02T00:00:00Z\"}

test_open {
	count(children) == 1 with input.parent as parent with time.now_ns as time.parse_rfc3339_ns(\"2026-01-01T12:00:00Z\")
}

test_closed_at_its_start {
	count(children) == 0 with input.parent as parent with time.now_ns as time.parse_rfc3339_ns(\"2026-01-01T00:00:00Z\")
}

todo_test_large { false }
";

const INPUT: &str = "\
parent:
  metadata: {name: night}
  validFrom: \"2026-01-01T00:00:00Z\"
  validUntil: \"2026-01-02T00:00:00Z\"
  number: 9007199254740993
";

/// Answers with one object of a kind that oz does not know, and the discovery that finds it.
fn cluster(asked: &ReceivedRequest) -> (u16, serde_json::Value) {
    let kind = |group: &str| json!({"group": group, "version": "v1", "kind": "Role"});
    let groups = |items: serde_json::Value| {
        json!({
            "apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "metadata": {},
            "items": items,
        })
    };
    let group = |name: &str| {
        json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": [{
            "resource": "roles", "responseKind": kind(name), "scope": "Namespaced",
            "singularResource": "role", "verbs": ["get", "list"],
        }]}]})
    };
    match asked.what.as_str() {
        "GET /apis" => (
            200,
            groups(json!([group("rbac.example"), group("example.com")])),
        ),
        "GET /api" => (200, groups(json!([]))),
        "GET /apis/example.com/v1/namespaces/shop/roles/night" => {
            let object = json!({
                "apiVersion": "example.com/v1", "kind": "Role",
                "metadata": {"name": "night", "namespace": "shop"},
                "validFrom": "2026-01-01T00:00:00Z", "validUntil": "2026-01-02T00:00:00Z",
            });
            (200, object)
        }
        _ => (
            404,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
                "reason": "NotFound", "message": "not found",
            }),
        ),
    }
}

#[test]
fn policies_are_asked_tested_and_checked() {
    let stub = Stub::start(cluster);
    let write = |name: &str, text: &str| {
        let path = stub.directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("policy/controller.rego", POLICY);
    write("policy/controller_test.rego", TESTS);
    write("phases.rego", PHASES);
    write("input.yaml", INPUT);
    write(
        "failing/a_test.rego",
        "package a\n\ntest_no if 1 == 2\n\ntest_says if {\n\tprint(\"so\", 1)\n\tfalse\n}\n",
    );
    write(
        "wrong/a.rego",
        "package a\nx := rand.intn(\"a\", 5)\ny := f(1)\n",
    );
    write("wrong/b.rego", "package b\n");
    write("none/a.rego", "package a\nx := 1\n");
    write(
        "endless.rego",
        "package a\nn := numbers.range(1, 1000)\nx := count([1 | n[a]; n[b]; n[c]])\n",
    );
    let reads = "package a\n\nx := data.config.hours\ny := data.below.more\n";
    write("data/a.rego", reads);
    write("data/config.yaml", "config: {hours: 4}\n");
    write("data/below/more.json", "{\"more\": 1}");
    write(
        "data/manifest.yaml",
        "apiVersion: v1\nkind: Pod\n---\nx: 1\n",
    );
    write("missing/a.rego", reads);
    let lines = [
        "rego check policy",
        "rego check policy -o json",
        "rego check wrong",
        "rego check wrong -o json",
        "rego check nothing.rego",
        "rego test policy",
        "rego test policy --coverage",
        "rego test policy --coverage -o json",
        "rego test policy --run open",
        "rego test failing",
        "rego test none",
        "rego test wrong",
        "rego eval controller -p policy -i input.yaml --at 2026-01-01T00:00:00.000000001Z",
        "rego eval controller -p policy -i input.yaml --at 2026-01-01T00:00:00Z -o yaml",
        "rego eval controller.children -p policy --from roles.example.com/night --at 2026-01-01T12:00:00Z",
        "rego eval controller -p policy --from roles.example.com/night --at 2025-12-31T00:00:00Z --preview",
        "rego eval phases -p phases.rego -i input.yaml --at 2025-12-31T00:00:00Z --preview",
        "rego eval controller -p policy --from roles.example.com/nobody",
        "rego eval controller -p policy --from beds/night",
        "rego eval controller -p policy --from night",
        "rego eval nothing -p policy",
        "rego eval a.x -p wrong",
        "rego eval a.x -p endless.rego --timeout 20ms",
        "rego eval a..x -p none",
        "rego check data",
        "rego check data -o json",
        "rego eval a -p data",
        "rego check missing",
        "rego check data/a.rego data/config.yaml",
    ];
    shows(&run_commands(&stub, &lines), "rego");
}
