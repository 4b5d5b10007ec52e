//! Tests of entitlements: each way of access by RBAC, and the templates.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use oz_api::harness::{ClusterHarnessTemplate, HarnessTemplate};
use oz_api::{AccessPolicy, BindingStatus, ExecAccessTemplate, Phase, TransientRoleBinding};
use oz_core::transient::Kind as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::sources::{
    bindable, break_glass, of_cluster_harness_template, of_harness_template, of_policy,
    of_template, startable, waiting,
};
use super::standing::Rbac;
use super::*;

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": names })
}

fn cluster_role(name: &str, rules: &[Value], more: Value) -> ClusterRole {
    let mut role = json!({ "metadata": { "name": name }, "rules": rules });
    if let (Some(role), Value::Object(more)) = (role.as_object_mut(), more) {
        role.extend(more);
    }
    serde_json::from_value(role).unwrap()
}

fn subject(kind: &str, name: &str) -> Value {
    match name.split_once('/') {
        Some((namespace, name)) => json!({ "kind": kind, "name": name, "namespace": namespace }),
        None => json!({ "kind": kind, "name": name }),
    }
}

fn bound(rbac: &mut Rbac, namespace: Option<&str>, name: &str, role: (&str, &str), to: &[Value]) {
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1 });
    let binding = json!({
        "metadata": { "name": name, "namespace": namespace }, "roleRef": role, "subjects": to,
    });
    match namespace {
        Some(_) => {
            let binding: RoleBinding = serde_json::from_value(binding).unwrap();
            rbac.role_bindings(vec![binding]).unwrap();
        }
        None => {
            let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
            rbac.cluster_role_bindings(vec![binding]).unwrap();
        }
    }
}

/// Returns a short form of each row.
fn describe(found: &[Entitlement]) -> BTreeSet<String> {
    let lines = found.iter().map(|one| {
        let place = match one.namespace.as_str() {
            "" => "everywhere".to_owned(),
            namespace => format!("in {namespace}"),
        };
        let of = match one.objects.as_slice() {
            [] => String::new(),
            objects => format!(" of {}", objects.join(",")),
        };
        format!(
            "{} {} {place}: {}{of}",
            one.kind,
            one.subject,
            one.permits.join(" ")
        )
    });
    lines.collect()
}

fn lines(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}

/// Returns the rights that one rule grants to devs, bound in one namespace and in all.
fn given(rule: Value) -> (BTreeSet<String>, BTreeSet<String>) {
    let in_one = |namespace| {
        let mut rbac = Rbac::default();
        rbac.cluster_roles(&[cluster_role("r", std::slice::from_ref(&rule), json!({}))])
            .unwrap();
        let devs = [subject("Group", "devs")];
        bound(&mut rbac, namespace, "b", ("ClusterRole", "r"), &devs);
        describe(&rbac.into_pods())
    };
    (in_one(Some("shop")), in_one(None))
}

#[test]
fn every_way_into_pods_is_found_as_kubernetes_reads_a_rule() {
    let core = &[""][..];
    for (rule, permits) in [
        (
            rule(core, &["pods/exec"], &["create"], &[]),
            "create pods/exec",
        ),
        (rule(core, &["pods/exec"], &["get"], &[]), "get pods/exec"),
        (
            rule(core, &["pods/attach"], &["create"], &[]),
            "create pods/attach",
        ),
        (
            rule(core, &["pods/portforward"], &["create"], &[]),
            "create pods/portforward",
        ),
        (
            rule(core, &["pods/ephemeralcontainers"], &["patch"], &[]),
            "patch pods/ephemeralcontainers",
        ),
        (
            rule(core, &["*/exec"], &["create"], &[]),
            "create pods/exec",
        ),
        (
            rule(&["*"], &["pods/exec"], &["create"], &[]),
            "create pods/exec",
        ),
        (
            rule(core, &["pods/exec"], &["*"], &["web-0"]),
            "create pods/exec get pods/exec of web-0",
        ),
        (
            rule(core, &["pods/exec", "pods/attach"], &["create"], &[]),
            "create pods/attach create pods/exec",
        ),
    ] {
        let (one, all) = given(rule.clone());
        assert_eq!(
            one,
            lines(&[&format!("Group devs in shop: {permits}")]),
            "{rule}"
        );
        assert_eq!(
            all,
            lines(&[&format!("Group devs everywhere: {permits}")]),
            "{rule}"
        );
    }
    for rule in [
        rule(core, &["pods"], &["*"], &[]),
        rule(core, &["pods/*"], &["*"], &[]),
        rule(core, &["pods/log"], &["get"], &[]),
        rule(core, &["pods/exec"], &["list"], &[]),
        rule(&["apps"], &["*"], &["*"], &[]),
        rule(core, &["secrets"], &["*"], &[]),
    ] {
        let (one, all) = given(rule.clone());
        assert!(one.is_empty() && all.is_empty(), "{rule}");
    }
}

