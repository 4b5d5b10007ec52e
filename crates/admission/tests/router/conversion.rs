//! Conversions without a cluster: the input of the function, the permitted changes, and the message of a
//! failure.

use oz_admission::{
    Conversion, Convert, ConvertError, Cx, Hook, Limits, Manager, convert_fn,
    testing::{ConversionRequest, Converted},
};
use serde_json::{Value, json};

use crate::common::{Label, manager};

const DEFINITION: &str = "widgets.example.com";

/// Renames `spec.size` of v1 to `spec.replicas` of v2, and back.
fn rename(object: &mut Value, to: &str) -> Result<(), ConvertError> {
    let (old, new) = match to {
        "example.com/v2" => ("size", "replicas"),
        "example.com/v1" => ("replicas", "size"),
        other => return Err(format!("{other} is not served").into()),
    };
    let spec = object["spec"].as_object_mut().ok_or("it has no spec")?;
    if let Some(count) = spec.remove(old) {
        spec.insert(new.to_owned(), count);
    }
    Ok(())
}

struct Versions;

impl Convert for Versions {
    async fn convert(&self, _: &Cx, mut object: Value, to: &str) -> Result<Value, ConvertError> {
        rename(&mut object, to)?;
        Ok(object)
    }
}

fn with(conversion: impl Convert) -> Manager {
    let conversion = Conversion::new(DEFINITION, conversion);
    manager("acme").conversion(conversion).build().unwrap()
}

/// Creates a manager with a function that applies this change to an object.
fn doing(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Manager {
    with(convert_fn(move |_, mut object, _| {
        change(&mut object);
        Ok(object)
    }))
}

fn widget(name: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name, "namespace": "shop", "uid": "7", "finalizers": ["a/b"],
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]},
        "spec": {"size": 3},
    })
}

async fn to_v2(manager: &Manager, objects: &[Value]) -> Converted {
    let request = ConversionRequest::to("example.com/v2");
    let request = objects
        .iter()
        .fold(request, |request, it| request.object(it));
    request.send(manager, DEFINITION).await
}

async fn refused(manager: &Manager, object: Value) -> String {
    to_v2(manager, &[object]).await.objects().unwrap_err()
}

#[tokio::test]
async fn objects_come_back_in_their_order_in_the_version_asked_for_and_whole() {
    let manager = with(Versions);
    let mut already = widget("b");
    already["apiVersion"] = json!("example.com/v2");
    let answer = to_v2(&manager, &[widget("a"), already.clone(), widget("c")]).await;
    assert_eq!(
        answer.response["uid"],
        "00000000-0000-4000-8000-000000000000"
    );
    let objects = answer.objects().unwrap();
    let mut wanted = widget("a");
    wanted["apiVersion"] = json!("example.com/v2");
    wanted["spec"] = json!({"replicas": 3});
    assert_eq!(objects[0], wanted);
    assert_eq!(objects[1], already, "it needs no conversion");
    assert_eq!(objects[2]["metadata"]["name"], "c");

    let back = ConversionRequest::to("example.com/v1").object(&objects[0]);
    let back = back.send(&manager, DEFINITION).await.objects().unwrap();
    assert_eq!(back, [widget("a")]);
}

#[tokio::test]
async fn the_function_sees_no_managed_fields_and_may_change_labels_and_annotations() {
    let manager = doing(|object| {
        assert!(object["metadata"].get("managedFields").is_none());
        object["metadata"]["labels"] = json!({"team": "a"});
        object["metadata"]["annotations"] = json!({"example.com/was": "v1"});
    });
    let objects = to_v2(&manager, &[widget("a")]).await.objects().unwrap();
    let metadata = &objects[0]["metadata"];
    assert_eq!(metadata["labels"], json!({"team": "a"}));
    assert_eq!(
        metadata["managedFields"],
        widget("a")["metadata"]["managedFields"]
    );
}

#[tokio::test]
async fn nothing_else_of_an_object_that_is_not_its_content_may_change() {
    let begins =
        "failed to convert Widget shop/a from example.com/v1 to example.com/v2: the conversion";
    let only = "only labels and annotations may change";
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 5] = [
        ("changed metadata.finalizers; ", |it| {
            it["metadata"]["finalizers"] = json!([]);
        }),
        ("changed metadata.name; ", |it| {
            it["metadata"]["name"] = json!("b")
        }),
        ("changed metadata.ownerReferences; ", |it| {
            it["metadata"]["ownerReferences"] = json!([]);
        }),
        ("changed its kind", |it| it["kind"] = json!("Gadget")),
        ("made no object of it", |it| *it = json!([])),
    ];
    for (what, change) in changes {
        let message = refused(&doing(change), widget("a")).await;
        let only = if what.ends_with("; ") { only } else { "" };
        assert_eq!(message, format!("{begins} {what}{only}"));
    }
}

