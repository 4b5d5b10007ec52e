//! The broker of harness runs as a process of this machine, and the pods of runs, created without an
//! operator: a token requires no node.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::Request;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, Config, ResourceExt as _};
use oz_api::harness::wire::{PROXY_AUDIENCE, REPORTER_AUDIENCE};
use oz_api::harness::{BrokerPolicy, HarnessRun};
use oz_api::{Requester, labels, names};
use oz_core::access::seal::{self, Keys, Owner, Purpose};
use oz_core::access::stamp::Stamp;
use oz_runs::{authority, policy_stamp, reserved, voucher};
use oz_testkit::{CONDITION_TIMEOUT, Cluster, Process, eventually, free_address};
use oz_trail::RequestRef;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::system::{apply_as, command, get, ready};
use crate::{NAMESPACE, Options, Scene};

/// A running broker.
#[derive(Debug)]
pub struct Broker {
    /// The process.
    pub process: Process,
    /// The address at which it serves pods.
    pub serving: SocketAddr,
    address: SocketAddr,
}

impl Broker {
    /// Starts a broker under its own service account, and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or does not become ready.
    pub async fn start(cluster: &Cluster, options: &Options) -> Result<Self> {
        Self::start_at(cluster, options, free_address()?).await
    }

    /// Starts a broker like [`Broker::start`] at an address of this machine that pods of a real node reach, and makes it
    /// the endpoint of the Service that pods connect to.
    ///
    /// # Errors
    /// As [`Broker::start`], and as the API server responds.
    pub async fn start_for_pods(
        cluster: &Cluster,
        options: &Options,
        serving: SocketAddr,
    ) -> Result<Self> {
        let admin = cluster.client("admin").await?;
        let port = json!({"name": "broker", "port": 8443, "targetPort": serving.port()});
        let service = json!({"metadata": {"name": names::BROKER}, "spec": {"ports": [port]}});
        apply_as(
            &Api::<Service>::namespaced(admin.clone(), NAMESPACE),
            service,
        )
        .await?;
        let slice = json!({
            "metadata": {
                "name": names::BROKER, "labels": {"kubernetes.io/service-name": names::BROKER},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [serving.ip()], "conditions": {"ready": true}}],
            "ports": [{"name": "broker", "port": serving.port(), "protocol": "TCP"}],
        });
        apply_as(&Api::<EndpointSlice>::namespaced(admin, NAMESPACE), slice).await?;
        Self::start_at(cluster, options, serving).await
    }

    async fn start_at(cluster: &Cluster, options: &Options, serving: SocketAddr) -> Result<Self> {
        let address = free_address()?;
        let mut command = command(cluster, names::BROKER, options)?;
        command.arg(format!("--listen={serving}"));
        command.arg(r#"--set=harness.broker.certificateNames=["127.0.0.1"]"#);
        command.arg(format!("--health-probe-bind-address={address}"));
        command.args(&options.flags);
        let mut broker = Self {
            process: cluster.spawn(names::BROKER, command)?,
            serving,
            address,
        };
        ready("the broker", broker.address, &mut broker.process).await?;
        Ok(broker)
    }

    /// Returns the page of metrics.
    ///
    /// # Errors
    /// When it does not respond.
    pub async fn metrics(&self) -> Result<String> {
        Ok(get(self.address, "/metrics").await?.1)
    }

    /// Waits until the broker holds this number of requests for grants.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn holds(&self, number: usize) -> Result<()> {
        let line = format!("oz_broker_grant_long_polls {number}");
        eventually(&line, CONDITION_TIMEOUT, async || {
            let metrics = self.metrics().await?;
            Ok(metrics.lines().any(|it| it == line).then_some(()))
        })
        .await
    }

    /// Returns the certificates (PEM) that the operator would configure pods to trust.
    ///
    /// # Errors
    /// When no certificates are published.
    pub async fn trusted(&self, admin: &Client) -> Result<String> {
        let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), NAMESPACE);
        let map = maps.get(names::BROKER_CA).await?;
        authority::trusted(&map).context("nothing to trust")
    }

    /// Returns a separate connection to it, which trusts these certificates.
    ///
    /// # Errors
    /// When no certificates are published.
    pub async fn connect(&self, admin: &Client) -> Result<BrokerClient> {
        self.connect_trusting(&self.trusted(admin).await?)
    }

    /// Returns a connection like [`Broker::connect`] that trusts these certificates (PEM).
    ///
    /// # Errors
    /// When the bundle contains no certificates.
    pub fn connect_trusting(&self, bundle: &str) -> Result<BrokerClient> {
        let mut config = Config::new(format!("https://{}", self.serving).parse()?);
        let certificates = CertificateDer::pem_slice_iter(bundle.as_bytes());
        let certificates = certificates.map(|it| Ok(it?.as_ref().to_vec()));
        let certificates: Vec<Vec<u8>> = certificates.collect::<Result<_>>()?;
        ensure!(!certificates.is_empty(), "nothing to trust: {bundle}");
        config.root_cert = Some(certificates);
        config.default_retry = false;
        config.read_timeout = Some(Duration::from_secs(30));
        Ok(BrokerClient(Client::try_from(config)?))
    }
}

