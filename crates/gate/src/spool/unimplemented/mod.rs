//! Uploads to servers that speak S3 and do not implement a header of the gate, with the responses of such servers:
//! gaul/s3proxy#847, versity/versitygw#2108, iterate-ch/cyberduck#16107 (Backblaze B2).

mod log;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use hyper::body::Bytes;
use oz_config::{RecordingSecret, Recordings};
use oz_gating::recording::{self, Finding, Form, Head, PartName, SessionKey, Stored};
use oz_outbound::Proxies;
use oz_testkit::eventually;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::storage::Put;
use log::Log;

const DEADLINE: Duration = Duration::from_secs(30);
const IF_NONE_MATCH: &str = "if-none-match";
/// The body of the response of Amazon and versitygw.
const NAMED: &str = "<Error><Code>NotImplemented</Code><Message>A header you provided implies \
                     functionality that is not implemented</Message><Header>If-None-Match</Header>\
                     </Error>";

/// The response to uploads with a header.
#[derive(Clone, Copy, Debug)]
struct Rejection {
    header: &'static str,
    status: u16,
    body: &'static str,
}

/// The state of a server.
#[derive(Debug, Default)]
struct Bucket {
    rejection: Option<Rejection>,
    objects: BTreeMap<String, Bytes>,
    /// The headers of each upload.
    uploads: Vec<HeaderMap>,
}

/// A server with one bucket, and a configuration of recordings that are stored there.
struct World {
    bucket: Arc<Mutex<Bucket>>,
    recordings: Recordings,
    meters: SpoolMeters,
    directory: TempDir,
    _server: JoinSet<()>,
}

async fn respond(
    State(bucket): State<Arc<Mutex<Bucket>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, Bytes) {
    let mut bucket = bucket.lock();
    if method == Method::GET {
        let object = bucket.objects.get(uri.path()).cloned();
        let missing = Bytes::from("<Error><Code>NoSuchKey</Code></Error>");
        return object.map_or((StatusCode::NOT_FOUND, missing), |it| (StatusCode::OK, it));
    }
    let rejection = bucket.rejection;
    let rejection = rejection.filter(|rejection| headers.contains_key(rejection.header));
    bucket.uploads.push(headers);
    if let Some(Rejection { status, body, .. }) = rejection {
        return (StatusCode::from_u16(status).unwrap(), Bytes::from(body));
    }
    bucket.objects.insert(uri.path().to_owned(), body);
    (StatusCode::OK, Bytes::new())
}

