//! Declarations: the resulting Kubernetes objects, and refused declarations.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{manager, no_client};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Pod},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use oz_admission::{
    Cache, CertPolicy, CertSource, ConfigError, Cx, Endpoint, FailurePolicy, Hook, Manager,
    MatchPolicy, Mutate, NamespaceScope, Notes, Operation, Rejection, Replay, ResourceRule,
    ResourceScope, Review, Rules, Selection, SideEffects, Validate, WatchEvent, Watcher, watch_fn,
};
use serde_json::Value;

struct Nothing<K>(std::marker::PhantomData<K>);

fn nothing<K>() -> Nothing<K> {
    Nothing(std::marker::PhantomData)
}

impl<K: oz_admission::Reviewed> Mutate for Nothing<K> {
    type Object = K;
    async fn mutate(&self, _: &Cx, _: &Review<K>, _: &mut K) -> Result<Notes, Rejection> {
        Ok(Notes::none())
    }
}

impl<K: oz_admission::Reviewed> Validate for Nothing<K> {
    type Object = K;
    async fn validate(&self, _: &Cx, _: &Review<K>) -> Result<Notes, Rejection> {
        Ok(Notes::none())
    }
}

#[tokio::test]
async fn a_plain_hook_becomes_a_webhook_with_every_field_written_out() {
    let manager = manager("acme")
        .namespace("acme-system")
        .hook(Hook::mutating("inject", nothing::<Pod>()))
        .build()
        .unwrap();
    insta::assert_json_snapshot!(manager.configurations());
}

#[tokio::test]
async fn every_setting_of_a_hook_reaches_the_configuration() {
    let only = |key: &str| LabelSelector {
        match_labels: Some([(key.to_owned(), "yes".to_owned())].into()),
        ..LabelSelector::default()
    };
    let connect = ResourceRule::new("", "v1", "pods")
        .subresource("exec")
        .subresource("attach");
    let ephemeral = ResourceRule::new("", "v1", "pods")
        .subresource("ephemeralcontainers")
        .on([Operation::Update]);
    let manager = Manager::builder(no_client(), "acme")
        .endpoint(Endpoint::Service {
            name: "hooks".to_owned(),
            namespace: "acme-system".to_owned(),
            port: 8443,
        })
        .hook(
            Hook::mutating_on("connect", connect, nothing::<Value>())
                .also(ephemeral)
                .on([Operation::Connect])
                .namespaces(NamespaceScope::All)
                .failure(FailurePolicy::Ignore)
                .reinvoke(true)
                .side_effects(SideEffects::None)
                .timeout(Duration::from_secs(3))
                .when("not-nodes", "!('system:nodes' in request.userInfo.groups)"),
        )
        .hook(
            Hook::validating("published", nothing::<Deployment>())
                .on([Operation::Create, Operation::Delete])
                .path("/validate-apps-v1-deployment")
                .webhook_name("vdeployment.kb.io")
                .objects(only("checked"))
                .namespaces(NamespaceScope::Matching(only("enforced"))),
        )
        .hook(
            Hook::validating_on(
                "scoped",
                ResourceRule::from_type::<Pod>().scope(ResourceScope::Namespaced),
                nothing::<Value>(),
            )
            .namespaces(NamespaceScope::Except(vec!["b".to_owned(), "a".to_owned()])),
        )
        .hook(
            Hook::validating("owned", nothing::<Pod>())
                .subresource("status")
                .namespaces(NamespaceScope::Labelled(vec!["shop".into()])),
        )
        .build()
        .unwrap();
    insta::assert_json_snapshot!(manager.configurations());
}

#[test]
fn configurations_need_no_runtime() {
    let endpoint = Endpoint::Url("https://127.0.0.1:8443".to_owned());
    let hook = Hook::mutating("inject", nothing::<Pod>()).match_policy(MatchPolicy::Exact);
    let found = oz_admission::configurations("acme", "acme-system", &endpoint, &[hook]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["webhooks"][0]["matchPolicy"], "Exact");
}

#[tokio::test]
async fn a_declaration_says_which_rights_it_needs() {
    let deploy = Hook::validating("deploy", nothing::<Deployment>());
    let watcher = || {
        Watcher::new(
            "pods",
            Replay::FromNow,
            watch_fn(async |_, _: WatchEvent<Pod>| {}),
        )
    };
    let builder = manager("acme").namespace("acme-system").watcher(watcher());
    let only_watches = builder.build().unwrap().rbac();
    assert_eq!(only_watches["items"][0]["rules"], serde_json::json!([]));
    let builder = manager("acme").namespace("acme-system").watcher(watcher());
    let scope = NamespaceScope::Labelled(vec!["shop".into()]);
    let all = builder
        .hook(deploy.namespaces(scope))
        .build()
        .unwrap()
        .rbac();
    insta::assert_json_snapshot!(all);
}

