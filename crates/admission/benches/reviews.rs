//! The cost of a review: in process, over TLS, and in memory over a million of them.
//!
//! The bench does not use criterion: the required figures are percentiles, throughput and growth, not the
//! mean of a loop. `cargo bench -p oz-admission` prints a table.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::Request;
use common::Label;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use oz_admission::{
    CertSource, Cx, Endpoint, Hook, Manager, ManagerBuilder, Notes, RegistrationMode, Rejection,
    Review, Validate,
};
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio_rustls::TlsConnector;

struct Check;

impl Validate for Check {
    type Object = Pod;

    async fn validate(&self, _: &Cx, review: &Review<Pod>) -> Result<Notes, Rejection> {
        if review.name.is_none() {
            return Err(Rejection::invalid("NoName", "a pod needs a name"));
        }
        Ok(Notes::none())
    }
}

fn builder() -> ManagerBuilder {
    let nobody = tower::service_fn(|_: Request<Body>| async {
        Err::<axum::http::Response<Body>, _>(std::io::Error::other("no cluster here"))
    });
    Manager::builder(kube::Client::new(nobody, "default"), "bench")
        .endpoint(Endpoint::Url("https://127.0.0.1:8443".to_owned()))
        .hook(Hook::mutating("label", Label))
        .hook(Hook::validating("check", Check))
}

/// Returns a review of a pod as the API server sends it: defaulted, with managed fields, about 3 KiB.
fn review() -> Vec<u8> {
    let container = |name: &str| {
        json!({"name": name, "image": "registry.example.com/app:1.2.3", "imagePullPolicy": "IfNotPresent",
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": true}]})
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-5d4f", "namespace": "shop", "labels": {"app": "web", "pod-template-hash": "5d4f"},
            "managedFields": [{"manager": "kubectl", "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:containers": {}}}}]},
        "spec": {"containers": [container("app"), container("log")], "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
            "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": []}}]},
        "status": {},
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "web-5d4f", "namespace": "shop", "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["devs", "system:authenticated"]},
            "object": pod, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    });
    serde_json::to_vec(&review).unwrap()
}

fn percentile(sorted: &[Duration], part: usize) -> Duration {
    sorted[(sorted.len() * part / 100).min(sorted.len() - 1)]
}

fn row(what: &str, figure: &str) {
    println!("{what:<58} {figure}");
}

/// Runs ten rounds: the quietest one shows the cost of the code, all of them together include the noise of
/// the machine.
async fn in_process(manager: &Manager, path: &str, body: &[u8]) {
    let mut rounds = Vec::new();
    for _ in 0..10 {
        let mut took = Vec::with_capacity(5_000);
        for _ in 0..5_000 {
            let began = Instant::now();
            assert_eq!(manager.review(path, body).await.status, 200);
            took.push(began.elapsed());
        }
        took.sort();
        rounds.push(took);
    }
    rounds.sort_by_key(|took| percentile(took, 99));
    let figure = |took: &[Duration]| {
        format!(
            "p50 {:>8.1?}   p99 {:>8.1?}",
            percentile(took, 50),
            percentile(took, 99)
        )
    };
    row(
        &format!("{path}, in process, quietest of ten rounds"),
        &figure(&rounds[0]),
    );
    let mut all = rounds.concat();
    all.sort();
    row(&format!("{path}, in process, all rounds"), &figure(&all));
}

/// Returns the seconds of processor time that this process has used.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<f64> = after_name
        .split_whitespace()
        .filter_map(|it| it.parse().ok())
        .collect();
    // The values utime and stime, in ticks of 1/100 s; the state before them is not a number.
    fields
        .get(10)
        .zip(fields.get(11))
        .map_or(0.0, |(user, system)| (user + system) / 100.0)
}

/// Returns the resident memory in KiB.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|it| it.parse().ok())
        .unwrap_or_default()
}

/// Starts a server in this process, and returns its address and root certificate.
fn serve(directory: &std::path::Path) -> (std::net::SocketAddr, CertificateDer<'static>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(directory.join("tls.crt"), certificate.pem()).unwrap();
    std::fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let manager = builder()
        .listener(listener)
        .certificates(CertSource::Files {
            dir: directory.to_owned(),
        })
        .registration(RegistrationMode::Never)
        .build()
        .unwrap();
    tokio::spawn(manager.run(std::future::pending()));
    (address, certificate.der().clone())
}

async fn over_tls(body: Vec<u8>) {
    const CONNECTIONS: usize = 8;
    const EACH: usize = 5_000;
    let directory = tempfile::tempdir().unwrap();
    let (address, root) = serve(directory.path());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let body = Bytes::from(body);
    let connect = async || loop {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        // The server refuses connections until it has read the certificate.
        if let Ok(stream) = connector.connect(name, stream).await {
            break stream;
        }
        tokio::task::yield_now().await;
    };
    let mut senders = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = TokioIo::new(connect().await);
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        senders.push(sender);
    }
    let (began, used) = (Instant::now(), processor_seconds());
    let calls = senders.into_iter().map(|mut sender| {
        let body = body.clone();
        tokio::spawn(async move {
            let mut took = Vec::with_capacity(EACH);
            for _ in 0..EACH {
                let request = Request::post("/validate/check")
                    .header("host", "127.0.0.1")
                    .body(Full::new(body.clone()))
                    .unwrap();
                let began = Instant::now();
                let response = sender.send_request(request).await.unwrap();
                assert_eq!(response.status(), 200);
                response.into_body().collect().await.unwrap();
                took.push(began.elapsed());
            }
            took
        })
    });
    let mut took = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        took.extend(call.await.unwrap());
    }
    let (elapsed, used) = (began.elapsed().as_secs_f64(), processor_seconds() - used);
    took.sort();
    let total = f64::from(u32::try_from(took.len()).unwrap());
    let latency = format!(
        "p50 {:>8.1?}   p99 {:>8.1?}",
        percentile(&took, 50),
        percentile(&took, 99)
    );
    row("/validate/check, TLS keep-alive, 8 connections", &latency);
    row("  reviews a second", &format!("{:>8.0}", total / elapsed));
    row(
        "  reviews a second and core (client and server together)",
        &format!("{:>8.0}", total / used),
    );
}

async fn memory(manager: &Manager, body: &[u8]) {
    const MILLION: usize = 1_000_000;
    let run = async |reviews: usize| {
        for round in 0..reviews {
            let path = if round % 2 == 0 {
                "/mutate/label"
            } else {
                "/validate/check"
            };
            assert_eq!(manager.review(path, body).await.status, 200);
        }
    };
    // The first run completes all one-time allocations.
    run(20_000).await;
    let before = resident();
    run(MILLION).await;
    let growth = resident() - before;
    row(
        "resident memory, growth over 1,000,000 reviews",
        &format!("{growth:>8} KiB of {before}"),
    );
}

fn main() {
    let body = review();
    row(
        "the body of the review",
        &format!("{:>8} bytes", body.len()),
    );
    let one = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // The client spawns a buffer on the runtime.
    let manager = one.block_on(async { builder().build().unwrap() });
    one.block_on(async {
        in_process(&manager, "/mutate/label", &body).await;
        in_process(&manager, "/validate/check", &body).await;
    });
    let many = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    many.block_on(over_tls(body.clone()));
    drop(many);
    one.block_on(memory(&manager, &body));
}
