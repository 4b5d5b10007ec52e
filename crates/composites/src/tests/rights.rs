//! Children that grant rights: the subjects and the roles.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use oz_api::composite::Method;
use oz_api::{Requester, labels};
use oz_core::access::stamp::Stamp;
use oz_core::controller::{Failure, Verdict};
use oz_core::transient::{BindableRoles, Policy};
use serde_json::{Value, json};

use super::world::*;
use crate::Question;
use crate::declared::Placed;
use crate::rights::{Act, Found, Want, authors, digest, stamped_kind};

fn user(name: &str) -> Requester {
    Requester {
        user: name.to_owned(),
        uid: format!("uid of {name}"),
        ..Requester::default()
    }
}

/// Returns a world with a Fleet that has bindings and roles as children.
pub(super) fn world(method: Method) -> World {
    let mut world = World::new(method);
    let placed = |kind: &str, plural: &str| {
        let mut placed: Placed = world.composite.family.children[0].0.clone();
        let resource = &mut placed.resource;
        resource.group = "rbac.authorization.k8s.io".to_owned();
        resource.version = "v1".to_owned();
        resource.api_version = "rbac.authorization.k8s.io/v1".to_owned();
        resource.kind = kind.to_owned();
        resource.plural = plural.to_owned();
        (placed, method)
    };
    world.composite.family.children = vec![
        placed("RoleBinding", "rolebindings"),
        placed("Role", "roles"),
    ];
    world.composite.bindable = Some(Arc::new(Policy {
        roles: BindableRoles(vec!["view*".parse().unwrap(), "edit".parse().unwrap()]),
        longest: SignedDuration::from_hours(1),
        longest_in: [].into(),
        longest_lead: SignedDuration::from_hours(168),
        most_waiting: 20,
        own_namespace: "oz-system".to_owned(),
    }));
    world.parent.metadata.creation_timestamp = Some(Time(timestamp(0)));
    stamp(&mut world, &["alice"], "");
    world
}

/// Writes the stamp of the webhook with these authors on the current parent.
pub(super) fn stamp(world: &mut World, users: &[&str], uid: &str) {
    let resource = &world.composite.family.parent.resource;
    world.parent.types = Some(kube::core::TypeMeta {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
    });
    let stamp = Stamp {
        requester: user(users[0]),
        also: users[1..].iter().map(|name| user(name)).collect(),
        object_uid: uid.to_owned(),
        kind: stamped_kind(&world.parent),
        namespace: "dev".to_owned(),
        name: "one".to_owned(),
        spec_digest: digest(&world.parent),
        at: timestamp(0),
        nonce: "n".to_owned(),
        ..Stamp::default()
    };
    let sealed = stamp.seal(&world.composite.keys).unwrap();
    let annotations = world.parent.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::REQUESTER.to_owned(), sealed);
    // A watch returns the parent in this form.
    world.parent.types = None;
}

fn binding(role: &str, subject: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": subject, "apiGroup": "rbac.authorization.k8s.io"}],
    })
}

fn role(verb: &str, resource: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": [resource], "verbs": [verb]}],
    })
}

fn rule(verb: &str, resource: &str) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: vec![verb.to_owned()],
        ..PolicyRule::default()
    }
}

pub(super) fn asked(world: &World, now: Timestamp) -> Vec<Want> {
    match world.verdict(now) {
        Verdict::Need {
            question: Question::Rights(wants),
            ..
        } => wants,
        other => panic!("{other:?}"),
    }
}

/// Answers all checks of the pass with this result.
pub(super) fn found(world: &mut World, now: Timestamp, found: &Found) {
    let wants = asked(world, now);
    let answers = wants.into_iter().map(|want| (want, found.clone()));
    world.facts.rights = answers.collect();
}

pub(super) fn fine() -> Found {
    Found {
        lacks: Ok(None),
        rules: Ok(Some(vec![rule("get", "pods")])),
    }
}

/// Returns the reason and the message of the obstacle.
pub(super) fn obstacle(world: &World, now: Timestamp) -> (&'static str, String) {
    let plan = world.plan(now);
    let steps: Vec<_> = plan.steps().collect();
    assert!(steps.is_empty(), "{steps:?}");
    let obstacle = plan.obstacle.unwrap();
    (obstacle.reason, obstacle.message)
}