/// The key of an operator, which does not exist where tests create Jobs.
const VOUCHER_KEY: [u8; Keys::BYTES] = [7; Keys::BYTES];

fn voucher_keys() -> Keys {
    Keys::with_every_owner([VOUCHER_KEY])
}

/// Publishes the keys of the vouchers of [`Scene::pod_of_job`], as an operator would.
///
/// # Errors
/// When the API server refuses it.
pub async fn publish_voucher_keys(admin: &Client) -> Result<()> {
    let operator = Owner::Operator;
    let keys = Keys::published(&[Keys::of_owner(operator, VOUCHER_KEY)]);
    let secret = json!({
        "metadata": {"name": operator.public_keys()},
        "data": {names::SEAL_KEYS: ByteString(keys.into_bytes())},
    });
    let secrets = Api::<Secret>::namespaced(admin.clone(), NAMESPACE);
    apply_as(&secrets, secret).await?;
    Ok(())
}

/// Publishes the keys of the stamps of [`Scene::lending_policy`], as a webhook would.
///
/// # Errors
/// When the API server refuses it.
pub async fn publish_stamp_keys(admin: &Client) -> Result<()> {
    let webhook = Owner::Webhook;
    let keys = Keys::published(&[Keys::of_owner(webhook, VOUCHER_KEY)]);
    let secret = json!({
        "metadata": {"name": webhook.public_keys()},
        "data": {names::SEAL_KEYS: ByteString(keys.into_bytes())},
    });
    let secrets = Api::<Secret>::namespaced(admin.clone(), NAMESPACE);
    apply_as(&secrets, secret).await?;
    Ok(())
}

/// A client of the broker.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "a client has none")]
pub struct BrokerClient(Client);

/// The response of the broker.
#[derive(Clone, Debug)]
pub struct BrokerAnswer {
    /// The status.
    pub status: u16,
    /// The time after which a refused client should retry, in a refusal.
    pub retry_after: Option<u64>,
    /// The body; null if the response has none.
    pub body: Value,
}

impl BrokerAnswer {
    /// Returns the code of a refusal.
    #[must_use]
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// Returns the prompt in the response.
    #[must_use]
    pub fn prompt(&self) -> Option<&str> {
        self.body["prompt"].as_str()
    }
}

impl BrokerClient {
    /// Requests the prompt of a run with the token of its pod.
    ///
    /// # Errors
    /// When the broker does not respond.
    pub async fn prompt(&self, token: &str) -> Result<BrokerAnswer> {
        self.send("GET", "/v1/run", token, &[], Vec::new()).await
    }

    /// Reports events, for the run of the pod with this token.
    ///
    /// # Errors
    /// When the broker does not respond.
    pub async fn report(&self, token: &str, events: &Value) -> Result<BrokerAnswer> {
        let body = serde_json::to_vec(&json!({"events": events}))?;
        self.send("POST", "/v1/report", token, &[], body).await
    }

    /// Reports destinations, for the run of the pod with this token.
    ///
    /// # Errors
    /// When the broker does not respond.
    pub async fn report_egress(&self, token: &str, egress: &Value) -> Result<BrokerAnswer> {
        let body = serde_json::to_vec(&json!({"egress": egress}))?;
        self.send("POST", "/v1/report", token, &[], body).await
    }

