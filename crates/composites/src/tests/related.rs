//! The related objects that a function receives, and their names in the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::composite::{HookVersion, Method};
use oz_core::controller::{Failure, Verdict};
use serde_json::{Value, json};

use super::world::*;
use crate::related::{MOST_RULES, Related, Rule, rules};
use crate::{Question, Refused};

fn parent(namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        namespace: namespace.map(ToOwned::to_owned),
        ..ObjectMeta::default()
    }
}

fn read(rule: Value, version: HookVersion, namespace: Option<&str>) -> Result<Rule, String> {
    let mut rule = rule;
    rule["apiVersion"] = json!("v1");
    rule["resource"] = json!("configmaps");
    let answer = json!({"relatedResources": [rule]});
    let rules = rules(&answer, version, &parent(namespace));
    rules
        .map(|mut rules| rules.remove(0))
        .map_err(|error| error.to_string())
}

#[test]
fn a_rule_selects_by_names_labels_and_namespaces() {
    let labelled = |labels: &[(&str, &str)]| -> BTreeMap<String, String> {
        let owned = labels
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        owned.collect()
    };
    let namespaces: BTreeMap<&str, _> = [
        ("dev", labelled(&[("team", "one")])),
        ("prod", labelled(&[])),
    ]
    .into();
    let object = |namespace: &str, name: &str, labels: &[(&str, &str)]| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(labelled(labels)),
        ..ObjectMeta::default()
    };
    let all = [
        object("dev", "a", &[("source", "yes")]),
        object("dev", "b", &[]),
        object("prod", "a", &[]),
        object("prod", "c", &[("source", "yes")]),
    ];
    for (rule, expected) in [
        (json!({}), &[0, 1, 2, 3][..]),
        (json!({"namespace": "dev"}), &[0, 1]),
        (json!({"names": ["a"]}), &[0, 2]),
        (json!({"names": ["a", "c"], "namespace": "prod"}), &[2, 3]),
        (
            json!({"labelSelector": {"matchLabels": {"source": "yes"}}}),
            &[0, 3],
        ),
        (
            json!({"namespaceSelector": {"matchLabels": {"team": "one"}}}),
            &[0, 1],
        ),
        (
            json!({
                "labelSelector": {"matchLabels": {"source": "yes"}},
                "namespaceSelector": {"matchLabels": {"team": "one"}},
            }),
            &[0],
        ),
        (
            json!({"namespaceSelector": {"matchLabels": {"team": "none"}}}),
            &[],
        ),
    ] {
        let read = read(rule.clone(), HookVersion::V2, Some("dev")).unwrap();
        let found = (0..all.len())
            .filter(|index| read.selects(&all[*index], |name| namespaces.get(name)))
            .collect::<Vec<_>>();
        assert_eq!(found, expected, "{rule}");
    }
    let global = ObjectMeta {
        name: Some("g".to_owned()),
        ..ObjectMeta::default()
    };
    let rule = read(json!({"namespace": "dev"}), HookVersion::V2, None).unwrap();
    assert!(rule.selects(&global, |_| None), "it is in no namespace");
}

#[test]
fn by_the_first_version_a_parent_in_a_namespace_sees_no_other() {
    let own = read(json!({}), HookVersion::V1, Some("dev")).unwrap();
    assert_eq!(own.namespace.as_deref(), Some("dev"));
    let other = read(json!({"namespace": "prod"}), HookVersion::V1, Some("dev"));
    assert!(other.unwrap_err().contains("with version v2"));
    assert!(read(json!({"namespace": "prod"}), HookVersion::V2, Some("dev")).is_ok());
    assert!(read(json!({"namespace": "prod"}), HookVersion::V1, None).is_ok());
}

