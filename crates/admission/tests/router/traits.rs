//! A test of each trait, in the form that the author of an extension would use: without a cluster.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use oz_admission::{
    CancellationToken, Cx, Endpoint, Hook, Manager, Mutate, Notes, Rejection, Review, Task,
    TaskError, Validate, Watch, WatchEvent, testing,
};
use parking_lot::Mutex;
use serde_json::json;

struct Owner;

impl Mutate for Owner {
    type Object = Pod;

    async fn mutate(
        &self,
        _: &Cx,
        review: &Review<Pod>,
        pod: &mut Pod,
    ) -> Result<Notes, Rejection> {
        pod.labels_mut()
            .insert("owner".to_owned(), review.user.username.clone());
        Ok(Notes::none())
    }
}

struct NotByGuests;

impl Validate for NotByGuests {
    type Object = Pod;

    async fn validate(&self, _: &Cx, review: &Review<Pod>) -> Result<Notes, Rejection> {
        if review.user.in_group("guests") {
            return Err(Rejection::forbidden("Guest", "guests make no pods"));
        }
        Ok(Notes::none())
    }
}

fn manager(client: kube::Client) -> Manager {
    Manager::builder(client, "acme")
        .endpoint(Endpoint::Url("https://hooks.example.com".to_owned()))
        .hook(Hook::mutating("owner", Owner))
        .hook(Hook::validating("not-by-guests", NotByGuests))
        .build()
        .unwrap()
}

fn pod() -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": []}})
}

#[tokio::test]
async fn a_mutator_is_asked_with_an_object_and_its_patch_is_applied() {
    let (client, asked) = testing::client();
    let request = testing::Request::create(&pod()).user("alice");
    let answer = request.send(&manager(client), "/mutate/owner").await;
    assert!(answer.allowed());
    assert_eq!(
        answer.object(&pod())["metadata"]["labels"]["owner"],
        "alice"
    );
    assert_eq!(asked.all(), [], "it asks nobody");
}

#[tokio::test]
async fn validator_receives_groups_of_user() {
    let manager = manager(testing::client().0);
    let path = "/validate/not-by-guests";
    let request = testing::Request::create(&pod());
    assert!(request.send(&manager, path).await.allowed());
    let refused = request.groups(&["guests"]).send(&manager, path).await;
    assert_eq!(refused.reason(), Some("Guest"));
    assert_eq!(refused.message(), Some("guests make no pods"));
}

#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Watch for Diary {
    type Object = Pod;

    async fn on_event(&self, _: &Cx, event: WatchEvent<Pod>) {
        self.0.lock().push(event.object().name_any());
    }
}

#[tokio::test]
async fn watcher_receives_event() {
    let diary = Diary::default();
    let cx = testing::cx(testing::client().0);
    let pod = serde_json::from_value(pod()).unwrap();
    diary.on_event(&cx, WatchEvent::Added(pod)).await;
    assert_eq!(*diary.0.lock(), ["web"]);
}

/// A task that deletes every ConfigMap, and ends.
struct Sweep;

impl Task for Sweep {
    async fn run(&self, cx: &Cx, _: CancellationToken) -> Result<(), TaskError> {
        let api = Api::<ConfigMap>::namespaced(cx.client.clone(), "shop");
        for found in api.list(&ListParams::default()).await? {
            api.delete(&found.name_any(), &Default::default()).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_task_is_run_against_canned_answers() {
    let (client, asked) = testing::client_with(|call| match call.method.as_str() {
        "GET" => Some(
            json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {},
            "items": [{"metadata": {"name": "old"}}]}),
        ),
        _ => Some(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
    });
    let stop = CancellationToken::new();
    Sweep.run(&testing::cx(client), stop).await.unwrap();
    let calls = asked.all();
    assert_eq!(calls[1].method, "DELETE");
    assert_eq!(calls[1].path, "/api/v1/namespaces/shop/configmaps/old");
}
