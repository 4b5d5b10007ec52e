use super::*;

const GOOD: &str = "\
apiVersion: crds.wizardofoz.co/v1alpha1
kind: ExecAccessTemplate
metadata:
  name: shell
spec:
  accessConfig:
    allowedGroups: [devs]
    defaultDuration: 1h
  controllerTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: web
";

const BINDING: &str = "\
apiVersion: crds.wizardofoz.co/v1alpha1
kind: TransientRoleBinding
metadata:
  name: night-shift
spec:
  roleRef:
    kind: ClusterRole
    name: view
  subjects:
  - kind: User
    name: lea
  validFrom: 2026-01-31T09:00:00Z
  validUntil: 2026-01-31T17:00:00Z
";

fn now() -> Timestamp {
    "2026-01-31T12:00:00Z".parse().unwrap()
}

fn found(text: &str) -> Vec<(usize, &'static str, String, String)> {
    check("f.yaml", text, now())
        .1
        .into_iter()
        .map(|found| (found.line, found.rule, found.field, found.message))
        .collect()
}

#[test]
fn a_good_template_is_checked_and_nothing_is_found() {
    assert_eq!(check("f.yaml", GOOD, now()), (1, Vec::new()));
    let others = "apiVersion: v1\nkind: Pod\n---\n# nothing\n";
    assert_eq!(check("f.yaml", others, now()), (0, Vec::new()));
}

#[test]
fn a_misspelt_field_is_found_where_it_stands() {
    let text = format!(
        "# first\n---\n{}",
        GOOD.replace("defaultDuration", "defaultduration")
    );
    let expected = (
        10,
        "schema",
        "spec.accessConfig.defaultduration".to_owned(),
        "is unknown; did you mean defaultDuration?".to_owned(),
    );
    assert_eq!(found(&text), [expected]);
}

#[test]
fn the_rules_are_those_of_admission() {
    let text = GOOD.replace("defaultDuration: 1h", "defaultDuration: 48h");
    let findings = found(&text);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].1, "rule");
    let text = GOOD.replace("apps/v1", "argoproj.io/v1alpha1");
    assert_eq!(found(&text)[0].2, "spec.controllerTargetRef.apiVersion");
}

#[test]
fn a_transient_binding_is_checked_as_at_admission() {
    assert_eq!(check("f.yaml", BINDING, now()), (1, Vec::new()));
    let whole = BINDING.replace("kind: TransientRole", "kind: TransientClusterRole");
    assert_eq!(check("f.yaml", &whole, now()), (1, Vec::new()));
    let one = |text: &str| {
        let findings = found(text);
        assert_eq!(findings.len(), 1, "{findings:?}");
        let (line, rule, field, message) = findings.into_iter().next().unwrap();
        (line, rule, field, message)
    };
    let is = |text: &str, at: usize, of: &str, on: &str, said: &str| {
        let (line, rule, field, message) = one(text);
        assert_eq!((line, rule, field.as_str()), (at, of, on), "{message}");
        assert!(message.contains(said), "{message}");
    };
    let over = BINDING.replace("T17", "T11");
    is(
        &over,
        13,
        "rule",
        "spec.validUntil",
        "must be in the future",
    );
    let never = BINDING.replace("T17", "T08");
    is(
        &never,
        13,
        "rule",
        "spec.validUntil",
        "must be later than validFrom",
    );
    let both = format!("{BINDING}  duration: 1h\n");
    is(
        &both,
        5,
        "rule",
        "spec",
        "exactly one of validUntil and duration",
    );
    let role = whole.replace("kind: ClusterRole\n", "kind: Role\n");
    is(&role, 7, "rule", "spec.roleRef.kind", "must be ClusterRole");
    let nobody = BINDING.replace("name: lea", "name: lea\n    namespace: shop");
    is(
        &nobody,
        12,
        "rule",
        "spec.subjects[0].namespace",
        "a ServiceAccount needs",
    );
    let empty = BINDING
        .replace("  - kind: User\n    name: lea\n", "")
        .replace("subjects:", "subjects: []");
    is(
        &empty,
        9,
        "schema",
        "spec.subjects",
        "must have 1 items or more",
    );
    let misspelt = BINDING.replace("validUntil", "validuntil");
    is(
        &misspelt,
        13,
        "schema",
        "spec.validuntil",
        "did you mean validUntil?",
    );
}

const PUBLISHED: &str = "\
apiVersion: example.com/v1
kind: TransientClusterRoleBinding
metadata:
  name: night-shift
validFrom: 2022-01-23T21:08:00+08:00
validUntil: 2022-01-25T21:08:00+08:00
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: view
subjects:
- kind: User
  name: lea