#[test]
fn binding_is_created_if_author_of_parent_may_bind_role() {
    let mut world = world(Method::Recreate);
    world.answers(&json!({"children": [binding("view", "bob")]}));
    let wants = asked(&world, timestamp(1));
    assert_eq!(wants[0].authors, [user("alice")]);
    assert!(matches!(&wants[0].act, Act::Bind(role) if role.name == "view"));
    assert_eq!(wants[0].namespace.as_deref(), Some("dev"));
    found(&mut world, timestamp(1), &fine());
    assert_eq!(world.pass(timestamp(1)), ["create b"]);
    // An existing object is not checked again.
    world.facts.rights.clear();
    assert!(world.pass(timestamp(2)).is_empty());
}

#[test]
fn author_without_rights_gets_none_through_function() {
    let lacking = Found {
        lacks: Ok(Some("alice".to_owned())),
        ..fine()
    };
    let mut bound = world(Method::InPlace);
    bound.answers(&json!({"children": [binding("view", "bob")]}));
    found(&mut bound, timestamp(1), &lacking);
    let (reason, message) = obstacle(&bound, timestamp(1));
    assert_eq!(reason, "MayNotBind");
    assert!(
        message.contains("alice") && message.contains("view"),
        "{message}"
    );

    let mut written = world(Method::InPlace);
    written.answers(&json!({"children": [role("get", "pods")]}));
    assert!(matches!(
        asked(&written, timestamp(1))[0].act,
        Act::Write(..)
    ));
    found(&mut written, timestamp(1), &lacking);
    assert_eq!(obstacle(&written, timestamp(1)).0, "MayNotEscalate");
    found_again(&mut written, &fine());
    assert_eq!(written.pass(timestamp(1)), ["create r"]);
}

fn found_again(world: &mut World, answer: &Found) {
    world.facts.rights.clear();
    found(world, timestamp(1), answer);
}

#[test]
fn bindable_list_and_role_danger_apply_to_all_authors() {
    let dangerous = |rules| Found {
        rules: Ok(Some(rules)),
        ..fine()
    };
    // The role is not on the list: the authors are not checked.
    let mut unlisted = world(Method::InPlace);
    unlisted.answers(&json!({"children": [binding("cluster-admin", "bob")]}));
    assert_eq!(obstacle(&unlisted, timestamp(1)).0, "RoleNotBindable");

    let mut patterned = world(Method::InPlace);
    patterned.answers(&json!({"children": [binding("view-more", "bob")]}));
    found(
        &mut patterned,
        timestamp(1),
        &dangerous(vec![rule("get", "secrets")]),
    );
    assert_eq!(obstacle(&patterned, timestamp(1)).0, "RoleTooPowerful");

    let mut named = world(Method::InPlace);
    named.answers(&json!({"children": [binding("edit", "bob")]}));
    found(
        &mut named,
        timestamp(1),
        &dangerous(vec![rule("get", "secrets")]),
    );
    assert_eq!(
        named.pass(timestamp(1)),
        ["create b"],
        "it is listed by its name"
    );

    let mut missing = world(Method::InPlace);
    missing.answers(&json!({"children": [binding("view", "bob")]}));
    let none = Found {
        rules: Ok(None),
        ..fine()
    };
    found(&mut missing, timestamp(1), &none);
    assert_eq!(obstacle(&missing, timestamp(1)).0, "RoleMissing");

    let mut written = world(Method::InPlace);
    written.answers(&json!({"children": [role("get", "secrets")]}));
    found(&mut written, timestamp(1), &fine());
    assert_eq!(obstacle(&written, timestamp(1)).0, "RoleTooPowerful");

    let mut own = world(Method::InPlace);
    own.composite.bindable = own.composite.bindable.map(|policy| {
        Arc::new(Policy {
            own_namespace: "dev".to_owned(),
            ..(*policy).clone()
        })
    });
    own.answers(&json!({"children": [binding("view", "bob")]}));
    assert_eq!(obstacle(&own, timestamp(1)).0, "ReservedNamespace");
}

