//! Tests of the configuration: every field with a wrong value, overrides, and digests.

use serde_json::{Value, json};

use super::load::Override;
use super::*;

const HEAD: &str = "apiVersion: config.oz.wizardofoz.co/v1alpha1\nkind: OzConfiguration\n";

/// A field of the configuration, by its path, with the schema of its values.
struct Field {
    path: String,
    schema: Value,
}

/// Returns every field in the schema. Of a list, and of a map with arbitrary names, the list or map itself.
fn fields() -> Vec<Field> {
    let schema = schemars::schema_for!(OzConfiguration).to_value();
    let mut fields = Vec::new();
    walk(&schema, &schema, "", &mut fields);
    fields
}

fn walk(root: &Value, schema: &Value, path: &str, fields: &mut Vec<Field>) {
    let schema = resolved(root, schema);
    match schema.get("properties").and_then(Value::as_object) {
        Some(properties) => {
            for (name, property) in properties {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                walk(root, property, &path, fields);
            }
        }
        None => fields.push(Field {
            path: path.to_owned(),
            schema,
        }),
    }
}

/// Follows references; of an optional value, returns the schema of the value.
fn resolved(root: &Value, schema: &Value) -> Value {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        return resolved(root, target);
    }
    for group in ["anyOf", "allOf"] {
        if let Some([first, ..]) = schema
            .get(group)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
        {
            return resolved(root, first);
        }
    }
    schema.clone()
}

/// Returns a document with a value at a path.
fn with(path: &str, value: &Value) -> String {
    let head = json!({"apiVersion": API_VERSION, "kind": KIND});
    let mut document = head.as_object().unwrap().clone();
    let value = Override::new(path, value.clone());
    value.apply(&mut document).unwrap();
    Value::from(document).to_string()
}

fn failure(text: &str) -> String {
    OzConfiguration::read(text).unwrap_err().to_string()
}

/// Returns values that a field does not accept.
fn wrong(field: &Field) -> Vec<Value> {
    let is = |name: &str| match &field.schema["type"] {
        Value::Array(types) => types.iter().any(|one| one == name),
        one => one == name,
    };
    let mut values = vec![json!({"wrong": true}), json!(["wrong", {}])];
    if is("array") {
        values = vec![json!("wrong"), json!({"wrong": true}), json!([[]])];
    }
    if is("object") {
        values = vec![json!("wrong"), json!(["wrong"])];
    }
    if is("integer") {
        values.extend([json!(-1), json!("many"), json!(1.5)]);
    }
    if is("boolean") {
        values.extend([json!("perhaps"), json!(2)]);
    }
    if is("string") {
        values.extend([json!(7), json!(true)]);
        if field
            .schema
            .get("pattern")
            .is_some_and(|it| it.as_str().unwrap().contains("ms|s|m|h"))
        {
            values.extend([json!("soon"), json!("-1s"), json!("1d")]);
        }
    }
    values
}

#[test]
fn every_field_with_wrong_value_is_rejected_with_its_path() {
    let fields = fields();
    assert!(fields.len() > 90, "{} fields", fields.len());
    for field in &fields {
        for value in wrong(field) {
            let why = failure(&with(&field.path, &value));
            let path = &field.path;
            assert!(
                why.contains(&format!("{path}: "))
                    || why.contains(&format!("{path}["))
                    || why.contains(&format!("{path}.wrong")),
                "{path} = {value}: {why}"
            );
        }
    }
}

#[test]
fn unknown_field_is_rejected_with_its_path() {
    let fields = fields();
    let mut parents: Vec<&str> = fields
        .iter()
        .filter_map(|field| Some(field.path.rsplit_once('.')?.0))
        .collect();
    parents.dedup();
    for parent in parents {
        let why = failure(&with(&format!("{parent}.unknown"), &json!(1)));
        assert!(
            why.contains(&format!("{parent}.unknown")) && why.contains("unknown field"),
            "{why}"
        );
    }
    let why = failure(&with("unknown", &json!(1)));
    assert!(why.contains("unknown field `unknown`"), "{why}");
}