";

#[test]
fn lint_of_published_kind_equals_admission_and_admits_expired_window() {
    assert_eq!(check("f.yaml", PUBLISHED, now()), (1, Vec::new()));
    let samples = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../e2e/tests/transient/published"
    );
    let mut count = 0;
    for entry in std::fs::read_dir(samples).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert_eq!(check("f.yaml", &text, now()), (1, Vec::new()));
        count += 1;
    }
    assert_eq!(count, 2);
    for (from, to, line, rule, field) in [
        (
            "kind: ClusterRole\n",
            "kind: Role\n",
            9,
            "rule",
            "roleRef.kind",
        ),
        ("2022-01-25T21", "soon", 6, "rule", "validUntil"),
        ("subjects:", "subject:", 11, "schema", "subject"),
        (
            "  name: night-shift",
            "  labels: {}",
            3,
            "schema",
            "metadata.name",
        ),
        ("example.com/v1", "example.com/v2", 1, "kind", "apiVersion"),
    ] {
        let found = found(&PUBLISHED.replace(from, to));
        let first = found
            .first()
            .map(|(line, rule, field, _)| (*line, *rule, field.as_str()));
        assert_eq!(first, Some((line, rule, field)), "{found:?}");
    }
    // Any project may use this group.
    let other = PUBLISHED.replace("TransientClusterRoleBinding", "Widget");
    assert_eq!(check("f.yaml", &other, now()), (0, Vec::new()));
}

#[test]
fn a_kind_of_oz_under_a_group_that_is_not_is_found() {
    for version in [
        "crds.wizardofoz.com/v1alpha1",
        "oz.example.org/v1",
        "v1alpha1",
    ] {
        let text = GOOD.replace("crds.wizardofoz.co/v1alpha1", version);
        let found = found(&text);
        let first = found
            .first()
            .map(|(_, rule, field, _)| (*rule, field.as_str()));
        assert_eq!(first, Some(("kind", "apiVersion")), "{version}: {found:?}");
    }
    // Other projects may have bindings and events of these names.
    let text = BINDING.replace("crds.wizardofoz.co/v1alpha1", "rbac.example.org/v1");
    assert_eq!(check("f.yaml", &text, now()), (0, Vec::new()));
}

#[test]
fn an_object_has_a_name_that_can_be_one_and_nothing_else_at_its_top() {
    for (name, field) in [
        ("name: Shell", "metadata.name"),
        ("name: shell-", "metadata.name"),
        ("name: 7", "metadata.name"),
        ("name: ''", "metadata.name"),
        ("labels: {a: b}", "metadata.name"),
        ("generateName: Shell-", "metadata.generateName"),
        ("{name: shell, namespace: a.b}", "metadata.namespace"),
    ] {
        let text = match name.starts_with('{') {
            true => GOOD.replace("\n  name: shell", &format!(" {name}")),
            false => GOOD.replace("name: shell", name),
        };
        let fields: Vec<String> = found(&text).into_iter().map(|found| found.2).collect();
        assert_eq!(fields, [field], "{name}");
    }
    for name in ["name: a.b-c.7", "generateName: shell-", "generateName: a.b"] {
        let text = GOOD.replace("name: shell", name);
        assert_eq!(found(&text), [], "{name}");
    }
    let text = format!("{GOOD}specs: {{}}\n");
    let expected = (
        13,
        "schema",
        "specs".to_owned(),
        "is unknown; did you mean spec?".to_owned(),
    );
    assert_eq!(found(&text), [expected]);
}

#[test]
fn a_pattern_of_the_schema_holds() {
    let request = |duration: &str| {
        let head = "apiVersion: crds.wizardofoz.co/v1alpha1\nkind: PodAccessRequest\n";
        let spec = format!("spec:\n  templateName: debug\n  duration: {duration}\n");
        found(&format!("{head}metadata: {{generateName: a-}}\n{spec}"))
    };
    assert_eq!(request("30m"), []);
    let found = request("1h30m");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].0, found[0].2.as_str()), (6, "spec.duration"));
    assert!(found[0].3.starts_with("must match ^[0-9]+"), "{found:?}");
}

#[test]
fn lint_reports_types_enums_and_missing_fields_of_schema() {
    let text = GOOD.replace("kind: Deployment", "kind: Service");
    assert!(found(&text)[0].3.starts_with("must be one of: Deployment"));
    let text = GOOD.replace("[devs]", "devs");
    assert_eq!(found(&text)[0].3, "must be of type array");
    let text = GOOD.replace("    name: web\n", "");
    assert_eq!(found(&text)[0].2, "spec.controllerTargetRef.name");
    let text = GOOD.replace("kind: ExecAccessTemplate", "kind: ExecTemplate");
    assert_eq!(found(&text)[0].1, "kind");
    assert_eq!(found("a: [")[0].1, "yaml");
}