#[tokio::test]
async fn a_hook_without_a_rule_is_no_webhook_and_its_configuration_stays() {
    let rules = Rules::default();
    let hook = Hook::validating_on("guard", None, nothing::<Value>()).rules_from(&rules);
    let manager = manager("acme").hook(hook).build().unwrap();
    let webhooks = || manager.configurations()[0]["webhooks"].clone();
    rules.set([ResourceRule::new("example.com", "v1", "widgets")]);
    assert_eq!(webhooks()[0]["rules"][0]["resources"][0], "widgets");
    rules.set([]);
    assert_eq!(webhooks(), serde_json::json!([]));
}

#[tokio::test]
async fn a_cache_is_among_what_a_declaration_needs_rights_for_once() {
    let mut builder = manager("acme").namespace("acme-system");
    let all: Cache<Pod> = builder.cache(Selection::default());
    let _some: Cache<Pod> = builder.cache(Selection::default().labels("a=b"));
    let _here: Cache<ConfigMap> = builder.cache_in("acme-system", Selection::default());
    assert!(all.get(Some("shop"), "web").is_err(), "it is not complete");
    let rights = builder.build().unwrap().rbac();
    let rule = |plural: &str| serde_json::json!({"apiGroups": [""], "resources": [plural], "verbs": ["list", "watch"]});
    assert_eq!(
        rights["items"][0]["rules"],
        serde_json::json!([rule("configmaps")])
    );
    assert_eq!(rights["items"][1]["rules"][0], rule("pods"));
    assert_eq!(rights["items"][1]["rules"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_declaration_that_would_fail_later_is_refused_now() {
    let hook = || Hook::mutating("a", nothing::<Pod>());
    let with = |hook: Hook| manager("acme").hook(hook).build().unwrap_err();
    assert_eq!(
        Manager::builder(no_client(), "Not_A_Label")
            .build()
            .unwrap_err(),
        ConfigError::Fingerprint("Not_A_Label".to_owned())
    );
    assert_eq!(
        with(Hook::mutating("A", nothing::<Pod>())),
        ConfigError::HookName("A".to_owned())
    );
    assert_eq!(
        with(hook().path("no-slash")),
        ConfigError::Path("no-slash".to_owned())
    );
    assert_eq!(
        with(hook().path("/a?b")),
        ConfigError::Path("/a?b".to_owned())
    );
    assert_eq!(
        with(hook().webhook_name("a.b")),
        ConfigError::WebhookName("a.b".to_owned())
    );
    assert_eq!(
        with(Hook::mutating_on("a", None, nothing::<Pod>())),
        ConfigError::NoRules("a".to_owned())
    );
    assert_eq!(
        with(hook().on([])),
        ConfigError::NoOperations("a".to_owned())
    );
    assert_eq!(
        with(hook().on([Operation::Delete])),
        ConfigError::MutatingDelete("a".to_owned())
    );
    for bad in [
        Duration::ZERO,
        Duration::from_millis(1500),
        Duration::from_secs(31),
    ] {
        assert_eq!(
            with(hook().timeout(bad)),
            ConfigError::Timeout("a".to_owned())
        );
    }
    let twice = manager("acme")
        .hook(hook())
        .hook(hook())
        .build()
        .unwrap_err();
    assert!(
        matches!(twice, ConfigError::Duplicate { what: "path", .. }),
        "{twice}"
    );
    let nowhere = Manager::builder(no_client(), "acme")
        .hook(hook())
        .build()
        .unwrap_err();
    assert_eq!(nowhere, ConfigError::NoEndpoint);
    let plain = manager("acme")
        .endpoint(Endpoint::Url("http://a".to_owned()))
        .build();
    assert!(matches!(plain.unwrap_err(), ConfigError::Endpoint(_)));
    let policy = CertPolicy {
        renew_at: 1.0,
        ..CertPolicy::default()
    };
    let policy = manager("acme")
        .certificates(CertSource::SelfSigned(policy))
        .build();
    assert!(matches!(policy.unwrap_err(), ConfigError::Policy(_)));
}
