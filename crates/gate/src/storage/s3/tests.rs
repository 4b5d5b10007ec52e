//! A bucket behind a server that speaks S3 and verifies signatures, and that fails on request.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use oz_testkit_s3::{Fault, Object, ObjectStore};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::Storage;
use super::options::WebIdentityOptions;
use super::*;

const NAME: &str = "shop/fix/20261125t190000z-gate-0/000000.cast.zst";

/// A server, and a store in its bucket.
struct World(ObjectStore);

impl World {
    async fn new() -> Self {
        Self(ObjectStore::start().await.unwrap())
    }

    fn args(&self) -> S3Options {
        S3Options {
            endpoint: Some(self.0.endpoint()),
            region: "eu-central-1".to_owned(),
            path_style: true,
            credentials: Some(self.0.credentials()),
            ..S3Options::default()
        }
    }

    fn storage(&self) -> Storage {
        storage("recordings/cluster-1", &self.args(), CALL_TIMEOUT)
    }
}

fn storage(location: &str, args: &S3Options, timeout: Duration) -> Storage {
    let mut bucket = S3::new(location, args).unwrap();
    bucket.timeout = timeout;
    Storage::S3(Arc::new(bucket))
}

async fn put(storage: &Storage, bytes: &'static str) -> Result<Put, StorageError> {
    storage.put(NAME, Bytes::from(bytes)).await
}

#[tokio::test]
async fn stored_object_is_never_overwritten() {
    let world = World::new().await;
    let storage = world.storage();
    assert_eq!(storage.get(NAME, 100).await.unwrap(), None);
    assert_eq!(put(&storage, "first").await.unwrap(), Put::Stored);
    assert_eq!(put(&storage, "second").await.unwrap(), Put::Exists);
    let read = storage.get(NAME, 5).await.unwrap();
    assert_eq!(read.unwrap(), "first");
    let error = storage.get(NAME, 4).await.unwrap_err();
    assert_eq!(error.reason(), "TooLarge");
    let large = Bytes::from(vec![7; 8 << 20]);
    let name = "shop/fix/20261125t190000z-gate-0/000001.cast.zst";
    let stored = storage.put(name, large.clone()).await.unwrap();
    assert_eq!(stored, Put::Stored);
    assert_eq!(storage.get(name, 8 << 20).await.unwrap(), Some(large));
    let error = storage.get(name, 1 << 20).await.unwrap_err();
    assert_eq!(error.reason(), "TooLarge");
    let objects = world.0.objects();
    let object = &objects[&format!("cluster-1/{NAME}")];
    assert_eq!((&object.mode, &object.until), (&None, &None));
}

#[tokio::test]
async fn stored_object_has_compliance_lock_for_retention() {
    let world = World::new().await;
    let args = S3Options {
        retention: Some(30),
        ..world.args()
    };
    let storage = storage("recordings", &args, CALL_TIMEOUT);
    assert_eq!(put(&storage, "first").await.unwrap(), Put::Stored);
    let objects = world.0.objects();
    let object = &objects[NAME];
    assert_eq!(object.mode.as_deref(), Some("COMPLIANCE"));
    let until: Timestamp = object.until.as_ref().unwrap().parse().unwrap();
    let days = Timestamp::now().duration_until(until).as_hours() / 24;
    assert!((29..=30).contains(&days), "{until}");
}

#[tokio::test]
async fn names_come_in_order_over_many_pages_without_those_of_others() {
    let world = World::new().await;
    let storage = world.storage();
    let names: Vec<String> = (0..10)
        .map(|number| format!("shop/fix/0/{number:06}.cast.zst"))
        .collect();
    for name in &names {
        storage.put(name, Bytes::new()).await.unwrap();
    }
    for other in [
        "cluster-10/x",
        "cluster-1/shop/fix/0/000001 (copy)",
        "README",
    ] {
        let mut objects = world.0.objects();
        objects.insert(other.to_owned(), Object::default());
    }
    assert_eq!(storage.list("", "", 100).await.unwrap(), names);
    assert_eq!(storage.list("shop/", "", 7).await.unwrap(), names[..7]);
    let rest = storage.list("shop/", &names[6], 7).await.unwrap();
    assert_eq!(rest, names[7..]);
    let none = storage.list("bank/", "", 7).await.unwrap();
    assert!(none.is_empty());
}

#[tokio::test]
async fn s3_error_is_reported_by_status_and_code_only() {
    let world = World::new().await;
    let storage = world.storage();
    for (fault, reason, word) in [
        (Fault::Denied, "Refused", "403 AccessDenied"),
        (Fault::NoBucket, "Refused", "404 NoSuchBucket"),
        (Fault::Busy, "Unavailable", "503 SlowDown"),
        (Fault::Full, "Unavailable", "507 StorageFull"),
        (Fault::Broken, "Unavailable", "500 InternalError"),
        (
            Fault::Conflict,
            "Unavailable",
            "409 ConditionalRequestConflict",
        ),
    ] {
        world.0.fails(fault);
        for error in [
            put(&storage, "x").await.unwrap_err(),
            storage.get(NAME, 10).await.unwrap_err(),
            storage.list("shop/", "", 10).await.unwrap_err(),
        ] {
            assert_eq!(error.reason(), reason, "{fault:?}: {error}");
            assert!(error.to_string().contains(word), "{fault:?}: {error}");
            assert!(!error.to_string().contains("Signature"), "{error}");
        }
    }
    world.0.fails(Fault::None);
    assert_eq!(put(&storage, "x").await.unwrap(), Put::Stored);
}

