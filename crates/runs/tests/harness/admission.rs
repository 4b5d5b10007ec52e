//! Denials: all violations of an object, each with its path.

use oz_api::harness::{BrokerPolicy, HarnessTemplateSpec, TemplateKind, Workspace};
use oz_core::validate::Violation;
use oz_runs::admission;
use oz_runs::policy::Matching;
use serde_json::{Value, json};

use crate::world::{resolved, run};
use crate::{inheriting, now, policy, template};

const REASON: &str = "a reason of twenty letters or more";

fn fields(found: &[Violation]) -> Vec<&str> {
    found.iter().map(|one| one.field.as_str()).collect()
}

fn none() -> Vec<&'static str> {
    Vec::new()
}

#[test]
fn invalid_run_reports_all_faults() {
    assert_eq!(fields(&admission::run(&run(json!({})))), none());
    let mut bad = run(json!({
        "templateRef": {"name": "Not A Name"}, "workspaceRef": "../other",
        "promptFrom": {"configMapKeyRef": {"name": "A", "key": "a/b"}, "secretKeyRef": {"name": "s", "key": "k"}},
        "timeout": "0s", "retries": 11, "ttlSecondsAfterFinished": -1,
        "extraEnv": [
            {"name": "A", "value": "1"}, {"name": "A"}, {"name": "1A"}, {"name": "paddock_x"}, {"name": "Https_Proxy"},
            {"name": "AWS_CA_BUNDLE"}, {"name": "CARGO_HTTP_CAINFO"}, {"name": "DENO_CERT"}, {"name": "PIP_CERT"},
            {"name": "all_proxy"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        "interactiveOverrides": {"idleTimeout": "-1s", "maxLifetime": "junk"},
        "reason": "\u{1b}[31m",
    }));
    bad.metadata.name = Some("a".repeat(64));
    let found = admission::run(&bad);
    let env = |number: usize| format!("spec.extraEnv[{number}].name");
    let mut wanted = vec![
        "metadata.name".to_owned(),
        "spec.templateRef.name".to_owned(),
        "spec.workspaceRef".to_owned(),
        "spec.prompt".to_owned(),
        "spec.promptFrom".to_owned(),
        "spec.promptFrom.configMapKeyRef.name".to_owned(),
        "spec.promptFrom.configMapKeyRef.key".to_owned(),
        "spec.timeout".to_owned(),
        "spec.retries".to_owned(),
        "spec.ttlSecondsAfterFinished".to_owned(),
        env(1),
    ];
    wanted.extend((2..10).map(env));
    wanted.extend([
        "spec.extraEnv[10].valueFrom".to_owned(),
        "spec.interactiveOverrides".to_owned(),
        "spec.interactiveOverrides.idleTimeout".to_owned(),
        "spec.interactiveOverrides.maxLifetime".to_owned(),
        "spec.reason".to_owned(),
    ]);
    assert_eq!(fields(&found), wanted);
}

#[test]
fn a_run_has_one_prompt_of_at_most_256_kib() {
    let with = |fields: Value| admission::run(&run(fields));
    let source = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    assert_eq!(fields(&with(json!({"prompt": null}))), ["spec.prompt"]);
    assert_eq!(fields(&with(json!({"prompt": ""}))), ["spec.prompt"]);
    assert_eq!(
        fields(&with(json!({"promptFrom": source}))),
        ["spec.prompt"]
    );
    assert_eq!(
        fields(&with(json!({"prompt": null, "promptFrom": source}))),
        none()
    );
    assert_eq!(
        fields(&with(json!({"prompt": "a".repeat(256 * 1024)}))),
        none()
    );
    assert_eq!(
        fields(&with(json!({"prompt": "a".repeat(256 * 1024 + 1)}))),
        ["spec.prompt"]
    );
}

#[test]
fn run_and_workspace_specs_are_immutable_unless_deleted() {
    let (old, mut new) = (run(json!({})), run(json!({"model": "other"})));
    assert_eq!(fields(&admission::run_update(&old, &old)), none());
    assert_eq!(fields(&admission::run_update(&old, &new)), ["spec"]);
    new.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-31T09:00:00Z")).unwrap());
    assert_eq!(fields(&admission::run_update(&old, &new)), none());
    let old = workspace(json!({"storage": {"size": "1Gi"}}));
    let new =
        workspace(json!({"storage": {"size": "2Gi"}, "seed": {}, "source": {"workspaceRef": "a"}}));
    let wanted = ["spec.storage", "spec.seed", "spec.source"];
    assert_eq!(fields(&admission::workspace_update(&old, &new)), wanted);
    let ephemeral =
        workspace(json!({"storage": {"size": "1Gi"}, "ephemeral": true, "templates": ["a"]}));
    assert_eq!(
        fields(&admission::workspace_update(&old, &ephemeral)),
        none()
    );
}

#[test]
fn a_run_needs_a_template_and_a_policy_that_let_it_be_interactive_and_a_workspace_that_lets_its_template()
 {
    let talking = resolved(json!({"interactive": {"mode": "persistent-process"}}));
    let interactive = run(json!({"mode": "Interactive", "workspaceRef": "cage"}));
    let allowing = [policy("a", json!({"grants": {"runs": {"interact": true}}}))];
    let (nobody, somebody) = (
        Matching::from_policies([], "parrot"),
        Matching::from_policies(&allowing, "parrot"),
    );
    let check = |template, policies| {
        fields(&admission::run_of_template(
            &interactive,
            template,
            policies,
            None,
        ))
        .len()
    };
    assert_eq!(check(&talking, &somebody), 0);
    assert_eq!(check(&talking, &nobody), 1);
    assert_eq!(check(&resolved(json!({})), &nobody), 2);
    let batch = run(json!({"workspaceRef": "cage"}));
    for (globs, wanted) in [
        (json!([]), none()),
        (json!(["par*"]), none()),
        (json!(["crow", "owl"]), vec!["spec.workspaceRef"]),
    ] {
        let cage = workspace(json!({"storage": {"size": "1Gi"}, "templates": globs}));
        let found = admission::run_of_template(&batch, &talking, &nobody, Some(&cage));
        assert_eq!(fields(&found), wanted, "{globs}");
    }
}

fn of_template(spec: &HarnessTemplateSpec) -> Vec<Violation> {
    admission::template(TemplateKind::HarnessTemplate, spec)
}

#[test]
fn a_template_that_inherits_says_nothing_that_is_its_bases() {
    assert_eq!(
        fields(&of_template(&inheriting(
            json!({"defaults": {"timeout": "1m"}})
        ))),
        none()
    );
    let found = of_template(&inheriting(json!({
        "image": "a:1", "command": ["a"], "args": ["b"], "runtime": {"image": "c"}, "workspace": {},
    })));
    let locked = [
        "spec.image",
        "spec.command",
        "spec.args",
        "spec.runtime",
        "spec.workspace",
    ];
    assert_eq!(fields(&found), locked);
    let alone: HarnessTemplateSpec = serde_json::from_value(json!({})).unwrap();
    assert_eq!(fields(&of_template(&alone)), ["spec.image", "spec.command"]);
    let cluster = admission::template(TemplateKind::ClusterHarnessTemplate, &inheriting(json!({})));
    assert_eq!(fields(&cluster), ["spec.baseTemplateRef"]);
}

#[test]
fn invalid_template_reports_all_faults() {
    let found = of_template(&template(json!({
        "defaults": {"timeout": "1d", "terminationGracePeriodSeconds": 301},
        "requires": {
            "credentials": [{"name": "KEY"}, {"name": "KEY"}, {"name": "a-b"}, {"name": "HTTPS_PROXY"}],
            "egress": [{"host": "*", "ports": [443]}, {"host": "api.example.com", "ports": [-1, 65536, 0]}],
        },
        "interactive": {"idleTimeout": "2h", "detachIdleTimeout": "3h", "detachTimeout": "90m", "maxLifetime": "1h", "maxRecentEvents": 9},
        "workspace": {"mountPath": "/paddock/x"},
        "podTemplateOverlay": {"spec": {"hostNetwork": true}},
    })));
    assert_eq!(
        fields(&found),
        [
            "spec.defaults.timeout",
            "spec.defaults.terminationGracePeriodSeconds",
            "spec.requires.credentials[1].name",
            "spec.requires.credentials[2].name",
            "spec.requires.credentials[3].name",
            "spec.requires.egress[0].host",
            "spec.requires.egress[1].ports[0]",
            "spec.requires.egress[1].ports[1]",
            "spec.interactive.idleTimeout",
            "spec.interactive.detachTimeout",
            "spec.interactive.detachIdleTimeout",
            "spec.interactive.maxRecentEvents",
            "spec.workspace.mountPath",
            "spec.podTemplateOverlay.spec.hostNetwork",
        ]
    );
    for (path, is_refused) in [
        ("/workspace", false),
        ("/src", false),
        ("/paddocks", false),
        ("/etcetera", false),
        ("/", true),
        ("src", true),
        ("/a/../etc", true),
        ("/etc", true),
        ("/proc/1", true),
        ("/var/run/secrets", true),
        ("/a:b", true),
        ("/./src/", false),
        ("//etc", true),
        ("/./etc", true),
        ("/etc//passwd", true),
        ("//", true),
        ("/.//paddock/.", true),
        ("/run/./x", true),
    ] {
        let found = of_template(&template(json!({"workspace": {"mountPath": path}})));
        assert_eq!(!found.is_empty(), is_refused, "{path}");
    }
}

fn workspace(spec: Value) -> Workspace {
    Workspace::new("cage", serde_json::from_value(spec).unwrap())
}

fn seeded(repos: Value) -> Vec<Violation> {
    admission::workspace(&workspace(
        json!({"storage": {"size": "1Gi"}, "seed": {"repos": repos}}),
    ))
}

#[test]
fn a_repository_is_cloned_over_https_or_ssh_and_its_password_is_never_in_a_message() {
    for (url, is_refused) in [
        ("https://git.example/a.git", false),
        ("https://git.example:8443/a/b", false),
        ("ssh://git@git.example/a.git", false),
        ("HTTPS://git.example/a.git", true),
        ("http://git.example/a.git", true),
        ("git@git.example:a.git", true),
        ("file:///etc", true),
        ("ext::sh -c evil", true),
        ("https://", true),
        ("https:///a", true),
        ("https://user:hunter2@git.example/a.git", true),
        ("https://hunter2@git.example/a.git", true),
        ("ssh://git:hunter2@git.example/a.git", true),
        ("ssh://-oProxyCommand=evil/a", true),
        ("https://git.example/a b", true),
    ] {
        let found = seeded(json!([{"url": url}]));
        assert_eq!(!found.is_empty(), is_refused, "{url}");
        assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
    }
}

#[test]
fn invalid_workspace_reports_all_faults() {
    assert_eq!(
        fields(&seeded(
            json!([{"url": "https://git.example/a", "depth": 1}])
        )),
        none()
    );
    let url = "https://git.example/a";
    let found = admission::workspace(&workspace(json!({
        "storage": {"size": "0"},
        "seed": {"repos": [
            {"url": url, "path": "one"}, {"url": url}, {"url": url, "path": "../x"}, {"url": url, "path": "/x"},
            {"url": url, "path": "./one/two"}, {"url": url, "path": ".paddock"}, {"url": url, "path": "b", "branch": "--upload-pack=x"},
            {"url": "ssh://git@git.example/a", "path": "c", "depth": -1, "brokerCredentialRef": {"name": "A", "key": "k"},
             "credentialsSecretRef": {"name": "Not A Name"}},
        ]},
        "source": {"workspaceRef": "cage", "volumeSnapshotName": "s"},
        "templates": ["["],
    })));
    assert_eq!(
        fields(&found),
        [
            "spec.storage.size",
            "spec.seed",
            "spec.source",
            "spec.source.workspaceRef",
            "spec.templates[0]",
            "spec.seed.repos[1].path",
            "spec.seed.repos[2].path",
            "spec.seed.repos[3].path",
            "spec.seed.repos[5].path",
            "spec.seed.repos[6].branch",
            "spec.seed.repos[7].depth",
            "spec.seed.repos[7]",
            "spec.seed.repos[7].brokerCredentialRef",
            "spec.seed.repos[7].credentialsSecretRef.name",
            "spec.seed.repos[4].path",
        ]
    );
}

fn of_policy(spec: Value) -> Vec<Violation> {
    admission::policy(&policy("a", spec), None, now())
}

#[test]
fn policy_of_each_provider_is_admitted() {
    let secret = json!({"name": "s", "key": "k"});
    let injected = |how: &str, what: Value| json!({"proxyInjected": {"hosts": ["api.example.com"], how: what}});
    let user = |delivery: Value| json!({"kind": "UserSuppliedSecret", "secretRef": secret, "deliveryMode": delivery});
    let grants: Vec<Value> = [
        json!({"kind": "AnthropicAPI", "secretRef": secret}),
        json!({"kind": "GitHubApp", "secretRef": secret, "appId": "12", "installationId": "34"}),
        json!({"kind": "PATPool", "secretRef": secret}),
        json!({"kind": "PATPool", "secretRef": secret, "hosts": ["git.example.com"], "rotationSeconds": 60}),
        user(injected("header", json!({"name": "Authorization"}))),
        user(injected("queryParam", json!({"name": "key"}))),
        user(injected("basicAuth", json!({"username": "x"}))),
        user(json!({"inContainer": {"accepted": true, "reason": REASON}})),
    ]
    .into_iter()
    .enumerate()
    .map(|(number, provider)| json!({"name": format!("KEY_{number}"), "provider": provider}))
    .collect();
    let found = of_policy(json!({
        "grants": {
            "credentials": grants,
            "egress": [{"host": "*.example.com", "ports": [443]}],
            "gitRepos": [{"owner": "o", "repo": "a.b-c_d", "access": "write"}],
            "runs": {"interact": true, "shell": {"command": ["/bin/sh"], "allowedPhases": ["Running", "Idle"]}},
        },
        "interception": {"cooperativeAccepted": {"accepted": true, "reason": REASON}},
        "egressDiscovery": {"accepted": true, "reason": REASON, "expiresAt": "2026-02-07T09:00:00Z"},
    }));
    assert_eq!(fields(&found), none());
}

#[test]
fn invalid_policy_reports_all_faults() {
    let found = of_policy(json!({
        "appliesToTemplates": ["", "a["],
        "grants": {
            "credentials": [
                {"name": "A", "provider": {"kind": "AnthropicAPI", "appId": "0", "deliveryMode": {}}},
                {"name": "A", "provider": {"kind": "GitHubApp", "secretRef": {"name": "s", "key": "k"}, "rotationSeconds": 59}},
                {"name": "C", "provider": {"kind": "PATPool", "secretRef": {"name": "s", "key": "k"}, "installationId": "3"}},
                {"name": "D", "provider": {"kind": "UserSuppliedSecret", "secretRef": {"name": "s", "key": "k"}, "deliveryMode": {
                    "proxyInjected": {"hosts": ["other.example.org", "10.0.0.1"]},
                    "inContainer": {"accepted": false, "reason": "                    short"},
                }}},
            ],
            "egress": [{"host": "*.com"}, {"host": "api.example.com:443"}, {"host": "api.example.com", "ports": [70000]}],
            "gitRepos": [{"owner": "a/b", "repo": ""}],
            "runs": {"shell": {"command": ["sh"], "allowedPhases": ["Running", "Pending", "Failed"]}},
        },
        "interception": {"transparent": {}, "cooperativeAccepted": {"accepted": false, "reason": "short"}},
        "egressDiscovery": {"accepted": false, "reason": "short", "expiresAt": "tomorrow"},
    }));
    let credential =
        |number: usize, field: &str| format!("spec.grants.credentials[{number}].{field}");
    let delivery = |field: &str| credential(3, &format!("provider.deliveryMode{field}"));
    let wanted = [
        "spec.appliesToTemplates[0]".to_owned(),
        "spec.appliesToTemplates[1]".to_owned(),
        "spec.grants.egress[0].host".to_owned(),
        "spec.grants.egress[1].host".to_owned(),
        "spec.grants.egress[2].ports[0]".to_owned(),
        credential(1, "name"),
        credential(0, "provider.secretRef"),
        credential(0, "provider.appId"),
        credential(0, "provider.deliveryMode"),
        credential(0, "provider.appId"),
        credential(0, "provider.deliveryMode"),
        credential(1, "provider.appId"),
        credential(1, "provider.installationId"),
        credential(1, "provider.rotationSeconds"),
        credential(2, "provider.installationId"),
        delivery(""),
        delivery(".inContainer.accepted"),
        delivery(".inContainer.reason"),
        delivery(".proxyInjected"),
        delivery(".proxyInjected.hosts[0]"),
        delivery(".proxyInjected.hosts[1]"),
        "spec.grants.gitRepos[0].owner".to_owned(),
        "spec.grants.gitRepos[0].repo".to_owned(),
        "spec.grants.runs.shell.command[0]".to_owned(),
        "spec.grants.runs.shell.allowedPhases[1]".to_owned(),
        "spec.grants.runs.shell.allowedPhases[2]".to_owned(),
        "spec.interception.cooperativeAccepted.accepted".to_owned(),
        "spec.interception.cooperativeAccepted.reason".to_owned(),
        "spec.interception".to_owned(),
        "spec.egressDiscovery.accepted".to_owned(),
        "spec.egressDiscovery.reason".to_owned(),
        "spec.egressDiscovery.expiresAt".to_owned(),
    ];
    assert_eq!(fields(&found), wanted);
}

#[test]
fn a_discovery_ends_within_seven_days_and_one_that_has_ended_does_not_pin_its_policy() {
    let with = |ends: &str| {
        policy(
            "a",
            json!({
                "egressDiscovery": {"accepted": true, "reason": REASON, "expiresAt": ends},
            }),
        )
    };
    for (ends, is_refused) in [
        ("2026-01-31T09:00:00Z", true),
        ("2026-01-31T09:00:01Z", false),
        ("2026-02-07T09:00:00Z", false),
        ("2026-02-07T09:00:01Z", true),
    ] {
        let found = admission::policy(&with(ends), None, now());
        assert_eq!(!found.is_empty(), is_refused, "{ends}");
    }
    let old = with("2026-01-01T00:00:00Z");
    assert_eq!(fields(&admission::policy(&old, Some(&old), now())), none());
    let mut going = with("2026-01-01T00:00:00Z");
    going.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-31T09:00:00Z")).unwrap());
    assert_eq!(fields(&admission::policy(&going, None, now())), none());
}

#[test]
fn r31_every_secret_and_config_map_that_is_read_for_an_author_is_named() {
    let named = |all: Vec<admission::Named>| -> Vec<String> {
        all.iter()
            .map(|one| format!("{} {} by {}", one.kind.plural(), one.name, one.field))
            .collect()
    };
    let prompt = |source: Value| run(json!({"prompt": null, "promptFrom": source}));
    let config = prompt(json!({"configMapKeyRef": {"name": "c", "key": "k"}}));
    assert_eq!(
        named(admission::of_run(&config)),
        ["configmaps c by spec.promptFrom.configMapKeyRef"]
    );
    let secret = prompt(json!({"secretKeyRef": {"name": "s", "key": "k"}}));
    assert_eq!(
        named(admission::of_run(&secret)),
        ["secrets s by spec.promptFrom.secretKeyRef"]
    );
    assert_eq!(
        named(admission::of_run(&run(json!({})))),
        Vec::<String>::new()
    );
    let cage = workspace(json!({"storage": {"size": "1Gi"}, "seed": {"repos": [
        {"url": "https://git.example/a"}, {"url": "https://git.example/b", "credentialsSecretRef": {"name": "t"}},
    ]}}));
    assert_eq!(
        named(admission::of_workspace(&cage)),
        ["secrets t by spec.seed.repos[1].credentialsSecretRef"]
    );
    let policy: BrokerPolicy = policy(
        "a",
        json!({"grants": {"credentials": [
            {"name": "A", "provider": {"kind": "AnthropicAPI", "secretRef": {"name": "u", "key": "k"}}},
        ]}}),
    );
    assert_eq!(
        named(admission::of_policy(&policy)),
        ["secrets u by spec.grants.credentials[0].provider.secretRef"]
    );
}