#[test]
fn cluster_wide_right_to_node_proxy_is_way_into_pods() {
    for resource in ["nodes/proxy", "*/proxy"] {
        let (one, all) = given(rule(&[""], &[resource], &["get"], &[]));
        assert!(
            !one.iter().any(|line| line.contains("nodes/proxy")),
            "{one:?}"
        );
        assert!(
            all.iter().any(|line| line.contains("nodes/proxy")),
            "{all:?}"
        );
    }
    let (_, all) = given(rule(&["*"], &["*"], &["*"], &[]));
    let line = all.first().unwrap();
    for way in [
        "exec",
        "attach",
        "portforward",
        "ephemeralcontainers",
        "proxy",
    ] {
        assert!(line.contains(&format!("pods/{way}")), "{line}");
    }
    assert!(line.contains("nodes/proxy"), "{line}");
}

#[test]
fn aggregated_roles_are_resolved_to_those_that_they_are_made_of() {
    let exec = rule(&[""], &["pods/exec"], &["create"], &[]);
    let attach = rule(&[""], &["pods/attach"], &["create"], &[]);
    let made_of =
        |label: &str| json!({ "clusterRoleSelectors": [{ "matchLabels": { label: "true" } }] });
    let label = |name: &str, label: &str, rules: &[Value], more: Value| {
        let mut role = cluster_role(name, rules, more);
        role.metadata.labels = Some([(label.to_owned(), "true".to_owned())].into());
        role
    };
    let roles = [
        // The rules that the controller wrote, and an earlier one that is not aggregated from other roles.
        cluster_role(
            "admin",
            std::slice::from_ref(&exec),
            json!({ "aggregationRule": made_of("to-admin") }),
        ),
        label(
            "edit",
            "to-admin",
            &[],
            json!({ "aggregationRule": made_of("to-edit") }),
        ),
        label("shell", "to-edit", &[exec], json!({})),
        // The controller has not written it into admin yet.
        label("debug", "to-admin", &[attach], json!({})),
        // A cycle must terminate.
        label(
            "round",
            "to-round",
            &[],
            json!({ "aggregationRule": made_of("to-round") }),
        ),
    ];
    let mut rbac = Rbac::default();
    rbac.cluster_roles(&roles).unwrap();
    let ops = [subject("User", "olga")];
    bound(&mut rbac, Some("shop"), "b", ("ClusterRole", "admin"), &ops);
    bound(&mut rbac, Some("shop"), "c", ("ClusterRole", "round"), &ops);
    let found = rbac.into_pods();
    let sources: BTreeSet<String> = found.iter().map(|one| one.source.clone()).collect();
    let by = |role: &str| format!("RoleBinding shop/b: ClusterRole admin, by ClusterRole {role}");
    assert_eq!(sources, BTreeSet::from([by("shell"), by("debug")]));
    let expected = [
        "User olga in shop: create pods/attach",
        "User olga in shop: create pods/exec",
    ];
    assert_eq!(describe(&found), lines(&expected));
}

#[test]
fn bindings_of_grants_are_separate_and_missing_role_permits_nothing() {
    let mut rbac = Rbac::default();
    let exec = rule(&[""], &["pods/exec"], &["create"], &["web-0"]);
    let role = json!({ "metadata": { "name": "r", "namespace": "shop" }, "rules": [exec] });
    let role: Role = serde_json::from_value(role).unwrap();
    rbac.roles(vec![role]).unwrap();
    let who = [
        subject("User", "alice"),
        subject("ServiceAccount", "ci/runner"),
        subject("Robot", "x"),
    ];
    bound(&mut rbac, Some("shop"), "grant", ("Role", "r"), &who);
    bound(&mut rbac, Some("shop"), "kept", ("Role", "r"), &who);
    // A Role in another namespace is a different Role.
    bound(&mut rbac, Some("bank"), "b", ("Role", "r"), &who);
    bound(&mut rbac, Some("shop"), "c", ("ClusterRole", "r"), &who);
    rbac.granted([(Some("shop".to_owned()), "grant".to_owned())]);
    let found = rbac.into_pods();
    let ways: Vec<(EntitlementKind, &str)> = found
        .iter()
        .map(|one| (one.way, one.subject.as_str()))
        .collect();
    let expected = [
        (EntitlementKind::Granted, "alice"),
        (EntitlementKind::Granted, "ci/runner"),
        (EntitlementKind::Standing, "alice"),
        (EntitlementKind::Standing, "ci/runner"),
    ];
    assert_eq!(ways, expected);
}