#[test]
fn function_hands_out_no_rights_without_proven_author() {
    type Change = fn(&mut World);
    let cases: [(&str, Change, &str); 7] = [
        (
            "no stamp",
            |it| it.parent.metadata.annotations = None,
            "NotStamped",
        ),
        (
            "other content",
            |it| it.parent.data["spec"]["who"] = json!("eve"),
            "StampOfAnotherRequest",
        ),
        (
            "other labels",
            |it| it.parent.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()),
            "StampOfAnotherRequest",
        ),
        (
            "other annotations",
            |it| {
                let annotations = it.parent.metadata.annotations.get_or_insert_default();
                annotations.insert("a".to_owned(), "b".to_owned());
            },
            "StampOfAnotherRequest",
        ),
        (
            "created again later",
            |it| it.parent.metadata.creation_timestamp = Some(Time(timestamp(3600))),
            "StampTimeMismatch",
        ),
        (
            "another object's",
            |it| stamp(it, &["alice"], "another"),
            "StampOfAnotherRequest",
        ),
        (
            "another kind's",
            |it| it.composite.family.parent.resource.group = "other.example.org".to_owned(),
            "StampOfAnotherRequest",
        ),
    ];
    for (name, change, reason) in cases {
        let mut world = world(Method::InPlace);
        change(&mut world);
        world.answers(&json!({"children": [binding("view", "bob")]}));
        assert_eq!(obstacle(&world, timestamp(1)).0, reason, "{name}");
    }
}

#[test]
fn the_status_and_what_oz_writes_need_no_new_stamp() {
    let mut world = world(Method::InPlace);
    world.parent.data["status"] = json!({"phase": "Active"});
    world.parent.metadata.finalizers = Some(vec!["a/b".to_owned()]);
    let annotations = world.parent.metadata.annotations.get_or_insert_default();
    annotations.insert("oz.wizardofoz.co/note".to_owned(), "x".to_owned());
    world.answers(&json!({"children": [binding("view", "bob")]}));
    assert_eq!(asked(&world, timestamp(1)).len(), 1);
}

#[test]
fn each_author_of_parent_is_reviewed_for_rights() {
    let mut world = world(Method::InPlace);
    world.parent.data["spec"]["who"] = json!("carol");
    world.parent.metadata.creation_timestamp = Some(Time(timestamp(-86_400)));
    stamp(&mut world, &["alice", "bob"], "parent");
    world.answers(&json!({"children": [binding("view", "carol")]}));
    let wants = asked(&world, timestamp(1));
    assert_eq!(wants[0].authors, [user("alice"), user("bob")]);
    let users: Vec<_> = wants[0]
        .reviews()
        .map(|(_, review)| review.spec.user)
        .collect();
    assert_eq!(users, [Some("alice".to_owned()), Some("bob".to_owned())]);
    world.parent.types = Some(kube::core::TypeMeta {
        api_version: "test.example.org/v1".to_owned(),
        kind: "Fleet".to_owned(),
    });
    let known = authors(&world.composite.keys, &world.parent).unwrap();
    assert_eq!(known, [user("alice"), user("bob")]);
}

#[test]
fn rejected_change_keeps_existing_child_and_its_expiry() {
    for method in [Method::Recreate, Method::InPlace] {
        let mut world = world(method);
        let until = (timestamp(100), json!({"children": []}));
        world.answers_ahead(&json!({"children": [binding("view", "bob")]}), &[until]);
        found(&mut world, timestamp(1), &fine());
        world.pass(timestamp(1));
        assert_eq!(world.live.len(), 1);
        // A later expiry, and another subject: an author without the permission changes nothing.
        let later = (timestamp(1000), json!({"children": []}));
        let refused = Found {
            lacks: Ok(Some("alice".to_owned())),
            ..fine()
        };
        for (subject, who) in [("bob", "only later"), ("eve", "and for another")] {
            world.facts.rights.clear();
            world.answers_ahead(
                &json!({"children": [binding("view", subject)]}),
                std::slice::from_ref(&later),
            );
            found(&mut world, timestamp(2), &refused);
            assert!(world.pass(timestamp(2)).is_empty(), "{method:?} {who}");
        }
        assert_eq!(world.pass(timestamp(100)), ["delete b"], "{method:?}");
    }
}

#[test]
fn other_children_are_made_though_one_is_refused_and_it_is_judged_again() {
    let mut world = world(Method::InPlace);
    let answer = json!({"children": [role("get", "pods"), binding("admin", "bob")]});
    world.answers(&answer);
    found(&mut world, timestamp(1), &fine());
    let plan = world.plan(timestamp(1));
    assert_eq!(plan.obstacle.unwrap().reason, "RoleNotBindable");
    assert_eq!(plan.wake, Some(timestamp(61)));
    assert_eq!(world.pass(timestamp(1)), ["create r"]);
}

