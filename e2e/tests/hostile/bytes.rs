//! Bodies from a client that the webhook takes for the API server, because the client knows the key in the paths.

use anyhow::{Context as _, Result};
use kube::client::Body;
use oz_api::labels;
use oz_core::access::stamp;
use oz_e2e::{TEMPLATE, exec_request};
use serde_json::{Value, json};

use crate::Stage;
use crate::posting::{Poster, creation};

const ENFORCING: &str = "/connect-enforced";
const STAMP: &str = "/mutate-crds-wizardofoz-co-v1alpha1-execaccessrequest";
const VALIDATE: &str = "/validate-crds-wizardofoz-co-v1alpha1-execaccessrequest";

/// Returns the review of a connection of alice to a pod, as the API server sends it.
pub(crate) fn connection() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "review",
            "kind": {"group": "", "version": "v1", "kind": "PodExecOptions"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": "exec", "name": "web-0", "namespace": "nowhere", "operation": "CONNECT",
            "userInfo": {"username": "alice", "groups": ["devs"]},
            "object": {
                "apiVersion": "v1", "kind": "PodExecOptions", "stdout": true, "command": ["sh"],
            },
        },
    })
}

/// A body that is no AdmissionReview (empty, truncated, XML, `null`, a list, without a request, of an unknown version
/// or kind, with a malformed UID, user or operation): the webhook responds with 400 and without a decision.
#[tokio::test]
async fn body_without_review_is_rejected_with_400() -> Result<()> {
    let stage = Stage::set("bytes").await?;
    let api_server = Poster::knowing(&stage).await?;
    let text = connection().to_string();
    let without = |pointer: &str, value: Value| {
        let mut review = connection();
        if let Some(place) = review.pointer_mut(pointer) {
            *place = value;
        }
        review.to_string()
    };
    for body in [
        String::new(),
        text[..text.len() / 2].to_owned(),
        "<xml/>".to_owned(),
        "\u{0}\u{1}\u{2}".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        without("/request", Value::Null),
        without("/apiVersion", json!("admission.k8s.io/v1beta1")),
        without("/apiVersion", json!("admission.k8s.io/v99")),
        without("/kind", json!("Pod")),
        without("/request/uid", json!(7)),
        without("/request/userInfo", json!("alice")),
        without("/request/operation", json!("ADMIT")),
    ] {
        let (code, answer) = api_server.posts(ENFORCING, body.clone()).await?;
        assert_eq!((code, &answer), (400, &Value::Null), "{body}");
    }
    Ok(())
}

/// Naming the user, the UID, the operation or the request of a review twice: the webhook responds with 400, because
/// two parsers could read the review differently.
#[tokio::test]
async fn keys_that_come_twice() -> Result<()> {
    let stage = Stage::set("twice").await?;
    let api_server = Poster::knowing(&stage).await?;
    let text = connection().to_string();
    for (key, again) in [
        (
            "\"userInfo\":",
            "\"userInfo\":{\"username\":\"admin\",\"groups\":[\"system:masters\"]},",
        ),
        ("\"username\":", "\"username\":\"admin\","),
        ("\"uid\":\"review\"", "\"uid\":\"other\","),
        ("\"operation\":", "\"operation\":\"DELETE\","),
        ("\"request\":", "\"request\":{},"),
    ] {
        let twice = text.replacen(key, &format!("{again}{key}"), 1);
        assert_ne!(twice, text, "{key}");
        let (code, _) = api_server.posts(ENFORCING, twice).await?;
        assert_eq!(code, 400, "{key}");
    }
    Ok(())
}

/// JSON that nests deeper than the stack permits, or a body of 25 MiB: the webhook denies it or responds with an
/// error code, and answers the next call.
#[tokio::test]
async fn bodies_without_measure() -> Result<()> {
    let stage = Stage::set("deep").await?;
    let api_server = Poster::knowing(&stage).await?;
    let text = connection().to_string();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let (code, _) = api_server.posts(ENFORCING, deep.clone()).await?;
        assert_eq!(code, 400);
        let inside = text.replacen("[\"sh\"]", &deep, 1);
        let (code, answer) = api_server.posts(ENFORCING, inside).await?;
        assert!(
            code == 400 || answer["response"]["allowed"] == false,
            "{code} {answer}"
        );
    }
    // The webhook may close the connection before it has received the whole body.
    if let Ok((code, _)) = api_server.posts(ENFORCING, vec![b' '; 25 << 20]).await {
        assert_eq!(code, 413);
    }
    let (code, answer) = Poster::knowing(&stage)
        .await?
        .posts(ENFORCING, text)
        .await?;
    assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(false)));
    Ok(())
}