#[test]
fn invalid_related_resources_are_reported_with_path() {
    let names = json!({"names": ["a"], "labelSelector": {}});
    let many = vec![json!({"apiVersion": "v1", "resource": "configmaps"}); MOST_RULES + 1];
    for (answer, expected) in [
        (json!([]), "is a list, not an object"),
        (
            json!({"relatedResources": {}}),
            "has an object as its relatedResources",
        ),
        (
            json!({"relatedResources": [{"apiVersion": "v1"}]}),
            "relatedResources[0], which names",
        ),
        (
            json!({"relatedResources": [{"apiVersion": "v1", "resource": "*"}]}),
            "is not a kind",
        ),
        (json!({"relatedResources": many}), "of at most 32"),
    ] {
        let error = rules(&answer, HookVersion::V2, &parent(None))
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{answer}: {error}");
    }
    let error = read(names, HookVersion::V1, None).unwrap_err();
    assert!(error.contains("only one of the two"), "{error}");
    let both = json!({"namespace": "a", "namespaceSelector": {}});
    let error = read(both, HookVersion::V2, None).unwrap_err();
    assert!(error.contains("only one of the two"), "{error}");
    assert_eq!(
        rules(&json!({}), HookVersion::V1, &parent(None)).unwrap(),
        Vec::new()
    );
}

fn asked(world: &World) -> Question {
    match world.verdict(timestamp(0)) {
        Verdict::Need { question, .. } => question,
        other => panic!("{other:?}"),
    }
}

fn customized() -> World {
    World::with(Method::InPlace, |composite| {
        composite["spec"]["hooks"]["customize"] =
            json!({"webhook": {"url": "http://functions/more"}});
    })
}

#[test]
fn a_function_is_shown_what_it_asked_for() {
    let mut world = customized();
    let Question::Customize(request) = asked(&world) else {
        panic!("it is asked first which other objects it wants")
    };
    assert_eq!(request["parent"]["kind"], "Fleet");
    assert_eq!(request["controller"]["metadata"]["name"], "fleets");
    assert!(request.get("children").is_none());
    let rule = read(json!({"names": ["source"]}), HookVersion::V1, Some("dev")).unwrap();
    world.facts.rules = Some(Ok(vec![rule.clone()]));
    assert_eq!(asked(&world), Question::Related(vec![rule]));
    let kind = world.composite.family.children[0].0.clone();
    let source = |namespace: &str| {
        Arc::new(object(
            json!({"metadata": {"name": "source", "namespace": namespace}}),
        ))
    };
    let objects = vec![source("dev"), source("prod")];
    world.facts.related = Some(Ok(vec![Related {
        kind: kind.clone(),
        objects,
    }]));
    let Question::Call(_, request) = asked(&world) else {
        panic!("it is asked with them")
    };
    let related = request["related"]["ConfigMap.v1"].as_object().unwrap();
    let names: Vec<_> = related.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["prod/source", "source"],
        "each by a name of its own"
    );
    assert_eq!(related["source"]["kind"], "ConfigMap");

    world.facts.related = Some(Ok(vec![Related {
        kind,
        objects: Vec::new(),
    }]));
    let Question::Call(_, request) = asked(&world) else {
        panic!("it is asked without them")
    };
    assert_eq!(request["related"], json!({"ConfigMap.v1": {}}));
}

#[test]
fn as_long_as_it_is_not_known_what_to_show_nothing_changes() {
    let mut world = customized();
    world.answers(&json!({"children": [map("a", "x")]}));
    let failure = Failure::transient("HookFailed", "it hangs");
    world.facts.rules = Some(Err(Refused::from(failure.clone())));
    assert_eq!(world.plan(timestamp(0)).obstacle, Some(failure));
    let failure = Failure::transient("RelatedUnknown", "it is not listed");
    let rule = read(json!({}), HookVersion::V1, Some("dev")).unwrap();
    world.facts.rules = Some(Ok(vec![rule]));
    world.facts.related = Some(Err(failure.clone()));
    let plan = world.plan(timestamp(0));
    assert_eq!(plan.steps().count(), 0);
    assert_eq!(plan.obstacle, Some(failure));
}