/// Checks that each value of a field is rejected, and that the error names a path.
fn rejected<const N: usize>(cases: [(&str, Value, &str); N]) {
    for (path, value, named) in cases {
        let why = failure(&with(path, &value));
        assert!(
            why.contains(&format!(" {named}: ")),
            "{path} = {value}: {why}"
        );
    }
}

#[test]
fn values_that_no_component_can_use_are_rejected_with_their_path() {
    rejected([
        ("installation.name", json!("Oz"), "installation.name"),
        (
            "access.nameServers",
            json!(["nowhere"]),
            "access.nameServers[0]",
        ),
        (
            "access.signingKeyLife",
            json!("0s"),
            "access.signingKeyLife",
        ),
        (
            "transient.bindableRoles",
            json!(["view", "a/b/c"]),
            "transient.bindableRoles[1]",
        ),
        (
            "transient.maxBindingWindow",
            json!("0s"),
            "transient.maxBindingWindow",
        ),
        (
            "transient.maxBindingWindowByNamespace",
            json!({"prod": "-1h"}),
            "transient.maxBindingWindowByNamespace.prod",
        ),
        (
            "composites.account",
            json!({"name": "x"}),
            "composites.account",
        ),
        (
            "composites.hookAddresses",
            json!({"a.b": "nowhere"}),
            "composites.hookAddresses.a.b",
        ),
        ("audit.checkpoint", json!("31s"), "audit.checkpoint"),
        ("audit.http.url", json!("collector"), "audit.http.url"),
        ("audit.http.required", json!(true), "audit.http.required"),
        (
            "operator.templateReconciliationInterval",
            json!(1441),
            "operator.templateReconciliationInterval",
        ),
        ("operator.workers", json!(0), "operator.workers"),
        ("operator.workers", json!(1025), "operator.workers"),
        ("webhook.service.port", json!(0), "webhook.service.port"),
        (
            "gate.recordings.spool.mebibytes",
            json!(15),
            "gate.recordings.spool.mebibytes",
        ),
        (
            "gate.recordings.retentionDays",
            json!(36_501),
            "gate.recordings.retentionDays",
        ),
        ("harness.enabled", json!(true), "harness.image"),
        (
            "harness.pullPolicy",
            json!("Sometimes"),
            "harness.pullPolicy",
        ),
        (
            "harness.seedDeniedRanges",
            json!(["10.0.0.0/8", "all"]),
            "harness.seedDeniedRanges[1]",
        ),
    ]);
    let silent = format!("{HEAD}audit: {{log: none, objects: false}}\n");
    assert!(failure(&silent).contains("audit.log: "));
}

#[test]
fn extra_attribute_that_no_policy_may_read_is_rejected_with_its_path() {
    rejected([
        (
            "webhook.requesterExtra",
            json!(["example.org/acr", "authentication.kubernetes.io/pod-name"]),
            "webhook.requesterExtra[1]",
        ),
        (
            "webhook.requesterExtra",
            json!(["oz-ticket"]),
            "webhook.requesterExtra[0]",
        ),
        (
            "webhook.requesterExtra",
            json!([""]),
            "webhook.requesterExtra[0]",
        ),
    ]);
}

#[test]
fn server_that_oz_cannot_call_is_rejected_with_its_path() {
    rejected([
        (
            "audit.http.secret",
            json!({"token": "token"}),
            "audit.http.secret.name",
        ),
        (
            "audit.http.secret",
            json!({"name": "s", "token": "t", "authorization": "a"}),
            "audit.http.secret.authorization",
        ),
        (
            "audit.http.secret.headers",
            json!({"Content-Type": "key"}),
            "audit.http.secret.headers",
        ),
        (
            "audit.http",
            json!({"publicRoots": true, "secret": {"name": "s", "ca": "ca.crt"}}),
            "audit.http.publicRoots",
        ),
        (
            "gate.recordings",
            json!({"publicRoots": true, "secret": {"name": "s", "ca": "ca.crt"}}),
            "gate.recordings.publicRoots",
        ),
        (
            "composites.hookServers",
            json!({"Hooks:443": {}}),
            "composites.hookServers.Hooks:443",
        ),
        (
            "composites.hookServers",
            json!({"hooks.test": {"secret": {"token": "t"}}}),
            "composites.hookServers.hooks.test.secret.name",
        ),
        (
            "outbound.proxy",
            json!("socks5://proxy:1080"),
            "outbound.proxy",
        ),
        (
            "outbound.proxy",
            json!("http://oz:secret@proxy:3128"),
            "outbound.proxy",
        ),
        ("outbound.proxy", json!("http://"), "outbound.proxy"),
        (
            "outbound.noProxy",
            json!([".svc", "a.test,b.test"]),
            "outbound.noProxy[1]",
        ),
    ]);
}

