//! Every output, in every format. `INSTA_UPDATE=always cargo test -p ozctl --test cli` writes the
//! snapshots again. Values that differ between runs have placeholders: instants, digests, versions,
//! addresses.

use jiff::Timestamp;
use serde_json::json;

use crate::sessions::{a_word, playing};
use crate::shop;
use crate::stub::{Answer, ReceivedRequest, Stub, ozctl};
use crate::trail;

/// Runs some command lines in order, and returns their output.
pub(crate) fn run_commands(stub: &Stub, lines: &[&str]) -> String {
    let mut all = String::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = stub.ozctl(&words);
        all.push_str(&format!("$ ozctl {line}\n"));
        all.push_str(&answer(&mut command, stub));
        all.push('\n');
    }
    all.trim_end().to_owned() + "\n"
}

/// Returns standard output, standard error marked as such, and the exit code.
fn answer(command: &mut assert_cmd::Command, stub: &Stub) -> String {
    let answer = command.current_dir(stub.directory.path()).output().unwrap();
    let text = |bytes: &[u8]| steady(&String::from_utf8_lossy(bytes), stub);
    let mut all = text(&answer.stdout);
    for line in text(&answer.stderr).lines() {
        all.push_str(&format!("2> {line}\n"));
    }
    let code = answer.status.code().unwrap_or(-1);
    if code != 0 {
        all.push_str(&format!("=> {code}\n"));
    }
    all
}

fn steady(text: &str, stub: &Stub) -> String {
    let text = text
        .replace(&stub.address.to_string(), "api-server")
        .replace(env!("CARGO_PKG_VERSION"), "0.0.0");
    let part_of_word = |letter: char| letter.is_ascii_alphanumeric() || "-:.+/=".contains(letter);
    let mut steady = String::new();
    for piece in text.split_inclusive(|letter| !part_of_word(letter)) {
        let word = piece.trim_end_matches(|letter| letter == '.' || !part_of_word(letter));
        let end = piece.get(word.len()..).unwrap_or_default();
        steady.push_str(stand_in(word));
        steady.push_str(end);
    }
    steady
}

fn stand_in(word: &str) -> &str {
    if word.parse::<Timestamp>().is_ok() {
        return "2026-01-01T00:00:00Z";
    }
    let is_digest = word.len() >= 40 && word.bytes().any(|byte| byte.is_ascii_digit());
    if is_digest && !word.contains(['/', '.', '-']) {
        return "0123456789abcdef";
    }
    word
}

pub(crate) fn shows(told: &str, name: &str) {
    insta::with_settings!({omit_expression => true}, {
        insta::assert_snapshot!(name, told);
    });
}

macro_rules! tells {
    ($($name:ident: $lines:expr;)*) => {
        $(
            #[test]
            fn $name() {
                shows(&run_commands(&shop::open(), &$lines), stringify!($name));
            }
        )*
    };
}