impl World {
    async fn new(rejection: Option<Rejection>) -> Self {
        let bucket = Arc::new(Mutex::new(Bucket {
            rejection,
            ..Bucket::default()
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut recordings = Recordings {
            url: "s3://recordings/cluster-1".to_owned(),
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            path_style: true,
            secret: RecordingSecret {
                name: "recordings".to_owned(),
                ca: String::new(),
            },
            ..Recordings::default()
        };
        recordings.spool.directory = directory.path().join("spool");
        let credentials = recordings.credentials(directory.path());
        std::fs::create_dir(&credentials).unwrap();
        for file in ["access-key-id", "secret-access-key"] {
            std::fs::write(credentials.join(file), "key").unwrap();
        }
        let router = Router::new()
            .fallback(respond)
            .with_state(Arc::clone(&bucket));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            bucket,
            recordings,
            meters: SpoolMeters::default(),
            directory,
            _server: server,
        }
    }

    fn options(&self) -> (SpoolOptions, Storage) {
        let secrets = self.directory.path();
        let opened =
            crate::config::open(&self.recordings, secrets, &Proxies::default(), &self.meters);
        opened.unwrap().unwrap()
    }

    /// Opens a spool that stores no parts automatically, and records a session in this many parts.
    async fn record(&self, parts: u32) -> (Arc<Spool>, Head) {
        let (options, storage) = self.options();
        let (spool, _) = Spool::open(&options, storage, Disk::default()).unwrap();
        let spool = Arc::new(spool);
        let head = record(&spool, parts).await;
        (spool, head)
    }

    fn uploads(&self) -> usize {
        self.bucket.lock().uploads.len()
    }

    /// Returns the stored parts of the session.
    fn stored(&self) -> Vec<Stored> {
        let bucket = self.bucket.lock();
        let stored = bucket.objects.iter().map(|(path, bytes)| Stored {
            name: PartName::read(path.strip_prefix("/recordings/cluster-1/").unwrap()).unwrap(),
            bytes: bytes.to_vec(),
            previous: None,
        });
        stored.collect()
    }
}

fn key() -> SessionKey {
    SessionKey::read("shop/fix/20261125t190000z-gate-0").unwrap()
}

async fn record(spool: &Arc<Spool>, parts: u32) -> Head {
    let mut recording = spool.begin(key(), "alice");
    for _ in 0..parts {
        recording.append(b"{}\n").await.unwrap();
        recording.seal().await.unwrap();
    }
    recording.finish().await.unwrap()
}

/// Advances the clock of the runtime. It does not stand still during a request, which has a timeout.
async fn advance(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn one_part_is_sent_after_each_pause_until_header_is_implemented() {
    let (log, _guards) = Log::start();
    let rejection = Rejection {
        header: IF_NONE_MATCH,
        status: 501,
        body: NAMED,
    };
    let world = World::new(Some(rejection)).await;
    let (spool, _) = world.record(20).await;
    assert!(spool.uploads.upload_one().await);
    let mut attempts = 1;
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        let half = Duration::from_secs(seconds) / 2;
        for wait in [Duration::ZERO, half] {
            advance(wait).await;
            assert!(!spool.uploads.upload_one().await, "{seconds} s, {wait:?}");
        }
        advance(half).await;
        assert!(spool.uploads.upload_one().await, "{seconds} s");
        attempts += 1;
        assert_eq!(world.uploads(), attempts);
    }
    assert_eq!(world.meters.failures_of("NotImplemented"), attempts as u64);
    assert_eq!(spool.waiting().parts, 20);
    let lines = log.lines();
    let [line] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    let words = [
        "ERROR",
        "reason=\"NotImplemented\"",
        "conditionalWrites to false",
    ];
    for word in words {
        assert!(line.contains(word), "{line}");
    }
    // An update of the server.
    world.bucket.lock().rejection = None;
    advance(Duration::from_secs(60)).await;
    assert!(spool.uploads.upload_one().await);
    while spool.uploads.upload_one().await {}
    assert_eq!(spool.waiting(), Waiting::default());
    assert_eq!(world.uploads(), attempts + 20);
}

#[tokio::test]
async fn all_parts_are_stored_once_header_is_implemented() {
    let world = World::new(Some(Rejection {
        header: IF_NONE_MATCH,
        status: 501,
        body: "",
    }))
    .await;
    let (spool, head) = world.record(20).await;
    let mut workers = JoinSet::new();
    for _ in 0..uploads::AT_ONCE {
        workers.spawn(Arc::clone(&spool.uploads).run());
    }
    // More than the parts that are sent at once before the first response.
    let at_once = uploads::AT_ONCE as u64;
    let failures = || world.meters.failures_of("NotImplemented");
    let paused = async || Ok((failures() > at_once).then_some(()));
    eventually("an attempt after a pause", DEADLINE, paused)
        .await
        .unwrap();
    assert!(failures() <= at_once + 2, "{}", failures());
    world.bucket.lock().rejection = None;
    spool.flush(DEADLINE).await.unwrap();
    let findings = recording::check(&key().to_string(), Some(&head), &world.stored());
    assert_eq!(findings, []);
}

#[tokio::test]
async fn part_that_was_replaced_without_conditional_writes_is_found() {
    let mut world = World::new(Some(Rejection {
        header: IF_NONE_MATCH,
        status: 501,
        body: NAMED,
    }))
    .await;
    world.recordings.s3.conditional_writes = false;
    let (spool, head) = world.record(3).await;
    while spool.uploads.upload_one().await {}
    assert_eq!(spool.waiting(), Waiting::default());
    let session = key().to_string();
    let check = || recording::check(&session, Some(&head), &world.stored());
    assert_eq!(check(), []);
    // A writer of the bucket.
    let (_, storage) = world.options();
    let name = key().part(1, Form::Plain);
    let replaced = storage.put(&name, Bytes::from("another")).await;
    assert_eq!(replaced.unwrap(), Put::Stored);
    assert_eq!(check(), [Finding::Changed(None)]);
}
