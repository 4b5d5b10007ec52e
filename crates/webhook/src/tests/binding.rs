//! Transient bindings at admission: the requester is stamped, and a binding is denied through oz to
//! a user who could not create it themselves.

use serde_json::{Value, json};

use super::server::Server;
use super::{Attempt, Records, Webhook, owners, registered, with};

pub(super) const FINALIZER: &str = "oz.wizardofoz.co/revoke";

pub(super) fn binding() -> Value {
    json!({
        "apiVersion": "crds.wizardofoz.co/v1alpha1",
        "kind": "TransientRoleBinding",
        "metadata": { "name": "on-call", "namespace": "shop" },
        "spec": {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
            },
            "subjects": [{ "kind": "User", "name": "alice" }],
            "validUntil": "2026-01-01T13:00:00Z",
            "reason": "INC-7",
        },
    })
}

pub(super) fn published(kind: &str, from: &str, until: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": kind,
        "metadata": { "name": "test", "namespace": (kind == "TransientRoleBinding").then_some("shop") },
        "validFrom": from,
        "validUntil": until,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
        },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "default" }],
    })
}

fn bob(object: Value) -> Attempt {
    Attempt::create("bob", &["leads"], object)
}

#[tokio::test]
async fn binding_is_stamped_with_requester_and_finalizer() {
    let webhook = Webhook::new(Server::default());
    let forged = with(
        binding(),
        "/metadata/annotations",
        json!({
            "crds.wizardofoz.co/requested-by": "root", "crds.wizardofoz.co/requester": "{}",
        }),
    );
    let stamped = webhook.stamped(&bob(forged)).await;
    let metadata = &stamped["metadata"];
    assert_eq!(metadata["finalizers"], json!([FINALIZER]));
    let annotations = &metadata["annotations"];
    assert_eq!(annotations["crds.wizardofoz.co/requested-by"], "bob");
    let stamp: Value = serde_json::from_str(
        annotations["crds.wizardofoz.co/requester"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(
        (&stamp["user"], &stamp["groups"]),
        (&json!("bob"), &json!(["leads"]))
    );
    // Other finalizers stay.
    let other = with(
        binding(),
        "/metadata/finalizers",
        json!(["example.com/other"]),
    );
    let stamped = webhook.stamped(&bob(other)).await;
    assert_eq!(
        stamped["metadata"]["finalizers"],
        json!(["example.com/other", FINALIZER])
    );
}

#[tokio::test]
async fn user_who_may_bind_role_is_admitted_and_recorded() {
    let webhook = Webhook::new(Server::default());
    let answer = webhook.create(&bob(binding())).await;
    assert!(answer.allowed, "{answer:?}");
    assert!(answer.warnings.is_empty());
    let asked = webhook.server.asked.lock().clone();
    assert_eq!(
        asked,
        [json!({
            "user": "bob", "groups": ["leads"],
            "resourceAttributes": {
                "group": "rbac.authorization.k8s.io", "resource": "clusterroles", "verb": "bind",
                "name": "view", "namespace": "shop",
            },
        })]
    );
    let record = &webhook.recorded()[0];
    assert_eq!(record.action.to_string(), "RequestCreated");
    assert_eq!(record.user.as_ref().unwrap().user, "bob");
    assert_eq!(record.request.name, "on-call");
    assert_eq!(record.details["role"], "ClusterRole/view");
    assert_eq!(record.details["subjects"], "User/alice");
    assert_eq!(record.details["reason"], "INC-7");
}

#[tokio::test]
async fn binding_that_is_not_permitted_is_refused_with_field() {
    let role = |name: &str| with(binding(), "/spec/roleRef/name", name);
    let long = with(binding(), "/spec/validUntil", "2026-01-01T14:00:01Z");
    let mut lasting = binding();
    lasting["spec"]
        .as_object_mut()
        .unwrap()
        .remove("validUntil");
    let lasting = with(lasting, "/spec/duration", "2h0m1s");
    let prod = with(binding(), "/metadata/namespace", "prod");
    for (object, forbids, reason, field) in [
        (
            binding(),
            &["bind clusterroles"][..],
            "MayNotBind",
            "spec.roleRef",
        ),
        (role("edit"), &[], "RoleNotBindable", "spec.roleRef"),
        (role("team-secret"), &[], "RoleTooPowerful", "spec.roleRef"),
        (long, &[], "WindowTooLong", "spec.validUntil"),
        (lasting, &[], "WindowTooLong", "spec.duration"),
        (prod, &[], "WindowTooLong", "spec.validUntil"),
        (
            with(binding(), "/spec/validUntil", "soon"),
            &[],
            "Invalid",
            "spec.validUntil",
        ),
        (
            with(binding(), "/spec/validFrom", "2026-01-01T13:00:00Z"),
            &[],
            "Invalid",
            "spec.validUntil",
        ),
        // Expired at its creation.
        (
            with(binding(), "/spec/validUntil", "2026-01-01T12:00:00Z"),
            &[],
            "Invalid",
            "spec.validUntil",
        ),
        (
            with(binding(), "/metadata/namespace", "oz-system"),
            &[],
            "ReservedNamespace",
            "metadata.namespace",
        ),
    ] {
        let secrets = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }]);
        let webhook = Webhook::new(Server {
            forbids: forbids.to_vec(),
            roles: vec![("team-secret", secrets)],
            ..Server::default()
        });
        let answer = webhook.create(&bob(object.clone())).await;
        assert_eq!(answer.refusal(), Some(reason), "{object}: {answer:?}");
        assert_eq!(answer.fields(), [field], "{object}");
        assert_eq!(webhook.recorded()[0].action.to_string(), "RequestDenied");
    }
}