#[test]
fn every_example_of_the_repository_is_clean_but_the_bad_one() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut checked = 0;
    let folders =
        ["", "/transient", "/composites", "/harness"].map(|folder| format!("{examples}{folder}"));
    let entries = folders.map(|folder| std::fs::read_dir(folder).unwrap());
    for entry in entries.into_iter().flatten() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let (count, findings) = check(&name, &text, now());
            checked += count;
            assert_eq!(
                !findings.is_empty(),
                name.starts_with("bad_"),
                "{findings:?}"
            );
        }
    }
    assert!(checked > 11);
}

const REGO: &str = "\
apiVersion: crds.wizardofoz.co/v1alpha1
kind: RegoController
metadata:
  name: fleets
spec:
  runAs:
    namespace: shop
    serviceAccount: fleets
  parent:
    apiVersion: example.org/v1
    resource: fleets
  children:
  - apiVersion: v1
    resource: configmaps
  policy:
    package: controller
    inline: |
      package controller

      children := []
";

const COMPOSITE: &str = "\
apiVersion: metacontroller.k8s.io/v1alpha1
kind: CompositeController
metadata:
  name: fleets
spec:
  parentResource:
    apiVersion: example.org/v1
    resource: fleets
  childResources:
  - apiVersion: v1
    resource: configmaps
  hooks:
    sync:
      webhook:
        url: http://hooks.shop/sync
";

#[test]
fn composites_of_both_kinds_are_checked() {
    for good in [REGO, COMPOSITE] {
        assert_eq!(check("f.yaml", good, now()), (1, Vec::new()), "{good}");
    }
    let misspelt = COMPOSITE.replace("parentResource", "parentResourse");
    assert!(
        found(&misspelt).iter().any(|(_, rule, field, _)| {
            *rule == "schema" && field.starts_with("spec.parentResourse")
        }),
        "{:?}",
        found(&misspelt)
    );
    // The revisions of MetaController are its own.
    let revision = COMPOSITE.replace("CompositeController", "ControllerRevision");
    assert_eq!(check("f.yaml", &revision, now()), (0, Vec::new()));
    let decorator = COMPOSITE.replace("CompositeController", "DecoratorController");
    let message = crate::composites::NO_DECORATORS.to_owned();
    assert_eq!(found(&decorator), [(2, "kind", "kind".to_owned(), message)]);
    let later = COMPOSITE.replace("v1alpha1", "v1");
    let expected = (
        1,
        "kind",
        "apiVersion".to_owned(),
        "must be metacontroller.k8s.io/v1alpha1".to_owned(),
    );
    assert_eq!(found(&later), [expected]);
}

#[test]
fn lint_reports_composite_that_would_be_rejected() {
    let reserved = COMPOSITE.replace(
        "apiVersion: v1\n",
        "apiVersion: crds.wizardofoz.co/v1alpha1\n",
    );
    let message = "configmaps.crds.wizardofoz.co is reserved: composites neither read nor write it";
    let expected = (
        10,
        "rule",
        "spec.childResources[0]".to_owned(),
        message.to_owned(),
    );
    assert_eq!(found(&reserved), [expected]);
    let signed = COMPOSITE.replace("webhook:\n", "webhook:\n        caBundle: {}\n");
    let told = found(&signed);
    assert!(
        matches!(&told[..], [(15, "rule", field, message)]
            if field == "spec.hooks.sync.webhook.caBundle" && message == "is not supported yet"),
        "{told:?}"
    );
    let annotated = COMPOSITE.replace(
        "name: fleets\nspec",
        "name: fleets\n  annotations:\n    oz.wizardofoz.co/mode: Maybe\nspec",
    );
    assert!(!found(&annotated).is_empty());
}

#[test]
fn a_policy_in_a_composite_is_compiled() {
    let broken = REGO.replace("children := []", "children contains {");
    let told = found(&broken);
    assert!(
        matches!(&told[..], [(17, "rule", field, message)]
            if field == "spec.policy.inline" && message.contains("spec.policy.inline:4:1")),
        "{told:?}"
    );
}

const RUN: &str = "\
apiVersion: paddock.dev/v1alpha1
kind: HarnessRun
metadata:
  name: hello
spec:
  templateRef:
    name: echo
  prompt: hello
";

const TEMPLATE: &str = "\
apiVersion: paddock.dev/v1alpha1
kind: HarnessTemplate
metadata:
  name: echo