#[test]
fn users_who_may_create_transient_bindings_are_listed_per_role() {
    let mut rbac = Rbac::default();
    let group = "crds.wizardofoz.co";
    let create = rule(&[group], &["transientrolebindings"], &["create"], &[]);
    let named = rule(&[group], &["transientrolebindings"], &["create"], &["x"]);
    let read = rule(&[group], &["transientrolebindings"], &["get"], &[]);
    for (name, rule) in [("ask", create), ("named", named), ("read", read)] {
        let mut role = Rbac::default();
        std::mem::swap(&mut role, &mut rbac);
        rbac.cluster_roles(&[cluster_role(name, &[rule], json!({}))])
            .unwrap();
        let who = [subject("Group", name)];
        bound(&mut rbac, Some("shop"), "b", ("ClusterRole", name), &who);
        let found = rbac.holders("create", group, "transientrolebindings");
        assert_eq!(found.len(), usize::from(name == "ask"), "{name}");
        for holder in &found {
            let row = bindable(holder, "ClusterRole view", "transient.bindableRoles");
            assert_eq!(
                (row.way, &row.permits[0][..]),
                (EntitlementKind::TransientBinding, "bind ClusterRole view")
            );
            assert_eq!((&row.namespace[..], &row.subject[..]), ("shop", "ask"));
        }
    }
}