    /// Requests the grants of the run of the pod with this token; held if `seen` is their digest.
    ///
    /// # Errors
    /// When the broker does not respond.
    pub async fn grants(&self, token: &str, seen: &str) -> Result<BrokerAnswer> {
        let path = format!("/v1/grants?seen={seen}");
        self.send("GET", &path, token, &[], Vec::new()).await
    }

    /// Requests a credential for a host, for the run of the pod with this token.
    ///
    /// # Errors
    /// When the broker does not respond.
    pub async fn credential(&self, token: &str, name: &str, host: &str) -> Result<BrokerAnswer> {
        let body = serde_json::to_vec(&json!({"name": name, "host": host}))?;
        self.send("POST", "/v1/credential", token, &[], body).await
    }

    /// Sends a request with additional headers.
    ///
    /// # Errors
    /// When the broker does not respond.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        token: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<BrokerAnswer> {
        let mut request = Request::builder().method(method).uri(path);
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.0.send(request.body(Body::from(body))?).await?;
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get("retry-after");
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let body = answer.into_body().collect_bytes().await?;
        Ok(BrokerAnswer {
            status,
            retry_after,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        })
    }
}

/// Methods that create the objects of a harness run without an operator.
impl Scene {
    /// Creates a run with a prompt.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn harness_run(&self, name: &str, prompt: &str) -> Result<HarnessRun> {
        let run = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"templateRef": {"name": "echo"}, "prompt": prompt},
        }))?;
        let runs = self.api::<HarnessRun>();
        Ok(runs.create(&PostParams::default(), &run).await?)
    }

    /// Creates a Job that names the run as its owner, and returns its pod. The pod is never scheduled.
    ///
    /// # Errors
    /// As the API server responds, or when no pod is created.
    pub async fn pod_of_job(&self, job: &str, run: &HarnessRun) -> Result<Pod> {
        let signed = RequestRef {
            namespace: self.name().to_owned(),
            name: run.name_any(),
            uid: run.uid().unwrap_or_default(),
            ..RequestRef::default()
        };
        let voucher = voucher::sign(&voucher_keys(), &signed)?;
        self.pod_of_vouched_job(job, run, &voucher).await
    }

    /// Creates such a pod with another voucher.
    ///
    /// # Errors
    /// As [`Scene::pod_of_job`].
    pub async fn pod_of_vouched_job(
        &self,
        job: &str,
        run: &HarnessRun,
        voucher: &str,
    ) -> Result<Pod> {
        let decision = self.decision(run, &["KEY", "OTHER"])?;
        let labels = json!({
            "paddock.dev/run": run.name_any(),
            labels::OWNER_UID: run.metadata.uid,
            labels::OWNER_KIND: "HarnessRun",
        });
        let made = json!({
            "metadata": {
                "name": job,
                "labels": labels,
                "annotations": {
                    "oz.wizardofoz.co/recent-events": "10", labels::VOUCHER: voucher, labels::GRANT: decision,
                },
                "ownerReferences": [{
                    "apiVersion": "paddock.dev/v1alpha1", "kind": "HarnessRun", "name": run.name_any(),
                    "uid": run.metadata.uid, "controller": true,
                }],
            },
            "spec": {"backoffLimit": 0, "template": {
                "metadata": {"labels": labels},
                "spec": spec(),
            }},
        });
        self.first_pod(job, made).await
    }

    /// Returns the decision of an operator about a run of template `echo`, which requires these credentials.
    fn decision(&self, run: &HarnessRun, credentials: &[&str]) -> Result<String> {
        let credentials = credentials.iter().map(|name| {
            json!({
                "name": name, "policy": "a", "provider": "UserSuppliedSecret", "delivery": "ProxyInjected",
                "secret": {"name": "keys", "key": "one"},
            })
        });
        let decided = json!({
            "run": {
                "kind": "HarnessRun", "namespace": self.name(), "name": run.name_any(), "uid": run.metadata.uid,
            },
            "submitter": {"user": "alice"}, "specDigest": "", "template": "HarnessTemplate/echo",
            "templateDigest": "sha256:1", "policiesDigest": "", "image": "example.org/agent:1",
            "credentialsGranted": credentials.collect::<Vec<_>>(), "intercepted": true,
            "broker": {"namespace": NAMESPACE, "labels": {}, "port": 8443},
            "decidedAt": "2026-01-01T00:00:00Z",
        });
        Ok(seal::seal(&voucher_keys(), Purpose::HarnessRun, &decided)?)
    }

    /// Creates or replaces a broker policy for the template `echo`, with a stamp of the author `admin` unless
    /// `stamped` is false.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn lending_policy(&self, name: &str, grants: Value, stamped: bool) -> Result<()> {
        let policies = self.api::<BrokerPolicy>();
        let spec = json!({"appliesToTemplates": ["echo"], "grants": grants});
        let existing = policies.get_opt(name).await?;
        let policy: BrokerPolicy = serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": spec,
        }))?;
        let stamp = Stamp {
            requester: Requester {
                user: "admin".to_owned(),
                ..Requester::default()
            },
            kind: policy_stamp::KIND.to_owned(),
            namespace: self.name().to_owned(),
            name: name.to_owned(),
            object_uid: existing.and_then(|it| it.metadata.uid).unwrap_or_default(),
            spec_digest: policy_stamp::digest(&policy),
            at: Timestamp::now(),
            nonce: "n".to_owned(),
            ..Stamp::default()
        };
        let stamp = stamped.then(|| stamp.seal(&voucher_keys())).transpose()?;
        let applied = json!({
            "metadata": {"name": name, "annotations": stamp.map(|it| json!({labels::REQUESTER: it}))},
            "spec": spec,
        });
        apply_as(&policies, applied).await?;
        Ok(())
    }

    /// Creates a Job without an owner and labels, and returns its pod.
    ///
    /// # Errors
    /// As [`Scene::pod_of_job`].
    pub async fn pod_of_loose_job(&self, job: &str) -> Result<Pod> {
        let made = json!({"metadata": {"name": job}, "spec": {"template": {"spec": spec()}}});
        self.first_pod(job, made).await
    }

    async fn first_pod(&self, job: &str, made: Value) -> Result<Pod> {
        let jobs = self.api::<Job>();
        let made = serde_json::from_value(made)?;
        jobs.create(&PostParams::default(), &made).await?;
        let pods = self.api::<Pod>();
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        eventually("the pod of the Job", Duration::from_secs(60), async || {
            Ok(pods.list(&of_job).await?.items.into_iter().next())
        })
        .await
    }

    /// Creates a pod without a Job, with these labels and owners.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn own_pod(&self, name: &str, labels: Value, owners: Value) -> Result<Pod> {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels, "ownerReferences": owners},
            "spec": spec(),
        }))?;
        let pods = self.api::<Pod>();
        Ok(pods.create(&PostParams::default(), &pod).await?)
    }

    /// Returns a token of the default service account, for `audience`, bound to the pod if one is given.
    ///
    /// # Errors
    /// As the API server responds.
    pub async fn token(&self, audience: &str, pod: Option<&Pod>) -> Result<String> {
        let bound = pod.map(|pod| {
            json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.metadata.uid})
        });
        let request = serde_json::from_value(json!({
            "spec": {"audiences": [audience], "expirationSeconds": 3600, "boundObjectRef": bound},
        }))?;
        let accounts = self.api::<ServiceAccount>();
        let made = accounts
            .create_token_request("default", &PostParams::default(), &request)
            .await?;
        match made.status {
            Some(status) => Ok(status.token),
            None => bail!("no token was made"),
        }
    }
}

fn spec() -> Value {
    let token = |name: &str, audience: &str| {
        let token = json!({"audience": audience, "expirationSeconds": 600, "path": "token"});
        json!({"name": name, "projected": {"sources": [{"serviceAccountToken": token}]}})
    };
    let sidecar = |name: &str| json!({"name": name, "image": "example.org/oz-harness:1", "restartPolicy": "Always"});
    json!({
        "restartPolicy": "Never",
        "schedulerName": "nobody",
        "securityContext": {"runAsUser": 65532},
        "initContainers": [sidecar("proxy"), sidecar("oz")],
        "containers": [{"name": "agent", "image": "example.org/agent:1"}],
        "volumes": [
            token(reserved::TOKEN_VOLUME, REPORTER_AUDIENCE),
            token(reserved::PROXY_TOKEN_VOLUME, PROXY_AUDIENCE),
            {"name": reserved::AUTHORITY_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
    })
}
