//! The forms of a handler, and the effect of its result.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use oz_admission::{
    Cx, FailurePolicy, Hook, ManagerBuilder, Notes, Operation, Rejection, Review, ValidateEach,
    each_operation, mutate_fn, testing::Request, validate_async_fn, validate_fn,
};
use serde_json::{Value, json};

use crate::common::manager;

fn config(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "shop"}, "data": data})
}

/// Creates a validator that rejects every object with this rejection.
fn saying(rejection: Rejection) -> Hook {
    let say = move |_: &Cx, _: &Review<ConfigMap>| Err(rejection.clone());
    Hook::validating("say", validate_fn(say))
}

async fn ask(builder: ManagerBuilder, path: &str) -> oz_admission::testing::Answer {
    let manager = builder.build().unwrap();
    Request::create(&config(&json!({})))
        .send(&manager, path)
        .await
}

#[tokio::test]
async fn undecided_review_follows_failure_policy() {
    let undecided =
        || Rejection::undecided("LimitUnknown", "the limit cannot be read").annotate("limit", "?");
    let closed = ask(manager("acme").hook(saying(undecided())), "/validate/say").await;
    assert!(!closed.allowed());
    assert_eq!(closed.reason(), Some("LimitUnknown"));
    assert_eq!(closed.response["status"]["code"], 500);

    let open = saying(undecided()).failure(FailurePolicy::Ignore);
    let open = ask(manager("acme").hook(open), "/validate/say").await;
    assert!(open.allowed());
    assert_eq!(open.warnings(), ["the limit cannot be read"]);
    let expected = json!({"failure": "LimitUnknown", "limit": "?"});
    assert_eq!(open.response["auditAnnotations"], expected);
}

#[tokio::test]
async fn an_api_server_that_cannot_be_asked_is_no_decision_and_its_words_are_not_passed_on() {
    let hook = || {
        let ask = |cx: Cx, _: Review<ConfigMap>| async move {
            let api = kube::Api::<ConfigMap>::namespaced(cx.client, "secret-place");
            api.get("hidden").await?;
            Ok(Notes::none())
        };
        Hook::validating("ask", validate_async_fn(ask))
    };
    let closed = ask(manager("acme").hook(hook()), "/validate/ask").await;
    assert!(!closed.allowed());
    let message = closed.message().unwrap();
    assert!(message.starts_with("could not decide"), "{message}");
    assert!(!closed.response.to_string().contains("secret-place"));
    let open = hook().failure(FailurePolicy::Ignore);
    assert!(
        ask(manager("acme").hook(open), "/validate/ask")
            .await
            .allowed()
    );
}

#[tokio::test]
async fn a_refusal_may_warn_as_well() {
    let hook = saying(Rejection::forbidden("No", "no").warn("and it will not get better"));
    let answer = ask(manager("acme").hook(hook), "/validate/say").await;
    assert!(!answer.allowed());
    assert_eq!(answer.warnings(), ["and it will not get better"]);
}

#[tokio::test]
async fn a_hook_that_monitors_lets_through_and_says_what_it_would_have_done() {
    let refuse = saying(Rejection::forbidden("No", "never").warn("really")).monitor();
    let change = |_: &Cx, _: &Review<ConfigMap>, object: &mut ConfigMap| {
        object.labels_mut().insert("seen".into(), "yes".into());
        Ok(Notes::none())
    };
    let change = Hook::mutating("change", mutate_fn(change)).monitor();
    let manager = manager("acme").hook(refuse).hook(change).build().unwrap();
    for webhooks in manager.configurations() {
        assert_eq!(webhooks["webhooks"][0]["failurePolicy"], "Ignore");
    }
    let asked = Request::create(&config(&json!({})));
    let refused = asked.send(&manager, "/validate/say").await;
    assert!(refused.allowed());
    assert!(refused.warnings().is_empty());
    let said = &refused.response["auditAnnotations"]["monitor"];
    assert_eq!(said, "deny: never (No)");
    let changed = asked.send(&manager, "/mutate/change").await;
    assert!(changed.response.get("patch").is_none());
    let said = &changed.response["auditAnnotations"]["monitor"];
    assert_eq!(said, "patch: /metadata/labels");
    let metrics = crate::metrics(&manager).await;
    for verdict in ["WouldDeny", "WouldPatch"] {
        assert!(
            metrics.contains(&format!("verdict=\"{verdict}\"}} 1")),
            "{metrics}"
        );
    }
}

/// A validator that forbids the change and the removal of settings.
struct Settings;

impl ValidateEach for Settings {
    type Object = ConfigMap;

    async fn update(
        &self,
        _: &Cx,
        _: &Review<ConfigMap>,
        old: &ConfigMap,
        new: &ConfigMap,
    ) -> Result<Notes, Rejection> {
        if old.data != new.data {
            return Err(Rejection::invalid("Fixed", "settings do not change"));
        }
        Ok(Notes::none())
    }

    async fn delete(
        &self,
        _: &Cx,
        _: &Review<ConfigMap>,
        old: &ConfigMap,
    ) -> Result<Notes, Rejection> {
        Err(Rejection::forbidden(
            "Kept",
            format!("{} stays", old.name_any()),
        ))
    }
}

#[tokio::test]
async fn each_operation_is_handled_by_its_function() {
    let hook = Hook::validating("settings", each_operation(Settings)).on([
        Operation::Create,
        Operation::Update,
        Operation::Delete,
    ]);
    let manager = manager("acme").hook(hook).build().unwrap();
    let (one, two) = (config(&json!({"a": "1"})), config(&json!({"a": "2"})));
    let path = "/validate/settings";
    assert!(Request::create(&one).send(&manager, path).await.allowed());
    assert!(
        Request::update(&one, &one)
            .send(&manager, path)
            .await
            .allowed()
    );
    let changed = Request::update(&one, &two).send(&manager, path).await;
    assert_eq!(changed.reason(), Some("Fixed"));
    let gone = Request::delete(&one).send(&manager, path).await;
    assert_eq!(gone.message(), Some("settings stays"));
}