spec:
  image: echo:1
  command: [/bin/echo]
";

const WORKSPACE: &str = "\
apiVersion: paddock.dev/v1alpha1
kind: Workspace
metadata:
  name: shop
spec:
  storage:
    size: 1Gi
";

const POLICY: &str = "\
apiVersion: paddock.dev/v1alpha1
kind: BrokerPolicy
metadata:
  name: echo
spec:
  appliesToTemplates: [echo]
  grants: {}
";

#[test]
fn the_kinds_of_harness_runs_are_checked_as_at_admission() {
    let cluster = TEMPLATE.replace("kind: Harness", "kind: ClusterHarness");
    let all = [RUN, TEMPLATE, &cluster, WORKSPACE, POLICY];
    assert_eq!(check("f.yaml", &all.join("---\n"), now()), (5, Vec::new()));
    let discovery = "  egressDiscovery:
    accepted: true
    reason: we find out what the agent needs
    expiresAt: \"2026-02-28T12:00:00Z\"
";
    for (text, at, rule, field, said) in [
        (
            format!("{RUN}  promptFrom:\n    secretKeyRef: {{name: a, key: b}}\n"),
            8,
            "rule",
            "spec.prompt",
            "exactly one of prompt and promptFrom",
        ),
        (
            RUN.replace("prompt:", "promt:"),
            8,
            "schema",
            "spec.promt",
            "did you mean prompt?",
        ),
        (
            TEMPLATE.replace(
                "  image: echo:1\n",
                "  image: echo:1\n  baseTemplateRef: {name: a}\n",
            ),
            6,
            "rule",
            "spec.image",
            "is the base's",
        ),
        (
            cluster.replace("  image: echo:1\n", ""),
            5,
            "rule",
            "spec.image",
            "must be set",
        ),
        (
            format!("{WORKSPACE}  seed:\n    repos:\n    - url: git://a/b\n"),
            10,
            "rule",
            "spec.seed.repos[0].url",
            "https",
        ),
        (
            format!("{POLICY}{discovery}"),
            11,
            "rule",
            "spec.egressDiscovery.expiresAt",
            "seven days",
        ),
        (
            RUN.replace("kind: HarnessRun", "kind: HarnesRun"),
            2,
            "kind",
            "kind",
            "HarnessRun",
        ),
        (
            RUN.replace("v1alpha1", "v1"),
            1,
            "kind",
            "apiVersion",
            "must be paddock.dev/v1alpha1",
        ),
    ] {
        let findings = found(&text);
        let matching = |(line, of, on, message): &(usize, &str, String, String)| {
            *line == at && *of == rule && on == field && message.contains(said)
        };
        assert!(findings.iter().any(matching), "{field}: {findings:?}");
    }
}

#[test]
fn lint_compiles_expressions_and_reports_unsatisfiable_rules() {
    let policy = "\
apiVersion: crds.wizardofoz.co/v1alpha1
kind: AccessPolicy
metadata:
  name: hours
spec:
  match: now.getHours() >= 18
  timeZone: Europe/Berlin
  then:
    requireReason: true
";
    assert_eq!(check("f.yaml", policy, now()), (1, Vec::new()));
    let with = |line: &str| GOOD.replace("    defaultDuration: 1h\n", line);
    let when = |when: &str| {
        with(&format!(
            "    approval:\n      rules:\n      - name: security\n        users: [bob]\n      when: {when}\n"
        ))
    };
    assert_eq!(found(&when("request.namespace == 'prod'")), []);
    let own = "    allowedUsers: [bob]\n    approval:\n      rules:\n      - name: security\n        \
               users: [bob]\n";
    let own = with(own).replace("allowedGroups: [devs]", "allowedGroups: []");
    for (text, field, said) in [
        (
            policy.replace("getHours", "getHour"),
            "spec.match",
            "no function getHour",
        ),
        (
            policy.replace("Berlin", "Nowhere"),
            "spec.timeZone",
            "no time zone",
        ),
        (
            policy.replace("now.getHours() >= 18", "request.name"),
            "spec.match",
            "true or false",
        ),
        (
            when("request.labels['a'] == 'b'"),
            "spec.accessConfig.approval.when",
            "no field labels",
        ),
        (
            with("    commandPolicy: argv[0] ==\n"),
            "spec.accessConfig.commandPolicy",
            "cannot be evaluated",
        ),
        (
            own,
            "spec.accessConfig.approval.rules[0]",
            "can never be met for bob",
        ),
    ] {
        let found = found(&text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert_eq!(found[0].2, field);
        assert!(found[0].3.contains(said), "{}", found[0].3);
    }
}
