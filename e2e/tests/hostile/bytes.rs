//! Bytes sent straight to the webhook's port, past the API server.

use anyhow::{Context as _, Result};
use kube::client::Body;
use kube::{Client, Config};
use oz_core::access::stamp;
use oz_core::labels;
use oz_e2e::{TEMPLATE, exec_request};
use serde_json::{Value, json};

use crate::Stage;

const ENFORCING: &str = "/connect-enforced";
const STAMP: &str = "/mutate-crds-wizardofoz-co-v1alpha1-execaccessrequest";
const VALIDATE: &str = "/validate-crds-wizardofoz-co-v1alpha1-execaccessrequest";

/// Whoever reaches the webhook's port.
struct Stranger(Client);

impl Stranger {
    fn at(stage: &Stage) -> Result<Self> {
        let address = stage.oz()?.webhook.serving;
        let mut config = Config::new(format!("https://{address}").parse()?);
        config.accept_invalid_certs = true;
        Ok(Self(Client::try_from(config)?))
    }

    /// The code, and the review that came back, if one did.
    async fn posts(&self, path: &str, body: impl Into<Vec<u8>>) -> Result<(u16, Value)> {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(Body::from(body.into()))?;
        self.sends(request).await
    }

    async fn sends(&self, request: http::Request<Body>) -> Result<(u16, Value)> {
        let answer = self.0.send(request).await?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect_bytes().await?;
        Ok((code, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// A connection of alice's to a pod, as the API server would tell of it.
fn connection() -> Value {
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

/// No review at all (empty, cut off, another media type's bytes, null, a list, without a request, of an
/// unknown version, without a UID): 400, no verdict.
#[tokio::test]
async fn what_is_no_review() -> Result<()> {
    let stage = Stage::set("bytes").await?;
    let stranger = Stranger::at(&stage)?;
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
        let (code, answer) = stranger.posts(ENFORCING, body.clone()).await?;
        assert_eq!((code, &answer), (400, &Value::Null), "{body}");
    }
    Ok(())
}

/// Saying twice who asks, or which request it is: 400, since two readers could read it two ways.
#[tokio::test]
async fn keys_that_come_twice() -> Result<()> {
    let stage = Stage::set("twice").await?;
    let stranger = Stranger::at(&stage)?;
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
        let (code, _) = stranger.posts(ENFORCING, twice).await?;
        assert_eq!(code, 400, "{key}");
    }
    Ok(())
}

/// JSON that nests deeper than a stack, a body of 9 MiB: refused with a code, and the next call is
/// answered.
#[tokio::test]
async fn bodies_without_measure() -> Result<()> {
    let stage = Stage::set("deep").await?;
    let stranger = Stranger::at(&stage)?;
    let text = connection().to_string();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let (code, _) = stranger.posts(ENFORCING, deep.clone()).await?;
        assert_eq!(code, 400);
        let inside = text.replacen("[\"sh\"]", &deep, 1);
        let (code, answer) = stranger.posts(ENFORCING, inside).await?;
        assert!(
            code == 400 || answer["response"]["allowed"] == false,
            "{code} {answer}"
        );
    }
    // The connection may be cut while the body is still being sent.
    if let Ok((code, _)) = stranger.posts(ENFORCING, vec![b' '; 9 << 20]).await {
        assert_eq!(code, 413);
    }
    let (code, answer) = Stranger::at(&stage)?.posts(ENFORCING, text).await?;
    assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(false)));
    Ok(())
}

/// Other methods and paths: 405 and 404.
#[tokio::test]
async fn other_methods_and_paths() -> Result<()> {
    let stage = Stage::set("paths").await?;
    let stranger = Stranger::at(&stage)?;
    let text = connection().to_string();
    for path in [
        "/",
        "/connect-enforced/",
        "/connect-enforced/..",
        "//connect-enforced",
        "/metrics",
    ] {
        assert_eq!(stranger.posts(path, text.clone()).await?.0, 404, "{path}");
    }
    for method in ["GET", "PUT", "DELETE", "CONNECTED"] {
        let request = http::Request::builder()
            .method(method)
            .uri(ENFORCING)
            .body(Body::from(text.clone().into_bytes()))?;
        assert_eq!(stranger.sends(request).await?.0, 405, "{method}");
    }
    Ok(())
}

/// A review of something else than its path is for (another kind, resource, subresource, object): not
/// allowed, with a reason.
#[tokio::test]
async fn a_review_of_something_else() -> Result<()> {
    let stage = Stage::set("else").await?;
    let stranger = Stranger::at(&stage)?;
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
        let (code, answer) = stranger.posts(path, review.to_string()).await?;
        assert!(
            code == 400 || (code == 200 && answer["response"]["allowed"] == false),
            "{path} {pointer}: {code} {answer}"
        );
    }
    Ok(())
}

/// Having the webhook stamp a request in alice's name, by calling its port: the stamp is genuine, and
/// worth nothing, since the one in the path overwrites it.
#[tokio::test]
async fn a_genuine_stamp_from_the_port() -> Result<()> {
    let stage = Stage::set("genuine").await?;
    let stranger = Stranger::at(&stage)?;
    let mut object = serde_json::to_value(exec_request("mine", TEMPLATE, "5m"))?;
    object["metadata"]["namespace"] = json!(stage.name());
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "review",
            "kind": {"group": "crds.wizardofoz.co", "version": "v1alpha1", "kind": "ExecAccessRequest"},
            "resource": {"group": "crds.wizardofoz.co", "version": "v1alpha1", "resource": "execaccessrequests"},
            "name": "mine", "namespace": stage.name(), "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["devs"]}, "object": object,
        },
    });
    let (code, answer) = stranger.posts(STAMP, review.to_string()).await?;
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
        sealed.contains("alice") && sealed.contains("mac"),
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
    assert!(stamp::of(&stored.metadata).is_some_and(|stamp| stamp.contains("\"mallory\"")));
    Ok(())
}
