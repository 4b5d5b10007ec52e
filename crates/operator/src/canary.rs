//! Proves, once a minute, that the stamp hook is in the path of new requests: a dry-run creation
//! must come back with a stamp that opens. Without it every request would be denied, and the
//! reason should be known before the first user finds out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use oz_audit::{Trail, signing_keys};
use oz_core::access::request::Request;
use oz_core::access::seal::Keys;
use oz_core::api::{ExecAccessRequest, ExecAccessRequestSpec};
use oz_core::audit::{Action, Decision, Record};
use oz_core::names;
use oz_runtime::{Clock, Common, Task, Warnings};
use prometheus_client::metrics::gauge::Gauge;

const INTERVAL: Duration = Duration::from_secs(60);
/// After a failure, which at the start is only the webhook not being up yet.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// How long the API server, and the webhook behind it, may take to answer.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(10);
const NAME: &str = "oz-canary";

/// How long a single check goes on: an installation takes a moment to be reached.
const CHECK: Duration = Duration::from_secs(60);

/// Tries until a request comes back stamped, for `helm test` and for whoever wants to know.
pub(crate) async fn check(common: &Common) -> anyhow::Result<()> {
    let (client, _) = oz_runtime::client(common.config(names::OPERATOR).await?)?;
    let keys = signing_keys(&client, &common.namespace).await?;
    let began = Instant::now();
    loop {
        match try_stamp(&client, &keys, &common.namespace).await {
            Ok(()) => {
                tracing::info!("a new request comes back stamped: oz is in the path");
                return Ok(());
            }
            Err(why) if began.elapsed() > CHECK => bail!(
                "failed to have a request stamped: {why}; look at the pods of the webhook, their \
                 Service and the MutatingWebhookConfiguration oz"
            ),
            Err(why) => {
                tracing::info!(why, "not stamped yet");
                tokio::time::sleep(RETRY_PAUSE / 5).await;
            }
        }
    }
}

/// Creates a request without storing it, and sees that it comes back with a stamp that opens.
async fn try_stamp(client: &Client, keys: &Keys, namespace: &str) -> Result<(), String> {
    let requests: Api<ExecAccessRequest> = Api::namespaced(client.clone(), namespace);
    let request = ExecAccessRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("{NAME}-")),
            ..ObjectMeta::default()
        },
        spec: ExecAccessRequestSpec {
            template_name: NAME.to_owned(),
            ..Default::default()
        },
        status: None,
    };
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let answer = tokio::time::timeout(DRY_RUN_TIMEOUT, requests.create(&dry_run, &request))
        .await
        .map_err(|_| "no answer".to_owned())?
        .map_err(|error| error.to_string())?;
    let created = Request::from(&answer);
    created
        .requester(keys)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// What the canary needs.
pub(crate) struct Canary {
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) trail: Trail,
    pub(crate) keys: Keys,
    pub(crate) namespace: String,
    pub(crate) warnings: Warnings,
    /// 1 when the last try came back stamped, 0 when not.
    pub(crate) in_path: Gauge,
}

impl Task for Canary {
    async fn run(&self) {
        let mut failures = 0_u32;
        loop {
            match try_stamp(&self.client, &self.keys, &self.namespace).await {
                Ok(()) => {
                    if failures > 0 {
                        tracing::info!("the stamp hook is in the path again");
                    }
                    failures = 0;
                    self.in_path.set(1);
                }
                Err(why) => {
                    failures = failures.saturating_add(1);
                    self.in_path.set(0);
                    self.alarm(failures, &why).await;
                }
            }
            let pause = if failures == 0 {
                INTERVAL
            } else {
                RETRY_PAUSE.saturating_mul(failures).min(INTERVAL)
            };
            tokio::time::sleep(pause).await;
        }
    }
}

impl Canary {
    async fn alarm(&self, failures: u32, why: &str) {
        // The first failure may be the webhook starting a moment after us.
        if failures < 2 {
            tracing::info!(why, "the stamp hook is not in the path yet");
            return;
        }
        tracing::warn!(
            why,
            failures,
            "the stamp hook is not in the path: every request will be denied"
        );
        // Once for each time that it goes missing.
        if failures == 2 {
            let now = self.clock.now();
            self.trail.note(Record::about(
                now,
                Action::CanaryFailed,
                Decision::Note,
                &now.to_string(),
                "StampNotInPath",
                format!("new access requests are not stamped, so each will be denied: {why}"),
            ));
        }
        let note = format!("New access requests are not stamped, so each will be denied: {why}");
        self.warnings.publish("StampNotInPath", note).await;
    }
}
