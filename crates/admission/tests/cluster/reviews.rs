//! Reviews as a real API server sends them.

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, PostParams},
    core::ApiResource,
};
use oz_admission::{Cx, Endpoint, Hook, Mutate, Notes, Operation, Rejection, Review, Validate};
use oz_testkit::eventually;
use serde_json::json;

use crate::fixture::{Fixture, LONG, Running};

/// A handler that records on the object its creator, and its name at creation.
struct Stamp;

impl Mutate for Stamp {
    type Object = ConfigMap;

    async fn mutate(
        &self,
        cx: &Cx,
        review: &Review<ConfigMap>,
        object: &mut ConfigMap,
    ) -> Result<Notes, Rejection> {
        let stamp = json!({
            "user": review.user.username, "namespace": review.namespace, "name": review.name,
            "generateName": review.generate_name, "dryRun": review.dry_run,
        });
        object
            .annotations_mut()
            .insert("stamp".to_owned(), stamp.to_string());
        let event = oz_admission::Event {
            type_: oz_admission::EventType::Normal,
            reason: "Stamped".to_owned(),
            note: None,
            action: "Stamp".to_owned(),
            secondary: None,
        };
        let regarding = k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: review.namespace.clone(),
            name: Some(review.display_name().to_owned()),
            ..Default::default()
        };
        cx.publish(event, regarding);
        Ok(Notes::none().warn("stamped").annotate("stamp", "yes"))
    }
}

struct NoLatest;

impl Validate for NoLatest {
    type Object = Pod;

    async fn validate(&self, _: &Cx, review: &Review<Pod>) -> Result<Notes, Rejection> {
        let containers = review.object.iter().flat_map(|pod| pod.spec.iter());
        let images = containers
            .flat_map(|spec| &spec.containers)
            .filter_map(|it| it.image.as_deref());
        match images
            .enumerate()
            .find(|(_, image)| image.ends_with(":latest"))
        {
            Some((index, image)) => {
                Err(
                    Rejection::invalid("MovingTag", format!("{image} moves; pin it")).cause(
                        format!("spec.containers[{index}].image"),
                        "FieldValueInvalid",
                        "a moving tag",
                    ),
                )
            }
            None => Ok(Notes::none()),
        }
    }
}

async fn stamped(
    fixture: &Fixture,
    object: &ConfigMap,
    parameters: &PostParams,
) -> Result<serde_json::Value> {
    let api = fixture.api::<ConfigMap>();
    eventually("a stamp", LONG, async || {
        let created = api.create(parameters, object).await?;
        Ok(created
            .annotations()
            .get("stamp")
            .and_then(|stamp| serde_json::from_str(stamp).ok()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_created_object_is_stamped_with_its_requester_namespace_and_prefix() -> Result<()> {
    let fixture = Fixture::new("stamp").await?;
    let hook = Hook::mutating("stamp", Stamp)
        .on([Operation::Create])
        .namespaces(fixture.here());
    let running = Running::start(fixture.manager()?.hook(hook)).await?;
    let mut object = ConfigMap::default();
    object.metadata.generate_name = Some("made-".to_owned());
    let stamp = stamped(&fixture, &object, &PostParams::default()).await?;
    assert_eq!(stamp["user"], "admin");
    assert_eq!(stamp["namespace"], fixture.name());
    assert_eq!(stamp["generateName"], "made-");
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_is_answered_alike_and_leaves_no_event() -> Result<()> {
    let fixture = Fixture::new("dryrun").await?;
    let hook = Hook::mutating("stamp", Stamp)
        .on([Operation::Create])
        .namespaces(fixture.here());
    let running = Running::start(fixture.manager()?.hook(hook)).await?;
    let mut object = ConfigMap::default();
    object.metadata.name = Some("dry".to_owned());
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let stamp = stamped(&fixture, &object, &dry).await?;
    assert_eq!(stamp["dryRun"], true);

    // The event of a real request proves that there was time for the other one.
    object.metadata.name = Some("wet".to_owned());
    fixture
        .api::<ConfigMap>()
        .create(&PostParams::default(), &object)
        .await?;
    let events = fixture.api::<k8s_openapi::api::events::v1::Event>();
    let names = eventually("the event of the real request", LONG, async || {
        let list = events.list(&Default::default()).await?;
        let names: Vec<_> = list
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("Stamped"))
            .filter_map(|event| event.regarding?.name)
            .collect();
        Ok(names.contains(&"wet".to_owned()).then_some(names))
    })
    .await?;
    assert_eq!(names, ["wet"]);
    running.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_the_client_with_code_reason_and_field() -> Result<()> {
    let fixture = Fixture::new("refuse").await?;
    let hook = Hook::validating("no-latest", NoLatest).namespaces(fixture.here());
    let running = Running::start(fixture.manager()?.hook(hook)).await?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"generateName": "p-"},
        "spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:latest"}]},
    }))?;
    let api = fixture.api::<Pod>();
    let status = eventually("a refusal", LONG, async || {
        match api
            .create(
                &PostParams {
                    dry_run: true,
                    ..Default::default()
                },
                &pod,
            )
            .await
        {
            Err(kube::Error::Api(status)) => Ok(Some(status)),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(None),
        }
    })
    .await?;
    assert_eq!((status.code, status.reason.as_str()), (422, "MovingTag"));
    assert!(
        status.message.contains("b:latest moves; pin it"),
        "{}",
        status.message
    );
    let causes = status.details.map(|it| it.causes).unwrap_or_default();
    assert_eq!(causes[0].field, "spec.containers[1].image");
    running.stop().await
}