tells! {
    templates: [
        "templates", "templates -o wide --all", "templates -A", "templates -o name",
        "templates --all -o json", "templates -o yaml",
    ];
    requests: [
        "requests", "requests -o wide", "requests -A", "requests --mine", "requests --active",
        "requests -o name", "requests --mine -o json", "requests --active -o yaml",
    ];
    get: [
        "get ear", "get ear,par -o wide", "get par alice-m2n3p", "get ear -o name",
        "get ear/alice-x7k2p -o json", "get ear bob-a1b2c -o yaml", "get trb -o wide",
        "get ear nobody", "get pods", "get ear/a par",
    ];
    create: [
        "create ExecAccessRequest shell", "create exec shell -o json", "create exec shell -o yaml",
        "create exec shell -o name", "create pod debug", "create exec nothing",
    ];
    extend: [
        "extend alice-x7k2p", "extend alice-x7k2p -D 10m", "extend alice-x7k2p -o json", "extend bob-a1b2c", "extend nobody",
        "extend par/alice-m2n3p",
    ];
    kubeconfig: ["kubeconfig alice-x7k2p", "kubeconfig bob-a1b2c", "kubeconfig nobody"];
    revoke: [
        "revoke alice-x7k2p", "delete par/alice-m2n3p", "revoke --mine", "revoke nobody",
        "revoke pod/x", "revoke alice-x7k2p gone bob-a1b2c", "revoke trb/lea-m2k9c",
        "revoke lea-m2k9c", "revoke trb/nobody", "revoke nobody -n shop",
    ];
    explain: [
        "explain alice-x7k2p", "explain bob-a1b2c", "explain --template shell -D 48h",
        "explain --template shell --for mallory --group interns",
        "explain --template shell --user bob --group devs",
        "explain --template debug", "explain --template nothing", "explain nobody",
        "explain trb/lea-m2k9c", "explain trb/nobody", "explain pods/x",
        "explain --template shell --set=operator.keepFinished=2h",
        "explain --template debug --set access.pods=false",
        "explain --template shell --set=access.namespaces=[till,stock]",
        "explain --template shell --set=operator.keepFinished=1d",
        "explain trb/lea-m2k9c --set=transient.bindableRoles=[view]",
        "explain trb/lea-m2k9c --set=transient.bindableRoles=[shop/*]",
    ];
    explain_as_data: [
        "explain --template database -o json", "explain bob-a1b2c -o yaml",
        "explain trb/lea-m2k9c -o json",
    ];
    doctor: ["doctor", "doctor -o json", "doctor -o yaml"];
    report: ["report", "report --file report.yaml"];
    version: [
        "version", "version -o json", "version -o yaml", "version --client",
        "version --client -o json",
    ];
    exec_that_comes_to_nothing: [
        "exec deploy/api", "exec svc/web", "exec sts/db", "exec web --template nothing",
        "exec deploy/web -c sidecar --template database", "exec deploy/web --request nobody",
        "exec deploy/web --request bob-a1b2c", "exec deploy/web --wait soon",
        "exec deploy/web --template database", "pod deploy/api", "logs deploy/web", "cp a b", "port-forward deploy/web 0:0",
    ];
    bind: [
        "bind view --for 1h", "bind pod/view --user lea --for 1h", "bind view --user lea --for 2h",
    ];
}

#[test]
fn audit() {
    let stub = shop::open();
    let key = stub.ozctl(&["audit", "keys"]).output().unwrap();
    std::fs::write(stub.directory.path().join("oz.pub"), key.stdout).unwrap();
    let log = stub.ozctl(&["audit", "export"]).output().unwrap();
    std::fs::write(stub.directory.path().join("oz.jsonl"), &log.stdout).unwrap();
    let changed = String::from_utf8_lossy(&log.stdout).replace("alice may exec", "bob may exec");
    std::fs::write(stub.directory.path().join("changed.jsonl"), changed).unwrap();
    let name = trail::grants_name();
    let (show, show_json) = (
        format!("audit show {name}"),
        format!("audit show {name} --json"),
    );
    let lines = [
        "audit list",
        "audit list -o wide",
        "audit list -o json",
        "audit list -o lines",
        "audit list -o csv",
        "audit list --actor nobody",
        "audit list --log oz.jsonl --action AccessGranted",
        &show,
        &show_json,
        "audit show nothing",
        "audit export",
        "audit export -o csv",
        "audit keys",
        "audit keys --oz-namespace elsewhere",
        "audit verify",
        "audit verify --key oz.pub",
        "audit verify --key oz.pub -o json",
        "audit verify --key oz.pub -o yaml",
        "audit verify --key oz.pub --log changed.jsonl",
        "audit verify --key oz.pub --offline --log oz.jsonl",
        "audit verify --offline",
        "audit verify --key oz.pub --offline --log oz.jsonl changed.jsonl",
        "audit verify --key oz.pub --offline --log oz.jsonl --log changed.jsonl",
        "audit list --action AccessGranted --log oz.jsonl oz.jsonl",
    ];
    shows(&run_commands(&stub, &lines), "audit");
}