#[test]
fn invalid_notification_route_is_rejected_with_its_path() {
    let route = |more: Value| {
        let mut route = json!({"name": "people", "url": "https://hooks.test", "events": ["*"]});
        for (name, value) in more.as_object().unwrap() {
            route[name] = value.clone();
        }
        json!([route])
    };
    rejected([
        (
            "notifications.routes",
            route(json!({"name": "People!"})),
            "notifications.routes[0].name",
        ),
        (
            "notifications.routes",
            route(json!({"events": ["Nothing"]})),
            "notifications.routes[0].events",
        ),
        (
            "notifications.routes",
            route(json!({"format": "Fax"})),
            "notifications.routes[0].format",
        ),
        (
            "notifications.routes",
            route(json!({"secret": {"url": "url"}})),
            "notifications.routes[0].url",
        ),
        (
            "notifications.routes",
            route(json!({"secret": {"token": "t"}})),
            "notifications.routes[0].secret.name",
        ),
        (
            "notifications.routes",
            route(json!({"namespaces": ["["]})),
            "notifications.routes[0].namespaces[0]",
        ),
    ]);
}

#[test]
fn invalid_ticket_check_is_rejected_with_its_path() {
    let check = |more: Value| {
        let mut check = json!({"url": "https://jira.test/{ticket}", "accept": "true"});
        for (name, value) in more.as_object().unwrap() {
            check[name] = value.clone();
        }
        json!({"jira": check})
    };
    rejected([
        (
            "tickets.checks",
            check(json!({"url": "https://jira.test/"})),
            "tickets.checks.jira.url",
        ),
        (
            "tickets.checks",
            check(json!({"timeout": "31s"})),
            "tickets.checks.jira.timeout",
        ),
        (
            "tickets.checks",
            check(json!({"interval": "soon"})),
            "tickets.checks.jira.interval",
        ),
        (
            "tickets.checks",
            check(json!({"failurePolicy": "Maybe"})),
            "tickets.checks.jira.failurePolicy",
        ),
        (
            "tickets.checks",
            check(json!({"secret": {"ca": "x"}})),
            "tickets.checks.jira.secret.name",
        ),
        (
            "tickets.checks",
            json!({"Jira!": {"url": "https://jira.test/{ticket}", "accept": "true"}}),
            "tickets.checks.Jira!",
        ),
    ]);
}

#[test]
fn file_without_version_and_kind_is_rejected() {
    for (text, named) in [
        ("kind: OzConfiguration", "apiVersion: must be config.oz"),
        (
            "apiVersion: config.oz.wizardofoz.co/v1",
            "apiVersion: must be",
        ),
        (
            "apiVersion: config.oz.wizardofoz.co/v1alpha1",
            "kind: must be",
        ),
        ("- list", "not an object"),
        ("a: [", "not valid YAML"),
        ("a: 1\na: 2", "not valid YAML"),
    ] {
        assert!(failure(text).contains(named), "{text}: {}", failure(text));
    }
    assert!(OzConfiguration::read(HEAD).is_ok());
}