#[tokio::test]
async fn an_answer_that_is_lost_is_no_second_object() {
    let world = World::new().await;
    let storage = storage(
        "recordings/cluster-1",
        &world.args(),
        Duration::from_millis(300),
    );
    world.0.fails(Fault::Stalls);
    let error = put(&storage, "first").await.unwrap_err();
    assert_eq!(error.reason(), "Unavailable");
    assert!(error.to_string().contains("no response within"), "{error}");
    let error = storage.get(NAME, 10).await.unwrap_err();
    assert_eq!(error.reason(), "Unavailable");
    world.0.fails(Fault::None);
    assert_eq!(put(&storage, "first").await.unwrap(), Put::Exists);
    let read = storage.get(NAME, 10).await.unwrap();
    assert_eq!(read.unwrap(), "first");
}

#[tokio::test]
async fn nothing_that_is_not_there_is_waited_for() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let args = S3Options {
        endpoint: Some(closed),
        ..world.args()
    };
    let storage = storage("recordings", &args, CALL_TIMEOUT);
    let error = put(&storage, "x").await.unwrap_err();
    assert_eq!(error.reason(), "Unavailable");
}

#[tokio::test]
async fn credentials_are_read_again_and_are_in_no_message() {
    let world = World::new().await;
    let storage = world.storage();
    world.0.sets("secret-access-key", "another-secret").unwrap();
    let error = put(&storage, "x").await.unwrap_err();
    assert_eq!(error.reason(), "Refused");
    let said = format!("{error} {error:?}");
    assert!(said.contains("403 SignatureDoesNotMatch"), "{said}");
    assert!(!said.contains("another-secret"), "{said}");
    world.0.sets("secret-access-key", "").unwrap();
    let error = put(&storage, "x").await.unwrap_err();
    assert!(error.to_string().contains("is empty"), "{error}");
    world.0.sets("secret-access-key", "oz-secret").unwrap();
    assert_eq!(put(&storage, "x").await.unwrap(), Put::Stored);
}

/// Starts a server that exchanges the token "pod-token" for the credentials of the bucket, valid until `until`.
async fn exchange(until: Timestamp) -> (String, JoinSet<()>) {
    let answer = move |body: String| async move {
        let pairs: BTreeMap<_, _> = form_urlencoded::parse(body.as_bytes())
            .into_owned()
            .collect();
        assert_eq!(pairs["Action"], "AssumeRoleWithWebIdentity");
        assert_eq!(pairs["RoleArn"], "arn:aws:iam::1:role/oz");
        if pairs["WebIdentityToken"] != "pod-token/+=" {
            let error =
                "<ErrorResponse><Error><Code>InvalidIdentityToken</Code></Error></ErrorResponse>";
            return (StatusCode::BAD_REQUEST, error.to_owned());
        }
        let given = format!(
            "<Credentials><AccessKeyId>oz-key</AccessKeyId><SecretAccessKey>oz-secret</SecretAccessKey>\
             <SessionToken>t/+=</SessionToken><Expiration>{until}</Expiration></Credentials>"
        );
        (StatusCode::OK, given)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = axum::Router::new().route("/", axum::routing::post(answer));
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            connections.spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (url, server)
}

#[tokio::test]
async fn a_token_of_the_pod_is_exchanged_for_credentials() {
    let world = World::new().await;
    let token = world.0.credentials().join("token");
    for lasts in [60, 4] {
        world.0.objects().clear();
        let until = Timestamp::now() + SignedDuration::from_mins(lasts);
        let (sts_endpoint, server) = exchange(until).await;
        let args = S3Options {
            credentials: None,
            web_identity: WebIdentityOptions {
                role: Some("arn:aws:iam::1:role/oz".to_owned()),
                token: Some(token.clone()),
                endpoint: Some(sts_endpoint),
            },
            ..world.args()
        };
        let storage = storage("recordings", &args, CALL_TIMEOUT);
        world.0.sets("token", "somebody's").unwrap();
        let error = put(&storage, "x").await.unwrap_err().to_string();
        assert!(error.contains("400 InvalidIdentityToken"), "{error}");
        assert!(!error.contains("somebody's"), "{error}");
        world.0.sets("token", "pod-token/+=\n").unwrap();
        assert_eq!(put(&storage, "x").await.unwrap(), Put::Stored);
        // Credentials that are still valid are used, whether or not they are to be exchanged.
        drop(server);
        assert_eq!(put(&storage, "x").await.unwrap(), Put::Exists, "{lasts}");
    }
}

#[test]
fn invalid_bucket_is_rejected_before_recording() {
    let fine = S3Options {
        endpoint: Some("http://minio.storage:9000".to_owned()),
        region: "us-east-1".to_owned(),
        path_style: true,
        credentials: Some("/etc/oz/recordings".into()),
        ..S3Options::default()
    };
    assert!(S3::new("bucket", &fine).is_ok());
    assert!(S3::new("bucket/", &fine).unwrap().prefix.is_empty());
    assert_eq!(S3::new("bucket/a/b/", &fine).unwrap().prefix, "a/b/");
    assert!(S3::new("bucket/../x", &fine).is_err());
    for endpoint in ["minio:9000", "ftp://minio", "", "http://"] {
        let args = S3Options {
            endpoint: Some(endpoint.to_owned()),
            ..fine.clone()
        };
        assert!(S3::new("bucket", &args).is_err(), "{endpoint}");
    }
    let args = S3Options {
        credentials: None,
        ..fine.clone()
    };
    let error = format!("{:#}", S3::new("bucket", &args).unwrap_err());
    assert!(error.contains("gate.recordings.secret"), "{error}");
    let amazon = S3Options {
        endpoint: None,
        path_style: false,
        region: "eu-central-1".to_owned(),
        ..fine
    };
    let bucket = S3::new("my-bucket", &amazon).unwrap();
    assert_eq!(
        bucket.bucket.base_url().as_str(),
        "https://my-bucket.s3.eu-central-1.amazonaws.com/"
    );
}