/// The shop does not permit alice to read all objects: RBAC and Deployments are excluded.
#[test]
fn evidence() {
    let stub = shop::open();
    let key = stub.ozctl(&["audit", "keys"]).output().unwrap();
    std::fs::write(stub.directory.path().join("oz.pub"), key.stdout).unwrap();
    let make =
        "audit evidence --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z --retention 100000h";
    let unsealed = format!("{make} --unsealed -o evidence.tar --sample 5");
    let told_first = run_commands(&stub, &["audit entitlements", &unsealed]);
    let path = |name: &str| stub.directory.path().join(name);
    let mut changed = std::fs::read(path("evidence.tar")).unwrap();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    std::fs::write(path("changed.tar"), changed).unwrap();
    assert!(!path("sealed.tar").exists() && !path("sealed.tar.part").exists());
    let lines = [
        "audit entitlements -o csv",
        "audit entitlements -o json -n elsewhere",
        &format!("{make} -o sealed.tar"),
        "audit evidence --check evidence.tar",
        "audit evidence --check evidence.tar --key oz.pub",
        "audit evidence --check changed.tar --key oz.pub",
        "audit evidence --check nothing.tar",
        "audit evidence --check oz.pub",
        "audit evidence",
        "audit evidence --from 1h",
        "audit evidence --from 1h --to 2h -o evidence.tar",
        "audit evidence --from 2026-01-01T00:00:00Z -o evidence.tar",
        "audit evidence --check evidence.tar -o other.tar",
    ];
    let told = format!("{told_first}\n{}", run_commands(&stub, &lines));
    assert!(!path("sealed.tar").exists() && !path("sealed.tar.part").exists());
    shows(&told, "evidence");
}

#[test]
fn lint() {
    let stub = shop::open();
    let bad = "\
apiVersion: crds.wizardofoz.co/v1alpha1
kind: ExecAccessTemplate
metadata: {name: shell}
spec:
  accessConfig:
    allowedGroups: [devs]
    defaultduration: 1h
  controllerTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
---
apiVersion: crds.wizardofoz.co/v1alpha1
kind: TransientRoleBinding
metadata: {name: night-shift}
spec:
  roleRef: {kind: ClusterRole, name: view}
  subjects: [{kind: User, name: lea}]
  validFrom: 2020-01-31T09:00:00Z
  validUntil: 2020-01-31T17:00:00Z
";
    std::fs::write(stub.directory.path().join("bad.yaml"), bad).unwrap();
    let good = bad.replace("defaultduration", "defaultDuration");
    let good = good.split("---").next().unwrap_or_default();
    std::fs::write(stub.directory.path().join("good.yaml"), good).unwrap();
    let deep = stub.directory.path().join("folder/deep");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("bad.yml"), bad).unwrap();
    std::fs::write(deep.join("notes.txt"), "no object").unwrap();
    let lines = [
        "lint good.yaml",
        "lint good.yaml bad.yaml",
        "lint bad.yaml -o json",
        "lint bad.yaml -o sarif",
        "lint nothing.yaml",
        "lint good.yaml -o json",
        "lint good.yaml -o sarif",
        "lint nothing.yaml folder bad.yaml -o sarif",
        "lint folder",
    ];
    shows(&run_commands(&stub, &lines), "lint");
}

/// Answers as oz under another name in another namespace, with its image by digest and without
/// dedicated pods; its operator does not lead.
fn elsewhere(asked: &ReceivedRequest) -> Answer {
    let labels = |component: &str| {
        json!({
            "app.kubernetes.io/name": "oz", "app.kubernetes.io/component": component,
            "app.kubernetes.io/version": env!("CARGO_PKG_VERSION"),
        })
    };
    let deployment = |component: &str, arguments: &[&str]| {
        let name = format!("access-oz-{component}");
        json!({
            "metadata": {"name": name, "labels": labels(component)},
            "spec": {"selector": {}, "template": {"spec": {
                "serviceAccountName": name,
                "containers": [{
                    "name": component, "image": "registry.example:5000/oz@sha256:0123",
                    "args": arguments,
                }],
            }}},
        })
    };
    match asked.what.as_str() {
        "GET /apis/apps/v1/namespaces/access/deployments" => (
            200,
            json!({
                "apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": {},
                "items": [
                    deployment("webhook", &[]), deployment("operator", &["--set=access.pods=false"]),
                ],
            }),
        ),
        "GET /apis/coordination.k8s.io/v1/namespaces/access/leases/9b20101a.wizardofoz.co" => (
            200,
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {},
                "spec": {"holderIdentity": ""},
            }),
        ),
        "POST /apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            let mut review = asked.body.clone();
            let spec = &asked.body["spec"];
            let of = &spec["resourceAttributes"];
            let makes_pods =
                of["verb"] == "create" && of["resource"] == "pods" && of["subresource"].is_null();
            let is_operator = spec["user"] == "system:serviceaccount:access:access-oz-operator";
            review["status"] = json!({"allowed": is_operator && !makes_pods});
            (201, review)
        }
        _ => {
            let (code, mut body) = shop::answer(asked);
            // The webhook does not stamp either.
            body["metadata"]["annotations"].take();
            (code, body)
        }
    }
}