/// The plural of a kind with objects that the hook's type cannot hold.
const WIDGETS: &str = "widgets";

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_does_not_decode_is_refused_with_400_and_the_field() -> Result<()> {
    let fixture = Fixture::new("undecodable").await?;
    let group = format!("{}.example.com", fixture.name());
    let resource = widgets(&fixture.client, &group).await?;

    /// A type with a numeric `spec.size`, which the API does not require.
    #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
    struct Widget {
        spec: Size,
    }
    #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
    struct Size {
        size: u32,
    }
    struct Never;
    impl Mutate for Never {
        type Object = Widget;
        async fn mutate(
            &self,
            _: &Cx,
            _: &Review<Widget>,
            widget: &mut Widget,
        ) -> Result<Notes, Rejection> {
            widget.spec.size += 1;
            Ok(Notes::none())
        }
    }
    let rule = oz_admission::ResourceRule::of_api(&resource);
    let hook = Hook::mutating_on("never", rule, Never).namespaces(fixture.here());
    let running = Running::start(fixture.manager()?.hook(hook)).await?;
    let api =
        Api::<DynamicObject>::namespaced_with(fixture.client.clone(), fixture.name(), &resource);
    let widget = |size: serde_json::Value| {
        let mut object = DynamicObject::new("w", &resource);
        object.data = json!({"spec": {"size": size, "unknown": {"kept": true}}});
        object
    };
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let status = eventually("a refusal", LONG, async || {
        match api.create(&dry, &widget(json!("large"))).await {
            Err(kube::Error::Api(status)) => Ok(Some(status)),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(None),
        }
    })
    .await?;
    assert_eq!(
        (status.code, status.reason.as_str()),
        (400, "DecodeFailed"),
        "{}",
        status.message
    );
    let causes = status.details.map(|it| it.causes).unwrap_or_default();
    assert_eq!(causes[0].field, "spec.size");

    let good = api.create(&dry, &widget(json!(3))).await?;
    assert_eq!(
        good.data["spec"],
        json!({"size": 4, "unknown": {"kept": true}})
    );
    running.stop().await
}

