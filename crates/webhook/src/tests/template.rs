//! The users who may write a template.

use oz_admission::testing;
use oz_trail::{Action, Decision};
use serde_json::{Value, json};

use super::server::{Server, right};
use super::{Attempt, OPERATOR, Webhook, exec_template, pod_template, with};

const OPERATIONS: &str = "/spec/accessConfig/operations";

fn forbidding(rights: &[&'static str]) -> Webhook {
    Webhook::new(Server {
        forbids: rights.to_vec(),
        ..Server::default()
    })
}

fn all_operations(template: Value) -> Value {
    with(
        template,
        OPERATIONS,
        json!(["Exec", "Attach", "PortForward", "Log"]),
    )
}

#[tokio::test]
async fn a_policy_is_evaluated_for_those_alone_who_may_hand_out_something() {
    let policy = "/spec/accessConfig/commandPolicy";
    let template = with(exec_template("shell"), policy, "nobody == 'x'");
    let create = Attempt::create("author", &["devs"], template);
    for (forbidden, refusal) in [
        (&[][..], "Invalid"),
        (&["create pods/exec"], "MissingPermission"),
    ] {
        let answer = forbidding(forbidden).validate(&create).await;
        assert_eq!(answer.refusal(), Some(refusal));
    }
}

#[tokio::test]
async fn an_author_hands_out_nothing_that_they_could_not_do_themselves() {
    let (exec, pod) = (exec_template("shell"), pod_template("pod"));
    for (template, forbidden, missing) in [
        (exec.clone(), &[][..], None),
        (
            exec.clone(),
            &["create pods/exec"],
            Some("create pods/exec"),
        ),
        (exec.clone(), &["create pods/attach", "create pods"], None),
        // A grant also gives the right to get the pod, and the same access through an older
        // Kubernetes.
        (exec.clone(), &["get pods"], Some("get pods")),
        (
            exec.clone(),
            &["watch pods", "list pods"],
            Some("list pods, watch pods"),
        ),
        (exec.clone(), &["get pods/exec"], Some("get pods/exec")),
        (
            with(exec.clone(), OPERATIONS, json!(["Log"])),
            &["create pods/exec"],
            None,
        ),
        (
            with(exec.clone(), OPERATIONS, json!(["Log"])),
            &["get pods/log"],
            Some("get pods/log"),
        ),
        (
            all_operations(exec.clone()),
            &["create pods/attach", "create pods/portforward"],
            Some("create pods/attach, create pods/portforward"),
        ),
        (pod.clone(), &[], None),
        (pod.clone(), &["create pods"], Some("create pods")),
        (pod.clone(), &["create pods/exec"], Some("create pods/exec")),
    ] {
        let webhook = forbidding(forbidden);
        let create = Attempt::create("author", &["devs"], template.clone());
        let answer = webhook.validate(&create).await;
        assert_eq!(
            answer.refusal(),
            missing.map(|_| "MissingPermission"),
            "{forbidden:?}"
        );
        if let Some(missing) = missing {
            let expected = format!(
                "author may not {missing} in namespace shop, which this template would grant; \
                 have a user with these rights create or change it"
            );
            assert_eq!((answer.status.code, answer.status.message), (403, expected));
        }
        // A change is judged like a creation, also for its unchanged parts.
        let old = with(template.clone(), "/spec/accessConfig/maxDuration", "1h");
        let update = webhook
            .validate(&Attempt::update("author", &old, template))
            .await;
        assert_eq!(
            update.refusal(),
            missing.map(|_| "MissingPermission"),
            "{forbidden:?}"
        );
    }
}

#[tokio::test]
async fn the_author_is_judged_as_the_api_server_knows_them() {
    let webhook = Webhook::new(Server::default());
    let author = Attempt::create(
        "author",
        &["devs", "ops"],
        all_operations(pod_template("pod")),
    );
    let review = author.review().uid("u-1").extra("scopes", &["narrow"]);
    let path = "/validate-crds-wizardofoz-co-v1alpha1-podaccesstemplate";
    review.send(&webhook.manager, path).await;

    let asked = webhook.server.asked.lock();
    let mut rights: Vec<String> = asked.iter().map(right).collect();
    rights.sort();
    assert_eq!(
        rights,
        [
            "create pods",
            "create pods/attach",
            "create pods/exec",
            "create pods/portforward",
            "get pods",
            "get pods/attach",
            "get pods/exec",
            "get pods/log",
            "get pods/portforward",
            "list pods",
            "watch pods",
        ]
    );
    for spec in asked.iter() {
        assert_eq!(
            (&spec["user"], &spec["uid"]),
            (&json!("author"), &json!("u-1"))
        );
        assert_eq!(spec["groups"], json!(["devs", "ops"]));
        assert_eq!(spec["extra"], json!({ "scopes": ["narrow"] }));
        assert_eq!(spec["resourceAttributes"]["namespace"], "shop");
        // For all names: a user with a right on a single pod may not hand it out for all.
        assert_eq!(spec["resourceAttributes"]["name"], Value::Null);
    }
}

#[tokio::test]
async fn unchanged_template_spec_is_not_reviewed_again() {
    let webhook = forbidding(&["create pods/exec", "create pods"]);
    for stored in [
        exec_template("shell"),
        pod_template("pod"),
        with(
            exec_template("old"),
            "/spec/accessConfig/maxDuration",
            "soon",
        ),
        with(exec_template("own"), "/metadata/namespace", "oz-system"),
    ] {
        let changed = with(
            stored.clone(),
            "/metadata/labels",
            json!({ "team": "shop" }),
        );
        for user in ["anybody", OPERATOR] {
            let answer = webhook
                .validate(&Attempt::update(user, &stored, changed.clone()))
                .await;
            assert_eq!(
                answer.refusal(),
                None,
                "{user} {}",
                stored["metadata"]["name"]
            );
        }
    }
    assert!(webhook.server.asked.lock().is_empty());
}

#[tokio::test]
async fn no_template_lets_anybody_into_oz() {
    let webhook = Webhook::new(Server::default());
    for template in [exec_template("shell"), pod_template("pod")] {
        let own = with(template, "/metadata/namespace", "oz-system");
        let create = Attempt::create("admin", &["system:masters"], own.clone());
        assert_eq!(
            webhook.validate(&create).await.refusal(),
            Some("ReservedNamespace")
        );
        let changed = with(own.clone(), "/spec/accessConfig/maxDuration", "3h");
        let update = Attempt::update("admin", &own, changed);
        assert_eq!(
            webhook.validate(&update).await.refusal(),
            Some("ReservedNamespace")
        );
    }
}

#[tokio::test]
async fn invalid_field_of_template_is_named_before_any_review() {
    let webhook = Webhook::new(Server::default());
    let config = |field: &str, value: &str| {
        with(
            exec_template("shell"),
            &format!("/spec/accessConfig/{field}"),
            value,
        )
    };
    for (template, field) in [
        (
            config("maxDuration", "soon"),
            "spec.accessConfig.maxDuration",
        ),
        (
            config("defaultDuration", "3h"),
            "spec.accessConfig.defaultDuration",
        ),
        (
            config("accessCommand", "{{ .Metadata.Nmae }}"),
            "spec.accessConfig.accessCommand",
        ),
        (
            with(
                exec_template("shell"),
                "/spec/controllerTargetRef/kind",
                "Rollout",
            ),
            "spec.controllerTargetRef.apiVersion",
        ),
    ] {
        let answer = webhook
            .validate(&Attempt::create("author", &[], template))
            .await;
        assert_eq!(
            (answer.refusal(), answer.status.code),
            (Some("Invalid"), 422),
            "{field}"
        );
        assert_eq!(answer.fields(), [field]);
    }
    assert!(webhook.server.asked.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn template_author_with_unknown_permissions_is_refused() {
    let webhook = Webhook::new(Server {
        silent: true,
        ..Server::default()
    });
    let answer = webhook
        .validate(&Attempt::create("author", &[], exec_template("shell")))
        .await;
    assert_eq!(
        (answer.refusal(), answer.status.code),
        (Some("PermissionsUnknown"), 503)
    );
    assert!(
        answer.status.message.ends_with("try again"),
        "{}",
        answer.status.message
    );
}

#[tokio::test]
async fn refused_template_is_recorded() {
    let webhook = forbidding(&["create pods/exec"]);
    let create = Attempt::create("author", &["devs"], exec_template("shell"));
    webhook.validate(&create.clone().dry()).await;
    assert!(webhook.recorded().is_empty());
    let answer = webhook.validate(&create).await;
    let records = webhook.recorded();
    let [record] = &records[..] else {
        panic!("{records:?}")
    };
    let decided = (record.action, record.decision, record.reason.as_str());
    let expected = (Action::TemplateChanged, Decision::Deny, "MissingPermission");
    assert_eq!(decided, expected);
    assert_eq!(record.message, answer.status.message);
    assert_eq!(record.user.as_ref().unwrap().user, "author");
    assert_eq!(
        (record.template.as_str(), record.request.namespace.as_str()),
        ("shell", "shop")
    );
}

#[tokio::test]
async fn lifting_enforcement_is_recorded_whether_permitted_or_refused() {
    for (forbids, dry, decision) in [
        (&[][..], false, Some(Decision::Allow)),
        (&["* *"], false, Some(Decision::Deny)),
        (&[], true, None),
        (&["* *"], true, None),
    ] {
        let webhook = forbidding(forbids);
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" },
        });
        let request = testing::Request::update(&namespace, &namespace).user("root");
        let request = if dry { request.dry_run() } else { request };
        let answer = request.send(&webhook.manager, "/guard-namespace").await;
        assert_eq!(answer.allowed(), forbids.is_empty(), "{answer:?}");
        let records = webhook.recorded();
        let told: Vec<_> = records
            .iter()
            .map(|record| {
                (
                    record.action,
                    record.decision,
                    record.request.namespace.as_str(),
                )
            })
            .collect();
        let expected = decision.map(|decision| (Action::EnforcementLifted, decision, "shop"));
        assert_eq!(told, Vec::from_iter(expected));
    }
}