#[test]
fn doctor_of_another_release() {
    let stub = Stub::start(elsewhere);
    shows(
        &run_commands(&stub, &["doctor --oz-namespace access"]),
        "doctor_of_another_release",
    );
}

/// Runs doctor with a template that has `egress: Dns`, and with this many pods that are name
/// servers.
fn doctor_with_name_servers(count: usize) -> String {
    let stub = Stub::start(move |asked| {
        if asked.what == "GET /api/v1/namespaces/kube-system/pods" {
            let pod = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "dns"},
            });
            let list = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {}, "items": vec![pod; count],
            });
            return (200, list);
        }
        let (code, mut body) = shop::answer(asked);
        if asked.what.ends_with("/namespaces/shop/podaccesstemplates") {
            body["items"][0]["spec"]["network"] = json!({"egress": "Dns"});
        }
        (code, body)
    });
    run_commands(&stub, &["doctor"])
}

#[test]
fn doctor_reports_missing_name_servers() {
    let wrong = doctor_with_name_servers(0);
    let says =
        "WRONG   name servers: there is no pod of kube-system/k8s-app=kube-dns, so pods by pat/";
    assert!(wrong.contains(says), "{wrong}");
    let good = doctor_with_name_servers(1);
    assert!(
        good.contains("good    name servers: kube-system/k8s-app=kube-dns"),
        "{good}"
    );
    let none = run_commands(&shop::open(), &["doctor"]);
    assert!(!none.contains("name servers"), "{none}");
}

#[test]
fn explain_of_another_release() {
    let stub = Stub::start(elsewhere);
    let lines = [
        "explain --template debug --oz-namespace access",
        "explain --template shell --oz-namespace access",
        "explain trb/lea-m2k9c --oz-namespace access -o json",
    ];
    shows(&run_commands(&stub, &lines), "explain_of_another_release");
}

#[test]
fn report_anonymizes_names_that_are_addresses() {
    let stub = Stub::start(|asked| {
        let (code, body) = shop::answer(asked);
        let mut text = body.to_string();
        for (plain, address) in [
            ("\"alice\"", "\"alice@example.com\""),
            ("\\\"alice\\\"", "\\\"alice@example.com\\\""),
            ("by alice\"", "by alice@example.com\""),
        ] {
            text = text.replace(plain, address);
        }
        (code, serde_json::from_str(&text).unwrap())
    });
    let answer = stub.ozctl(&["report"]).output().unwrap();
    let report = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(
        report.contains("request-1") && report.contains("user-1"),
        "{report}"
    );
    assert!(!report.contains("alice"), "{report}");
}

#[test]
fn nothing_is_there() {
    let stub = Stub::start(|asked| {
        let (code, mut body) = shop::answer(asked);
        if body["items"].is_array() {
            body["items"] = json!([]);
        }
        (code, body)
    });
    let lines = [
        "templates",
        "templates -o json",
        "requests",
        "requests -o json",
        "requests -o name",
        "get ear",
        "get ear,par -o json",
        "audit list",
        "audit list -o json",
        "audit list -o csv",
        "audit verify",
        "audit verify -o json",
        "revoke --mine",
    ];
    shows(&run_commands(&stub, &lines), "nothing_is_there");
}

#[test]
fn create_that_takes_too_long() {
    let stub = Stub::start(|asked| match asked.query.contains("watch=true") {
        true => loop {
            std::thread::park();
        },
        false => shop::answer(asked),
    });
    let lines = [
        "create exec shell --wait 500ms",
        "create exec shell --wait 500ms -o json",
    ];
    shows(&run_commands(&stub, &lines), "create_that_takes_too_long");
}

#[test]
fn access_that_is_kept() {
    let stub = playing(a_word);
    let lines = ["exec deploy/web --keep -- true", "exec deploy/web -- true"];
    shows(&run_commands(&stub, &lines), "access_that_is_kept");
}

#[test]
fn without_a_cluster() {
    let stub = shop::open();
    let mut all = String::new();
    for line in ["templates", "exec deploy/web", "doctor", "version"] {
        let words: Vec<&str> = line.split_whitespace().collect();
        all.push_str(&format!("$ ozctl {line}\n"));
        all.push_str(&answer(&mut ozctl(&words), &stub));
        all.push('\n');
    }
    shows(&all, "without_a_cluster");
}