#[tokio::test]
async fn conversion_fails_as_whole_and_names_object_that_failed() {
    let manager = with(Versions);
    let mut bad = widget("b");
    bad["spec"] = json!(7);
    let answer = to_v2(&manager, &[widget("a"), bad]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.response["convertedObjects"], json!([]));
    let wanted =
        "failed to convert Widget shop/b from example.com/v1 to example.com/v2: it has no spec";
    assert_eq!(answer.objects(), Err(wanted.to_owned()));
}

/// Nested managed fields: data that other writers can store must not prevent the read of an object in
/// another version.
#[tokio::test]
async fn managed_fields_that_nest_deeply_are_handed_on_as_they_are() {
    let deep = ["{\"f:a\":".repeat(200), "1".to_owned(), "}".repeat(200)].concat();
    let mut object = widget("a");
    object["metadata"]["managedFields"] = json!("HERE");
    let request = ConversionRequest::to("example.com/v2").object(&object);
    let body = String::from_utf8(request.body()).unwrap();
    let body = body.replace("\"HERE\"", &deep);
    let reply = with(Versions)
        .review("/convert/widgets.example.com", body.as_bytes())
        .await;
    let text = String::from_utf8(reply.body).unwrap();
    assert!(
        text.contains("\"Success\"") && text.contains(&deep),
        "{text}"
    );
}

#[tokio::test]
async fn object_nested_too_deeply_fails_conversion_with_its_name() {
    let mut object = widget("a");
    object["spec"] = json!("HERE");
    let request = ConversionRequest::to("example.com/v2").object(&object);
    let body = String::from_utf8(request.body()).unwrap();
    let body = body.replace(
        "\"HERE\"",
        &format!("{}{}", "[".repeat(200), "]".repeat(200)),
    );
    let reply = with(Versions)
        .review("/convert/widgets.example.com", body.as_bytes())
        .await;
    let answer: Value = serde_json::from_slice(&reply.body).unwrap();
    let message = answer["response"]["result"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("failed to convert Widget shop/a "),
        "{message}"
    );
    assert!(message.contains("recursion limit"), "{message}");
}

#[tokio::test]
async fn a_panic_and_another_group_are_failures_in_plain_words() {
    let manager = doing(|_| panic!("a bug"));
    let message = refused(&manager, widget("a")).await;
    let wanted = "failed to convert objects of widgets.example.com: the conversion panicked";
    assert_eq!(message, wanted);
    let request = ConversionRequest::to("other.example.com/v2").object(&widget("a"));
    let message = request
        .send(&manager, DEFINITION)
        .await
        .objects()
        .unwrap_err();
    let wanted = "failed to convert to other.example.com/v2: this is for widgets.example.com";
    assert_eq!(message, wanted);
}

#[tokio::test]
async fn conversion_endpoint_rejects_other_bodies_and_excess_calls() {
    let manager = with(Versions);
    let path = "/convert/widgets.example.com";
    for body in [
        "",
        "{}",
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
    ] {
        assert_eq!(
            manager.review(path, body.as_bytes()).await.status,
            400,
            "{body}"
        );
    }
    assert_eq!(
        manager
            .review("/convert/gadgets.example.com", b"{}")
            .await
            .status,
        404
    );
    let limits = Limits {
        concurrent_reviews: 0,
        ..Limits::default()
    };
    let full = super::common::manager("acme").limits(limits);
    let full = full
        .conversion(Conversion::new(DEFINITION, Versions))
        .build()
        .unwrap();
    assert_eq!(to_v2(&full, &[widget("a")]).await.status, 429);
}

#[tokio::test]
async fn a_conversion_needs_an_endpoint_rights_and_the_name_of_a_definition() {
    let bad = manager("acme").conversion(Conversion::new("widgets", Versions));
    let error = bad.build().unwrap_err().to_string();
    assert!(error.contains("<plural>.<group>"), "{error}");
    let twice = manager("acme")
        .conversion(Conversion::new(DEFINITION, Versions))
        .conversion(Conversion::new(DEFINITION, Versions));
    assert!(twice.build().is_err());
    let rights = with(Versions).rbac();
    let rules = rights["items"][1]["rules"].as_array().unwrap();
    let rule = json!({"apiGroups": ["apiextensions.k8s.io"], "resourceNames": [DEFINITION],
        "resources": ["customresourcedefinitions"], "verbs": ["get", "list", "watch", "patch"]});
    assert!(rules.contains(&rule), "{rules:?}");
    let hook = manager("acme").hook(Hook::mutating("label", Label));
    let without = hook.build().unwrap().rbac().to_string();
    assert!(!without.contains("customresourcedefinitions"));
}