#[test]
fn overrides_replace_values_and_are_checked_in_the_same_way() {
    let file = format!("{HEAD}transient: {{bindableRoles: [view], maxBindingWindow: 8h}}\n");
    let set = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        OzConfiguration::read_with(Some(&file), &set).map_err(|error| error.to_string())
    };
    let config = set(&[
        "transient.maxBindingWindow=1h",
        "transient.maxBindingWindow=2h",
        r#"transient.bindableRoles=["team-*", "*/team-*"]"#,
        "transient.maxBindingWindowByNamespace={prod: 30m}",
        "operator.keepFinished=0s",
        "webhook.url=https://127.0.0.1:0",
        "gate.recordings.url=",
    ])
    .unwrap();
    let policy = config.policy("oz");
    assert_eq!(policy.longest(None), jiff::SignedDuration::from_hours(2));
    assert_eq!(
        policy.longest(Some("prod")),
        jiff::SignedDuration::from_mins(30)
    );
    assert_eq!(policy.roles.to_string(), "team-*, */team-*");
    assert_eq!(
        config.settings("oz").keep_finished.ended,
        jiff::SignedDuration::ZERO
    );
    let default = set(&["transient.maxBindingWindow=null"]).unwrap();
    assert_eq!(
        default.policy("oz").longest(None),
        jiff::SignedDuration::from_hours(24)
    );
    for (wrong, named) in [
        (
            "transient.maxBindingWindow=long",
            "transient.maxBindingWindow: ",
        ),
        ("transient.window=1h", "unknown field"),
        (
            "transient.maxBindingWindow.hours=1",
            "maxBindingWindow has no fields",
        ),
        ("transient", "is not PATH=VALUE"),
        ("transient..x=1", "is not PATH=VALUE"),
        ("audit.log=[", "audit.log: "),
    ] {
        assert!(
            set(&[wrong]).unwrap_err().contains(named),
            "{wrong}: {}",
            set(&[wrong]).unwrap_err()
        );
    }
}

#[test]
fn defaults_permit_nothing_that_an_administrator_did_not_name() {
    let config = OzConfiguration::default();
    let settings = config.settings("oz");
    assert!(config.policy("oz").roles.is_empty());
    assert_eq!(settings.gate, None);
    assert_eq!(config.composite_account("oz"), None);
    assert_eq!(config.webhook.break_glass_groups, ["system:masters"]);
    assert_eq!(
        settings.name_servers,
        [oz_core::confine::NameServer::usual()]
    );
    assert_eq!(
        config.installation.user(Component::Operator, "oz"),
        "system:serviceaccount:oz:oz-operator"
    );
}

#[test]
fn digest_of_component_changes_only_with_its_sections() {
    let digests = |text: &str| -> Vec<String> {
        let all = Component::ALL.into_iter();
        all.map(|one| OzConfiguration::digest(text, one).unwrap())
            .collect()
    };
    let before = digests(HEAD);
    for (section, changed) in [
        ("operator: {workers: 2}", [true, false, false, false]),
        (
            "transient: {serveExampleCom: true}",
            [true, true, false, false],
        ),
        ("gate: {maxSessions: 7}", [true, false, true, false]),
        (
            "harness: {requireConfined: true}",
            [true, true, false, true],
        ),
        ("audit: {objects: false}", [true, true, true, true]),
    ] {
        let after = digests(&format!("{HEAD}{section}\n"));
        let differs: Vec<bool> = before.iter().zip(&after).map(|(a, b)| a != b).collect();
        assert_eq!(differs, changed, "{section}");
    }
    let one = format!("{HEAD}gate: {{maxSessions: 7, unregisterWhenUnavailable: false}}\n");
    let other = format!(
        "# A comment.\nkind: OzConfiguration\ngate:\n  unregisterWhenUnavailable: false\n  maxSessions: 7\napiVersion: {API_VERSION}\n"
    );
    assert_eq!(digests(&one), digests(&other));
}

#[test]
fn proxies_come_from_configuration_and_environment() {
    let text = "outbound: {proxy: 'http://oz:secret@proxy:3128'}\n";
    let why = failure(&format!("{HEAD}{text}"));
    assert!(!why.contains("secret@"), "{why}");
    let text = "outbound: {proxy: 'http://proxy:3128', noProxy: [.svc], secret: {name: proxy}}\n";
    let configuration = OzConfiguration::read(&format!("{HEAD}{text}")).unwrap();
    let shown = format!("{:?}", configuration.proxies(|_| None));
    assert_eq!(shown, "Proxies { .. }");
}