#[test]
fn child_that_cannot_be_judged_is_rejected() {
    let mut aggregated = role("get", "pods");
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": []});
    let mut nameless = binding("view", "bob");
    nameless["roleRef"] = json!({"kind": "ClusterRole"});
    for child in [aggregated, nameless] {
        let mut world = world(Method::InPlace);
        world.answers(&json!({"children": [child]}));
        assert_eq!(obstacle(&world, timestamp(1)).0, "ResponseInvalid");
    }
    let mut world = world(Method::InPlace);
    world.answers(&json!({"children": [binding("view", "bob")]}));
    let unknown = Found {
        lacks: Err(Failure::transient("Timeout", "no answer")),
        ..fine()
    };
    found(&mut world, timestamp(1), &unknown);
    assert_eq!(obstacle(&world, timestamp(1)).0, "Timeout");
}

/// Returns a world with a Fleet that has children of this kind.
fn children_of(api_version: &str, kind: &str, plural: &str) -> World {
    let mut world = world(Method::InPlace);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let placed = &mut world.composite.family.children[0].0;
    placed.resource.group = group.to_owned();
    placed.resource.version = version.to_owned();
    placed.resource.api_version = api_version.to_owned();
    placed.resource.kind = kind.to_owned();
    placed.resource.plural = plural.to_owned();
    world
}

fn child(api_version: &str, kind: &str, content: &Value) -> Value {
    let mut child = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "c"}});
    for (name, value) in content.as_object().into_iter().flatten() {
        child[name] = value.clone();
    }
    child
}

fn lacking() -> Found {
    Found {
        lacks: Ok(Some("alice".to_owned())),
        ..fine()
    }
}

/// Returns the verbs and resources of the checks of authors.
fn rights(wants: &[Want]) -> Vec<String> {
    let reviews = wants.iter().flat_map(Want::reviews);
    let rights = reviews.filter_map(|(_, review)| review.spec.resource_attributes);
    rights
        .map(|right| {
            let parts = [right.verb, right.resource, right.group, right.name];
            parts.map(Option::unwrap_or_default).join(" ")
        })
        .collect()
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn child_of_a_privileged_kind_is_written_if_its_authors_may_write_it() {
    let account = json!({"spec": {"template": {"spec": {"serviceAccountName": "deployer"}}}});
    let cron = json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"serviceAccount": "deployer"}}}}}});
    let role = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
    let none = json!({});
    for (version, kind, plural, content, asks) in [
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "networkpolicies",
            &none,
            "create networkpolicies networking.k8s.io c",
        ),
        (
            "coordination.k8s.io/v1",
            "Lease",
            "leases",
            &none,
            "create leases coordination.k8s.io c",
        ),
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "endpointslices",
            &none,
            "create endpointslices discovery.k8s.io c",
        ),
        (
            "paddock.dev/v1alpha1",
            "HarnessRun",
            "harnessruns",
            &none,
            "create harnessruns paddock.dev c",
        ),
        (
            "argoproj.io/v1alpha1",
            "Workflow",
            "workflows",
            &none,
            "create workflows argoproj.io c",
        ),
        (
            "argoproj.io/v1alpha1",
            "Application",
            "applications",
            &none,
            "create applications argoproj.io c",
        ),
        (
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            "certificatesigningrequests",
            &none,
            "create certificatesigningrequests certificates.k8s.io c",
        ),
        (
            "v1",
            "ServiceAccount",
            "serviceaccounts",
            &none,
            "create serviceaccounts  c",
        ),
        ("v1", "Endpoints", "endpoints", &none, "create endpoints  c"),
        (
            "v1",
            "Secret",
            "secrets",
            &json!({"type": "kubernetes.io/service-account-token"}),
            "create secrets  c",
        ),
        (
            "apps/v1",
            "Deployment",
            "deployments",
            &account,
            "create deployments apps c",
        ),
        (
            "batch/v1",
            "CronJob",
            "cronjobs",
            &cron,
            "create cronjobs batch c",
        ),
        (
            "v1",
            "Pod",
            "pods",
            &json!({"spec": {"serviceAccountName": "deployer"}}),
            "create pods  c",
        ),
        (
            "example.com/v1",
            "TransientRoleBinding",
            "transientrolebindings",
            &role,
            "create transientrolebindings example.com c, bind clusterroles rbac.authorization.k8s.io view",
        ),
    ] {
        let mut world = children_of(version, kind, plural);
        world.answers(&json!({"children": [child(version, kind, content)]}));
        assert_eq!(rights(&asked(&world, timestamp(1))).join(", "), asks);
        found(&mut world, timestamp(1), &lacking());
        let (reason, message) = obstacle(&world, timestamp(1));
        assert_eq!(reason, "MayNotModify", "{message}");
        found_again(&mut world, &fine());
        assert_eq!(world.pass(timestamp(1)), ["create c"], "{kind}");
        // No author is known.
        let mut world = children_of(version, kind, plural);
        world.parent.metadata.annotations = None;
        world.answers(&json!({"children": [child(version, kind, content)]}));
        assert_eq!(obstacle(&world, timestamp(1)).0, "NotStamped", "{kind}");
    }
}

