//! The attempts of a client that reaches the port and is not the API server, on real sockets, without a
//! cluster.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{sync::Arc, time::Duration};

use common::{
    manager, pod, review_of,
    served::{LONG, Served, call1, read_to_end, request, yes},
};
use k8s_openapi::api::core::v1::Pod;
use oz_admission::{Cx, Hook, Limits, Mutate, Notes, Rejection, Review};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// A key, and the segment that is derived from it: other implementations may have to derive it as well.
const KEY: [u8; 32] = *b"thirty-two bytes of a path's key";
const SEGMENT: &str = "0c57081d537fdce95564879a25e2f557";

async fn status(served: &Served, path: &str) -> u16 {
    let answer = call1(served.connect1().await, request(path)).await;
    answer.unwrap().status().as_u16()
}

async fn until_status(served: &Served, path: &str, wanted: u16) {
    let began = std::time::Instant::now();
    while status(served, path).await != wanted {
        assert!(began.elapsed() < LONG, "{path} is never {wanted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn hooks_behind_a_key_answer_those_who_know_it() {
    let served = Served::start(yes()).await;
    assert_eq!(status(&served, "/validate/yes").await, 200);
    std::fs::write(served.files.path().join("path-key"), KEY).unwrap();
    until_status(&served, "/validate/yes", 404).await;
    assert_eq!(
        status(&served, &format!("/{SEGMENT}/validate/yes")).await,
        200
    );
    // Another key takes over: calls with the previous one are answered until it is removed.
    std::fs::write(served.files.path().join("path-key-previous"), KEY).unwrap();
    std::fs::write(served.files.path().join("path-key"), [7; 32]).unwrap();
    std::fs::remove_file(served.files.path().join("path-key-previous")).unwrap();
    until_status(&served, &format!("/{SEGMENT}/validate/yes"), 404).await;
}

#[tokio::test]
async fn a_body_without_a_length_is_not_read() {
    let served = Served::start(yes()).await;
    let mut stream = served.connect1().await;
    let head = "POST /validate/yes HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 411"), "{answer}");
}

#[tokio::test]
async fn a_body_that_is_announced_too_large_is_not_read() {
    let served = Served::start(yes()).await;
    let mut stream = served.connect1().await;
    let head = "POST /validate/yes HTTP/1.1\r\nhost: a\r\ncontent-length: 30000000\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn request_to_unknown_path_is_answered_once() {
    let served = Served::start(yes()).await;
    let mut stream = served.connect1().await;
    let head = "POST /nothing HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(head.repeat(2).as_bytes()).await.unwrap();
    let answers = read_to_end(&mut stream).await;
    assert_eq!(answers.matches("HTTP/1.1 404").count(), 1, "{answers}");
}

#[tokio::test]
async fn a_crowd_that_asks_for_nothing_makes_way() {
    let limits = Limits {
        strangers: 4,
        strangers_per_peer: 3,
        ..Limits::default()
    };
    let served = Served::start(yes().limits(limits)).await;
    let mut crowd = Vec::new();
    for _ in 0..3 {
        crowd.push(served.connect1().await);
    }
    // These clients are silent before the handshake, too.
    let mut silent = Vec::new();
    for _ in 0..9 {
        silent.push(TcpStream::connect(served.address).await.unwrap());
    }
    assert_eq!(status(&served, "/validate/yes").await, 200);
    for stream in &mut crowd {
        assert_eq!(read_to_end(stream).await, "");
    }
}

#[tokio::test]
async fn silent_connection_is_closed_and_used_connection_stays_open() {
    let limits = Limits {
        handshake: Duration::from_millis(300),
        receive: Duration::from_millis(300),
        ..Limits::default()
    };
    let served = Served::start(yes().limits(limits)).await;
    let mut known = served.connect1().await;
    let asks = "POST /validate/yes HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}";
    let mut start = [0; 12];
    known.write_all(asks.as_bytes()).await.unwrap();
    known.read_exact(&mut start).await.unwrap();
    let mut unknown = served.connect(b"h2", rustls::ALL_VERSIONS).await;
    read_to_end(&mut unknown).await;
    known.write_all(asks.as_bytes()).await.unwrap();
    known.read_exact(&mut start).await.unwrap();
}

#[tokio::test]
async fn only_clients_of_the_authority_get_anywhere() {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let pem = authority.pem().into_bytes();
    let served = Served::start(yes().client_authority(pem)).await;

    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_der(authority.der(), authority_key).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
    let stranger_key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    let stranger = params.self_signed(&stranger_key).unwrap().der().clone();

    for (presented, let_in) in [
        (None, false),
        (Some((stranger, &stranger_key)), false),
        (Some((certificate, &key)), true),
    ] {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(served.root.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match presented {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
                builder
                    .with_client_auth_cert(vec![certificate], key)
                    .unwrap()
            }
        };
        let stream = TcpStream::connect(served.address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connected = TlsConnector::from(Arc::new(config)).connect(name, stream);
        // Over TLS 1.3, the first response reports to a client that the server refused it.
        let answered = match connected.await {
            Ok(stream) => call1(stream, request("/validate/yes")).await.is_ok(),
            Err(_) => false,
        };
        assert_eq!(answered, let_in);
    }
    let bad = manager("acme").client_authority(b"none".to_vec()).build();
    assert!(bad.is_err());
}

#[tokio::test]
async fn managed_fields_are_not_decoded_and_not_lost() {
    struct Touch;
    impl Mutate for Touch {
        type Object = Pod;
        async fn mutate(
            &self,
            _: &Cx,
            review: &Review<Pod>,
            pod: &mut Pod,
        ) -> Result<Notes, Rejection> {
            let object = review.object.as_ref().unwrap();
            assert_eq!(object.metadata.managed_fields, None);
            let labels = pod.metadata.labels.get_or_insert_default();
            labels.insert("touched".to_owned(), "yes".to_owned());
            Ok(Notes::none())
        }
    }
    let manager = manager("acme")
        .hook(Hook::mutating("touch", Touch))
        .build()
        .unwrap();
    let mut object = pod();
    object["metadata"]["managedFields"] =
        json!([{"manager": "m", "fieldsV1": {"f:metadata": {"f:labels": {}}}}]);
    let response = common::answer(&manager, "/mutate/touch", &review_of(&object)).await;
    let after = common::patched(&object, &response);
    assert_eq!(after["metadata"]["labels"]["touched"], "yes");
    assert_eq!(
        after["metadata"]["managedFields"],
        object["metadata"]["managedFields"]
    );
}