#[tokio::test]
async fn nothing_is_to_be_bound_where_the_operator_does_not_look() {
    for (served, refusal) in [("shop", None), ("billing", Some("NamespaceNotServed"))] {
        let webhook = Webhook::new(Server {
            served: vec![served.to_owned()],
            ..Server::default()
        });
        let answer = webhook.create(&bob(binding())).await;
        assert_eq!(answer.refusal(), refusal, "{served}");
    }
}

#[tokio::test]
async fn a_role_by_pattern_must_be_harmless_and_one_by_name_is_warned_of() {
    let pods = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
    let powerful = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["create"] }]);
    let webhook = Webhook::new(Server {
        roles: vec![
            ("team-a", pods),
            ("team-c", powerful.clone()),
            ("view", powerful),
        ],
        ..Server::default()
    });
    let role = |name: &str| bob(with(binding(), "/spec/roleRef/name", name));
    assert!(webhook.create(&role("team-a")).await.allowed);
    assert_eq!(
        webhook.create(&role("team-c")).await.refusal(),
        Some("RoleTooPowerful")
    );
    // Listed by its full name: regardless of its contents.
    for (name, danger) in [("cluster-admin", "everything"), ("view", "create pods")] {
        let answer = webhook.create(&role(name)).await;
        assert!(
            answer.allowed && answer.warnings[0].contains(danger),
            "{answer:?}"
        );
    }
    let answer = webhook.create(&role("team-b")).await;
    assert!(
        answer.allowed && answer.warnings[0].contains("does not exist"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn binding_is_refused_while_permissions_are_unknown() {
    let webhook = Webhook::new(Server {
        undecided: true,
        ..Server::default()
    });
    let stamped = registered(webhook.stamped(&bob(binding())).await);
    tokio::time::pause();
    let answer = webhook.validate(&bob(stamped.clone())).await;
    assert_eq!(answer.refusal(), Some("PermissionsUnknown"));
    // Nor is a binding stamped or admitted while policies or locks about it may not have been read.
    let webhook = Webhook::new(Server {
        silent: true,
        ..Server::default()
    });
    let answer = webhook.review("mutate", &bob(binding())).await;
    assert_eq!(answer.refusal(), Some("NotReady"));
    let answer = webhook.validate(&bob(stamped)).await;
    assert_eq!(answer.refusal(), Some("NotReady"));
}

#[tokio::test]
async fn binding_without_stamp_finalizer_or_record_is_refused() {
    let webhook = Webhook::new(Server::default());
    let unstamped = registered(binding());
    let answer = webhook.validate(&bob(unstamped)).await;
    assert_eq!(answer.refusal(), Some("NotStamped"));

    let mut stripped = registered(webhook.stamped(&bob(binding())).await);
    stripped["metadata"]["finalizers"] = json!([]);
    let answer = webhook.validate(&bob(stripped)).await;
    assert_eq!(answer.refusal(), Some("NoFinalizer"));

    let stamped = registered(webhook.stamped(&bob(binding())).await);
    let answer = webhook
        .validate(&Attempt::create("eve", &[], stamped))
        .await;
    assert_eq!(answer.refusal(), Some("StampOfAnotherRequest"));

    let broken = Records {
        broken: true,
        ..Records::default()
    };
    let webhook = Webhook::recording(Server::default(), broken);
    assert_eq!(
        webhook.create(&bob(binding())).await.refusal(),
        Some("RecordFailed")
    );
    assert!(
        webhook.create(&bob(binding()).dry()).await.allowed,
        "a dry run is no fact"
    );
}

#[tokio::test]
async fn spec_and_requester_of_stored_binding_are_immutable() {
    let webhook = Webhook::new(Server::default());
    let old = registered(webhook.stamped(&bob(binding())).await);
    let changed = |pointer: &str, value: Value| with(old.clone(), pointer, value);
    for (object, field) in [
        (changed("/spec/roleRef/name", json!("edit")), "spec.roleRef"),
        (
            changed("/spec/validUntil", json!("2026-01-01T13:30:00Z")),
            "spec",
        ),
        (
            changed("/spec/subjects", json!([{ "kind": "User", "name": "eve" }])),
            "spec",
        ),
        (
            changed("/metadata/finalizers", json!([])),
            "metadata.finalizers",
        ),
        (
            changed(
                "/metadata/annotations/crds.wizardofoz.co~1requested-by",
                json!("eve"),
            ),
            "metadata.annotations[crds.wizardofoz.co/requested-by]",
        ),
        (
            changed("/metadata/ownerReferences", owners()),
            "metadata.ownerReferences",
        ),
    ] {
        let answer = webhook
            .validate(&Attempt::update("bob", &old, object))
            .await;
        assert_eq!(answer.refusal(), Some("Immutable"), "{field}: {answer:?}");
        assert_eq!(answer.fields(), [field]);
    }
    let owned = changed("/metadata/ownerReferences", owners());
    let orphaned = Attempt::update("bob", &owned, old.clone());
    assert!(webhook.validate(&orphaned).await.allowed);
    let mut renamed = owned.clone();
    renamed["metadata"]["ownerReferences"][0]["name"] = json!("never-was");
    let renamed = Attempt::update("bob", &owned, renamed);
    let answer = webhook.validate(&renamed).await;
    assert_eq!(answer.fields(), ["metadata.ownerReferences"]);
    let labelled = changed("/metadata/labels", json!({ "team": "a" }));
    assert!(
        webhook
            .validate(&Attempt::update("bob", &old, labelled))
            .await
            .allowed
    );
    let answer = webhook
        .validate(&Attempt::update("bob", &old, old.clone()).status())
        .await;
    assert_eq!(answer.refusal(), Some("StatusReserved"));
}

#[tokio::test]
async fn the_published_kinds_come_in_as_they_are() {
    let webhook = Webhook::new(Server::default());
    for (kind, from, until) in [
        // The published samples, which have expired; one of them never begins.
        (
            "TransientRoleBinding",
            "2022-01-24T21:08:00+08:00",
            "2022-01-24T21:08:00+08:00",
        ),
        (
            "TransientClusterRoleBinding",
            "2022-01-23T21:08:00+08:00",
            "2022-01-25T21:08:00+08:00",
        ),
    ] {
        let answer = webhook.create(&bob(published(kind, from, until))).await;
        assert!(answer.allowed && answer.warnings.len() == 1, "{answer:?}");
    }
    let now = published(
        "TransientRoleBinding",
        "2026-01-01T11:59:50Z",
        "2026-01-01T12:05:50Z",
    );
    let answer = webhook.create(&bob(now.clone())).await;
    assert!(answer.allowed && answer.warnings.is_empty(), "{answer:?}");

    for field in ["validFrom", "validUntil", "roleRef", "subjects"] {
        let answer = webhook
            .create(&bob(with(now.clone(), field, "nonsense")))
            .await;
        assert_eq!(
            (answer.refusal(), answer.fields()),
            (Some("Invalid"), vec![field])
        );
    }
    let stamped = registered(webhook.stamped(&bob(now)).await);
    let longer = with(stamped.clone(), "/validUntil", "2026-01-01T12:30:00Z");
    let answer = webhook
        .validate(&Attempt::update("bob", &stamped, longer))
        .await;
    assert_eq!(
        (answer.refusal(), answer.fields()),
        (Some("Immutable"), vec!["validUntil"])
    );
}

/// Returns a binding that opens in half an hour.
fn dated() -> Value {
    with(binding(), "/spec/validFrom", "2026-01-01T12:30:00Z")
}

/// Returns the validating call of the API server for a new, stamped binding with this UID.
async fn asked(webhook: &Webhook, user: &str, uid: &str, object: Value) -> Attempt {
    let attempt = Attempt::create(user, &["leads"], object);
    let stamped = registered(webhook.stamped(&attempt).await);
    Attempt {
        object: Some(with(stamped, "/metadata/uid", uid)),
        ..attempt
    }
}

/// Returns stored bindings of users that wait for their windows.
pub(super) async fn stored(users: impl IntoIterator<Item = &str>) -> Vec<Value> {
    let webhook = Webhook::new(Server::default());
    let mut all = Vec::new();
    for (number, user) in users.into_iter().enumerate() {
        let object = with(dated(), "/metadata/name", format!("b{number}"));
        let namespace = format!("team-{}", number % 3);
        let object = with(object, "/metadata/namespace", namespace);
        let stored = asked(&webhook, user, &format!("stored-{number}"), object).await;
        all.push(stored.object.unwrap());
    }
    all
}

#[tokio::test]
async fn binding_beyond_the_waiting_ones_of_its_user_is_refused() {
    let bobs = std::iter::repeat_n("bob", 22);
    let mut all = stored(bobs.chain(std::iter::repeat_n("carol", 30))).await;
    // None of these waits for its window: one is denied, one is being deleted, and one has no valid
    // stamp.
    all[0]["status"] = json!({ "phase": "Denied" });
    all[1]["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:30:00Z");
    all[2]["metadata"]["annotations"]["crds.wizardofoz.co/requester"] = json!("{}");
    let webhook = Webhook::new(Server::with(all));
    let answers = async |user: &str, uid: &str, object: Value| {
        let attempt = asked(&webhook, user, uid, object).await;
        webhook.validate(&attempt).await
    };
    // A dry run does not count.
    let tried = asked(&webhook, "bob", "tried", dated()).await.dry();
    assert!(webhook.validate(&tried).await.allowed);
    let answer = answers("bob", "new", dated()).await;
    assert!(answer.allowed, "{answer:?}");
    // The watch has not shown that one yet. A generated name does not make another user.
    let mut generated = dated();
    let metadata = generated["metadata"].as_object_mut().unwrap();
    metadata.remove("name");
    metadata.insert("generateName".to_owned(), "again-".into());
    let of_another_kind = published(
        "TransientClusterRoleBinding",
        "2026-01-01T12:30:00Z",
        "2026-01-01T13:30:00Z",
    );
    for (number, object) in [dated(), generated, of_another_kind]
        .into_iter()
        .enumerate()
    {
        let answer = answers("bob", &format!("newer-{number}"), object.clone()).await;
        assert_eq!(answer.refusal(), Some("TooManyWaiting"), "{object}");
        let field = answer.fields()[0].to_owned();
        assert!(field.ends_with("validFrom"), "{field}");
        let message = &answer.status.message;
        assert!(
            message.contains("20 transient bindings of user bob"),
            "{message}"
        );
        assert!(
            message.contains("transient.maxWaitingBindings"),
            "{message}"
        );
    }
    // A binding with an open window does not wait.
    assert!(answers("bob", "open", binding()).await.allowed);
    assert!(answers("dave", "theirs", dated()).await.allowed);
}

#[tokio::test]
async fn of_bindings_that_are_created_at_once_no_more_are_admitted_than_may_wait() {
    let webhook = Webhook::new(Server::default());
    let mut attempts = Vec::new();
    for number in 0..40 {
        attempts.push(asked(&webhook, "bob", &format!("at-once-{number}"), dated()).await);
    }
    let answers = attempts.iter().map(|attempt| webhook.validate(attempt));
    let answers = futures::future::join_all(answers).await;
    let admitted = answers.iter().filter(|answer| answer.allowed).count();
    assert_eq!(admitted, 20);
}

#[tokio::test]
async fn window_beyond_lead_is_refused_with_field() {
    let webhook = Webhook::new(Server::default());
    for (from, until, refusal) in [
        ("2026-01-08T12:00:00Z", "2026-01-08T13:00:00Z", None),
        (
            "2026-01-08T12:00:01Z",
            "2026-01-08T13:00:00Z",
            Some("WindowTooFar"),
        ),
        (
            "2036-01-01T12:00:00Z",
            "2036-01-01T13:00:00Z",
            Some("WindowTooFar"),
        ),
    ] {
        let object = with(binding(), "/spec/validFrom", from);
        let ours = webhook
            .create(&bob(with(object, "/spec/validUntil", until)))
            .await;
        assert_eq!(ours.refusal(), refusal, "{from}");
        let flat = published("TransientRoleBinding", from, until);
        assert_eq!(
            webhook.create(&bob(flat)).await.refusal(),
            refusal,
            "{from}"
        );
        if refusal.is_some() {
            assert_eq!(ours.fields(), ["spec.validFrom"]);
            let message = &ours.status.message;
            assert!(message.contains("transient.maxBindingLead"), "{message}");
        }
    }
}

#[tokio::test]
async fn window_is_not_moved_by_an_update() {
    let webhook = Webhook::new(Server::default());
    let old = asked(&webhook, "bob", "moved", dated())
        .await
        .object
        .unwrap();
    let moved = with(old.clone(), "/spec/validFrom", "2026-01-01T12:45:00Z");
    let answer = webhook.validate(&Attempt::update("bob", &old, moved)).await;
    assert_eq!(answer.refusal(), Some("Immutable"));
}
