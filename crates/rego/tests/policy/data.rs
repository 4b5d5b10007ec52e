//! Documents below `data`, and the paths that a policy reads there.

use jiff::Timestamp;
use oz_rego::{Policy, Reason};
use serde_json::{Value, json};

use crate::common::answer;

fn compile(texts: &[(&str, &str)]) -> Result<Policy, String> {
    let texts: Vec<_> = texts
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    Policy::compile(&texts).map_err(|errors| {
        let mut found = errors.errors().iter();
        assert!(found.all(|error| error.reason == Reason::Data), "{errors}");
        errors.to_string()
    })
}

const LIMITS: &str = r#"{"config": {"limits": {"hours": 4}, "teams": ["shop", "ops"]}}"#;

#[test]
fn policy_reads_documents_by_data_and_by_import() {
    let policy = compile(&[
        (
            "p.rego",
            "package p\n\nimport data.config\n\nhours := data.config.limits.hours\n\
             teams := {team | some team in config.teams}\nrest := data.config.limits[input.key]\n",
        ),
        ("limits.json", LIMITS),
        ("more.yaml", "config: {more: 1}"),
    ]);
    let policy = policy.unwrap();
    let found = |path: &str| {
        answer(
            &policy,
            path,
            &json!({"key": "hours"}),
            Timestamp::UNIX_EPOCH,
        )
    };
    assert_eq!(found("p.hours"), json!(4));
    assert_eq!(found("p.teams"), json!(["ops", "shop"]));
    assert_eq!(found("p.rest"), json!(4));
    assert_eq!(found("config.more"), json!(1));
}

#[test]
fn digest_covers_documents() {
    let module = ("p.rego", "package p\nx := data.config.limits.hours\n");
    let other = LIMITS.replace('4', "5");
    let digest = |limits: &str| {
        compile(&[module, ("limits.json", limits)])
            .unwrap()
            .digest()
    };
    assert_ne!(digest(LIMITS), digest(&other));
}

#[test]
fn paths_below_data_must_be_definable() {
    let read =
        |path: &str| format!("package p\n\nlocal := 1\nparts[x] := 1 if x := \"a\"\nx := {path}\n");
    for (path, is_definable) in [
        ("data.config.limits.hours", true),
        // The last key may be optional.
        ("data.config.limits.days", true),
        ("data.config.days", true),
        ("data.config.day.hours", false),
        ("data.confg", false),
        ("data.confg.limits", false),
        ("data.config.teams[0]", true),
        ("data.config.teams[0].name.first", true),
        ("data.config[input.x].hours", true),
        ("data[\"config\"].limits", true),
        ("data[\"confg\"].limits", false),
        ("data[input.x]", true),
        ("data", true),
        ("data.p.local", true),
        ("data.p.loca", false),
        ("data.p.parts.a.b", true),
        ("data.p", true),
        ("data.q.local", false),
        ("data.config.limits[data.confg.key]", false),
        ("[y | some y in data.confg.teams]", false),
        ("count(data.confg.teams)", false),
        ("1 if not data.confg.teams", false),
        ("1 if data.confg.teams with data.confg as {}", true),
        ("1 if data.confg.teams with data.confg.teams as []", true),
    ] {
        let compiled = compile(&[("p.rego", &read(path)), ("limits.json", LIMITS)]);
        match compiled {
            Ok(_) => assert!(is_definable, "{path} compiles"),
            Err(error) => {
                assert!(!is_definable, "{path}: {error}");
                assert!(error.starts_with("p.rego:5:"), "{path}: {error}");
                assert!(
                    error.contains("no module and no document defines data."),
                    "{error}"
                );
            }
        }
    }
    for (rest, is_definable) in [
        ("x := 1", true),
        ("x := confg.limits", false),
        ("x := 1 if confg.limits with confg as {}", true),
        ("x := 1 if confg.limits with confg.limits as 1", true),
    ] {
        let import = format!("package p\n\nimport data.confg\n\n{rest}\n");
        let compiled = compile(&[("p.rego", &import), ("limits.json", LIMITS)]);
        assert_eq!(
            compiled.is_ok(),
            is_definable,
            "{rest}: {:?}",
            compiled.err()
        );
    }
    let import = "package p\n\nimport data.confg\n\nx := confg.limits\n";
    let error = compile(&[("p.rego", import), ("limits.json", LIMITS)]).unwrap_err();
    assert!(error.starts_with("p.rego:3:"), "{error}");
}

#[test]
fn document_contradicting_module_is_refused_by_name() {
    let module = (
        "p.rego",
        "package team.shop\n\nlimit := 1\nparts[x] := 1 if x := \"a\"\n",
    );
    for (document, refused) in [
        (json!({"team": {"shop": {"other": 1}}}), None),
        (json!({"team": {"ops": 1}}), None),
        (
            json!({"team": {"shop": {"limit": 2}}}),
            Some("data.team.shop.limit"),
        ),
        (
            json!({"team": {"shop": {"limit": {"a": 2}}}}),
            Some("data.team.shop.limit"),
        ),
        (
            json!({"team": {"shop": {"parts": {"b": 2}}}}),
            Some("data.team.shop.parts"),
        ),
        (json!({"team": {"shop": 2}}), Some("data.team.shop")),
        (json!({"team": []}), Some("data.team.shop")),
    ] {
        let text = document.to_string();
        let compiled = compile(&[module, ("doc.json", &text)]);
        match (compiled, refused) {
            (Ok(_), None) => {}
            (Err(error), Some(path)) => {
                assert!(
                    error.starts_with(&format!("doc.json: defines {path}")),
                    "{error}"
                );
            }
            (compiled, _) => panic!("{document}: {:?}", compiled.err()),
        }
    }
    let value: Value = json!({"a": {"b": 1}});
    let (one, two) = (value.to_string(), "a: {b: 2}");
    let error = compile(&[module, ("one.json", &one), ("two.yaml", two)]).unwrap_err();
    assert_eq!(
        error,
        "two.yaml: data.a.b is defined by another document, too"
    );
}