fn template() -> ExecAccessTemplate {
    serde_json::from_value(json!({
        "metadata": { "name": "shell", "namespace": "shop" },
        "spec": {
            "accessConfig": {
                "allowedGroups": ["devs"], "allowedUsers": ["=erin"], "maxDuration": "2h",
                "operations": ["Exec", "Log"],
                "approval": { "rules": [
                    { "name": "sre", "groups": ["ops"] },
                    { "name": "security", "users": ["bob"], "approvals": 2 },
                ]},
            },
            "controllerTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        },
    }))
    .unwrap()
}

#[test]
fn a_template_names_who_may_ask_and_who_may_approve() {
    let found = of_template(&template()).unwrap();
    let rows: Vec<(EntitlementKind, &str, &str)> = found
        .iter()
        .map(|one| (one.way, one.subject.as_str(), one.source.as_str()))
        .collect();
    let template = "ExecAccessTemplate shop/shell";
    let (sre, security) = (
        format!("{template}, rule sre"),
        format!("{template}, rule security"),
    );
    let expected = [
        (EntitlementKind::Request, "devs", template),
        (EntitlementKind::Request, "=erin", template),
        (EntitlementKind::Approve, "ops", sre.as_str()),
        (EntitlementKind::Approve, "bob", security.as_str()),
    ];
    assert_eq!(rows, expected);
    assert_eq!(
        found[0].limits,
        "for at most 2h; approved by sre and security; no service accounts"
    );
    assert!(
        found[0].permits.contains(&"create pods/exec".to_owned()),
        "{:?}",
        found[0].permits
    );
}

/// Returns an object with this name and spec.
fn object<T: DeserializeOwned>(namespace: Option<&str>, name: &str, spec: &Value) -> T {
    let metadata = json!({ "name": name, "namespace": namespace });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

#[test]
fn emergencies_of_templates_and_access_policies_name_who_may_declare_them() {
    let emergency = json!({
        "groups": ["oncall"], "users": ["carol"], "maxDuration": "30m",
        "review": { "deadline": "24h", "groups": ["security"] },
    });
    let spec = json!({ "image": "parrot:1", "command": ["/parrot"], "emergency": emergency });
    let inheriting = json!({ "baseTemplateRef": { "name": "corp" } });
    let policy = |deny: Value| {
        let then = json!({ "emergency": emergency, "deny": deny });
        let policy: AccessPolicy = object(None, "prod", &json!({ "match": "true", "then": then }));
        of_policy(&policy).unwrap()
    };
    let run: HarnessTemplate = object(Some("shop"), "parrot", &spec);
    let inheriting: HarnessTemplate = object(Some("shop"), "own", &inheriting);
    let cluster: ClusterHarnessTemplate = object(None, "corp", &spec);
    let mut access = template();
    let config = serde_json::from_value(emergency.clone()).unwrap();
    access.spec.access_config.emergency = Some(config);
    let mut of_access = of_template(&access).unwrap();
    of_access.retain(|one| one.way == EntitlementKind::Emergency);

    let limits = "without approvals, for at most 30m; reviewed afterwards";
    let of_policies = format!(
        "{limits}; with the verb bind on the role; where true and no other AccessPolicy prevents it"
    );
    let runs = "start harness runs";
    for (found, namespace, permits, source, limits) in [
        (
            of_access,
            "shop",
            "create pods/exec",
            "ExecAccessTemplate shop/shell, emergency",
            limits,
        ),
        (
            of_harness_template(&run).unwrap(),
            "shop",
            runs,
            "HarnessTemplate shop/parrot, emergency",
            limits,
        ),
        (
            of_cluster_harness_template(&cluster).unwrap(),
            "",
            runs,
            "ClusterHarnessTemplate corp, emergency",
            limits,
        ),
        (
            policy(Value::Null),
            "",
            "bind roles",
            "AccessPolicy prod, emergency",
            of_policies.as_str(),
        ),
    ] {
        let subjects: Vec<_> = found
            .iter()
            .map(|one| (one.way, one.kind, one.subject.as_str()))
            .collect();
        let expected = [
            (EntitlementKind::Emergency, SubjectKind::Group, "oncall"),
            (EntitlementKind::Emergency, SubjectKind::User, "carol"),
        ];
        assert_eq!(subjects, expected, "{source}");
        for one in &found {
            assert_eq!((&one.source[..], &one.limits[..]), (source, limits));
            assert_eq!(one.namespace, namespace, "{source}");
            assert!(one.permits.contains(&permits.to_owned()), "{one:?}");
        }
    }
    // These are the emergencies of its base.
    assert_eq!(of_harness_template(&inheriting).unwrap(), []);
    assert_eq!(policy(json!({ "message": "no" })), []);
    let nowhere: HarnessTemplate = object(None, "parrot", &spec);
    assert!(of_harness_template(&nowhere).is_err());
}

#[test]
fn approval_rules_of_harness_templates_and_access_policies_name_who_may_approve() {
    let approval = json!({ "rules": [{
        "name": "security", "groups": ["ops"], "users": ["bob"], "approvals": 2,
        "escalation": { "after": "15m", "groups": ["leads"] },
    }]});
    let spec = json!({ "image": "parrot:1", "command": ["/parrot"], "approval": approval });
    let inheriting = json!({ "baseTemplateRef": { "name": "corp" }, "approval": approval });
    let policy = |deny: Value| {
        let then = json!({ "approval": approval, "deny": deny });
        let policy: AccessPolicy = object(None, "prod", &json!({ "match": "true", "then": then }));
        of_policy(&policy).unwrap()
    };
    let run: HarnessTemplate = object(Some("shop"), "parrot", &spec);
    let inheriting: HarnessTemplate = object(Some("shop"), "own", &inheriting);
    let cluster: ClusterHarnessTemplate = object(None, "corp", &spec);
    let limits = "2 must approve; nobody for themselves";
    let runs: &[&str] = &["start harness runs"];
    let all: &[&str] = &["get access to pods", "bind roles", "start harness runs"];
    for (found, namespace, permits, source, more) in [
        (
            of_harness_template(&run).unwrap(),
            "shop",
            runs,
            "HarnessTemplate shop/parrot, rule security",
            "",
        ),
        (
            of_harness_template(&inheriting).unwrap(),
            "shop",
            runs,
            "HarnessTemplate shop/own, rule security",
            "",
        ),
        (
            of_cluster_harness_template(&cluster).unwrap(),
            "",
            runs,
            "ClusterHarnessTemplate corp, rule security",
            "",
        ),
        (
            policy(Value::Null),
            "",
            all,
            "AccessPolicy prod, rule security",
            "; where true",
        ),
    ] {
        let rows: Vec<_> = found
            .iter()
            .map(|one| (one.way, one.kind, one.subject.as_str(), one.limits.clone()))
            .collect();
        let (way, group) = (EntitlementKind::Approve, SubjectKind::Group);
        let expected = [
            (way, group, "ops", format!("{limits}{more}")),
            (way, SubjectKind::User, "bob", format!("{limits}{more}")),
            (way, group, "leads", format!("{limits}; after 15m{more}")),
        ];
        assert_eq!(rows, expected, "{source}");
        for one in &found {
            assert_eq!((&one.source[..], &one.namespace[..]), (source, namespace));
            assert_eq!(one.permits, permits, "{source}");
        }
    }
    assert_eq!(policy(json!({ "message": "no" })), []);
}

#[test]
fn users_who_may_create_harness_runs_are_listed_as_requesters() {
    let mut rbac = Rbac::default();
    let create = rule(&["paddock.dev"], &["harnessruns"], &["create"], &[]);
    rbac.cluster_roles(&[cluster_role("run", &[create], json!({}))])
        .unwrap();
    let who = [subject("Group", "devs")];
    bound(&mut rbac, Some("shop"), "b", ("ClusterRole", "run"), &who);
    let holders = rbac.holders("create", "paddock.dev", "harnessruns");
    let rows: Vec<Entitlement> = holders.iter().map(startable).collect();
    let rows: Vec<_> = rows
        .iter()
        .map(|one| {
            (
                one.way,
                &one.namespace[..],
                &one.subject[..],
                &one.source[..],
            )
        })
        .collect();
    let source = "RoleBinding shop/b: ClusterRole run";
    assert_eq!(rows, [(EntitlementKind::Request, "shop", "devs", source)]);
}

#[test]
fn entitlements_have_single_digest_and_list_gaps() {
    let rows: Vec<Entitlement> = of_template(&template()).unwrap();
    let list = |rows: &[Entitlement], gaps: &[&str]| {
        let gaps = gaps.iter().map(|&gap| gap.to_owned()).collect();
        Entitlements::new(rows.iter().cloned().collect(), gaps)
    };
    let mut turned = rows.clone();
    turned.reverse();
    turned.push(rows[0].clone());
    assert_eq!(list(&rows, &[]), list(&turned, &[]));
    let digest = |rows: &[Entitlement], gaps: &[&str]| list(rows, gaps).digest;
    assert_ne!(digest(&rows, &[]), digest(&rows[1..], &[]));
    assert_ne!(
        digest(&rows, &[]),
        digest(&rows, &["ClusterRoles: forbidden"])
    );
    let csv = list(&rows, &["=x"]).csv();
    assert!(csv.contains("GAP,,,,,,,'=x\nDIGEST,,,,,,,sha256:"), "{csv}");
    assert!(csv.contains(",User,'=erin,"), "{csv}");
    let columns = csv.lines().next().unwrap();
    assert_eq!(columns, COLUMNS.join(","));
    let all = Entitlements::new(
        [break_glass("system:masters", "x"), rows[0].clone()].into(),
        BTreeSet::new(),
    );
    assert_eq!(all.clone().within("shop").entitlements.len(), 2);
    assert_eq!(all.clone().within("bank").entitlements.len(), 1);
    let text = serde_json::to_string(&all).unwrap();
    let read: Entitlements = serde_json::from_str(&text).unwrap();
    assert_eq!((&read, read.computed()), (&all, all.digest.clone()));
}

#[test]
fn windows_to_come_are_listed_with_each_subject_until_they_open() {
    let binding: TransientRoleBinding = serde_json::from_value(json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1", "kind": "TransientRoleBinding",
        "metadata": {
            "name": "night", "namespace": "shop", "uid": "0001", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "User", "name": "alice"}, {"kind": "ServiceAccount", "name": "runner", "namespace": "ci"},
            ],
            "validFrom": "2026-01-03T00:00:00Z", "validUntil": "2026-01-04T00:00:00Z",
        },
    }))
    .unwrap();
    let at = |text: &str| text.parse().unwrap();
    let found = waiting(&binding.stored().unwrap(), at("2026-01-02T00:00:00Z"));
    let rows: Vec<_> = found.iter().map(Entitlement::cells).collect();
    let row = |kind: &str, subject: &str| {
        [
            "Waiting",
            "shop",
            kind,
            subject,
            "ClusterRole view",
            "",
            "TransientRoleBinding shop/night",
            "from 2026-01-03T00:00:00Z until 2026-01-04T00:00:00Z",
        ]
        .map(ToOwned::to_owned)
    };
    assert_eq!(
        rows,
        [row("User", "alice"), row("ServiceAccount", "ci/runner")]
    );
    assert!(waiting(&binding.stored().unwrap(), at("2026-01-03T00:00:00Z")).is_empty());
    let mut over = binding;
    over.status = Some(BindingStatus {
        phase: Phase::Denied,
        ..BindingStatus::default()
    });
    assert!(waiting(&over.stored().unwrap(), at("2026-01-02T00:00:00Z")).is_empty());
}