/// Other paths and methods: the webhook responds with 404 to a path and with 405 to a method.
#[tokio::test]
async fn other_methods_and_paths() -> Result<()> {
    let stage = Stage::set("paths").await?;
    let api_server = Poster::knowing(&stage).await?;
    let text = connection().to_string();
    for path in [
        "/",
        "/connect-enforced/",
        "/connect-enforced/..",
        "//connect-enforced",
        "/metrics",
    ] {
        assert_eq!(api_server.posts(path, text.clone()).await?.0, 404, "{path}");
    }
    for method in ["GET", "PUT", "DELETE", "CONNECTED"] {
        let body = Body::from(text.clone().into_bytes());
        let (code, _) = api_server.sends(method, ENFORCING, body).await?;
        assert_eq!(code, 405, "{method}");
    }
    Ok(())
}

/// A review of another kind, resource, subresource or object than its path is for: the webhook responds with 400 or
/// denies it.
#[tokio::test]
async fn a_review_of_something_else() -> Result<()> {
    let stage = Stage::set("else").await?;
    let api_server = Poster::knowing(&stage).await?;
    for (path, pointer, value) in [
        (ENFORCING, "/request/subResource", json!("proxy")),
        (
            ENFORCING,
            "/request/object",
            json!({"apiVersion": "v1", "kind": "Secret"}),
        ),
        (ENFORCING, "/request/object/command", json!("sh")),
        (ENFORCING, "/request/object/command", json!([["sh"]])),
        (STAMP, "/request/operation", json!("CREATE")),
        (VALIDATE, "/request/operation", json!("CREATE")),
    ] {
        let mut review = connection();
        *review.pointer_mut(pointer).context("no such place")? = value;
        let (code, answer) = api_server.posts(path, review.to_string()).await?;
        assert!(
            code == 400 || (code == 200 && answer["response"]["allowed"] == false),
            "{path} {pointer}: {code} {answer}"
        );
    }
    Ok(())
}

/// Obtaining a stamp in alice's name by calling the webhook's port with the key in its paths: the stamp is genuine
/// but has no effect, because the webhook overwrites it when another user creates a request with it.
#[tokio::test]
async fn a_genuine_stamp_from_the_port() -> Result<()> {
    let stage = Stage::set("genuine").await?;
    let api_server = Poster::knowing(&stage).await?;
    let review = creation(stage.name(), &exec_request("mine", TEMPLATE, "5m"))?;
    let (code, answer) = api_server.posts(STAMP, review.to_string()).await?;
    assert_eq!(
        (code, &answer["response"]["allowed"]),
        (200, &json!(true)),
        "{answer}"
    );
    let patch: k8s_openapi::ByteString =
        serde_json::from_value(answer["response"]["patch"].clone())?;
    let patch: Value = serde_json::from_slice(&patch.0)?;
    let sealed = patch.to_string();
    assert!(
        sealed.contains("alice") && sealed.contains("sig"),
        "{patch}"
    );
    let stamp = patch
        .as_array()
        .into_iter()
        .flatten()
        .find_map(|step| {
            let value = &step["value"];
            value[labels::REQUESTER]
                .as_str()
                .or(value["annotations"][labels::REQUESTER].as_str())
        })
        .context("no stamp in the patch")?;
    let mut copied = exec_request("mine", TEMPLATE, "5m");
    copied.metadata.annotations = Some([(labels::REQUESTER.to_owned(), stamp.to_owned())].into());
    let mallory = stage.requests("mallory").await?;
    let why = oz_e2e::refused(mallory.create(&copied).await)?;
    assert!(why.contains("mallory is in none of the groups"), "{why}");
    copied.spec.template_name = "later".to_owned();
    let stored = mallory.create(&copied).await?;
    assert!(stamp::read(&stored.metadata).is_some_and(|stamp| stamp.contains("\"mallory\"")));
    Ok(())
}