/// Creates a kind with a spec of any shape.
async fn widgets(client: &Client, group: &str) -> Result<ApiResource> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": format!("{WIDGETS}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": WIDGETS, "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    }))?;
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    api.create(&PostParams::default(), &definition).await?;
    let resource = ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{group}/v1"),
        kind: "Widget".to_owned(),
        plural: WIDGETS.to_owned(),
    };
    let list = Api::<DynamicObject>::all_with(client.clone(), &resource);
    eventually("the kind to be served", LONG, async || {
        Ok(Some(list.list(&Default::default()).await?))
    })
    .await?;
    Ok(resource)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhooks_are_reached_through_a_service() -> Result<()> {
    // A loopback address cannot be an endpoint; without another one the test cannot run.
    let Some(address) = routable_address() else {
        eprintln!("skipped: this machine has no address besides the loopback");
        return Ok(());
    };
    let fixture = Fixture::new("service").await?;
    let (hook, count) = fixture.counting();
    let listener = std::net::TcpListener::bind((address, 0))?;
    let port = listener.local_addr()?.port();
    let service: k8s_openapi::api::core::v1::Service = serde_json::from_value(json!({
        "metadata": {"name": "hooks"},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]},
    }))?;
    fixture
        .api()
        .create(&PostParams::default(), &service)
        .await?;
    let slice: k8s_openapi::api::discovery::v1::EndpointSlice = serde_json::from_value(json!({
        "metadata": {"name": "hooks-1", "labels": {"kubernetes.io/service-name": "hooks"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }))?;
    fixture.api().create(&PostParams::default(), &slice).await?;
    let endpoint = Endpoint::Service {
        name: "hooks".to_owned(),
        namespace: fixture.name().to_owned(),
        port: 443,
    };
    let builder = fixture
        .manager()?
        .listener(listener)
        .endpoint(endpoint)
        .hook(hook);
    let running = Running::start(builder).await?;
    fixture.until_called(&count).await?;
    running.stop().await
}

fn routable_address() -> Option<std::net::IpAddr> {
    // The call sends no data: connecting a datagram socket only requests a route from the kernel.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// A handler that counts running reviews, and ends them on a signal.
#[derive(Default)]
struct HeldReviews {
    inside: std::sync::atomic::AtomicUsize,
    open: oz_admission::CancellationToken,
}

struct Slow(std::sync::Arc<HeldReviews>);

impl Validate for Slow {
    type Object = ConfigMap;

    async fn validate(&self, _: &Cx, _: &Review<ConfigMap>) -> Result<Notes, Rejection> {
        self.0
            .inside
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.0.open.cancelled().await;
        Ok(Notes::none())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn review_without_room_is_refused_once_and_its_user_sees_no_path() -> Result<()> {
    let fixture = Fixture::new("overload").await?;
    let held = std::sync::Arc::new(HeldReviews::default());
    let hook = Hook::validating("slow", Slow(held.clone()))
        .on([Operation::Create])
        .timeout(std::time::Duration::from_secs(30))
        .namespaces(fixture.here());
    let limits = oz_admission::Limits {
        concurrent_reviews: 1,
        ..Default::default()
    };
    let running = Running::start(fixture.manager()?.limits(limits).hook(hook)).await?;
    let ask = || {
        let api = fixture.api::<ConfigMap>();
        tokio::spawn(async move {
            let mut object = ConfigMap::default();
            object.metadata.generate_name = Some("ask-".to_owned());
            api.create(
                &PostParams {
                    dry_run: true,
                    ..Default::default()
                },
                &object,
            )
            .await
        })
    };
    let first = eventually("a review to be inside", LONG, async || {
        // The request succeeds at once while the API server does not know the webhook yet.
        let asked = ask();
        let inside = eventually("it", std::time::Duration::from_secs(2), async || {
            let inside = held.inside.load(std::sync::atomic::Ordering::SeqCst) == 1;
            Ok((inside || asked.is_finished()).then_some(inside))
        });
        Ok(inside.await?.then_some(asked))
    })
    .await?;
    let second = ask();
    eventually("one to be turned away", LONG, async || {
        let refused = running
            .metric("admission_refused_total{name=\"overload\"}")
            .await?;
        Ok((refused >= 1.0).then_some(()))
    })
    .await?;
    // The API server does not retry until its timeout: then it would show the URL.
    let refused = second.await?.expect_err("there was no room");
    assert!(!refused.to_string().contains("https://"), "{refused}");
    held.open.cancel();
    first.await??;
    running.stop().await
}
