//! A broker for tests: it holds requests for grants until they change, lends what the test gives it, and remembers the
//! requests.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use oz_api::harness::wire::{CredentialRequest, EgressCount, LentCredential, Report, RunGrants};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// The answers of the broker, and the requests so far.
pub(super) struct State {
    pub(super) grants: watch::Sender<RunGrants>,
    /// Value, version and seconds, by name.
    pub(super) values: Mutex<HashMap<String, LentCredential>>,
    /// The status of an answer that is not the usual one, by path.
    pub(super) refusals: Mutex<HashMap<String, StatusCode>>,
    pub(super) lends: Mutex<Vec<CredentialRequest>>,
    pub(super) egress: Mutex<Vec<EgressCount>>,
    /// The number of reports that arrived.
    pub(super) reports: watch::Sender<usize>,
    /// The number of requests for grants.
    pub(super) polls: watch::Sender<usize>,
}

pub(super) struct FakeBroker {
    pub(super) state: Arc<State>,
    pub(super) url: String,
    pub(super) ca: String,
    serving: JoinHandle<()>,
}

impl FakeBroker {
    pub(super) async fn start(grants: RunGrants) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            grants: watch::Sender::new(grants),
            values: Mutex::default(),
            refusals: Mutex::default(),
            lends: Mutex::default(),
            egress: Mutex::default(),
            reports: watch::Sender::new(0),
            polls: watch::Sender::new(0),
        });
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serving = tokio::spawn(serve(listener, acceptor, Arc::clone(&state)));
        Self {
            state,
            url,
            ca: certificate.pem(),
            serving,
        }
    }

    pub(super) fn token(directory: &Path) -> std::path::PathBuf {
        let path = directory.join("token");
        std::fs::write(&path, "token-1\n").unwrap();
        path
    }

    /// Stops the broker, with all its connections.
    pub(super) fn stop(&self) {
        self.serving.abort();
    }

    /// Changes the grants, and waits until the proxy has asked again, which it does after it applied them.
    pub(super) async fn change(&self, change: impl FnOnce(&mut RunGrants)) {
        let mut polls = self.state.polls.subscribe();
        let before = *polls.borrow_and_update();
        self.state.grants.send_modify(|grants| {
            change(grants);
            grants.digest += "a";
        });
        polls.wait_for(|polls| *polls > before).await.unwrap();
    }

    pub(super) fn lends(&self) -> usize {
        self.state.lends.lock().len()
    }

    /// Waits until the reports so far fulfil a condition.
    pub(super) async fn reported(&self, done: impl Fn(&[EgressCount]) -> bool) -> Vec<EgressCount> {
        let mut reports = self.state.reports.subscribe();
        loop {
            let egress = self.state.egress.lock().clone();
            if done(&egress) {
                return egress;
            }
            reports.changed().await.unwrap();
        }
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    // The connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(|request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(answer(&state, request).await) }
            });
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = served.await;
        });
    }
}

async fn answer(state: &State, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let seen = request.uri().query().unwrap_or_default().to_owned();
    assert_eq!(
        request.headers().get("authorization").unwrap(),
        "Bearer token-1"
    );
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let refusal = state.refusals.lock().get(&path).copied();
    if let Some(status) = refusal {
        let text = r#"{"code":"TestRefused","message":"the test refuses"}"#;
        return response(status, text.into());
    }
    match path.as_str() {
        "/v1/grants" => {
            let mut grants = state.grants.subscribe();
            state.polls.send_modify(|polls| *polls += 1);
            let is_new = |grants: &RunGrants| seen != format!("seen={}", grants.digest);
            let held = timeout(Duration::from_secs(20), grants.wait_for(is_new)).await;
            drop(held);
            let grants = state.grants.borrow().clone();
            response(StatusCode::OK, serde_json::to_vec(&grants).unwrap())
        }
        "/v1/credential" => {
            let request: CredentialRequest = serde_json::from_slice(&body).unwrap();
            let lent = state.values.lock().get(&request.name).cloned();
            state.lends.lock().push(request);
            match lent {
                Some(lent) => response(StatusCode::OK, serde_json::to_vec(&lent).unwrap()),
                None => response(StatusCode::SERVICE_UNAVAILABLE, Vec::new()),
            }
        }
        "/v1/report" => {
            let report: Report = serde_json::from_slice(&body).unwrap();
            assert_eq!(report.events, []);
            state.egress.lock().extend(report.egress);
            state.reports.send_modify(|reports| *reports += 1);
            response(StatusCode::NO_CONTENT, Vec::new())
        }
        _ => response(StatusCode::NOT_FOUND, Vec::new()),
    }
}

fn response(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