#[test]
fn children_without_rights_are_written_for_any_author() {
    let account = json!({"spec": {"template": {"spec": {"serviceAccountName": "default"}}}});
    let none = json!({});
    for (version, kind, plural, content) in [
        ("v1", "ConfigMap", "configmaps", &none),
        ("v1", "Service", "services", &none),
        ("v1", "Secret", "secrets", &json!({"type": "Opaque"})),
        ("apps/v1", "Deployment", "deployments", &account),
        ("v1", "Pod", "pods", &json!({"spec": {}})),
        (
            "apps.example.org/v1",
            "NetworkPolicy",
            "networkpolicies",
            &none,
        ),
    ] {
        let mut world = children_of(version, kind, plural);
        world.parent.metadata.annotations = None;
        world.answers(&json!({"children": [child(version, kind, content)]}));
        assert_eq!(world.pass(timestamp(1)), ["create c"], "{kind}");
    }
}

#[test]
fn config_map_of_the_system_is_privileged() {
    let mut world = children_of("v1", "ConfigMap", "configmaps");
    world.parent.metadata.namespace = Some("kube-system".to_owned());
    world.answers(&json!({"children": [child("v1", "ConfigMap", &json!({}))]}));
    assert_eq!(obstacle(&world, timestamp(1)).0, "StampOfAnotherRequest");
}

#[test]
fn child_of_a_privileged_kind_is_changed_and_deleted_if_its_authors_may() {
    let (version, kind) = ("networking.k8s.io/v1", "NetworkPolicy");
    let mut world = children_of(version, kind, "networkpolicies");
    let named = |content: &Value| json!({"children": [child(version, kind, content)]});
    world.answers(&named(&json!({"spec": {"policyTypes": ["Ingress"]}})));
    found(&mut world, timestamp(1), &fine());
    assert_eq!(world.pass(timestamp(1)), ["create c"]);
    for (answer, asks, done) in [
        (
            named(&json!({"spec": {"policyTypes": []}})),
            "update networkpolicies networking.k8s.io c",
            "change c",
        ),
        (
            json!({"children": []}),
            "delete networkpolicies networking.k8s.io c",
            "delete c",
        ),
    ] {
        world.facts.rights.clear();
        world.answers(&answer);
        assert_eq!(rights(&asked(&world, timestamp(2))), [asks]);
        found(&mut world, timestamp(2), &lacking());
        assert_eq!(obstacle(&world, timestamp(2)).0, "MayNotModify");
        found_again(&mut world, &fine());
        assert_eq!(world.pass(timestamp(2)), [done]);
    }
}

/// An object that only grants rights is deleted without a check of the authors, so that no right outlives its parent.
#[test]
fn deletion_of_rights_requires_no_review() {
    let mut bound = world(Method::InPlace);
    bound.answers(&json!({"children": [binding("view", "bob")]}));
    found(&mut bound, timestamp(1), &fine());
    assert_eq!(bound.pass(timestamp(1)), ["create b"]);
    bound.facts.rights.clear();
    bound.answers(&json!({"children": []}));
    assert_eq!(bound.pass(timestamp(2)), ["delete b"]);
}

#[test]
fn change_of_a_child_that_others_made_privileged_asks_its_authors() {
    let (version, kind) = ("apps/v1", "Deployment");
    let mut world = children_of(version, kind, "deployments");
    let named = |image: &str| {
        let spec = json!({"template": {"spec": {"containers": [{"name": "a", "image": image}]}}});
        json!({"children": [child(version, kind, &json!({"spec": spec}))]})
    };
    world.answers(&named("a:1"));
    assert_eq!(world.pass(timestamp(1)), ["create c"]);
    // The function omits the account, so it stays.
    let live = &mut world.live[0].object.data;
    live["spec"]["template"]["spec"]["serviceAccountName"] = json!("deployer");
    world.answers(&named("mallory:1"));
    assert_eq!(
        rights(&asked(&world, timestamp(2))),
        ["update deployments apps c"]
    );
}
